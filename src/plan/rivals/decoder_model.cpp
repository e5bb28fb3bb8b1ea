// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/decoder_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "engine/adapters/adapters.h"
#include "models/family.h"
#include "plan/rivals/liger.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {
namespace {

namespace decoder = models::decoder;
using nlohmann::json;

constexpr int64_t kIgnored = -100;
constexpr double kScale = 0.5;  // any: shapes only

at::TensorOptions meta(at::ScalarType type) { return at::TensorOptions(at::kMeta).dtype(type); }

}  // namespace

const std::vector<std::string>& DecoderModel::families() {
  static const std::vector<std::string> all{
      "llama",  "mistral",     "qwen2",    "qwen3",    "granite", "smollm3",   "olmo2", "phi3",
      "gemma2", "gemma3_text", "gpt_neox", "stablelm", "mixtral", "qwen3_moe", "olmoe"};
  return all;
}

bool DecoderModel::is_known_to_liger(const std::string& family) {
  static const std::set<std::string> kOthers{"granite", "phi3",      "gpt_neox", "stablelm",
                                             "mixtral", "qwen3_moe", "olmoe"};
  return !kOthers.contains(family);
}

DecoderModel::DecoderModel(const models::Model& like, const Options& options)
    : Model(options),
      config_(decoder::read_config(like.hugging_face_config(), "the model")),
      liger_(options.weights.liger),
      is_eager_(config_.score_cap > 0),
      rotates_in_float_(config_.family->model_type == "olmo2"),
      is_scaled_(config_.json.contains("residual_multiplier")) {
  if (options.weights.lora.enabled)
    adapters_ = engine::adapter_config(*models::model_like(like), options.weights.lora);
  const memory::CategoryGuard category(memory::Category::Parameters);
  embedding_unit_ = modules_.begin_unit();
  embedding_ = modules_.weight({config_.vocab_size, config_.hidden_size});
  modules_.end_unit();
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) blocks_.push_back(make_block(i));
  head_unit_ = config_.tie_word_embeddings ? embedding_unit_ : modules_.begin_unit();
  modules_.resume_unit(head_unit_);
  norm_ = norm(config_.hidden_size, NormOf::Input);
  make_head();
  modules_.end_unit();
  modules_.share();
}

void DecoderModel::make_head() {
  const std::string name = config_.family->names.head;
  if (!config_.tie_word_embeddings)
    head_ = linear(config_.hidden_size, config_.vocab_size, false, name);
  else if (options_.weights.lora.enabled && checkpoint::adapts(adapters_, name))
    throw UserError(
        "like: an adapter of the head, whose weight is the embedding's, is not planned for peft; "
        "leave lora_head out");
  else
    head_ = {.in = config_.hidden_size, .out = config_.vocab_size, .weight = embedding_};
}

// Liger leaves OLMo's norms of heads as they are, and writes gradients in place where only the norm
// reads them.
DecoderModel::Norm DecoderModel::norm(int64_t width, NormOf what) {
  using Form = Modules::RmsForm;
  if (config_.family->layer_norm) return modules_.layer_norm(width);
  const bool is_gemma = config_.norm_form == kernels::NormForm::Gemma, is_olmo = rotates_in_float_;
  if (liger_ && !(is_olmo && what == NormOf::Head))
    return modules_.rms_norm(width,
                             is_gemma || what == NormOf::Result ? Form::Liger : Form::LigerInPlace);
  return modules_.rms_norm(width, is_gemma || is_olmo ? Form::CastLast : Form::ScaledLast);
}

DecoderModel::Linear DecoderModel::linear(int64_t in, int64_t out, bool bias,
                                          const std::string& name) {
  const bool adapted = options_.weights.lora.enabled && checkpoint::adapts(adapters_, name);
  return modules_.linear(in, out, bias, adapted ? std::vector{out} : std::vector<int64_t>(),
                         /*may_quantize=*/name != config_.family->names.head);
}

DecoderModel::Block DecoderModel::make_block(int64_t index) {
  using decoder::Norms;
  const std::string name = config_.family->names.layers + std::to_string(index) + ".";
  const Norms norms = config_.family->norms;
  Block block{.unit = modules_.begin_unit(), .layer = config_.layers[static_cast<size_t>(index)]};
  make_attention(block, name);
  make_mlp(block, name);
  if (norms != Norms::After) {
    block.before_attention = norm(config_.hidden_size, NormOf::Input);
    block.before_mlp = norm(config_.hidden_size, NormOf::Input);
  }
  if (norms != Norms::Before) {
    block.after_attention = norm(config_.hidden_size, NormOf::Result);
    block.after_mlp = norm(config_.hidden_size, NormOf::Result);
  }
  modules_.end_unit();
  return block;
}

