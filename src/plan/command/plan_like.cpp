// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_like.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "core/nn/precision.h"
#include "engine/adapters/trained_parts.h"
#include "engine/strategy.h"
#include "models/decoder/families.h"
#include "plan/command/planned.h"
#include "recipe/tables/objectives.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

using memory::Category;

int64_t of(const memory::ByCategory& bytes, Category category) {
  return bytes[static_cast<size_t>(category)];
}

// The highest that a category reaches in moments of some kind.
template <class Which>
int64_t highest(const std::vector<plan::Moment>& timeline, Category category, Which which) {
  int64_t most = 0;
  for (const plan::Moment& moment : timeline)
    if (which(moment)) most = std::max(most, of(moment.by_category, category));
  return most;
}

constexpr auto kAnywhere = [](const plan::Moment&) { return true; };
constexpr auto kInUpdate = [](const plan::Moment& m) { return m.phase == memory::Phase::Step; };
constexpr auto kInHead = [](const plan::Moment& m) { return m.unit == "head"; };
constexpr auto kInBackwardOfHead = [](const plan::Moment& m) {
  return m.unit == "head" && m.phase == memory::Phase::Backward;
};

// Attention of bfloat16 goes through plain products on a GPU before Ampere.
bool has_fused_attention(const plan::DeviceProfile& device, const std::string& precision) {
  return device.flash_attention || nn::parse_precision(precision).compute != at::kBFloat16;
}

constexpr std::string_view kTransformers = "transformers";
constexpr const char* kWithLiger = "transformers+liger";
constexpr const char* kWithDeepSpeed = "transformers+deepspeed";

rivals::Sharding sharding_of_deepspeed(const recipe::Recipe& recipe, int64_t host_group) {
  using recipe::Strategy;
  using rivals::Sharding;
  if (recipe.strategy == Strategy::Zero1) return Sharding::ZeroStates;
  if (recipe.strategy == Strategy::Zero2) return Sharding::ZeroGradients;
  // Hybrid sharding is its zero_hpz_partition_size, which only its own configuration names.
  const bool hybrid = recipe.strategy == Strategy::Hybrid && host_group > 1;
  if (recipe.strategy == Strategy::Auto || recipe.strategy == Strategy::Fsdp || hybrid)
    return Sharding::ZeroWeights;
  throw UserError(
      "like: strategy = {}: DeepSpeed is planned with its stages 1 to 3, which are zero1, zero2 "
      "and fsdp, and with hybrid where its configuration has a zero_hpz_partition_size (it no "
      "longer has MiCS); choose one of them, or leave --like out",
      recipe.strategy);
}

rivals::Sharding sharding_of_transformers(const recipe::Recipe& recipe) {
  using recipe::Strategy;
  using rivals::Sharding;
  if (recipe.strategy == Strategy::Ddp) return Sharding::Ddp;
  if (recipe.strategy == Strategy::Zero2) return Sharding::FullyShardGradients;
  if (recipe.strategy == Strategy::Auto || recipe.strategy == Strategy::Fsdp)
    return Sharding::FullyShard;
  throw UserError(
      "like: strategy = {}: transformers is planned with ddp, fsdp and zero2 on several devices, "
      "and with zero1 by --like transformers+deepspeed; choose one of them, or leave --like out",
      recipe.strategy);
}

