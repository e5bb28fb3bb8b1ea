// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_like_lightning.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "engine/strategy.h"
#include "plan/command/plan_json.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

using memory::Category;

int64_t bytes_of(const memory::ByCategory& bytes, Category category) {
  return bytes[static_cast<size_t>(category)];
}

plan::TorchSharding sharding_of(const recipe::Recipe& recipe) {
  const std::string& strategy = recipe.strategy;
  const bool deepspeed = recipe.optimizer_offload == "cpu";
  if (engine::named_ranks(recipe) == 1) return plan::TorchSharding::None;
  if (!deepspeed && strategy == "ddp") return plan::TorchSharding::DdpBucketViews;
  if (!deepspeed && (strategy == "auto" || strategy == "fsdp"))
    return plan::TorchSharding::FsdpUnits;
  throw UserError(
      "like: strategy = {}{}: on several devices Lightning is planned with ddp and fsdp; choose "
      "one of them, or leave --like out",
      strategy, deepspeed ? " with optimizer_offload" : "");
}

// Scripts give a caption to both sides of an encoder-decoder, behind the picture's places.
plan::LightningOptions options_of(const models::Model& model, const recipe::Recipe& recipe,
                                  const data::SampleStore& samples,
                                  const plan::DeviceProfile& device) {
  plan::LightningOptions options{
      .batch = std::min(recipe.train.micro_batch_size, samples.count()),
      .tokens = samples.longest(),
      .reserved_limit = device.kind == at::kCUDA ? device.usable_bytes() : 0,
      .sharding = sharding_of(recipe),
      .ranks = engine::named_ranks(recipe)};
  if (!model.reads().source) return options;
  options.labels = 0;
  for (int64_t i = 0; i < samples.count(); ++i)
    options.labels = std::max(options.labels, samples.length(i) - samples.source_tokens(i));
  options.tokens = model.reads().num_picture_tokens + options.labels;
  return options;
}

}  // namespace

LikeLightning::LikeLightning(const std::string& program, const models::Model& model,
                             const plan::Candidate& candidate, const data::SampleStore& samples,
                             const plan::DeviceProfile& device)
    : model_type_(model.hugging_face_config().value("model_type", "")),
      candidate_(candidate),
      device_(device),
      options_(options_of(model, candidate.recipe, samples, device)) {
  if (program != "lightning")
    throw UserError("like: {}: LitGPT has no model of type {}; use --like lightning", program,
                    model_type_);
  like_ = plan::like_lightning(model.hugging_face_config(), candidate.recipe, options_);
}

bool LikeLightning::fits() const {
  return like_.prediction.peak_allocated <= device_.usable_bytes() &&
         like_.prediction.fits_reserved;
}

Like::Side LikeLightning::theirs() const {
  Side side = side_of(like_.prediction);
  side.kept = like_.kept_by_blocks;
  side.head = like_.head;
  side.update = like_.update_temporaries;
  return side;
}

std::string LikeLightning::whose() const {
  const recipe::Recipe& recipe = candidate_.recipe;
  std::string text = model_type_ == "gpt2" ? "minGPT" : "transformers' BLIP-2";
  if (recipe.lora.enabled)
    text += recipe.quantize.empty() ? " with peft" : " with peft and bitsandbytes";
  text += " in a Lightning Trainer";
  if (options_.sharding == plan::TorchSharding::DdpBucketViews) text += " with DDP";
  if (options_.sharding == plan::TorchSharding::FsdpUnits) text += " with FSDP around each block";
  if (recipe.optimizer_offload == "cpu")
    text += " with DeepSpeed's ZeRO-2 and its Adam on the host";
  return text;
}