void DecoderModel::make_attention(Block& block, const std::string& name) {
  const decoder::WeightNames& names = config_.family->names;
  const int64_t width = config_.hidden_size,
                queries = config_.num_attention_heads * config_.head_dim,
                keys = config_.num_key_value_heads * config_.head_dim;
  const bool bias = config_.qkv_bias;
  if (config_.family->fused_qkv) {
    block.q = linear(width, queries + 2 * keys, bias, name + names.qkv);
  } else {
    block.q = linear(width, queries, bias, name + "self_attn.q_proj");
    block.k = linear(width, keys, bias, name + "self_attn.k_proj");
    block.v = linear(width, keys, bias, name + "self_attn.v_proj");
  }
  block.out = linear(queries, width, config_.output_bias, name + names.output);
  if (config_.qk_norm == decoder::QkNorm::None) return;
  const bool of_heads = config_.qk_norm == decoder::QkNorm::Head;
  block.q_norm = norm(of_heads ? config_.head_dim : queries, NormOf::Head);
  block.k_norm = norm(of_heads ? config_.head_dim : keys, NormOf::Head);
}

void DecoderModel::make_mlp(Block& block, const std::string& name) {
  const decoder::Family& family = *config_.family;
  const int64_t width = config_.hidden_size, inner = config_.intermediate_size;
  const bool bias = config_.mlp_bias;
  if (block.layer.experts) {
    const decoder::WeightNames& names = family.names;
    const std::string expert = name + names.experts + ".0.";
    for (const char* layer : {names.expert_gate, names.expert_up, names.expert_down})
      if (options_.weights.lora.enabled && checkpoint::adapts(adapters_, expert + layer))
        throw UserError(
            "like: adapters of experts are not planned for peft; choose attention's layers, as in "
            "--lora_target_modules q_proj,k_proj,v_proj,o_proj");
    block.experts.emplace(config_, modules_);
    return;
  }
  if (family.gated && !family.fused_gate) {
    block.gate = linear(width, inner, bias, name + "mlp.gate_proj");
    block.up = linear(width, inner, bias, name + "mlp.up_proj");
  } else {
    block.up = linear(width, family.gated ? 2 * inner : inner, bias, name + family.names.up);
  }
  block.down = linear(inner, width, bias, name + family.names.down);
}

void DecoderModel::make_inputs() {
  for (at::Tensor* tensor : {&ids_, &mask_, &labels_})
    *tensor = new_ids(options_.batch, options_.tokens);
}

// A mask where samples differ in length or tokens see fewer than all before them. Eager attention
// always has one, to be added; that of fused attention is true or false, and the same for all
// samples where they are not padded.
at::Tensor DecoderModel::mask_of(const at::Tensor& x, bool has_window) const {
  const int64_t T = options_.tokens;
  const bool is_narrow = has_window && T >= config_.sliding_window;
  if (!is_eager_ && !options_.padded && !is_narrow) return {};
  const at::Tensor allowed =
      at::empty({options_.padded ? options_.batch : 1, 1, T, T}, meta(at::kBool))
          .expand({options_.batch, 1, T, T});
  return is_eager_ ? at::empty(allowed.sizes(), meta(x.scalar_type())) : allowed;
}

// Cosines and sines are made in float32, then in the type of x.
DecoderModel::Places DecoderModel::places_of(const at::Tensor& x) const {
  const at::Tensor angles =
      at::empty({1, 1, options_.tokens, config_.rotated.dim}, meta(at::kFloat));
  const at::ScalarType type = rotates_in_float_ ? at::kFloat : x.scalar_type();
  return {.cos = (angles * 1.0).to(type), .sin = (angles * 1.0).to(type), .mask = {}};
}

// x (B, H, T, D), some of whose elements are turned.
at::Tensor DecoderModel::in_places(const at::Tensor& x, const Places& places) const {
  const decoder::Family& family = *config_.family;
  const int64_t turning = config_.rotated.dim;
  if (liger_) return liger::rotated(x, places.cos, places.sin);
  if (turning == config_.head_dim && !family.fused_qkv) {
    const at::Tensor turned = rotated(x, places.cos, places.sin);
    return rotates_in_float_ ? turned.to(x.scalar_type()) : turned;
  }
  return at::cat({rotated(x.slice(-1, 0, turning), places.cos, places.sin), x.slice(-1, turning)},
                 -1);
}