// LitGPT's commands have only FSDP; a Trainer takes the script's strategy.
rivals::Sharding sharding_of(const std::string& program, bool litgpt, const recipe::Recipe& recipe,
                             const recipe::DeepSpeed& deepspeed) {
  using rivals::Sharding;
  if (program == kWithDeepSpeed) return sharding_of_deepspeed(recipe, deepspeed.host_group);
  if (engine::named_ranks(recipe) == 1) return Sharding::None;
  if (program.starts_with(kTransformers)) return sharding_of_transformers(recipe);
  if (program == "litgpt") return Sharding::FsdpUnits;
  const bool offloads = recipe.optimizer_offload == "cpu";
  const bool fsdp =
      recipe.strategy == recipe::Strategy::Auto || recipe.strategy == recipe::Strategy::Fsdp;
  const bool ddp = recipe.strategy == recipe::Strategy::Ddp;
  if (litgpt && fsdp) return offloads ? Sharding::Zero3Offload : Sharding::FsdpWhole;
  if (litgpt && ddp) return Sharding::Ddp;
  if (!litgpt && !offloads && fsdp) return Sharding::FsdpUnits;
  if (!litgpt && !offloads && ddp) return Sharding::DdpBucketViews;
  throw UserError(
      "like: strategy = {}{}: on several devices Lightning is planned with ddp and fsdp; choose "
      "one of them, or leave --like out",
      recipe.strategy, offloads && !litgpt ? " with optimizer_offload" : "");
}

bool differ_in_length(const data::SampleStore& samples) {
  for (int64_t i = 0; i < samples.count(); ++i)
    if (samples.length(i) != samples.longest()) return true;
  return false;
}

// For a recipe that says nothing of DeepSpeed: what most recipes that use it have.
recipe::DeepSpeed usual_deepspeed() {
  constexpr int64_t kAuto = recipe::DeepSpeed::kAuto;
  return {.reduce_bucket = kAuto, .prefetch_bucket = kAuto, .persistence_threshold = kAuto};
}

}  // namespace

rivals::Options Like::options_of(const recipe::PlanOptions& given, const models::Model& model,
                                 const data::SampleStore& samples) const {
  const recipe::Recipe& recipe = candidate_.recipe;
  const recipe::DeepSpeed deepspeed = given.recipe_deepspeed.value_or(usual_deepspeed());
  rivals::Options options{
      .loop = program_ == "lightning" ? rivals::Loop::Trainer : rivals::Loop::Fabric,
      .fused_attention = has_fused_attention(device_, recipe.precision),
      .batch = std::min(recipe.train.micro_batch_size, samples.count()),
      .tokens = samples.most_tokens_of_sample(),
      .reserved_limit = device_.kind == at::kCUDA ? device_.usable_bytes() : 0,
      .sharding = sharding_of(program_, litgpt_, recipe, deepspeed),
      .ranks = engine::named_ranks(recipe)};
  if (transformers_) {
    const bool has_liger = given.recipe_has_liger && rivals::has_liger_kernels(model_type_);
    options.liger = program_ == kWithLiger || has_liger;
    options.padded = options.batch > 1 && differ_in_length(samples);
    options.on_cpu = device_.kind == at::kCPU;
    options.deepspeed = deepspeed;
  }
  if (litgpt_ || !model.reads().source) return options;
  // Scripts give a caption to both sides of an encoder-decoder, behind the picture's places.
  for (int64_t i = 0; i < samples.count(); ++i)
    options.labels = std::max(options.labels, samples.length(i) - samples.source_tokens(i));
  options.tokens = model.reads().num_picture_tokens + options.labels;
  return options;
}