// What the script's own snapshots of the second step say.
std::string LikeLightning::phases() const {
  report::Table table({{"second step", report::Align::Left},
                       {"weights"},
                       {"gradients"},
                       {"states"},
                       {"other"},
                       {"allocated"},
                       {"peak"}});
  for (const plan::LightningPhase& phase : like_.phases) {
    if (phase.step != 1) continue;
    const int64_t weights = bytes_of(phase.by_category, Category::Parameters);
    const int64_t gradients = bytes_of(phase.by_category, Category::Gradients);
    const int64_t states = bytes_of(phase.by_category, Category::Optimizer);
    table.add_row({phase.name, format_bytes(weights), format_bytes(gradients), format_bytes(states),
                   format_bytes(phase.allocated - weights - gradients - states),
                   format_bytes(phase.allocated), format_bytes(phase.peak)});
  }
  return table.render();
}

std::string LikeLightning::text() const {
  const plan::Prediction& p = candidate_.prediction;
  const Side a = side_of(p), b = theirs();
  report::Table table({{"", report::Align::Left}, {"snug"}, {"lightning"}});
  const auto row = [&](const char* what, int64_t mine, int64_t other) {
    table.add_row({what, format_bytes(mine), format_bytes(other)});
  };
  row("weights", a.weights, b.weights);
  row("gradients", a.gradients, b.gradients);
  row("optimizer states", a.states, b.states);
  row("kept for backward", a.kept, b.kept);
  row("logits and loss", a.head, b.head);
  row("update, temporary", a.update, b.update);
  row("peak allocated", p.peak_allocated, like_.prediction.peak_allocated);
  if (device_.kind == at::kCUDA)
    row("peak reserved", p.peak_reserved, like_.prediction.peak_reserved);
  if (std::max(p.peak_host, like_.prediction.peak_host) > 0)
    row("on the host", p.peak_host, like_.prediction.peak_host);
  std::string text =
      fmt::format("Compared with {}: {} x {} tokens{}, padded; each row at its own peak\n\n{}\n{}",
                  whose(), options_.batch, options_.tokens,
                  options_.labels > 0 ? fmt::format(" and {} labels", options_.labels) : "",
                  table.render(), phases());
  text += fmt::format(
      "\nWith lightning, {} is allocated right after a forward; {}.\n",
      format_bytes(like_.after_forward),
      fits() ? "it fits too" : "it does not fit into " + format_bytes(device_.usable_bytes()));
  if (like_.reserved_ahead > 0)
    text += fmt::format(
        "FSDP without limit_all_gathers reserves up to {}: the host gathers weights ahead of the "
        "GPU as long as there is memory.\n",
        format_bytes(like_.reserved_ahead));
  return text;
}

nlohmann::json LikeLightning::json() const {
  const Side b = theirs();
  nlohmann::json phases = nlohmann::json::array();
  for (const plan::LightningPhase& phase : like_.phases)
    phases.push_back({{"step", phase.step},
                      {"phase", phase.name},
                      {"parameters", bytes_of(phase.by_category, Category::Parameters)},
                      {"gradients", bytes_of(phase.by_category, Category::Gradients)},
                      {"optimizer_device", bytes_of(phase.by_category, Category::Optimizer)},
                      {"allocated", phase.allocated},
                      {"peak", phase.peak}});
  return {{"program", "lightning"},
          {"micro_batch_size", options_.batch},
          {"tokens_per_sample", options_.tokens},
          {"labels_per_sample", options_.labels > 0 ? options_.labels : options_.tokens},
          {"fits", fits()},
          {"peak_allocated", like_.prediction.peak_allocated},
          {"peak_reserved", like_.prediction.peak_reserved},
          {"reserved_ahead", like_.reserved_ahead},
          {"peak_host", like_.prediction.peak_host},
          {"after_forward", like_.after_forward},
          {"whose", whose()},
          {"by_category", named(like_.prediction.by_category)},
          {"timeline", timeline_json(like_.prediction.timeline)},
          {"weights", b.weights},
          {"gradients", b.gradients},
          {"optimizer_states", b.states},
          {"kept_for_backward", b.kept},
          {"logits_and_loss", b.head},
          {"update_temporaries", b.update},
          {"paged_states", 0},
          {"phases", phases}};
}

}  // namespace snug::plan
