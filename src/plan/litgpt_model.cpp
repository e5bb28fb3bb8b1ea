// SPDX-License-Identifier: Apache-2.0
#include "plan/litgpt_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "memory/guards.h"

namespace snug::plan {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// ids (B, T), weight (V, D) -> (B, T, D). Its gradient is as large as the table.
struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids, const at::Tensor& weight) {
    ctx->save_for_backward({ids});
    ctx->saved_data["rows"] = weight.size(0);
    return at::empty({ids.size(0), ids.size(1), weight.size(1)},
                     weight.options().requires_grad(false));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const int64_t rows = ctx->saved_data["rows"].toInt();
    return {{}, at::empty({rows, grads[0].size(2)}, grads[0].options())};
  }
};

// What torch's fused attention kernels allocate and keep, (B, H, T, D) each: flash attention
// (16-bit types) writes its output in the memory order of q, memory-efficient attention (float32)
// as (B, T, H, D).
struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
    const int64_t B = q.size(0), H = q.size(1), T = q.size(2), D = q.size(3);
    const bool flash = q.scalar_type() != at::kFloat;
    const at::TensorOptions options = q.options().requires_grad(false);
    const at::Tensor out =
        flash ? at::empty_like(q, options) : at::empty({B, T, H, D}, options).transpose(1, 2);
    const at::Tensor lse =
        at::empty({B, H, flash ? T : round_up(T, 32)}, options.dtype(at::kFloat));
    ctx->save_for_backward({q, k, v, out, lse});
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list /*grads*/) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::TensorOptions floats = q.options().dtype(at::kFloat);
    const int64_t rows = round_up(q.size(2), 128);
    const at::Tensor delta = at::empty({q.size(0), q.size(1), rows}, floats);
    at::Tensor sums;  // of dq, in float32
    if (q.scalar_type() != at::kFloat)
      sums = at::empty({q.size(0), q.size(1), rows, round_up(q.size(3), 32)}, floats);
    return {at::empty_like(q), at::empty_like(saved[1]), at::empty_like(saved[2])};
  }
};

at::Tensor fused_attention(at::Tensor q, at::Tensor k, at::Tensor v) {
  const int64_t size = q.size(-1);
  // Flash attention takes head sizes that are multiples of 8: the copies are what is kept.
  const int64_t pad = q.scalar_type() == at::kFloat ? 0 : round_up(size, 8) - size;
  if (pad == 0) return FusedAttention::apply(q, k, v);
  for (at::Tensor* t : {&q, &k, &v}) *t = at::constant_pad_nd(*t, {0, pad}, 0);
  return FusedAttention::apply(q, k, v).slice(-1, 0, size);
}

// torch's fallback: products in float32, all T x T scores of every head.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const double scale = 0.5;  // any: shapes only
  const at::Tensor query = q.to(at::kFloat) * scale;
  const at::Tensor key = k.to(at::kFloat);
  const at::Tensor value = v.to(at::kFloat);
  const at::Tensor mask = at::ones({q.size(2), k.size(2)}, query.options().requires_grad(false));
  at::Tensor scores = at::matmul(query, key.transpose(-2, -1) * scale);
  scores.add_(mask);
  scores = at::softmax(scores, -1);
  return at::matmul(scores, value).to(q.scalar_type());
}

// Marks where the backward of a unit begins: when its output's gradient is there.
void mark_unit(const at::Tensor& output, int32_t unit) {
  output.register_hook([unit](const at::Tensor&) { memory::current_tag.unit = unit; });
}

}  // namespace

LitgptModel::Shape LitgptModel::shape_of(const models::Model& like) {
  const nlohmann::json config = like.hugging_face_config();
  const models::Dimensions d = like.dimensions();
  return {.layers = d.num_layers,
          .width = d.hidden_size,
          .heads = d.num_heads,
          .groups = d.num_kv_heads,
          .head_size = d.head_dim,
          .intermediate = config.at("intermediate_size").get<int64_t>(),
          .vocabulary = d.vocabulary,
          .qkv_bias = config.value("attention_bias",
                                   config.value("model_type", "") == std::string("qwen2")),
          .mlp_bias = config.value("mlp_bias", false)};
}

LitgptModel::LitgptModel(const models::Model& like, const nn::Precision& precision,
                         int64_t max_tokens, bool has_fused_attention)
    : shape_(shape_of(like)),
      precision_(precision),
      fused_attention_(has_fused_attention),
      options_(at::TensorOptions(at::kMeta).dtype(precision.parameters)) {
  const auto& [layers, width, heads, groups, head_size, intermediate, vocabulary, qkv_bias,
               mlp_bias] = shape_;
  const memory::CategoryGuard category(memory::Category::Parameters);
  head_ = make_linear(width, vocabulary, false);
  embedding_ = make_weight({vocabulary, width});
  for (int64_t i = 0; i < layers; ++i)
    blocks_.push_back({.norm_1 = make_weight({width}),
                       .norm_2 = make_weight({width}),
                       .qkv = make_linear(width, (heads + 2 * groups) * head_size, qkv_bias),
                       .proj = make_linear(heads * head_size, width, false),
                       .fc_1 = make_linear(width, intermediate, mlp_bias),
                       .fc_2 = make_linear(width, intermediate, mlp_bias),
                       .down = make_linear(intermediate, width, mlp_bias)});
  norm_ = make_weight({width});
  cos_ = at::empty({1, 1, max_tokens, head_size}, options_);
  sin_ = at::empty({1, 1, max_tokens, head_size}, options_);
}