// Queries, keys and values, (B, H, T, D).
std::vector<at::Tensor> DecoderModel::heads(const Block& block, const at::Tensor& x) {
  const int64_t B = x.size(0), T = x.size(1), D = config_.head_dim;
  const auto apart = [&](const at::Tensor& wide) {
    return wide.view({B, T, -1, D}).transpose(1, 2);
  };
  if (config_.family->interleaved)
    return run(block.q, x).view({B, T, -1, 3 * D}).transpose(1, 2).chunk(3, -1);
  if (config_.family->fused_qkv) {
    const int64_t queries = config_.num_attention_heads * D, keys = config_.num_key_value_heads * D;
    std::vector<at::Tensor> parts = run(block.q, x).split_with_sizes({queries, keys, keys}, -1);
    for (at::Tensor& part : parts) part = apart(part);
    return parts;
  }
  if (config_.qk_norm == decoder::QkNorm::Projection)
    return {apart(run(block.q_norm, run(block.q, x))), apart(run(block.k_norm, run(block.k, x))),
            apart(run(block.v, x))};
  return {normed(block.q_norm, apart(run(block.q, x))),
          normed(block.k_norm, apart(run(block.k, x))), apart(run(block.v, x))};
}

at::Tensor DecoderModel::eager_attention(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& mask) const {
  at::Tensor scores = at::matmul(modules_.cast(q), modules_.cast(k).transpose(2, 3)) * kScale;
  scores = at::tanh(scores / 2.0) * 2.0 + mask;
  scores = at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
  return at::matmul(modules_.cast(scores), modules_.cast(v));
}

// With a mask, transformers repeats keys and values to as many heads as there are queries.
at::Tensor DecoderModel::attention(at::Tensor q, at::Tensor k, at::Tensor v,
                                   const at::Tensor& mask) const {
  const int64_t repeats = config_.num_attention_heads / config_.num_key_value_heads;
  const auto repeat = [&] {  // a view where there is one head of keys
    for (at::Tensor* t : {&k, &v})
      *t = t->unsqueeze(2).expand({-1, -1, repeats, -1, -1}).reshape(q.sizes());
  };
  if (is_eager_) {
    repeat();
    return eager_attention(q, k, v, mask);
  }
  if (mask.defined()) repeat();
  for (at::Tensor* t : {&q, &k, &v}) *t = modules_.cast(*t);
  const bool on_cpu = options_.weights.on_cpu;
  // Memory-efficient attention, which float32 takes on a GPU, has no groups: plain products do.
  const bool plain = !on_cpu && !mask.defined() && repeats > 1 && q.scalar_type() == at::kFloat;
  if (plain)
    for (at::Tensor* t : {&k, &v}) *t = t->repeat_interleave(repeats, 1);
  if (on_cpu) return cpu_attention(q, k, v, mask);
  return plain ? plain_attention(q, k, v) : fused_attention(q, k, v, mask);
}

at::Tensor DecoderModel::attend(const Block& block, const Places& places, const at::Tensor& x) {
  std::vector<at::Tensor> qkv = heads(block, x);
  if (block.layer.rotation != decoder::Rotation::None)
    for (size_t i = 0; i < 2; ++i) qkv[i] = in_places(qkv[i], places);
  return run(block.out, join_heads(attention(qkv[0], qkv[1], qkv[2], places.mask)));
}

at::Tensor DecoderModel::activated(const at::Tensor& x) const {
  switch (config_.activation) {
    case kernels::Activation::Silu:
      return at::silu(x);
    case kernels::Activation::Relu:
      return relu(x);
    case kernels::Activation::Gelu:
    case kernels::Activation::GeluTanh:
    case kernels::Activation::ReluSquared:
    case kernels::Activation::Sigmoid:
      break;
  }
  return at::gelu(x);
}

at::Tensor DecoderModel::mlp(const Block& block, const at::Tensor& x) {
  if (block.experts) return block.experts->forward(x);
  if (!config_.family->gated) return run(block.down, activated(run(block.up, x)));
  if (!config_.family->fused_gate) {
    const at::Tensor gate = run(block.gate, x);
    if (liger_) return run(block.down, liger::gated(gate, run(block.up, x)));
    return run(block.down, activated(gate) * run(block.up, x));
  }
  const auto parts = run(block.up, x).chunk(2, -1);
  return run(block.down, parts[1] * activated(parts[0]));
}

at::Tensor DecoderModel::normed(const Norm& norm, const at::Tensor& x) {
  return norm.weight == nullptr ? x : run(norm, x);
}

