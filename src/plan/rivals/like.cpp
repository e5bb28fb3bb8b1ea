// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/like.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "core/memory/guards.h"
#include "plan/predict.h"
#include "plan/rivals/blip2_model.h"
#include "plan/rivals/decoder_model.h"
#include "plan/rivals/deepspeed.h"
#include "plan/rivals/gpt_models.h"
#include "plan/rivals/optimizer.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;
using Name = recipe::OptimizerName;

int64_t of(const memory::ByCategory& bytes, Category category) {
  return bytes[static_cast<size_t>(category)];
}

std::string model_type(const nlohmann::json& config) {
  return config.value("model_type", std::string());
}

// How long what a training step computes stays alive.
enum class Outputs { UntilBackward, UntilBackwardEnds, UntilOverwritten };

// A program as it is set up for a recipe.
struct Program {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  Loop loop = Loop::Trainer;
  Outputs outputs = Outputs::UntilBackward;
  // Memory of the stream on which FSDP gathers is not reused on other streams.
  bool gathers_apart = true;
  bool limits_gathers = true;
};

void check_litgpt(const recipe::Recipe& recipe, const Options& options) {
  const recipe::LoraOptions& lora = recipe.lora;
  const nn::Precision precision = nn::parse_precision(recipe.precision);
  const auto& optimizer = recipe.optimizer.name;
  const bool zero3 = options.sharding == Sharding::Zero3Offload;
  if (lora.enabled && (!lora.target_modules.empty() || lora.use_dora))
    throw UserError(
        "like: LitGPT's LoRA has neither target_modules nor DoRA; choose with lora_query … "
        "lora_head");
  if (options.ranks > 1 && !recipe.quantize.empty())
    throw UserError("like: quantize = {}: LitGPT quantizes on one device only", recipe.quantize);
  if ((is_fsdp(options.sharding) || zero3) &&
      (lora.enabled || precision.parameters != precision.compute))
    throw UserError(
        "like: {} is planned for full fine-tuning in 32-true, bf16-true or 16-true; leave "
        "adapters and mixed precision out, or use --devices 1",
        zero3 ? "DeepSpeed's ZeRO-3" : "FSDP");
  if (recipe.quantize.starts_with("bnb.int8"))
    throw UserError("like: quantize = {}: LitGPT is planned with its 4-bit kinds", recipe.quantize);
  if (!recipe.quantize.empty() && optimizer != Name::AdamW)
    throw UserError("like: optimizer = {}: LitGPT trains quantized models with AdamW only",
                    optimizer);
  if (optimizer != Name::AdamW && optimizer != Name::Sgd)
    throw UserError("like: optimizer = {}: LitGPT is planned with torch's adamw and sgd",
                    optimizer);
  if (zero3 && optimizer != Name::AdamW)
    throw UserError("like: optimizer = {}: DeepSpeed is planned with adamw on the host", optimizer);
}

void check_lightning(const nlohmann::json& config, const recipe::Recipe& recipe,
                     const Options& options) {
  const recipe::LoraOptions& lora = recipe.lora;
  const auto& optimizer = recipe.optimizer.name;
  if (!has_lightning_model(config))
    throw UserError("like: lightning: a model of type {} is not planned", model_type(config));
  if (lora.enabled && (lora.target_modules.empty() || lora.use_dora))
    throw UserError(
        "like: peft is planned with lora_target_modules as a list of layers' names, such as q,v, "
        "and without DoRA");
  if (lora.enabled && !recipe.quantize.empty() && recipe.quantize != "bnb.nf4" &&
      recipe.quantize != "bnb.fp4")
    throw UserError("like: quantize = {}: transformers is planned with bnb.nf4 and bnb.fp4",
                    recipe.quantize);
  if (lora.enabled && options.sharding != Sharding::None)
    throw UserError("like: adapters are planned on one device; use --devices 1");
  if (optimizer != Name::AdamW && optimizer != Name::Sgd && optimizer != Name::AdamW8bit)
    throw UserError(
        "like: optimizer = {}: Lightning scripts are planned with adamw, sgd and adamw_8bit",
        optimizer);
  const std::string& offload = recipe.optimizer_offload;
  if (offload != "none" && (offload != "cpu" || optimizer != Name::AdamW))
    throw UserError(
        "like: optimizer = {} with optimizer_offload = {}: DeepSpeed is planned with adamw on the "
        "host",
        optimizer, offload);
}