at::Tensor LitgptModel::make_weight(std::vector<int64_t> sizes) {
  at::Tensor weight = at::empty(sizes, options_);
  weight.set_requires_grad(true);
  weight.register_hook([impl = weight.unsafeGetTensorImpl()](const at::Tensor& gradient) {
    // The first one stays, later ones are added to it.
    const auto* meta = impl->autograd_meta();
    const bool stays = meta != nullptr && !impl->grad().defined();
    if (stays) memory::retag(gradient, memory::Category::Gradients);
  });
  weights_.push_back(weight);
  return weight;
}

LitgptModel::Linear LitgptModel::make_linear(int64_t in, int64_t out, bool bias) {
  return {make_weight({out, in}), bias ? make_weight({out}) : at::Tensor()};
}

at::Tensor LitgptModel::cast(const at::Tensor& weight) {
  if (!weight.defined() || precision_.compute == weight.scalar_type()) return weight;
  for (const auto& [original, copy] : casts_)
    if (original.is_same(weight)) return copy;
  const memory::CategoryGuard category(memory::Category::Parameters);
  return casts_.emplace_back(weight, weight.to(precision_.compute)).second;
}

void LitgptModel::drop_weight_casts() { casts_.clear(); }

at::Tensor LitgptModel::linear(const at::Tensor& x, const Linear& layer) {
  return at::linear(x.to(precision_.compute), cast(layer.weight), cast(layer.bias));
}

at::Tensor LitgptModel::rms_norm(const at::Tensor& x, const at::Tensor& weight) const {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor mean = at::mean(wide * wide, {-1}, /*keepdim=*/true);
  const at::Tensor normed = wide * at::rsqrt(mean + 1e-6);
  return (normed * weight.to(at::kFloat)).to(x.scalar_type());
}

// x (B, H, T, D)
at::Tensor LitgptModel::rope(const at::Tensor& x) const {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor cos = cos_.slice(2, 0, x.size(2)), sin = sin_.slice(2, 0, x.size(2));
  const at::Tensor rotated = at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
  const at::Tensor roped = ((x * cos) + (rotated * sin)).to(x.scalar_type());
  return at::cat({roped, x.slice(-1, x.size(-1))}, -1);  // with the share that is not rotated
}

at::Tensor LitgptModel::attend(const Block& block, const at::Tensor& x) {
  const int64_t B = x.size(0), T = x.size(1), D = shape_.head_size;
  const at::Tensor qkv = linear(x, block.qkv);
  const auto parts =
      qkv.split_with_sizes({shape_.heads * D, shape_.groups * D, shape_.groups * D}, -1);
  const auto heads = [&](const at::Tensor& part, int64_t count) {
    return part.view({B, T, count, D}).transpose(1, 2);
  };
  const at::Tensor q = rope(heads(parts[0], shape_.heads));
  at::Tensor k = rope(heads(parts[1], shape_.groups));
  at::Tensor v = heads(parts[2], shape_.groups);
  if (shape_.groups != shape_.heads) {
    k = k.repeat_interleave(shape_.heads / shape_.groups, 1);
    v = v.repeat_interleave(shape_.heads / shape_.groups, 1);
  }
  const at::Tensor y = fused_attention_ ? fused_attention(q, k, v) : plain_attention(q, k, v);
  return linear(y.transpose(1, 2).reshape({B, T, shape_.heads * D}), block.proj);
}

at::Tensor LitgptModel::mlp(const Block& block, const at::Tensor& x) {
  const at::Tensor gate = linear(x, block.fc_1);
  const at::Tensor up = linear(x, block.fc_2);
  return linear(at::silu(gate) * up, block.down);
}

at::Tensor LitgptModel::forward(const at::Tensor& ids) {
  at::Tensor x;
  {
    const int32_t unit = memory::unit_id("embedding");
    const memory::UnitGuard guard(unit);
    x = Embedding::apply(ids, embedding_);
    mark_unit(x, unit);
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int32_t unit = memory::unit_id(fmt::format("block {}", i));
    const memory::UnitGuard guard(unit);
    x = attend(blocks_[i], rms_norm(x, blocks_[i].norm_1)) + x;
    x = mlp(blocks_[i], rms_norm(x, blocks_[i].norm_2)) + x;
    mark_unit(x, unit);
  }
  const memory::UnitGuard guard(memory::unit_id("head"));
  return linear(rms_norm(x, norm_), head_);
}

}  // namespace snug::plan