Like::Like(const recipe::PlanOptions& options, const models::Model& model,
           const plan::Candidate& candidate, const data::SampleStore& samples,
           const plan::DeviceProfile& device)
    : program_(options.like),
      model_type_(model.hugging_face_config().value("model_type", "")),
      transformers_(program_.starts_with(kTransformers)),
      litgpt_(!transformers_ && !rivals::has_lightning_model(model.hugging_face_config())),
      candidate_(candidate),
      device_(device),
      num_blocks_(model.dimensions().num_layers),
      tied_(model.hugging_face_config().value("tie_word_embeddings", false)),
      our_tokens_(candidate.prediction.tokens),
      pictures_(samples.mean_pictures()) {
  const nlohmann::json config = model.hugging_face_config();
  const auto* family = models::decoder::find_family(config.value("model_type", ""));
  if (program_ == kTransformers && options.recipe_deepspeed)
    program_ = kWithDeepSpeed;
  else if (program_ == kTransformers && options.recipe_has_liger &&
           rivals::has_liger_kernels(model_type_))
    program_ = kWithLiger;
  if (litgpt_ && (family == nullptr || !family->in_litgpt))
    throw UserError("like: {}: models of type {} cannot be compared with it; leave --like out",
                    program_, model_type_);
  if (candidate.recipe.objective.name != recipe::ObjectiveName::Sft)
    throw UserError(
        "like: {}: only answers learnt are compared, not objective {}; leave --like out", program_,
        candidate.recipe.objective.name);
  options_ = options_of(options, model, samples);
  if (transformers_) {
    like_ = rivals::like_transformers(model, candidate.recipe, options_);
    cost_ = cost_of(model);
    try_changes(model);
    return;
  }
  if (!litgpt_ && program_ != "lightning")
    throw UserError("like: {}: LitGPT has no model of type {}; use --like lightning", program_,
                    model_type_);
  like_ = litgpt_ ? rivals::like_litgpt(model, candidate.recipe, options_)
                  : rivals::like_lightning(config, candidate.recipe, options_);
  cost_ = cost_of(model);
}

// Products and collectives are those of snug's plan; what is written, padding and the allocator are
// the other program's.
StepCost Like::cost_of(const models::Model& model) const {
  plan::Prediction prediction = candidate_.prediction;
  prediction.bytes_written = like_.prediction.bytes_written;
  prediction.micro_batches = like_.prediction.micro_batches;
  prediction.tokens = like_.prediction.tokens;
  prediction.driver_calls = like_.prediction.driver_calls;
  const auto adapted = models::model_like(model);
  engine::choose_trained(*adapted, candidate_.recipe);
  return step_cost(*adapted, candidate_.recipe, device_, prediction,
                   static_cast<double>(prediction.tokens),
                   {.tokens = static_cast<double>(options_.tokens), .pictures = pictures_});
}

bool Like::fits(const rivals::Figures& figures) const {
  return figures.prediction.peak_allocated <= device_.usable_bytes() &&
         figures.prediction.fits_reserved;
}

bool Like::fits() const { return fits(like_); }