// Weights, states or both are taken apart.
bool shards_all(Sharding sharding) { return is_deepspeed(sharding) || is_fully_sharded(sharding); }

// What ZeRO-3 is planned for.
bool is_whole(const recipe::Recipe& recipe) {
  return recipe.quantize.empty() && !recipe.lora.use_dora;
}
bool offloads_all(const recipe::DeepSpeed& settings) {
  return settings.offloaded == 1 && !settings.super_offload;
}

void check_deepspeed(const recipe::Recipe& recipe, const Options& options) {
  const bool stage3 = options.sharding == Sharding::ZeroWeights;
  const recipe::DeepSpeed& settings = options.deepspeed;
  if (stage3 && recipe.updates_on_host() && !offloads_all(settings))
    throw UserError(
        "like: DeepSpeed's offload_optimizer is planned for all of the optimizer, without "
        "super_offload; leave {} out",
        settings.super_offload ? "super_offload" : fmt::format("ratio: {}", settings.offloaded));
  // An optimizer that stages 1 and 2 offload has them whatever is said.
  if (!settings.has_buckets && (stage3 || !recipe.updates_on_host()))
    throw UserError(
        "like: DeepSpeed is planned with contiguous_gradients, which is its default; leave "
        "contiguous_gradients: false out");
  if (stage3 && !is_whole(recipe))
    throw UserError(
        "like: DeepSpeed's ZeRO-3 is planned without quantized weights and use_dora; use "
        "--strategy zero2, or leave --like out");
}

void check_transformers(const nlohmann::json& config, const recipe::Recipe& recipe,
                        const Options& options) {
  const std::vector<std::string>& known = DecoderModel::families();
  const auto& optimizer = recipe.optimizer.name;
  if (std::find(known.begin(), known.end(), model_type(config)) == known.end())
    throw UserError("like: transformers: a model of type {} is not planned, only {}",
                    model_type(config), fmt::join(known, ", "));
  if (options.liger && !DecoderModel::is_known_to_liger(model_type(config)))
    throw UserError(
        "like: transformers+liger: Liger's kernels for a model of type {} are not planned; use "
        "--like transformers",
        model_type(config));
  if (options.liger && recipe.lora.enabled && recipe.lora.head)
    throw UserError(
        "like: transformers+liger: Liger's loss reads a head without an adapter; leave "
        "lora_head out");
  if (is_fully_sharded(options.sharding) && !takes_fully_sharded(recipe))
    throw UserError(
        "like: transformers with FSDP is planned with adamw and sgd, without 8-bit weights and "
        "use_dora, and with optimizer_offload: cpu if weight_streaming: true is there too and "
        "nothing is quantized, which is its CPU offload; use --strategy ddp, or leave --like out");
  if (is_deepspeed(options.sharding)) check_deepspeed(recipe, options);
  if (optimizer != Name::AdamW && optimizer != Name::Sgd && optimizer != Name::AdamW8bit)
    throw UserError("like: optimizer = {}: transformers is planned with adamw, sgd and adamw_8bit",
                    optimizer);
  if (recipe.updates_on_host() && !shards_all(options.sharding) &&
      (recipe.optimizer_offload != "cpu" || optimizer == Name::Sgd))
    throw UserError(
        "like: optimizer_offload = {}: transformers is planned with the paged optimizers of "
        "bitsandbytes, which are adamw and adamw_8bit with optimizer_offload: cpu",
        recipe.optimizer_offload);
}

Model::Options model_options(Library library, const recipe::Recipe& recipe, const Options& options,
                             bool checkpointing) {
  const bool quantizes = library == Library::LitGpt || recipe.lora.enabled;
  return {.weights = {.library = library,
                      .precision = nn::parse_precision(recipe.precision),
                      .loaded = nn::parse_precision(recipe.precision).parameters,
                      .sharding = options.sharding,
                      .ranks = options.ranks,
                      .lora = recipe.lora,
                      .quantize = quantizes ? recipe.quantize : "",
                      .on_cpu = options.on_cpu,
                      .liger = options.liger,
                      .deepspeed = options.deepspeed,
                      .weights_on_host = !options.on_cpu && (is_deepspeed(options.sharding)
                                                                 ? recipe.weight_streaming
                                                                 : offloads_fully_sharded(recipe))},
          .checkpointing = checkpointing,
          .batch = options.batch,
          .tokens = options.tokens,
          .labels = options.labels,
          .padded = options.padded,
          .keeps_logits = options.own_loop};
}

