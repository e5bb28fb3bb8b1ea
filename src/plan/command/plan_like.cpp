// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_like.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "core/nn/precision.h"
#include "engine/strategy.h"
#include "plan/command/plan_json.h"
#include "plan/command/plan_like_lightning.h"
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

// Attention of bfloat16 goes through plain products on a GPU before Ampere.
bool has_fused_attention(const plan::DeviceProfile& device, const std::string& precision) {
  return device.flash_attention || nn::parse_precision(precision).compute != at::kBFloat16;
}

// LitGPT's commands know FSDP only; in a Trainer it is what the script says.
plan::LitgptSharding sharding_of(const std::string& program, const recipe::Recipe& recipe) {
  if (engine::named_ranks(recipe) == 1) return plan::LitgptSharding::None;
  if (program == "litgpt") return plan::LitgptSharding::FsdpBlocks;
  if (recipe.strategy == "ddp") return plan::LitgptSharding::Ddp;
  const bool offloads = recipe.optimizer_offload == "cpu";
  if (recipe.strategy == "auto" || recipe.strategy == "fsdp")
    return offloads ? plan::LitgptSharding::Zero3Offload : plan::LitgptSharding::FsdpWhole;
  throw UserError(
      "like: strategy = {}: on several devices Lightning is planned with ddp and fsdp; choose one "
      "of "
      "them, or leave --like out",
      recipe.strategy);
}

}  // namespace

LikeLitgpt::LikeLitgpt(const std::string& program, const models::Model& model,
                       const plan::Candidate& candidate, const data::SampleStore& samples,
                       const plan::DeviceProfile& device)
    : program_(program),
      candidate_(candidate),
      device_(device),
      num_blocks_(model.dimensions().num_layers),
      tied_(model.hugging_face_config().value("tie_word_embeddings", false)) {
  const recipe::Recipe& recipe = candidate.recipe;
  const int64_t batch = std::min(recipe.train.micro_batch_size, samples.count());
  our_tokens_ = candidate.prediction.tokens;
  options_ = {.loop = program == "lightning" ? plan::LitgptLoop::Trainer : plan::LitgptLoop::Fabric,
              .fused_attention = has_fused_attention(device, recipe.precision),
              .batch = batch,
              .tokens = samples.longest(),
              .reserved_limit = device.kind == at::kCUDA ? device.usable_bytes() : 0,
              .sharding = sharding_of(program, recipe),
              .ranks = engine::named_ranks(recipe)};
  like_ = plan::like_litgpt(model, recipe, options_);
}

bool LikeLitgpt::fits() const {
  return like_.prediction.peak_allocated <= device_.usable_bytes() &&
         like_.prediction.fits_reserved;
}

Like::Side Like::side_of(const plan::Prediction& prediction) {
  const std::vector<plan::Moment>& timeline = prediction.timeline;
  return {.weights = highest(timeline, Category::Parameters, kAnywhere),
          .gradients = highest(timeline, Category::Gradients, kAnywhere),
          .states = highest(timeline, Category::Optimizer, kAnywhere),
          .kept = highest(timeline, Category::Activations, kAnywhere),
          .head = highest(timeline, Category::Workspace, kInHead),
          .update = highest(timeline, Category::Workspace, kInUpdate)};
}

LikeLitgpt::Side LikeLitgpt::theirs() const {
  Side side = side_of(like_.prediction);
  side.kept = like_.kept_by_blocks;
  side.head = like_.head;
  side.update = like_.update_temporaries;
  return side;
}