void Like::try_changes(const models::Model& model) {
  const recipe::Recipe& recipe = candidate_.recipe;
  const auto attempt = [&](const std::string& line, auto change) {
    recipe::Recipe changed = recipe;
    rivals::Options options = options_;
    change(changed, options);
    const rivals::Figures figures = rivals::like_transformers(model, changed, options);
    changes_.push_back({line, figures.prediction.peak_allocated, fits(figures)});
  };
  if (recipe.activation_checkpointing == "none")
    attempt("gradient_checkpointing: true",
            [](recipe::Recipe& r, auto&) { r.activation_checkpointing = "all"; });
  const bool has_liger_kernels = rivals::has_liger_kernels(model_type_) && !recipe.lora.head;
  if (!options_.liger && has_liger_kernels)
    attempt("use_liger_kernel: true", [](auto&, rivals::Options& o) { o.liger = true; });
  const bool by_deepspeed = rivals::is_deepspeed(options_.sharding);
  const bool by_zero3 = options_.sharding == rivals::Sharding::ZeroWeights;
  recipe::Recipe offloaded = recipe;
  offloaded.optimizer_offload = "cpu";
  const auto shard = [](auto&, rivals::Options& o) { o.sharding = rivals::Sharding::FullyShard; };
  if (options_.sharding == rivals::Sharding::Ddp && rivals::takes_fully_sharded(recipe))
    attempt("fsdp: true", shard);
  if (rivals::is_fully_sharded(options_.sharding) && !recipe.updates_on_host() &&
      recipe.quantize.empty())
    attempt("fsdp_config: cpu_offload: true", [&](recipe::Recipe& r, auto&) {
      r = offloaded;
      r.weight_streaming = true;
    });
  if (options_.sharding == rivals::Sharding::FullyShardGradients)
    attempt("reshard_after_forward: true", shard);
  if (by_deepspeed && !by_zero3 && rivals::takes_zero3(recipe, options_.deepspeed))
    attempt("zero_optimization: stage: 3",
            [](auto&, rivals::Options& o) { o.sharding = rivals::Sharding::ZeroWeights; });
  if (by_deepspeed && !recipe.updates_on_host() &&
      (!by_zero3 || rivals::takes_zero3(offloaded, options_.deepspeed)))
    attempt("zero_optimization: offload_optimizer: device: cpu",
            [&](recipe::Recipe& r, auto&) { r = offloaded; });
  if (by_zero3 && !recipe.weight_streaming)
    attempt("zero_optimization: offload_param: device: cpu",
            [](recipe::Recipe& r, auto&) { r.weight_streaming = true; });
  if (by_deepspeed && options_.deepspeed.reduce_bucket != recipe::DeepSpeed::kAuto)
    attempt("zero_optimization: reduce_bucket_size: auto", [](auto&, rivals::Options& o) {
      o.deepspeed.reduce_bucket = recipe::DeepSpeed::kAuto;
    });
  if (options_.batch > 1)
    attempt(fmt::format("per_device_train_batch_size: {}", options_.batch / 2),
            [](recipe::Recipe& r, rivals::Options& o) {
              o.batch /= 2;
              r.train.micro_batch_size = o.batch;
            });
  if (recipe.optimizer.name == recipe::OptimizerName::AdamW && !recipe.updates_on_host() &&
      !rivals::is_fully_sharded(options_.sharding))
    attempt("optim: adamw_bnb_8bit",
            [](recipe::Recipe& r, auto&) { r.optimizer.name = recipe::OptimizerName::AdamW8bit; });
  if (!recipe.has_16_bit_weights() && recipe.quantize.empty() && !by_deepspeed)
    attempt("dtype: bfloat16 in place of bf16: true",
            [](recipe::Recipe& r, auto&) { r.precision = recipe::Precision::BFloat16; });
  if (recipe.lora.use_dora)
    attempt("use_dora: false", [](recipe::Recipe& r, auto&) { r.lora.use_dora = false; });
  const bool has_experts = model.hugging_face_config().contains("num_experts_per_tok");
  const char* const targets = has_experts ? "q_proj,k_proj,v_proj,o_proj" : "all-linear";
  if (!recipe.lora.enabled)
    attempt(fmt::format("peft: LoraConfig(r=16, target_modules=\"{}\")", targets),
            [&](recipe::Recipe& r, auto&) {
              r.lora.enabled = true;
              r.lora.r = 16;
              r.lora.target_modules = targets;
            });
  else if ((recipe.quantize.empty() || recipe.quantize.starts_with("bnb.int8")) && !by_zero3)
    attempt("BitsAndBytesConfig(load_in_4bit=True)",
            [](recipe::Recipe& r, auto&) { r.quantize = recipe::Quantize::Nf4; });
}

Like::Side Like::side_of(const plan::Prediction& prediction) {
  const std::vector<plan::Moment>& timeline = prediction.timeline;
  return {.weights = highest(timeline, Category::Parameters, kAnywhere),
          .gradients = highest(timeline, Category::Gradients, kAnywhere),
          .states = highest(timeline, Category::Optimizer, kAnywhere),
          .kept = highest(timeline, Category::Activations, kAnywhere),
          .head = highest(timeline, Category::Workspace, kInHead),
          .update = highest(timeline, Category::Workspace, kInUpdate),
          .communication = highest(timeline, Category::Communication, kAnywhere)};
}

Like::Side Like::theirs() const {
  Side side = side_of(like_.prediction);
  side.kept = like_.kept_by_blocks;
  side.head = like_.head;
  // Gradients of float32 logits, which are as large again, are where many a run ends.
  if (transformers_)
    side.head += highest(like_.prediction.timeline, Category::Workspace, kInBackwardOfHead);
  side.update = like_.update_temporaries;
  return side;
}