Program litgpt(const models::Model& like, const recipe::Recipe& recipe, const Options& options) {
  check_litgpt(recipe, options);
  const bool trainer = options.loop == Loop::Trainer;
  const auto logits = trainer               ? LitgptLogits::Whole
                      : recipe.lora.enabled ? LitgptLogits::Pieces
                                            : LitgptLogits::WholeInFloat32;
  // finetune_full checkpoints the blocks that FSDP wraps.
  Program program{
      .model = std::make_unique<LitgptModel>(
          like,
          model_options(Library::LitGpt, recipe, options, options.sharding == Sharding::FsdpUnits),
          logits, options.fused_attention),
      .loop = options.loop,
      .outputs = trainer ? Outputs::UntilBackwardEnds : Outputs::UntilOverwritten,
      .gathers_apart = false};
  const std::vector<at::Tensor>& weights = program.model->modules().trained();
  if (options.sharding == Sharding::Zero3Offload) {
    std::vector<at::Tensor> in_order = weights;  // but for the head, which is made first
    std::rotate(in_order.begin(), in_order.begin() + 1, in_order.end());
    program.optimizer = zero3_on_host(std::move(in_order), options.ranks);
  } else {
    program.optimizer = recipe.quantize.empty()
                            ? torch_optimizer(recipe.optimizer, weights, {.moment_by_moment = true})
                            : paged_adamw(weights, {});
  }
  return program;
}

Program lightning(const nlohmann::json& config, const recipe::Recipe& recipe,
                  const Options& options) {
  check_lightning(config, recipe, options);
  const bool mingpt = model_type(config) == "gpt2";
  // QLoRA's preparation turns checkpointing on.
  const bool quantized = recipe.lora.enabled && !recipe.quantize.empty();
  const Model::Options model =
      model_options(Library::Transformers, recipe, options,
                    recipe.activation_checkpointing != "none" || quantized);
  Program program;
  const memory::CategoryGuard category(Category::Parameters);
  if (mingpt)
    program.model = std::make_unique<MinGptModel>(config, model);
  else
    program.model = std::make_unique<Blip2Model>(config, model);
  const std::vector<at::Tensor>& weights = program.model->modules().trained();
  program.optimizer = recipe.optimizer_offload == "cpu"
                          ? zero2_on_host(weights)
                          : torch_optimizer(recipe.optimizer, weights, {.foreach = !mingpt});
  // In the PyTorch that minGPT was run with, FSDP limits nothing.
  program.limits_gathers = !mingpt;
  return program;
}

Program transformers(const models::Model& like, const recipe::Recipe& recipe,
                     const Options& options) {
  check_transformers(like.hugging_face_config(), recipe, options);
  Model::Options model = model_options(Library::Transformers, recipe, options,
                                       recipe.activation_checkpointing != "none");
  nn::Precision& precision = model.weights.precision;
  // DeepSpeed casts all weights, and keeps float32 masters beside them; without autocast.
  const bool by_deepspeed = is_deepspeed(options.sharding);
  if (by_deepspeed) {
    model.weights.stored = at::kFloat;
    precision.parameters = precision.compute;
    model.weights.deepspeed =
        settled(options.deepspeed, like.hugging_face_config().value("hidden_size", int64_t{0}));
  }
  // peft's prepare_model_for_kbit_training makes float32 of all that is not quantized.
  if (!model.weights.quantize.empty() && !by_deepspeed) {
    if (precision.parameters == precision.compute) precision.compute = at::kFloat;
    precision.parameters = at::kFloat;
  }
  // FSDP2 keeps float32 weights and gathers them in the type of products; without autocast.
  if (is_fully_sharded(options.sharding) && precision.parameters != precision.compute) {
    model.weights.stored = precision.parameters;
    precision.parameters = precision.compute;
  }
  Program program{.model = std::make_unique<DecoderModel>(like, model),
                  .loop = Loop::HuggingFace,
                  .outputs = options.own_loop ? Outputs::UntilOverwritten : Outputs::UntilBackward};
  const std::vector<at::Tensor>& weights = program.model->modules().trained();
  if (by_deepspeed) {
    using Home = ZeroOptions::Home;
    const ZeroOptions zero{.stage = zero_stage(options.sharding),
                           .settings = model.weights.deepspeed,
                           .ranks = options.ranks,
                           .home = recipe.offload_folder()    ? Home::Disk
                                   : recipe.updates_on_host() ? Home::Host
                                                              : Home::Device,
                           .on_cpu = options.on_cpu};
    program.optimizer = zero_optimizer(recipe.optimizer, {.fused = !options.own_loop}, weights,
                                       zero, program.model->modules().zero_weights());
    return program;
  }
  // The Trainer keeps float32 states of embeddings.
  const bool trains_embedding = !recipe.lora.enabled;
  const bool is_sharded = is_fully_sharded(options.sharding);
  program.optimizer =
      recipe.updates_on_host() && !is_sharded
          ? paged_adamw(weights, {.eight_bits = recipe.optimizer.name == Name::AdamW8bit,
                                  .first_in_float32 = trains_embedding})
          : torch_optimizer(recipe.optimizer, weights,
                            {.fused = !options.own_loop,
                             .first_in_float32 = trains_embedding,
                             .on_host = is_sharded && model.weights.weights_on_host});
  return program;
}