std::string LikeLitgpt::why_kept() const {
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

std::string LikeLitgpt::text() const {
  const recipe::Recipe& recipe = candidate_.recipe;
  const plan::Prediction& p = candidate_.prediction;
  const Side a = ours(), b = theirs();
  const bool offload = recipe.optimizer_offload != "none";
  const bool mixed = nn::parse_precision(recipe.precision).parameters !=
                     nn::parse_precision(recipe.precision).compute;
  report::Table table(
      {{"", report::Align::Left}, {"snug"}, {program_}, {"why less", report::Align::Left}});
  const auto row = [&](const char* what, int64_t mine, int64_t other, const std::string& why) {
    const bool less = mine < other - other / 100;
    table.add_row({what, format_bytes(mine), format_bytes(other), less ? why : ""});
  };
  const bool lora = recipe.lora.enabled;
  const std::string tied = tied_ ? "embedding and head are one weight" : "";
  const std::string copies = "no 16-bit copies of all weights between forward and backward";
  row("weights", a.weights, b.weights,
      recipe.weight_streaming    ? "weight streaming"
      : !recipe.quantize.empty() ? "one embedding; LitGPT also keeps the one it replaced"
      : mixed && !lora           ? copies + (tied_ ? "; " + tied : "")
                                 : tied);
  row("gradients", a.gradients, b.gradients,
      recipe.optimizer_in_backward       ? "optimizer in backward"
      : offload                          ? "optimizer offload"
      : lora && !recipe.quantize.empty() ? "the embedding is frozen; LitGPT's replacement is not"
      : lora                             ? ""
                                         : tied);
  row("optimizer states", a.states, b.states, offload ? "optimizer offload" : lora ? "" : tied);
  row("kept for backward", a.kept, b.kept, why_kept());
  row("logits and loss", a.head, b.head, "in chunks if there are many; no separate log-softmax");
  row("update, temporary", a.update, b.update, "states are updated in one pass, in place");
  row("peak allocated", p.peak_allocated, like_.prediction.peak_allocated, "");
  if (device_.kind == at::kCUDA)
    row("peak reserved", p.peak_reserved, like_.prediction.peak_reserved, "");
  std::string paged;
  if (like_.prediction.peak_host > 0)
    paged = fmt::format(" It takes {} of host memory per GPU; snug takes {}.",
                        format_bytes(like_.prediction.peak_host), format_bytes(p.peak_host));
  if (like_.paged_states > 0)
    paged = fmt::format(" Its optimizer keeps another {} in paged memory.",
                        format_bytes(like_.paged_states));
  return fmt::format(
      "Compared with {}: {} x {} tokens, padded; each row at its own peak\n\n{}\nWith {}, {} is "
      "allocated right after a forward; {}.{}\n",
      whose(), options_.batch, options_.tokens, table.render(), program_,
      format_bytes(like_.after_forward),
      fits() ? "it fits too" : "it does not fit into " + format_bytes(device_.usable_bytes()),
      paged);
}

std::string LikeLitgpt::whose() const {
  switch (options_.sharding) {
    case plan::LitgptSharding::None:
      break;
    case plan::LitgptSharding::Ddp:
      return "LitGPT's model in a Lightning Trainer with DDP";
    case plan::LitgptSharding::FsdpWhole:
      return "LitGPT's model in a Lightning Trainer with FSDP, the whole model as one module";
    case plan::LitgptSharding::Zero3Offload:
      return "LitGPT's model in a Lightning Trainer with DeepSpeed's ZeRO-3, its optimizer on the "
             "host";
    case plan::LitgptSharding::FsdpBlocks:
      return "litgpt finetune_full with FSDP and activation checkpointing of each block";
  }
  if (program_ != "litgpt") return "LitGPT's model in a Lightning Trainer";
  const recipe::Recipe& recipe = candidate_.recipe;
  if (!recipe.lora.enabled) return "litgpt finetune_full";
  return "litgpt finetune_lora" + (recipe.quantize.empty() ? "" : " --quantize " + recipe.quantize);
}

nlohmann::json LikeLitgpt::json() const {
  const Side b = theirs();
  return {{"program", program_},
          {"micro_batch_size", options_.batch},
          {"tokens_per_sample", options_.tokens},
          {"fits", fits()},
          {"peak_allocated", like_.prediction.peak_allocated},
          {"peak_reserved", like_.prediction.peak_reserved},
          {"after_forward", like_.after_forward},
          {"offloaded_to_host", like_.prediction.peak_host},
          {"whose", whose()},
          {"by_category", named(like_.prediction.by_category)},
          {"timeline", timeline_json(like_.prediction.timeline)},
          {"weights", b.weights},
          {"gradients", b.gradients},
          {"optimizer_states", b.states},
          {"kept_for_backward", b.kept},
          {"logits_and_loss", b.head},
          {"update_temporaries", b.update},
          {"paged_states", like_.paged_states}};
}

std::unique_ptr<Like> make_like(const std::string& program, const models::Model& model,
                                const plan::Candidate& candidate, const data::SampleStore& samples,
                                const plan::DeviceProfile& device) {
  const nlohmann::json config = model.hugging_face_config();
  if (!plan::has_lightning_model(config) && !config.contains("intermediate_size"))
    throw UserError("like: {}: a model of type {} is not planned there; leave --like out", program,
                    config.value("model_type", ""));
  if (!plan::has_lightning_model(config))
    return std::make_unique<LikeLitgpt>(program, model, candidate, samples, device);
  return std::make_unique<LikeLightning>(program, model, candidate, samples, device);
}

}  // namespace snug::plan
