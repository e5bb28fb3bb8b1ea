// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/litgpt_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

namespace snug::plan::litgpt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What bitsandbytes takes together.
constexpr int64_t kBlock = 64;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

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

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& /*bias*/) {
    const auto floats = x.options().dtype(at::kFloat).requires_grad(false);
    const at::Tensor mean = at::empty({x.size(0), x.size(1), 1}, floats);
    const at::Tensor rstd = at::empty_like(mean);
    ctx->save_for_backward({x, weight, mean, rstd});
    return at::empty_like(x, x.options().requires_grad(false));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor weight = ctx->get_saved_variables()[1];
    const auto options = weight.options().requires_grad(false);
    return {at::empty_like(grads[0]), at::empty_like(weight, options),
            at::empty_like(weight, options)};
  }
};

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const auto options = x.options().requires_grad(false);
    ctx->save_for_backward({at::empty(x.sizes(), options.dtype(at::kBool))});
    return at::empty_like(x, options);
  }
  static variable_list backward(AutogradContext* /*ctx*/, variable_list grads) {
    return {at::empty_like(grads[0])};
  }
};

struct Conv1d : torch::autograd::Function<Conv1d> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return at::empty({x.size(0), weight.size(0), x.size(2)}, x.options().requires_grad(false));
  }
  static variable_list backward(AutogradContext* ctx, variable_list /*grads*/) {
    const variable_list saved = ctx->get_saved_variables();
    const auto options = saved[0].options().requires_grad(false);
    return {at::empty(saved[0].sizes(), options), at::empty(saved[1].sizes(), options)};
  }
};

struct SpreadColumns : torch::autograd::Function<SpreadColumns> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t width) {
    ctx->save_for_backward({x});
    return at::empty({x.size(0), x.size(1), width}, x.options().requires_grad(false));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {at::empty(ctx->get_saved_variables()[0].sizes(), grads[0].options()), {}};
  }
};

// A weight (outputs, inputs) in the type of the products, for the time of one of them.
at::Tensor dequantized(int64_t outputs, int64_t inputs, bool quantized_scales,
                       const at::TensorOptions& options) {
  at::Tensor scales;
  if (quantized_scales)
    scales = at::empty({(outputs * inputs + kBlock - 1) / kBlock}, options.dtype(at::kFloat));
  const at::Tensor half = at::empty({outputs, inputs}, options.dtype(at::kHalf));
  scales.reset();
  return half.to(options);
}

struct Product4bit : torch::autograd::Function<Product4bit> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& codes,
                            int64_t outputs, bool quantized_scales) {
    const auto options = x.options().requires_grad(false);
    ctx->save_for_backward({codes});
    ctx->saved_data["inputs"] = x.size(2);
    ctx->saved_data["quantized_scales"] = quantized_scales;
    const at::Tensor weight = dequantized(outputs, x.size(2), quantized_scales, options);
    return at::empty({x.size(0), x.size(1), outputs}, options);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor& grad = grads[0];
    const int64_t inputs = ctx->saved_data["inputs"].toInt();
    const bool quantized_scales = ctx->saved_data["quantized_scales"].toBool();
    const at::Tensor weight = dequantized(grad.size(2), inputs, quantized_scales, grad.options());
    return {at::empty({grad.size(0), grad.size(1), inputs}, grad.options()), {}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight) {
  return Embedding::apply(ids, weight);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LayerNorm::apply(x, weight, bias);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool fused) {
  return fused ? fused_attention(q, k, v) : plain_attention(q, k, v);
}

at::Tensor dropout(const at::Tensor& x) { return Dropout::apply(x); }

at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight) {
  return Conv1d::apply(x, weight);
}

at::Tensor spread_columns(const at::Tensor& x, int64_t width) {
  return SpreadColumns::apply(x, width);
}

at::Tensor product_4bit(const at::Tensor& x, const at::Tensor& codes, int64_t outputs,
                        bool quantized_scales) {
  return Product4bit::apply(x, codes, outputs, quantized_scales);
}

}  // namespace snug::plan::litgpt
