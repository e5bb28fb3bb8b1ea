// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/decoder_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "engine/adapters/adapters.h"
#include "models/family.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {
namespace {

using nlohmann::json;

constexpr int64_t kIgnored = -100;

// Tokens that a token sees of those before it, where that is fewer than all.
int64_t window_of(const json& config) {
  const bool has_window =
      config.at("model_type") == "mistral" || config.value("use_sliding_window", false);
  const auto window = config.find("sliding_window");
  return has_window && window != config.end() && window->is_number() ? window->get<int64_t>() : 0;
}

}  // namespace

const std::vector<std::string>& DecoderModel::families() {
  static const std::vector<std::string> all{"llama", "mistral", "qwen2", "qwen3"};
  return all;
}

DecoderModel::DecoderModel(const models::Model& like, const Options& options)
    : Model(options),
      width_(like.dimensions().hidden_size),
      heads_(like.dimensions().num_heads),
      groups_(like.dimensions().num_kv_heads),
      head_size_(like.dimensions().head_dim) {
  const models::Dimensions d = like.dimensions();
  const json config = like.hugging_face_config();
  const int64_t window = window_of(config);
  masked_ = options.padded || (window > 0 && options.tokens >= window);
  if (options.weights.lora.enabled)
    adapters_ = engine::adapter_config(*models::model_like(like), options.weights.lora);
  const memory::CategoryGuard category(memory::Category::Parameters);
  embedding_ = modules_.weight({d.vocabulary, width_});
  for (int64_t i = 0; i < d.num_layers; ++i)
    blocks_.push_back(make_block(config, "model.layers." + std::to_string(i)));
  norm_ = norm(width_);
  const bool tied = config.value("tie_word_embeddings", false);
  if (!tied)
    head_ = linear(width_, d.vocabulary, false, "lm_head");
  else if (options.weights.lora.enabled && checkpoint::adapts(adapters_, "lm_head"))
    throw UserError(
        "like: an adapter of the head, whose weight is the embedding's, is not planned for peft; "
        "leave lora_head out");
  else
    head_ = {.in = width_, .out = d.vocabulary, .weight = embedding_};
  modules_.share();
}

DecoderModel::Norm DecoderModel::norm(int64_t width) {
  Norm norm = modules_.rms_norm(width);
  norm.scales_last = true;
  return norm;
}

DecoderModel::Linear DecoderModel::linear(int64_t in, int64_t out, bool bias,
                                          const std::string& name) {
  const bool adapted = options_.weights.lora.enabled && checkpoint::adapts(adapters_, name);
  return modules_.linear(in, out, bias, adapted ? std::vector{out} : std::vector<int64_t>(),
                         /*may_quantize=*/name != "lm_head");
}

DecoderModel::Block DecoderModel::make_block(const json& config, const std::string& name) {
  const auto inner = config.at("intermediate_size").get<int64_t>();
  const bool is_qwen2 = config.at("model_type") == "qwen2";
  const bool out_bias = config.value("attention_bias", false);
  const bool bias = is_qwen2 || out_bias, mlp_bias = config.value("mlp_bias", false);
  const int64_t queries = heads_ * head_size_, keys = groups_ * head_size_;
  const std::string attention = name + ".self_attn.", mlp = name + ".mlp.";
  Block block{.unit = modules_.begin_unit()};
  block.q = linear(width_, queries, bias, attention + "q_proj");
  block.k = linear(width_, keys, bias, attention + "k_proj");
  block.v = linear(width_, keys, bias, attention + "v_proj");
  block.out = linear(queries, width_, out_bias, attention + "o_proj");
  if (config.at("model_type") == "qwen3") {
    block.q_norm = norm(head_size_);
    block.k_norm = norm(head_size_);
  }
  block.gate = linear(width_, inner, mlp_bias, mlp + "gate_proj");
  block.up = linear(width_, inner, mlp_bias, mlp + "up_proj");
  block.down = linear(inner, width_, mlp_bias, mlp + "down_proj");
  block.norm_1 = norm(width_);
  block.norm_2 = norm(width_);
  modules_.end_unit();
  return block;
}

void DecoderModel::make_inputs() {
  for (at::Tensor* tensor : {&ids_, &mask_, &labels_})
    *tensor = new_ids(options_.batch, options_.tokens);
}

