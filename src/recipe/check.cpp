// SPDX-License-Identifier: Apache-2.0
#include "recipe/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "recipe/batches.h"
#include "recipe/data_sources.h"
#include "recipe/faults.h"
#include "recipe/mesh.h"
#include "recipe/numbers.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/selection.h"
#include "recipe/tables/objectives.h"
#include "recipe/tables/optimizers.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {
namespace {

using Faults = std::vector<std::string>;

void check_model(Command command, const Recipe& r, Faults& faults) {
  if (r.checkpoint_dir.empty() && r.model.config.empty() && r.lora.adapter.empty())
    faults.push_back(
        "checkpoint_dir is not set: name a model directory or a GGUF file, or give "
        "model.config to start from random weights");
  if (command == Command::FinetuneFull && !r.full)
    faults.push_back(
        "full = false (or use_lora = true): finetune_full always trains all weights; use snug "
        "finetune to train adapters, or leave the key out");
  const std::string parts = part_names_fault(r.model.train_parts);
  if (!parts.empty())
    faults.push_back(parts);
  else if (r.lora.enabled && std::ranges::count(part_names(r.model.train_parts), "language") > 0)
    faults.push_back(fmt::format(
        "model.train_parts = {}: with LoRA the language model gets adapters, and these components "
        "train in full beside them; leave language out, or use snug finetune_full",
        r.model.train_parts));
}

void check_memory(const Recipe& r, Faults& faults) {
  if (!r.fit && (!r.fit_disk.empty() || r.fit_delay))
    warn("{} has no effect without --fit", r.fit_disk.empty() ? "fit_delay" : "fit_disk");
  std::ranges::move(technique_faults(r), std::back_inserter(faults));
}

// The divisors of `whole` just below and above `wanted`, for a message.
std::string near_divisors(int64_t whole, int64_t wanted) {
  int64_t below = std::min(wanted, whole), above = wanted;
  while (below > 1 && whole % below != 0) --below;
  while (above <= whole && whole % above != 0) ++above;
  return above > whole ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

// The mesh with the missing devices added to the shard axis, for a message.
std::string completed_mesh(const Layout& layout) {
  MeshShape mesh = layout.mesh;
  if (layout.num_ranks % mesh.num_ranks() != 0) return "sizes with that product";
  mesh[Axis::Shard] *= static_cast<int>(layout.num_ranks / mesh.num_ranks());
  return mesh_text(mesh);
}

void check_mesh(const Recipe& r, const Layout& layout, Faults& faults) {
  if (r.mesh.empty()) return;
  if (!layout.is_auto && layout.mesh.num_ranks() != layout.num_ranks)
    faults.push_back(fmt::format(
        "mesh = {}: needs {} devices, and there are {} (devices {}, num_nodes {}); use {}", r.mesh,
        layout.mesh.num_ranks(), layout.num_ranks, r.devices, r.num_nodes, completed_mesh(layout)));
  if (r.strategy == Strategy::Ddp && layout.is_sharded())
    faults.push_back(
        fmt::format("strategy = ddp shards nothing, but mesh = {} has {} shards; write dp={}, or "
                    "use --strategy fsdp",
                    r.mesh, layout.mesh[Axis::Shard], layout.mesh[Axis::Shard]));
  // Devices along cp need the same weights, so they can shard them.
  if (r.strategy != Strategy::Ddp && r.strategy != Strategy::Auto && !layout.is_sharded() &&
      layout.mesh[Axis::Context] == 1)
    faults.push_back(
        fmt::format("strategy = {} shards along the axes fsdp and cp, and mesh = {} has neither; "
                    "add one, such as fsdp=2, or leave strategy out",
                    r.strategy, r.mesh));
}

// Options that need whole matrices, which tp splits.
void check_tensor_axis(const Recipe& r, const Layout& layout, Faults& faults) {
  if (layout.mesh[Axis::Tensor] == 1) return;
  const std::string mesh = fmt::format("mesh = {}", r.mesh);
  if (needs_whole_matrices(r.optimizer))
    faults.push_back(
        fmt::format("optimizer = {}: its factored states are sums over whole rows and "
                    "columns, and {} splits matrices; leave tp out, or use adamw_8bit",
                    r.optimizer.name, mesh));
  if (r.lora.enabled && r.lora.init_weights == AdapterInit::Pissa)
    faults.push_back(
        fmt::format("lora_init_weights = pissa: adapters start from the singular values of whole "
                    "matrices, and {} splits them; leave tp out, or use lora_init_weights default",
                    mesh));
  if (!r.quantize.empty() && r.quantize != Quantize::Nf4 && r.quantize != Quantize::Fp4)
    faults.push_back(
        fmt::format("quantize = {}: its scales are computed over whole rows or weights, and {} "
                    "splits them; leave tp out, or use bnb.nf4",
                    r.quantize, mesh));
}

void check_pipeline_axis(const Recipe& r, const Layout& layout, Faults& faults) {
  if (layout.mesh[Axis::Pipeline] > 1) return;
  const auto refuse = [&](const char* key) {
    faults.push_back(
        fmt::format("{} applies only to a pipeline; leave it out, or give --mesh an axis pp", key));
  };
  // A printed recipe sets every key, so defaults are no fault.
  const Recipe usual;
  if (r.pipeline_schedule != usual.pipeline_schedule) refuse("pipeline_schedule");
  if (r.pipeline_interleave != usual.pipeline_interleave) refuse("pipeline_interleave");
}

void check_devices(const Recipe& r, Faults& faults) {
  static const std::vector<std::string> kStrategies = choices_of<Strategy>();
  if (std::count(kStrategies.begin(), kStrategies.end(), r.strategy) == 0) {
    const std::string near = nearest_name(r.strategy, kStrategies);
    faults.push_back(
        fmt::format("strategy = {}: not one of {}{}, nor a name from Lightning, DeepSpeed or FSDP "
                    "such as deepspeed_stage_2 or FULL_SHARD",
                    r.strategy, fmt::join(kStrategies, ", "),
                    near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
  }
  if (r.num_nodes > 1 && r.devices == "1" && !r.given("devices"))
    faults.push_back(
        fmt::format("num_nodes = {}: devices is not set; give the number per machine, for example "
                    "--devices 4 or --devices 1",
                    r.num_nodes));
  const std::optional<Layout> layout = read_layout(r, faults);
  if (!layout) return;
  check_mesh(r, *layout, faults);
  check_pipeline_axis(r, *layout, faults);
  if (layout->num_ranks == 1 && layout->mesh.num_ranks() == 1) return;
  const bool cuts_along_cp = layout->mesh[Axis::Context] > 1 && r.strategy != Strategy::Ddp;
  if (needs_whole_matrices(r.optimizer) && (layout->is_sharded() || cuts_along_cp))
    faults.push_back(fmt::format(
        "optimizer = {}: its factored states are sums over whole rows and columns, and "
        "strategy = {} shards matrices at any element; use --strategy ddp, or adamw_8bit",
        r.optimizer.name, r.strategy));
  check_tensor_axis(r, *layout, faults);
  if (r.train.on_oom == OnOom::Split)
    faults.push_back(
        "train.on_oom = split: with several devices, a device that splits its micro-batch would "
        "keep the others waiting; use train.on_oom stop");
}

void check_batches(const Recipe& r, Faults& faults) {
  Faults said_elsewhere;
  const std::optional<Layout> layout = read_layout(r, said_elsewhere);
  if (!layout) return;
  const int64_t global = r.train.global_batch_size, micro = r.train.micro_batch_size;
  // Ranks along the other axes have the same samples.
  const int64_t ranks = layout->mesh.num_data_ranks();
  if (global % ranks != 0) {
    faults.push_back(fmt::format(
        "train.global_batch_size = {} does not divide evenly among {} devices{}; use {}", global,
        ranks,
        r.mesh.empty()                   ? ""
        : layout->mesh[Axis::Expert] > 1 ? " with samples of their own (dp x fsdp x ep)"
                                         : " with samples of their own (dp x fsdp)",
        (global / ranks + 1) * ranks));
    return;
  }
  const int64_t samples = global / ranks;
  if (static_cast<double>(global) > kMostSamplesAStep) {
    faults.push_back(fmt::format(
        "train.micro_batch_size = {}, train.accumulate_grad_batches = {}: with {} device{} a step "
        "has {} samples; {:.0f} are the most",
        micro, r.train.accumulate_grad_batches.value_or(1), ranks, ranks == 1 ? "" : "s", global,
        kMostSamplesAStep));
    return;
  }
  if (layout->mesh[Axis::Pipeline] > 1) {
    const int64_t micro_batches = samples / micro,
                  most = r.pipeline_schedule == PipelineSchedule::Gpipe ? 1024 : 65536;
    if (micro_batches > most) {
      faults.push_back(
          fmt::format("pipeline_schedule = {}: {} micro-batches a step; it takes {} at most. Use a "
                      "larger train.micro_batch_size, or a smaller train.global_batch_size",
                      r.pipeline_schedule, micro_batches, most));
      return;
    }
  }
  if (const auto accumulate = r.train.accumulate_grad_batches;
      accumulate && !layout->is_auto && global != micro * *accumulate * ranks) {
    faults.push_back(fmt::format(
        "train.accumulate_grad_batches = {} contradicts train.global_batch_size = {}: {} "
        "micro-batches of {} on {} device{} are {} samples; leave out one of the two",
        *accumulate, global, *accumulate, micro, ranks, ranks == 1 ? "" : "s",
        micro * *accumulate * ranks));
    return;
  }
  if (samples % micro != 0)
    faults.push_back(fmt::format(
        "train.micro_batch_size = {} does not divide the {} samples each device gets per "
        "step (train.global_batch_size {}); use {}",
        micro, samples, global, near_divisors(samples, micro)));
}

void check_length(const Recipe& r, Faults& faults) {
  const TrainOptions& t = r.train;
  if (!t.epochs && !t.max_steps && !t.max_tokens)
    faults.push_back(
        "the length of the run is not set: give train.epochs, train.max_steps or train.max_tokens");
  if (!batch_limit(t.limit_train_batches))
    faults.push_back(
        fmt::format("train.limit_train_batches = {}: must be a share above 0 and up to 1.0, or a "
                    "whole number of micro-batches from 1",
                    t.limit_train_batches));
  if (t.lr_warmup_fraction && t.lr_warmup_steps > 0)
    faults.push_back(
        fmt::format("train.lr_warmup_steps = {} and train.lr_warmup_fraction = {} are both "
                    "set; keep one and set the other to null",
                    t.lr_warmup_steps, *t.lr_warmup_fraction));
  if (t.tie_embeddings)
    faults.push_back(
        "train.tie_embeddings: has no effect in fine-tuning, which follows the model's "
        "config.json; set it to null");
}

void warn_of_useless_techniques(const Recipe& recipe) {
  for (const Technique& technique : techniques())
    if (technique.advice != nullptr && is_on(technique, recipe))
      if (const std::string advice = technique.advice(recipe); !advice.empty()) warn("{}", advice);
}

void check_splits(const Recipe& r, Faults& faults) {
  if (r.train.on_oom == OnOom::Split && r.train.loss_normalization == LossNormalization::Micro)
    faults.push_back(
        "train.on_oom = split with train.loss_normalization = micro: each part of a micro-batch "
        "that is split would count as much as a whole one; use train.loss_normalization global, "
        "or train.on_oom stop");
}

void check_best(const Recipe& r, Faults& faults) {
  const TrainOptions& t = r.train;
  if (t.keep_best && !t.save_model)
    faults.push_back(
        "train.keep_best = true with train.save_model = false: one writes the model, the other "
        "none; leave one of them out");
  if (r.given("train.best_metric") && !t.keep_best && !t.early_stopping)
    warn("train.best_metric = {} compares nothing without train.keep_best or train.early_stopping",
         t.best_metric);
  const bool has_accuracy = learns_from_pairs(r.objective.name) || learns_labels(r.objective.name);
  if (t.best_metric == BestMetric::Accuracy && !has_accuracy)
    faults.push_back(fmt::format(
        "train.best_metric = accuracy: objective {} has none; use train.best_metric loss",
        r.objective.name));
}

void check_optimizer(const Recipe& r, Faults& faults) {
  const OptimizerOptions& o = r.optimizer;
  // Another optimizer's argument may be given if it says what it would be without.
  Recipe given = r, plain = r;
  plain.optimizer = optimizer_defaults(o.name);
  const std::vector<Row> given_rows = recipe_rows(given), plain_rows = recipe_rows(plain);
  for (const std::string& key : r.given_keys) {
    static constexpr std::string_view kGroup = "optimizer.";
    if (!key.starts_with(kGroup) || key == "optimizer.class_path") continue;
    if (!optimizer_takes(o.name, std::string_view(key).substr(kGroup.size())) &&
        plain_text(*find_row(given_rows, key)) != plain_text(*find_row(plain_rows, key)))
      faults.push_back(fmt::format("{}: {} has no such argument; leave it out", key, o.name));
  }
  if (o.nesterov && o.momentum == 0)
    faults.push_back("optimizer.nesterov = true needs optimizer.momentum above 0, for example 0.9");
  if (optimizer_takes(o.name, "betas") && (o.beta1 >= 1 || o.beta2 >= 1))
    faults.push_back(fmt::format("optimizer.betas = [{}, {}]: both must be below 1",
                                 float_text(o.beta1), float_text(o.beta2)));
}

void check_beta(const ObjectiveOptions& o, Faults& faults) {
  if (!objective_takes(o.name, "beta")) return;
  if (has_teacher(o.name) && o.beta > 1)
    faults.push_back(
        fmt::format("objective.beta = {}: {} takes 0 for the forward divergence, 1 for the reverse "
                    "one, or a number between them",
                    float_text(o.beta), o.name));
  if (!has_teacher(o.name) && o.beta < 1e-6)
    faults.push_back(fmt::format("objective.beta = {}: must be at least 1e-6 for {}",
                                 float_text(o.beta), o.name));
}

std::string objective_with(std::string_view argument) {
  std::vector<std::string_view> names;
  for (const std::string_view name : kWords<ObjectiveName>)
    if (objective_takes(name, argument)) names.push_back(name);
  return fmt::format("give --objective {}{}", names.front(),
                     names.size() > 1 ? ", or another that has it" : "");
}

void check_objective(const Recipe& r, Faults& faults) {
  const ObjectiveOptions& o = r.objective;
  if (std::ranges::count(kWords<ObjectiveName>, o.name) == 0) return;
  const ObjectiveTraits& traits = objective_traits(o.name.value());
  const ObjectiveOptions& plain = traits.defaults;
  const auto check = [&](const char* argument, double value, double otherwise) {
    if (value != otherwise && !objective_takes(o.name, argument))
      faults.push_back(
          fmt::format("objective.{}: {} has no such argument; {}", argument, o.name,
                      o.name == ObjectiveName::Sft ? objective_with(argument) : "leave it out"));
  };
  check("beta", o.beta, plain.beta);
  check("gamma", o.gamma, plain.gamma);
  check("label_smoothing", o.label_smoothing, plain.label_smoothing);
  check("sft_weight", o.sft_weight, plain.sft_weight);
  check("length_normalized", o.length_normalized ? 1 : 0, 0);
  check("share_prompt", o.share_prompt ? 1 : 0, plain.share_prompt ? 1 : 0);
  check("desirable_weight", o.desirable_weight, plain.desirable_weight);
  check("undesirable_weight", o.undesirable_weight, plain.undesirable_weight);
  check("center_rewards_coefficient", o.center_rewards_coefficient,
        plain.center_rewards_coefficient);
  check("top_k", static_cast<double>(o.top_k), static_cast<double>(plain.top_k));
  check("teacher", o.teacher.empty() ? 0 : 1, 0);
  check("reference", o.reference.empty() ? 0 : 1, 0);
  check_beta(o, faults);
  if (!traits.scores_documents && !traits.has_teacher && !compares_answers(o.name)) return;
  const auto refuse = [&](bool is_on, const char* key, const char* why) {
    if (is_on)
      faults.push_back(fmt::format("{} does not go with objective {}: {}", key, o.name, why));
  };
  const auto refuse_turns = [&](const char* of_row, const char* no_tokens) {
    std::vector<DataOptions> all = {r.data};
    for (const DataSource& source : data_sources(r.data, r.given_keys).all)
      all.push_back(source.data);
    const auto any = [&](const auto& is_on) { return std::ranges::any_of(all, is_on); };
    refuse(r.data.padding_in_loss, "data.padding_in_loss", no_tokens);
    refuse(any([](const DataOptions& d) { return d.split_turns; }), "data.split_turns", of_row);
    refuse(any([](const DataOptions& d) { return d.include_multiturn_conversations; }),
           "data.include_multiturn_conversations", of_row);
    refuse(any([](const DataOptions& d) { return !d.mask_prompt.value_or(true); }),
           "data.mask_prompt = false", no_tokens);
  };
  const auto refuse_cross_entropys = [&](const char* why_not_smooth, const char* why_no_z) {
    refuse(r.train.label_smoothing > 0, "train.label_smoothing", why_not_smooth);
    refuse(r.train.z_loss > 0, "train.z_loss", why_no_z);
    refuse(r.train.router_aux_loss_coef.value_or(0) > 0, "train.router_aux_loss_coef",
           "experts are balanced beside cross-entropy only");
  };
  if (traits.has_teacher) {
    constexpr const char* kTeachers = "the teacher's words are learnt as they are";
    refuse_cross_entropys(kTeachers, kTeachers);
    refuse(r.data.padding_in_loss, "data.padding_in_loss", "the teacher says nothing of padding");
    return;
  }
  if (traits.scores_documents) {
    constexpr const char* kNoTokens = "documents are scored whole, and no token has a loss";
    refuse_cross_entropys(kNoTokens, kNoTokens);
    refuse_turns("a row has one label", kNoTokens);
    refuse(r.lora.enabled && r.lora.head, "lora_head", "the new head is trained whole");
    return;
  }
  const char* const last = traits.ratings ? "the last answer of a chat is the one that is rated"
                                          : "a pair has one answer each, the last";
  constexpr const char* kCrossEntropys = "it is cross-entropy's";
  refuse_cross_entropys(traits.ratings
                            ? kCrossEntropys
                            : "it smooths tokens; objective.label_smoothing smooths pairs",
                        kCrossEntropys);
  refuse_turns(last, "only answers are compared");
}

void check_rounding(const Recipe& r, Faults& faults) {
  const OptimizerOptions& o = r.optimizer;
  const bool half_weights = r.has_16_bit_weights();
  if (o.master_weights && !half_weights)
    faults.push_back(
        fmt::format("optimizer.master_weights = true: with precision = {} the weights are float32 "
                    "already; leave it out, or use --precision bf16-true",
                    r.precision));
  if (o.stochastic_rounding && r.precision != Precision::BFloat16)
    faults.push_back(
        fmt::format("optimizer.stochastic_rounding = true applies to bfloat16 weights, and with "
                    "precision = {} they are {}; leave it out, or use --precision bf16-true",
                    r.precision, half_weights ? "float16" : "float32"));
  if (o.stochastic_rounding && o.master_weights)
    faults.push_back(
        "optimizer.stochastic_rounding and optimizer.master_weights are both true: with float32 "
        "master weights there is nothing to round; keep one");
}

// With full: true a recipe may keep its LoRA keys; a warning says that they have no effect.
void warn_about_adapters_of_none(Recipe r) {
  std::vector<std::string> idle;
  for (const Row& row : recipe_rows(r))
    if (row.lora_only && row.key != "quantize" && r.given(row.key)) idle.push_back(row.key);
  if (!idle.empty())
    warn(
        "full = true: all weights are trained, without adapters; {} {} ignored. Leave full out to "
        "train adapters",
        fmt::join(idle, ", "), idle.size() == 1 ? "is" : "are");
}

// LitGPT's recipes write all of them.
void warn_about_idle_switches(const Recipe& r) {
  if (r.lora.target_modules.empty()) return;
  std::vector<std::string> idle;
  for (const auto& [key, is_on] : {std::pair{"lora_query", r.lora.query},
                                   {"lora_key", r.lora.key},
                                   {"lora_value", r.lora.value},
                                   {"lora_projection", r.lora.projection},
                                   {"lora_mlp", r.lora.mlp},
                                   {"lora_head", r.lora.head}})
    if (is_on && r.given(key)) idle.emplace_back(key);
  if (!idle.empty())
    warn("lora_target_modules = {} chooses the layers; {} {} ignored", r.lora.target_modules,
         fmt::join(idle, ", "), idle.size() == 1 ? "is" : "are");
}

void check_lora(const Recipe& r, Faults& faults) {
  if (!r.lora.enabled && !r.quantize.empty())
    faults.push_back(fmt::format(
        "quantize = {}: quantized weights cannot be trained, and full = true trains all "
        "weights; leave full out to train adapters beside them (QLoRA), or leave "
        "quantize out",
        r.quantize));
  if (!r.lora.enabled) {
    warn_about_adapters_of_none(r);
    return;
  }
  warn_about_idle_switches(r);
  if (r.lora.init_weights == AdapterInit::Pissa && r.lora.use_dora)
    faults.push_back(
        "lora_init_weights = pissa with lora_use_dora: DoRA rescales the weight rows, so the part "
        "that PiSSA subtracts cannot be restored; leave out one of the two");
}

void check_evaluation(const Recipe& r, Faults& faults) {
  const std::string& example = r.eval.evaluate_example;
  if (example != "first" && example != "random" && parse_int(example).value_or(-1) < 0)
    faults.push_back(fmt::format(
        "eval.evaluate_example = {}: must be first, random or an index from 0", example));
}

std::vector<std::string> mix_faults(const DataOptions& data, const std::set<std::string>& given) {
  if (data.sources.empty())
    return {"no data: --data Mix is of several sources; name them in data.sources"};
  if (data.class_path != kMix)
    return {
        fmt::format("data.sources and --data {} are both set; keep one, or make {} one of the "
                    "sources",
                    data.class_path, data.class_path)};
  DataSources sources = data_sources(data, given);
  for (const DataSource& source : sources.all)
    for (const std::string& fault : data_faults(source.data, source.given))
      sources.faults.push_back(fmt::format("{}: {}", source.where, fault));
  return std::move(sources.faults);
}

}  // namespace

std::vector<std::string> data_faults(const DataOptions& data, const std::set<std::string>& given) {
  Faults faults;
  if (data.class_path == kMix || !data.sources.empty()) return mix_faults(data, given);
  const bool columns = data.class_path == "ImageFolder" || data.class_path == "HFDataset";
  const bool is_text = data.class_path == "TextFiles", has_path = columns || is_text;
  if (has_path && data.path.empty())
    faults.push_back(
        fmt::format("data.path is not set: give the folder of --data {}", data.class_path));
  if (is_text && (!data.packing || data.padding_in_loss))
    faults.push_back(
        "data.packing = false: blocks of text have no padding; leave it out, and "
        "data.padding_in_loss "
        "too");
  for (const char* key : {"data.subset", "data.val_split"})
    if (data.class_path != "HFDataset" && given.contains(key))
      faults.push_back(fmt::format("{} applies to HFDataset, not to {}", key, data.class_path));
  if (!data.val_split.empty() && given.contains("data.val_split_fraction"))
    faults.emplace_back(
        "data.val_split and data.val_split_fraction: the split is validated on whole; leave one "
        "out");
  for (const char* key : {"data.split", "data.image_column", "data.text_column", "data.prompt"})
    if (!columns && given.contains(key))
      faults.push_back(
          fmt::format("{} applies to HFDataset and ImageFolder, not to {}", key, data.class_path));
  if (columns && data.val_path)
    faults.push_back(
        fmt::format("data.val_path applies only to --data JSON; {} holds out "
                    "data.val_split_fraction of its rows",
                    data.class_path));
  if (data.class_path == "Synthetic" && data.val_path)
    faults.push_back(
        "data.val_path applies only to --data JSON; Synthetic holds out data.val_split_fraction of "
        "its samples");
  if (data.class_path == "JSON" && data.json_path.empty())
    faults.push_back(
        "no data: give --data FILE (JSON, JSONL, CSV, TSV or Parquet), or a named set such as "
        "--data Alpaca2k");
  if (data.class_path != "JSON" && !data.json_path.empty())
    faults.push_back(fmt::format("data.json_path = {} applies to --data JSON, not to {}",
                                 data.json_path, data.class_path));
  if (!has_path && !data.path.empty())
    faults.push_back(
        fmt::format("data.path = {} applies to ImageFolder, HFDataset and TextFiles; for JSON use "
                    "data.json_path",
                    data.path));
  if (data.padding_in_loss && data.packing && given.contains("data.packing"))
    faults.push_back(
        "data.packing = true and data.padding_in_loss = true: packed samples have no padding");
  if (data.val_path && data.val_split_fraction > 0)
    faults.push_back(
        fmt::format("data.val_path and data.val_split_fraction = {} are both set; keep one",
                    data.val_split_fraction));
  if (data.val_split_fraction >= 1 && given.contains("data.val_split_fraction"))
    faults.push_back("data.val_split_fraction = 1 leaves nothing to train on; use less than 1");
  return faults;
}

std::vector<std::string> layout_faults(const Recipe& recipe) {
  Faults faults;
  check_devices(recipe, faults);
  check_batches(recipe, faults);
  return faults;
}

std::vector<std::string> recipe_faults(Command command, const Recipe& recipe) {
  Faults faults;
  // A plan needs neither data nor a length.
  const bool trains = command != Command::Plan;
  if (trains || !recipe.data.json_path.empty() || !recipe.data.sources.empty())
    faults = data_faults(recipe.data, recipe.given_keys);
  check_model(command, recipe, faults);
  check_memory(recipe, faults);
  check_devices(recipe, faults);
  check_batches(recipe, faults);
  warn_of_useless_techniques(recipe);
  if (trains) check_length(recipe, faults);
  check_splits(recipe, faults);
  check_best(recipe, faults);
  check_optimizer(recipe, faults);
  check_objective(recipe, faults);
  check_rounding(recipe, faults);
  check_lora(recipe, faults);
  check_evaluation(recipe, faults);
  return faults;
}

void check_recipe(Command command, const Recipe& recipe, const std::string& file) {
  throw_faults(recipe_faults(command, recipe), file);
}

}  // namespace snug::recipe