at::Tensor DecoderModel::added(const at::Tensor& x) const { return is_scaled_ ? x * kScale : x; }

at::Tensor DecoderModel::run_layers(const Block& block, const Places& places,
                                    const at::Tensor& input) {
  const auto attended = [&] {
    return normed(block.after_attention,
                  attend(block, places, normed(block.before_attention, input)));
  };
  if (config_.parallel_residual) {
    const at::Tensor first = attended();
    return mlp(block, run(block.before_mlp, input)) + first + input;
  }
  const at::Tensor x = input + added(attended());
  return x + added(normed(block.after_mlp, mlp(block, normed(block.before_mlp, x))));
}

// They move by one.
at::Tensor DecoderModel::shifted_labels() const {
  return at::constant_pad_nd(labels_, {0, 1}, kIgnored)
      .slice(1, 1, options_.tokens + 1)
      .contiguous();
}

// Logits stay whole.
at::Tensor DecoderModel::loss_of(const at::Tensor& logits) const {
  const at::Tensor wide = logits.to(at::kFloat);
  return cross_entropy(wide, shifted_labels(), kIgnored);
}

at::Tensor DecoderModel::loss_by_liger(const at::Tensor& x) {
  const at::Tensor targets = shifted_labels(), normed = run(norm_, x);
  return modules_.as_module({head_.weight}, normed, [&](const at::Tensor& given) {
    return liger::head_and_loss(
        given.view({-1, config_.hidden_size}), *head_.weight,
        {.product = modules_.cast(given).scalar_type(), .adds_in_place = !options_.weights.on_cpu});
  });
}

at::Tensor DecoderModel::embedded() {
  const int32_t unit = memory::unit_id("embedding");
  const memory::UnitGuard guard(unit);
  enter(embedding_unit_);
  at::Tensor x = modules_.as_module(
      {embedding_}, ids_, [&](const at::Tensor& ids) { return embedding(ids, *embedding_); });
  if (embedding_unit_ != head_unit_) leave(embedding_unit_, x, FullyShard::Stays::Never);
  if (config_.family->scaled_embedding) x = x * kScale;
  // A frozen embedding's output is what the first block is recomputed from.
  if (options_.checkpointing && !x.requires_grad()) x.set_requires_grad(true);
  if (is_scaled_) x = x * kScale;
  mark_unit(x, unit);
  return x;
}

at::Tensor DecoderModel::run_all_blocks(at::Tensor x) {
  using decoder::Rotation;
  const auto any_has = [&](auto is_so) {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [&](const Block& block) { return is_so(block.layer); });
  };
  std::map<Rotation, Places> places;
  places[Rotation::None] = {};
  for (const Rotation rotation : {Rotation::Model, Rotation::Window})
    if (any_has([&](const decoder::Layer& l) { return l.rotation == rotation; }))
      places[rotation] = places_of(x);
  at::Tensor full, narrow;
  if (any_has([](const decoder::Layer& l) { return l.sliding_window == 0; }))
    full = mask_of(x, false);
  if (any_has([](const decoder::Layer& l) { return l.sliding_window > 0; }))
    narrow = mask_of(x, true);
  return run_blocks("block", blocks_, std::move(x), {},
                    [this, places, full, narrow](const Block& block, const auto& given) {
                      Places of_block = places.at(block.layer.rotation);
                      of_block.mask = block.layer.sliding_window > 0 ? narrow : full;
                      return run_layers(block, of_block, given.front());
                    });
}

at::Tensor DecoderModel::logits(const at::Tensor& x) {
  at::Tensor out = run(head_, run(norm_, x));
  if (is_scaled_) out = out / 2.0;
  if (config_.logit_form.cap > 0) out = at::tanh(out / 2.0) * 2.0;
  return out;
}

at::Tensor DecoderModel::loss() {
  at::Tensor x = run_all_blocks(embedded());
  finish_gathers();
  const memory::UnitGuard guard(memory::unit_id("head"));
  enter(head_unit_);
  if (embedding_unit_ != head_unit_) x = entered(head_unit_, x);
  if (liger_) return loss_by_liger(x);
  const at::Tensor out = logits(x);
  leave(head_unit_, out, FullyShard::Stays::UntilBackward);
  at::Tensor loss = loss_of(out);
  modules_.drop_weight_casts();
  // accelerate hands out float32 copies of what an autocast model returns.
  if (modules_.autocast()) const at::Tensor returned = out.to(at::kFloat);
  if (options_.keeps_logits) outputs_ = {out.detach()};
  return loss;
}

}  // namespace snug::plan::rivals