// They are made in float32, then in the type of x.
DecoderModel::Places DecoderModel::places_of(const at::Tensor& x) const {
  const at::Tensor angles = at::empty({1, 1, options_.tokens, head_size_},
                                      at::TensorOptions(at::kMeta).dtype(at::kFloat));
  Places places{.cos = (angles * 1.0).to(x.scalar_type()),
                .sin = (angles * 1.0).to(x.scalar_type())};
  if (masked_)
    places.mask = at::empty({options_.batch, 1, options_.tokens, options_.tokens},
                            at::TensorOptions(at::kMeta).dtype(at::kBool));
  return places;
}

// (B, T, width) -> (B, H, T, D)
at::Tensor DecoderModel::heads(const Linear& layer, const Norm& norm, const at::Tensor& x) {
  at::Tensor out = run(layer, x).view({x.size(0), x.size(1), -1, head_size_});
  if (norm.weight != nullptr) out = run(norm, out);
  return out.transpose(1, 2);
}

// With a mask, transformers repeats keys and values to as many heads as there are queries.
at::Tensor DecoderModel::attention(at::Tensor q, at::Tensor k, at::Tensor v,
                                   const at::Tensor& mask) const {
  for (at::Tensor* t : {&q, &k, &v}) *t = modules_.cast(*t);
  const int64_t repeats = heads_ / groups_;
  const bool on_cpu = options_.weights.on_cpu;
  // Memory-efficient attention, which float32 takes on a GPU, has no groups: plain products do.
  const bool plain = !on_cpu && !mask.defined() && repeats > 1 && q.scalar_type() == at::kFloat;
  if (plain)
    for (at::Tensor* t : {&k, &v}) *t = t->repeat_interleave(repeats, 1);
  if (mask.defined())  // a view where there is one head of keys
    for (at::Tensor* t : {&k, &v})
      *t = t->unsqueeze(2).expand({-1, -1, repeats, -1, -1}).reshape(q.sizes());
  if (on_cpu) return cpu_attention(q, k, v, mask);
  return plain ? plain_attention(q, k, v) : fused_attention(q, k, v, mask);
}

at::Tensor DecoderModel::attend(const Block& block, const Places& places, const at::Tensor& x) {
  at::Tensor q = heads(block.q, block.q_norm, x);
  at::Tensor k = heads(block.k, block.k_norm, x);
  const at::Tensor v = heads(block.v, {}, x);
  q = rotated(q, places.cos, places.sin);
  k = rotated(k, places.cos, places.sin);
  return run(block.out, join_heads(attention(q, k, v, places.mask)));
}

at::Tensor DecoderModel::run_layers(const Block& block, const Places& places,
                                    const at::Tensor& input) {
  const at::Tensor x = input + attend(block, places, run(block.norm_1, input));
  const at::Tensor normed = run(block.norm_2, x);
  return x + run(block.down, at::silu(run(block.gate, normed)) * run(block.up, normed));
}

// Labels move by one, logits stay whole.
at::Tensor DecoderModel::loss_of(const at::Tensor& logits) const {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor shifted =
      at::constant_pad_nd(labels_, {0, 1}, kIgnored).slice(1, 1, options_.tokens + 1).contiguous();
  return cross_entropy(wide, shifted, kIgnored);
}

at::Tensor DecoderModel::loss() {
  at::Tensor x;
  {
    const int32_t unit = memory::unit_id("embedding");
    const memory::UnitGuard guard(unit);
    x = embedding(ids_, *embedding_);
    // A frozen embedding's output is what the first block is recomputed from.
    if (options_.checkpointing && !x.requires_grad()) x.set_requires_grad(true);
    mark_unit(x, unit);
  }
  const Places places = places_of(x);
  x = run_blocks("block", blocks_, std::move(x), {},
                 [this, places](const Block& block, const auto& given) {
                   return run_layers(block, places, given.front());
                 });
  finish_gathers();
  const memory::UnitGuard guard(memory::unit_id("head"));
  const at::Tensor logits = run(head_, run(norm_, x));
  at::Tensor loss = loss_of(logits);
  modules_.drop_weight_casts();
  // accelerate hands out float32 copies of what an autocast model returns.
  if (modules_.autocast()) const at::Tensor returned = logits.to(at::kFloat);
  return loss;
}

}  // namespace snug::plan::rivals