std::string Like::why_kept() const {
  const recipe::Recipe& recipe = candidate_.recipe;
  const auto per_token = [&](int64_t bytes, int64_t tokens) {
    return static_cast<double>(bytes) / static_cast<double>(num_blocks_ * tokens) / 1024;
  };
  const int64_t padded = options_.batch * options_.tokens;
  const char* who = recipe.activation_offload                   ? "activation offload keeps"
                    : recipe.activation_checkpointing != "none" ? "activation checkpointing keeps"
                                                                : "fused operators keep";
  std::string why =
      fmt::format("{} {:.0f} KiB per token and block, not {:.0f}", who,
                  per_token(ours().kept, our_tokens_), per_token(like_.kept_by_blocks, padded));
  if (our_tokens_ < padded)
    why += fmt::format("; {} packed tokens, not {} with padding", our_tokens_, padded);
  return why;
}

std::string Like::why_weights() const {
  const recipe::Recipe& recipe = candidate_.recipe;
  const nn::Precision precision = nn::parse_precision(recipe.precision);
  if (recipe.weight_streaming) return "weight streaming";
  if (!recipe.quantize.empty())
    return transformers_ ? "16 bits for what is not quantized; peft makes it float32"
                         : "one embedding; LitGPT also keeps the one it replaced";
  const std::string tied = litgpt_ && tied_ ? "embedding and head are one weight" : "";
  if (precision.parameters == precision.compute || recipe.lora.enabled) return tied;
  return "no 16-bit copies of all weights between forward and backward" +
         (tied.empty() ? "" : "; " + tied);
}

std::string Like::table() const {
  const recipe::Recipe& recipe = candidate_.recipe;
  const plan::Prediction &p = candidate_.prediction, &q = like_.prediction;
  const Side a = ours(), b = theirs();
  std::vector<report::Table::Column> columns{{"", report::Align::Left}, {"snug"}, {program_}};
  const bool explains = litgpt_ || transformers_;
  if (explains) columns.push_back({"why less", report::Align::Left});
  report::Table table(columns);
  const auto row = [&](const char* what, int64_t mine, int64_t other, const std::string& why = "") {
    std::vector<std::string> cells{what, format_bytes(mine), format_bytes(other)};
    if (explains) cells.push_back(mine < other - other / 100 ? why : "");
    table.add_row(cells);
  };
  const bool offload = recipe.optimizer_offload != "none";
  const bool lora = recipe.lora.enabled;
  const std::string tied = litgpt_ && tied_ && !lora ? "embedding and head are one weight" : "";
  row("weights", a.weights, b.weights, why_weights());
  row("gradients", a.gradients, b.gradients,
      recipe.optimizer_in_backward ? "optimizer in backward"
      : offload                    ? "optimizer offload"
      : litgpt_ && lora && !recipe.quantize.empty()
          ? "the embedding is frozen; LitGPT's replacement is not"
          : tied);
  row("optimizer states", a.states, b.states, offload ? "optimizer offload" : tied);
  row("kept for backward", a.kept, b.kept, why_kept());
  row("logits and loss", a.head, b.head, "in chunks if there are many; no separate log-softmax");
  row("update, temporary", a.update, b.update, "states are updated in one pass, in place");
  // Buckets of DDP and ZeRO, what FSDP gathers and reduces.
  if (std::max(a.communication, b.communication) > 0)
    row("communication", a.communication, b.communication);
  row("peak allocated", p.peak_allocated, q.peak_allocated);
  if (device_.kind == at::kCUDA) row("peak reserved", p.peak_reserved, q.peak_reserved);
  const int64_t there = q.peak_host + like_.paged_states;
  if (!litgpt_ && std::max(p.peak_host, there) > 0)
    row("on the host", p.peak_host, there,
        like_.paged_states > 0 ? "theirs paged, in part on the device" : "");
  return table.render();
}

