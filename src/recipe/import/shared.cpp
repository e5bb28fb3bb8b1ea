// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/shared.h"
#include "recipe/data_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "recipe/hub_models.h"
#include "recipe/numbers.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/tables/optimizers.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;

bool is_whole(double value) { return value == std::trunc(value); }

void take_steps(Draft& draft, const Found& found, std::string_view ours) {
  const std::optional<double> steps = parse_float(found.node.text);
  if (steps && *steps >= 1 && is_whole(*steps))
    draft.set(ours, fmt::format("{:.0f}", *steps), found.key);
  else
    draft.idle(found.key, std::string(kInSteps));
}

// transformers' names of schedules.
constexpr std::string_view kSchedules =
    "cosine=cosine linear=linear constant=constant constant_with_warmup=constant "
    "cosine_with_min_lr=cosine";

// Names on the hub of sets that snug downloads itself.
constexpr std::string_view kNamedSets =
    "mhenrichsen/alpaca_2k_test=Alpaca2k yahma/alpaca-cleaned=Alpaca "
    "vicgalle/alpaca-gpt4=AlpacaGPT4 "
    "databricks/databricks-dolly-15k=Dolly GAIR/lima=LIMA HuggingFaceH4/deita-10k-v0-sft=Deita "
    "akoksal/LongForm=LongForm";

constexpr std::array<std::string_view, 5> kDataEndings = {".json", ".jsonl", ".csv", ".tsv",
                                                          ".parquet"};