// Two steps of a program's loop.
class Training {
 public:
  Training(Program& program, const recipe::Recipe& recipe, const Options& options,
           TimelineRecorder& recorder)
      : program_(program),
        model_(*program.model),
        optimizer_(*program.optimizer),
        recorder_(recorder) {
    const auto& train = recipe.train;
    accumulate_ =
        std::clamp<int64_t>(train.global_batch_size / options.ranks / train.micro_batch_size, 1, 2);
  }

  // In both steps.
  int64_t micro_batches() const { return 2 * accumulate_; }

  Figures run() {
    for (step_ = 0; step_ < 2; ++step_) {
      recorder_.begin_step();
      for (int64_t i = 0; i < accumulate_; ++i)
        run_micro_batch(/*first=*/i == 0, /*is_last=*/i == accumulate_ - 1);
      optimizer_.step();
      if (program_.loop != Loop::Trainer) model_.modules().drop_gradients();
      note("after_opt_step");
      recorder_.end_step();
    }
    result_.prediction.peak_host += optimizer_.host_bytes();
    result_.paged_states = optimizer_.paged_bytes();
    return std::move(result_);
  }

 private:
  void run_micro_batch(bool first, bool is_last) {
    const at::AutoGradMode mode(true);
    memory::Ledger& ledger = memory::meta_ledger();
    const memory::PhaseGuard phase(memory::Phase::Forward);
    note("before_fwd");
    model_.make_inputs();
    optimizer_.before_forward();
    const uint64_t start = ledger.serial();
    loss_ = model_.forward();
    ledger.retag_since(start, Category::Activations);
    note_forward(ledger.now());
    note("after_fwd");
    if (program_.outputs == Outputs::UntilBackward) model_.drop_outputs();
    if (program_.loop == Loop::Trainer && first) model_.modules().drop_gradients();
    const memory::PhaseGuard backward(memory::Phase::Backward);
    const memory::UnitGuard unit(memory::unit_id("head"));
    optimizer_.before_backward(is_last);
    model_.begin_backward(is_last);
    torch::autograd::backward({loss_ / static_cast<double>(accumulate_)}, {});
    model_.end_backward();
    optimizer_.after_backward();
    if (program_.outputs != Outputs::UntilOverwritten) {
      model_.drop_outputs();
      loss_.reset();
    }
    note("after_bwd");
  }

  void note(const char* name) {
    const memory::Snapshot now = memory::meta_ledger().now();
    result_.phases.push_back({.step = step_,
                              .name = name,
                              .by_category = now.by_category,
                              .allocated = now.allocated,
                              .peak = memory::meta_ledger().at_peak().allocated});
  }

  void note_forward(const memory::Snapshot& now) {
    result_.after_forward = now.allocated;
    const auto head = static_cast<size_t>(memory::unit_id("head"));
    result_.head = head < now.by_unit.size() ? of(now.by_unit[head], Category::Activations) : 0;
    result_.kept_by_blocks = of(now.by_category, Category::Activations) - result_.head;
  }

  const Program& program_;
  Model& model_;
  Optimizer& optimizer_;
  TimelineRecorder& recorder_;
  int64_t accumulate_ = 1;
  int step_ = 0;
  at::Tensor loss_;
  Figures result_;
};