std::string Like::changes() const {
  if (changes_.empty()) return "";
  report::Table table(
      {{"one change there", report::Align::Left}, {"peak allocated"}, {"", report::Align::Left}});
  for (const Change& change : changes_)
    table.add_row(
        {change.line, format_bytes(change.peak_allocated), change.fits ? "fits" : "does not fit"});
  return "\n" + table.render();
}

// The figures of the script's own memory snapshots in the second step.
std::string Like::phases() const {
  report::Table table({{"second step", report::Align::Left},
                       {"weights"},
                       {"gradients"},
                       {"states"},
                       {"other"},
                       {"allocated"},
                       {"peak"}});
  for (const rivals::PhaseFigures& phase : like_.phases) {
    if (phase.step != 1) continue;
    const int64_t weights = of(phase.by_category, Category::Parameters);
    const int64_t gradients = of(phase.by_category, Category::Gradients);
    const int64_t states = of(phase.by_category, Category::Optimizer);
    table.add_row({phase.name, format_bytes(weights), format_bytes(gradients), format_bytes(states),
                   format_bytes(phase.allocated - weights - gradients - states),
                   format_bytes(phase.allocated), format_bytes(phase.peak)});
  }
  return table.render();
}

std::string Like::text() const {
  const plan::Prediction &p = candidate_.prediction, &q = like_.prediction;
  std::string text = fmt::format(
      "Compared with {}: {} x {} tokens{}, padded; each row at its own peak\n\n{}\n", whose(),
      options_.batch, options_.tokens,
      options_.labels > 0 ? fmt::format(" and {} labels", options_.labels) : "", table());
  if (!litgpt_ && !transformers_) text += phases() + "\n";
  text += fmt::format(
      "With {}, {} is allocated right after a forward; {}.", program_,
      format_bytes(like_.after_forward),
      fits() ? "it fits too" : "it does not fit into " + format_bytes(device_.usable_bytes()));
  if (litgpt_ && like_.paged_states > 0)
    text += fmt::format(" Its optimizer keeps another {} in paged memory.",
                        format_bytes(like_.paged_states));
  else if (litgpt_ && q.peak_host > 0)
    text += fmt::format(" It takes {} of host memory per GPU; snug takes {}.",
                        format_bytes(q.peak_host), format_bytes(p.peak_host));
  text += "\n" + changes();
  return text;
}

std::string Like::whose_litgpt() const {
  switch (options_.sharding) {
    case rivals::Sharding::None:
    case rivals::Sharding::DdpBucketViews:  // not LitGPT's
    case rivals::Sharding::FullyShard:
    case rivals::Sharding::FullyShardGradients:
    case rivals::Sharding::ZeroStates:
    case rivals::Sharding::ZeroGradients:
    case rivals::Sharding::ZeroWeights:
      break;
    case rivals::Sharding::Ddp:
      return "LitGPT's model in a Lightning Trainer with DDP";
    case rivals::Sharding::FsdpWhole:
      return "LitGPT's model in a Lightning Trainer with FSDP, the whole model as one module";
    case rivals::Sharding::Zero3Offload:
      return "LitGPT's model in a Lightning Trainer with DeepSpeed's ZeRO-3, its optimizer on the "
             "host";
    case rivals::Sharding::FsdpUnits:
      return "litgpt finetune_full with FSDP and activation checkpointing of each block";
  }
  if (program_ != "litgpt") return "LitGPT's model in a Lightning Trainer";
  const recipe::Recipe& recipe = candidate_.recipe;
  if (!recipe.lora.enabled) return "litgpt finetune_full";
  return "litgpt finetune_lora" + (recipe.quantize.empty() ? "" : " --quantize " + recipe.quantize);
}