// False also for what cannot be a file's name at all.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_data_file(const std::string& name) {
  return std::ranges::any_of(kDataEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

void take_model(Draft& draft, const Found& found) {
  draft.set("checkpoint_dir", imported_model_folder(found.node.text), found.key);
}

void take_log_steps(Draft& draft, const Found& found) {
  take_steps(draft, found, "train.log_interval");
}

void take_save_steps(Draft& draft, const Found& found) {
  const std::string strategy = draft.text("save_strategy");
  if (strategy.empty() || strategy == "steps")
    take_steps(draft, found, "train.save_interval");
  else
    draft.idle(found.key, fmt::format("save_strategy is {}", strategy));
}

void take_eval_steps(Draft& draft, const Found& found) {
  take_steps(draft, found, "eval.interval");
}

void take_held_out(Draft& draft, const Found& found) {
  const std::optional<double> share = parse_float(found.node.text);
  if (share && *share >= 0 && *share < 1)
    draft.set("data.val_split_fraction", found.node.text, found.key);
  else
    draft.refuse(found.key, "data.val_split_fraction",
                 "snug holds out a share of the rows, not a number of them; give a share such as "
                 "0.05, or a file with --data.val_path");
}

void take_split(Draft& draft, const Found& found) {
  const bool has_splits =
      names_hub_set(draft.text("dataset_name")) && found.node.text.find('[') == std::string::npos;
  if (has_splits)
    draft.set("data.split", found.node.text, found.key);
  else if (found.node.text == "train")
    draft.idle(found.key, "all rows of the file");
  else
    draft.refuse(found.key, "data", std::string(kOneSplit));
}

void take_timeout(Draft& draft, const Found& found) {
  const double seconds = parse_float(found.node.text).value_or(0);
  draft.set("collective_timeout",
            seconds > kMostSeconds ? fmt::format("{:.0f}", kMostSeconds) : found.node.text,
            found.key);
}

void take_resume(Draft& draft, const Found& found) {
  draft.set("resume", found.node.text, found.key);
  if (!parse_bool(found.node.text))
    draft.differs(found.key, "must be a checkpoint that snug wrote");
}

void take_liger(Draft& draft, const Found& found) {
  if (is_on(found.node)) draft.note_liger();
  draft.idle(found.key, std::string(kOwnKernels));
}

void take_best_metric(Draft& draft, const Found& found) {
  const std::string metric = lower(draft.text(found.key));
  if (!draft.on("load_best_model_at_end"))
    draft.idle(found.key, "models are compared with load_best_model_at_end only");
  else if (metric == "loss" || metric == "eval_loss")
    draft.set("train.best_metric", "loss", found.key);
  else if (metric.ends_with("accuracy") || metric.ends_with("accuracies"))
    draft.set("train.best_metric", "accuracy", found.key);
  else
    draft.refuse(found.key, "train.best_metric",
                 fmt::format("\"{}\": snug compares by loss, or by the accuracy of objectives that "
                             "compare or sort; confirm with --train.best_metric",
                             metric));
}

void take_length(Draft& draft, std::string_view epochs) {
  if (const auto steps = draft.number("max_steps"); steps && *steps > 0) {
    draft.set("train.max_steps", fmt::format("{:.0f}", *steps), "max_steps");
    draft.set("train.epochs", Value{}, "max_steps");
    if (draft.find(epochs) != nullptr) draft.idle(epochs, "max_steps counts instead");
    return;
  }
  const std::optional<double> number = draft.number(epochs);
  if (!number) return;
  if (*number > 0 && is_whole(*number)) {
    draft.set("train.epochs", fmt::format("{:.0f}", *number), epochs);
    if (*number > 1)
      draft.differs(epochs,
                    "a step may go on into the next epoch; transformers ends each epoch with a "
                    "smaller step");
  } else if (*number > 0 && *number < 1) {
    draft.set("train.epochs", "1", epochs);
    draft.set("train.limit_train_batches", float_text(*number), epochs);
  } else {
    draft.refuse(epochs, "train.epochs",
                 "snug counts whole epochs; give a whole number, or max_steps");
  }
}

void take_warmup(Draft& draft) {
  const double steps = draft.number("warmup_steps").value_or(0);
  const double ratio = draft.number("warmup_ratio").value_or(0);
  // Steps of 0 are no warm-up, unless a ratio stands beside them.
  const bool has_ratio = draft.find("warmup_ratio") != nullptr || !draft.find("warmup_steps");
  const bool by_ratio = steps == 0 && ratio > 0 && has_ratio;
  if (by_ratio || (steps > 0 && steps < 1))
    draft.set("train.lr_warmup_fraction", float_text(by_ratio ? ratio : steps),
              by_ratio ? "warmup_ratio" : "warmup_steps");
  else
    draft.set("train.lr_warmup_steps", fmt::format("{:.0f}", steps), "warmup_steps");
}

void take_schedule(Draft& draft, std::string_view key) {
  const std::string name = draft.text(key);
  const std::string_view ours = word_for(kSchedules, name);
  if (ours.empty())
    return draft.refuse(
        key, "train.lr_schedule",
        fmt::format("snug has no schedule {}; choose cosine, linear or constant", name));
  draft.set("train.lr_schedule", ours, key);
  if (name == "constant")  // transformers then ignores the warm-up
    draft.set("train.lr_warmup_steps", "0", key);
  else
    take_warmup(draft);
  const Found* more = draft.find("lr_scheduler_kwargs");
  const std::string floor = more != nullptr ? text_in(more->node, "min_lr") : "";
  const double rate = draft.number("learning_rate").value_or(0);
  const auto share = parse_float(more != nullptr ? text_in(more->node, "min_lr_rate") : "");
  auto axolotl_share = draft.number("cosine_min_lr_ratio");
  if (axolotl_share && ours != "cosine") {
    draft.idle("cosine_min_lr_ratio", fmt::format("axolotl has it for cosine, not for {}", name));
    axolotl_share.reset();
  }
  if (!floor.empty())
    draft.set("train.min_lr", floor, "lr_scheduler_kwargs");
  else if (share || axolotl_share)
    draft.set("train.min_lr", float_text(rate * (share ? *share : *axolotl_share)),
              share ? "lr_scheduler_kwargs" : "cosine_min_lr_ratio");
  else if (more != nullptr && is_on(more->node))
    draft.refuse("lr_scheduler_kwargs", "train.lr_schedule",
                 "snug takes min_lr and min_lr_rate from it, and no others; leave it out");
  if (floor.empty() && !share && !axolotl_share) draft.set("train.min_lr", "0", key);
}

std::string take_optimizer_name(Draft& draft, const std::string& name, std::string_view key) {
  const std::string ours = normalise_optimizer(name);
  if (std::ranges::count(kWords<OptimizerName>, ours) > 0)
    draft.set("optimizer.class_path", ours, key);
  else
    draft.refuse(key, "optimizer.class_path",
                 fmt::format("snug has no optimizer {}; choose one with --optimizer: {}", name,
                             fmt::join(choices_of<OptimizerName>(), ", ")));
  return ours;
}

void take_mesh(Draft& draft,
               const std::vector<std::pair<std::string_view, std::string_view>>& axes) {
  std::string mesh;
  std::string_view from;
  for (const auto& [key, axis] : axes) {
    if (draft.number(key).value_or(1) <= 1) continue;
    mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", axis, draft.text(key));
    from = key;
  }
  if (!mesh.empty()) draft.set("mesh", mesh, from);
}

void take_optimizer(Draft& draft, std::string_view key) {
  const std::string ours = take_optimizer_name(draft, draft.text(key), key);
  const auto set = [&](std::string_view argument, std::string_view theirs) {
    if (optimizer_takes(ours, argument) && !draft.text(theirs).empty())
      draft.set(fmt::format("optimizer.{}", argument), draft.text(theirs), theirs);
    else if (draft.find(theirs) != nullptr)
      draft.idle(theirs, fmt::format("{} has no such argument", ours));
  };
  set("weight_decay", "weight_decay");
  if (draft.number("weight_decay") > 0 && optimizer_takes(ours, "weight_decay") &&
      draft.trains_all_weights())
    draft.differs("weight_decay", "norms and biases decay too; transformers leaves them out");
  set("eps", "adam_epsilon");
  if (optimizer_takes(ours, "betas") && !draft.text("adam_beta1").empty())
    draft.set("optimizer.betas",
              Value{.kind = Value::Kind::List,
                    .items = {draft.text("adam_beta1"), draft.text("adam_beta2")}},
              draft.find("adam_beta1") != nullptr ? "adam_beta1" : "adam_beta2");
  if (ours == word_of(OptimizerName::Adafactor))
    draft.differs(key,
                  "as in torch, the learning rate is a share of each weight's root mean square; "
                  "transformers takes it as it stands");
}

void take_saving(Draft& draft) {
  const std::string strategy = draft.text("save_strategy");
  if (strategy == "no")
    draft.set("train.save_interval", Value{}, "save_strategy");
  else if (draft.find("save_strategy") != nullptr && strategy != "steps")
    draft.idle("save_strategy", std::string(kInSteps));
}

void take_precision(Draft& draft, Weights weights) {
  const bool fp16 = draft.on("fp16");
  const std::string_view key = fp16 ? "fp16" : "bf16";
  if (!fp16 && !draft.on("bf16")) return draft.set("precision", "32-true", key);
  draft.set("precision",
            fmt::format("{}-{}", fp16 ? "16" : "bf16", weights.in_16_bits ? "true" : "mixed"), key);
  if (weights.in_16_bits && weights.with_float32_copies)
    draft.set("optimizer.master_weights", "true", key);
}

void take_checkpointing(Draft& draft, std::string_view key) {
  const bool by_fsdp = draft.on("fsdp_config.activation_checkpointing");
  draft.set("activation_checkpointing", by_fsdp || draft.on(key) ? "all" : "none",
            by_fsdp ? "fsdp_config.activation_checkpointing" : key);
}

void take_quantization(Draft& draft, int bits, std::string_view type, bool is_double,
                       std::string_view theirs) {
  if (bits == 8) {
    draft.set("quantize", "bnb.int8", theirs);
    draft.differs(theirs, "weights are stored in 8 bits, but activations are not rounded");
  } else if (bits == 4) {
    draft.set("quantize", fmt::format("bnb.{}{}", type, is_double ? "-dq" : ""), theirs);
  }
}

void take_targets(Draft& draft, std::string_view theirs) {
  const Found* found = draft.find(theirs);
  std::string names = found != nullptr ? found->node.text : draft.text(theirs);
  if (found != nullptr && found->node.kind == YamlNode::Kind::List) {
    std::vector<std::string> items;
    for (const YamlNode& item : found->node.items) items.push_back(item.text);
    names = fmt::format("{}", fmt::join(items, ","));
  }
  if (names == "all") names = "all-linear";
  if (!names.empty()) draft.set("lora_target_modules", names, theirs);
}

std::string existing_file(const Draft& draft, const std::string& path) {
  if (path.empty() || is_there(path)) return path;
  const fs::path beside = fs::path(draft.file()).parent_path() / path;
  return is_there(beside) ? beside.string() : "";
}

void set_tokens(Draft& draft, std::string_view key, std::initializer_list<const YamlNode*> lists) {
  std::vector<std::string> tokens;
  for (const YamlNode* list : lists) {
    if (list == nullptr) continue;
    if (!list->text.empty()) tokens.push_back(list->text);
    for (const YamlNode& token : list->items) {
      if (token.text.find(',') != std::string::npos)
        return draft.refuse(key, "tokens.add",
                            fmt::format("{}: a token of snug's cannot hold a comma", token.text));
      tokens.push_back(token.text);
    }
  }
  if (!tokens.empty()) draft.set("tokens.add", fmt::format("{}", fmt::join(tokens, ",")), key);
}

DataKeys data_keys(Draft& draft, const std::string& name, std::string_view theirs) {
  if (const std::string_view set = word_for(kNamedSets, name); !set.empty())
    return {{"class_path", std::string(set)}};
  const std::string found = existing_file(draft, name);
  if (!found.empty() || is_data_file(name))
    return {{"class_path", "JSON"}, {"json_path", found.empty() ? name : found}};
  if (names_hub_set(name)) return {{"class_path", "HFDataset"}, {"path", name}};
  draft.refuse(theirs, "data",
               fmt::format("{} is no file here, and no data set of the hub (ORG/NAME); give a file "
                           "with --data FILE",
                           name));
  return {};
}

void add_split(DataKeys& keys, const std::string& split, const std::string& subset) {
  if (std::ranges::count(keys, DataKeys::value_type{"class_path", "HFDataset"}) == 0) return;
  if (!split.empty() && split != "train") keys.emplace_back("split", split);
  if (!subset.empty()) keys.emplace_back("subset", subset);
}

void set_data(Draft& draft, const std::vector<DataKeys>& sets, std::string_view theirs) {
  if (sets.size() == 1) {
    for (const auto& [key, value] : sets.front()) draft.set("data." + key, value, theirs);
    return;
  }
  const auto is_refused = [](const DataKeys& set) {
    return std::ranges::count(set, "class_path", &DataKeys::value_type::first) == 0;
  };
  if (std::ranges::any_of(sets, is_refused))
    return draft.refuse(
        theirs, "data",
        fmt::format("of the {} data sets some are not there; name all of them, with "
                    "commas between: --data FILE,FILE",
                    sets.size()));
  YamlNode list{.kind = YamlNode::Kind::List};
  for (const DataKeys& set : sets) {
    YamlNode& source = list.items.emplace_back(YamlNode{.kind = YamlNode::Kind::Map});
    for (const auto& [key, value] : set)
      source.entries.emplace_back(key, YamlNode{.kind = YamlNode::Kind::Scalar, .text = value});
  }
  draft.set("data.sources", one_line(list), theirs);
}

void take_data(Draft& draft, const std::string& name, std::string_view theirs) {
  set_data(draft, {data_keys(draft, name, theirs)}, theirs);
}

}  // namespace snug::recipe