// The allocations with which FSDP gathers, which are on a stream of their own.
std::set<uint64_t> gathers_of(const Program& program) {
  std::set<uint64_t> gathers;
  if (program.gathers_apart)
    for (const auto& flat : program.model->modules().flats())
      gathers.insert(flat->gathers().begin(), flat->gathers().end());
  if (const FullyShard* sharded = program.model->modules().fully_shard())
    gathers.insert(sharded->gathers().begin(), sharded->gathers().end());
  return gathers;
}

void add_reserved(const Program& program, MemoryEvents events, int64_t limit, Prediction& result) {
  const std::set<uint64_t> gathers = gathers_of(program);
  for (MemoryEvent& event : events.all) {
    if (!gathers.contains(event.serial)) continue;
    event.stream = 1;
    event.late = program.gathers_apart && !program.limits_gathers;
  }
  const Reserved reserved = replay(events, limit, Segments::Fixed);
  result.peak_reserved = reserved.peak;
  result.fits_reserved = reserved.fits;
  result.driver_calls = reserved.of_step;
}

// `set_up` makes the program, whose memory is all counted.
template <class SetUp>
Figures run(SetUp set_up, const recipe::Recipe& recipe, const Options& options) {
  memory::Ledger& ledger = memory::meta_ledger();
  memory::Ledger& host = memory::meta_host_ledger();
  const int64_t before = ledger.allocated(), before_on_host = host.allocated();
  ledger.reset_peak();
  host.reset_peak();
  TimelineRecorder recorder(ledger);
  Program program = set_up();
  Training training(program, recipe, options, recorder);
  Figures result = training.run();
  const memory::Snapshot peak = ledger.at_peak();
  Prediction& p = result.prediction;
  p.peak_allocated = peak.allocated - before;
  p.peak_host += host.at_peak().allocated - before_on_host;
  p.by_category = peak.by_category;
  p.timeline = recorder.moments();
  p.bytes_written = recorder.bytes_written();
  p.tokens = options.batch * options.tokens;
  p.micro_batches = training.micro_batches();
  add_reserved(program, recorder.events(), options.reserved_limit, p);
  result.after_forward -= before;
  for (PhaseFigures& phase : result.phases) {
    phase.allocated -= before;
    phase.peak -= before;
  }
  for (const Moment& moment : p.timeline)
    if (moment.phase == memory::Phase::Step)
      result.update_temporaries =
          std::max(result.update_temporaries, of(moment.by_category, Category::Workspace));
  return result;
}

}  // namespace

bool has_lightning_model(const nlohmann::json& config) {
  return model_type(config) == "blip-2" || model_type(config) == "gpt2";
}

bool takes_fully_sharded(const recipe::Recipe& recipe) {
  const auto& optimizer = recipe.optimizer.name;
  const bool offloads = offloads_fully_sharded(recipe) && recipe.quantize.empty();
  return (optimizer == Name::AdamW || optimizer == Name::Sgd) &&
         (!recipe.updates_on_host() || offloads) && !recipe.quantize.starts_with("bnb.int8") &&
         !recipe.lora.use_dora;
}

bool offloads_fully_sharded(const recipe::Recipe& recipe) {
  return recipe.optimizer_offload == "cpu" && recipe.weight_streaming;
}

bool takes_zero3(const recipe::Recipe& recipe, const recipe::DeepSpeed& settings) {
  return is_whole(recipe) && settings.has_buckets &&
         (!recipe.updates_on_host() || offloads_all(settings));
}

bool has_liger_kernels(const std::string& model_type) {
  const std::vector<std::string>& known = DecoderModel::families();
  return std::find(known.begin(), known.end(), model_type) != known.end() &&
         DecoderModel::is_known_to_liger(model_type);
}

Figures like_litgpt(const models::Model& model, const recipe::Recipe& recipe,
                    const Options& options) {
  return run([&] { return litgpt(model, recipe, options); }, recipe, options);
}

Figures like_lightning(const nlohmann::json& config, const recipe::Recipe& recipe,
                       const Options& options) {
  return run([&] { return lightning(config, recipe, options); }, recipe, options);
}

Figures like_transformers(const models::Model& model, const recipe::Recipe& recipe,
                          const Options& options) {
  return run([&] { return transformers(model, recipe, options); }, recipe, options);
}

}  // namespace snug::plan::rivals