std::string Like::whose() const {
  if (litgpt_) return whose_litgpt();
  const recipe::Recipe& recipe = candidate_.recipe;
  std::string text = transformers_           ? "transformers"
                     : model_type_ == "gpt2" ? "minGPT"
                                             : "transformers' BLIP-2";
  if (recipe.lora.enabled)
    text += recipe.quantize.empty() ? " with peft" : " with peft and bitsandbytes";
  if (options_.liger)
    text += recipe.lora.enabled ? ", with Liger's kernels," : " with Liger's kernels";
  if (transformers_) {
    text += " in its own Trainer";
    if (options_.sharding == rivals::Sharding::Ddp) text += " with DDP";
    if (rivals::is_fully_sharded(options_.sharding))
      text += recipe.updates_on_host() ? " with FSDP2's CPU offload" : " with FSDP2";
    if (const int stage = rivals::zero_stage(options_.sharding); stage > 0) {
      text += fmt::format(" with DeepSpeed's ZeRO-{}", stage);
      if (recipe.updates_on_host())
        text += stage == 3 && recipe.offload_folder() ? ", its Adam on the host, states on disk"
                                                      : ", its Adam on the host";
      if (stage == 3 && recipe.weight_streaming) text += ", weights there too";
      if (stage == 3 && options_.deepspeed.host_group > 1)
        text += fmt::format(", zero_hpz_partition_size: {}", options_.deepspeed.host_group);
    }
    if (options_.sharding == rivals::Sharding::FullyShardGradients)
      text += " and reshard_after_forward: false";
    return text;
  }
  text += " in a Lightning Trainer";
  if (options_.sharding == rivals::Sharding::DdpBucketViews) text += " with DDP";
  if (options_.sharding == rivals::Sharding::FsdpUnits) text += " with FSDP around each block";
  if (recipe.optimizer_offload == "cpu")
    text += " with DeepSpeed's ZeRO-2 and its Adam on the host";
  return text;
}

nlohmann::json Like::json() const {
  const Side b = theirs();
  nlohmann::json out{{"program", program_},
                     {"micro_batch_size", options_.batch},
                     {"tokens_per_sample", options_.tokens},
                     {"fits", fits()},
                     {"peak_allocated", like_.prediction.peak_allocated},
                     {"peak_reserved", like_.prediction.peak_reserved},
                     {"num_alloc_retries", like_.prediction.driver_calls.retries},
                     {"after_forward", like_.after_forward},
                     {"whose", whose()},
                     {"by_category", named(like_.prediction.by_category)},
                     {"timeline", timeline_json(like_.prediction.timeline)},
                     {"step_seconds", cost_.seconds()},
                     {"memory_seconds", cost_.memory_seconds},
                     {"retry_seconds", cost_.retry_seconds},
                     {"weights", b.weights},
                     {"gradients", b.gradients},
                     {"optimizer_states", b.states},
                     {"kept_for_backward", b.kept},
                     {"logits_and_loss", b.head},
                     {"update_temporaries", b.update},
                     {"communication", b.communication},
                     {"paged_states", like_.paged_states}};
  if (litgpt_) {
    out["offloaded_to_host"] = like_.prediction.peak_host;
    return out;
  }
  if (transformers_) {
    out["has_mask"] = options_.padded;
    out["peak_host"] = like_.prediction.peak_host;
    for (const Change& change : changes_)
      out["changes"].push_back({{"line", change.line},
                                {"peak_allocated", change.peak_allocated},
                                {"fits", change.fits}});
    return out;
  }
  out["labels_per_sample"] = options_.labels > 0 ? options_.labels : options_.tokens;
  out["peak_host"] = like_.prediction.peak_host;
  for (const rivals::PhaseFigures& phase : like_.phases)
    out["phases"].push_back({{"step", phase.step},
                             {"phase", phase.name},
                             {"parameters", of(phase.by_category, Category::Parameters)},
                             {"gradients", of(phase.by_category, Category::Gradients)},
                             {"optimizer_device", of(phase.by_category, Category::Optimizer)},
                             {"allocated", phase.allocated},
                             {"peak", phase.peak}});
  return out;
}

}  // namespace snug::plan
