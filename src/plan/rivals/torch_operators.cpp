// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/torch_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "plan/rivals/litgpt_operators.h"

namespace snug::plan::eager {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

at::TensorOptions plain(const at::Tensor& like) { return like.options().requires_grad(false); }

at::Tensor new_like(const at::Tensor& like) { return at::empty_like(like, plain(like)); }

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    std::vector<int64_t> rows = x.sizes().vec();
    rows.back() = 1;
    const auto floats = plain(x).dtype(at::kFloat);
    const at::Tensor mean = at::empty(rows, floats), rstd = at::empty(rows, floats);
    ctx->save_for_backward({x, weight, mean, rstd});
    ctx->saved_data["trains"] = weight.requires_grad() || bias.requires_grad();
    return at::empty(x.sizes(), plain(x));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor weight = ctx->get_saved_variables()[1];
    const at::Tensor grad = at::empty(grads[0].sizes(), plain(grads[0]));
    if (!ctx->saved_data["trains"].toBool()) return {grad, {}, {}};
    return {grad, new_like(weight), new_like(weight)};
  }
};

struct Patches : torch::autograd::Function<Patches> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& pixels,
                            const at::Tensor& weight, const at::Tensor& bias) {
    ctx->save_for_backward({pixels, weight, bias});
    return at::empty({pixels.size(0), weight.size(0), pixels.size(2) / weight.size(2),
                      pixels.size(3) / weight.size(3)},
                     plain(pixels));
  }
  static variable_list backward(AutogradContext* ctx, variable_list /*grads*/) {
    const variable_list saved = ctx->get_saved_variables();
    return {{}, new_like(saved[1]), new_like(saved[2])};
  }
};

// Memory-efficient attention with a mask (B, H, T, U), expanded from whatever it is kept as.
struct MaskedAttention : torch::autograd::Function<MaskedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& mask) {
    const int64_t B = q.size(0), H = q.size(1), T = q.size(2), D = q.size(3);
    const at::Tensor out = at::empty({B, T, H, D}, plain(q)).transpose(1, 2);
    const at::Tensor lse = at::empty({B, H, round_up(T, 32)}, plain(q).dtype(at::kFloat));
    ctx->save_for_backward({q, k, v, mask, out, lse});
    ctx->saved_data["bias"] = mask.requires_grad();
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list /*grads*/) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &mask = saved[3];
    const auto like = [](const at::Tensor& t) {  // in the kernel's order of memory
      return at::empty({t.size(0), t.size(2), t.size(1), t.size(3)}, plain(t)).transpose(1, 2);
    };
    const variable_list out{like(q), like(k), like(k)};
    at::Tensor bias;
    if (ctx->saved_data["bias"].toBool())
      bias = at::empty({q.size(0), q.size(1), q.size(2), round_up(k.size(2), 16)}, plain(mask))
                 .slice(-1, 0, k.size(2));
    const at::Tensor delta =
        at::empty({q.size(0), q.size(1), q.size(2)}, plain(q).dtype(at::kFloat));
    return {out[0], out[1], out[2], bias};
  }
};

struct RelativeBias : torch::autograd::Function<RelativeBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& table, int64_t queries,
                            int64_t keys) {
    ctx->saved_data["buckets"] = table.size(0);
    const auto ints = plain(table).dtype(at::kLong);
    ctx->save_for_backward({at::empty({queries, keys}, ints)});
    return at::empty({queries, keys, table.size(1)}, plain(table)).permute({2, 0, 1}).unsqueeze(0);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {
        at::empty({ctx->saved_data["buckets"].toInt(), grads[0].size(1)}, plain(grads[0])), {}, {}};
  }
};

struct MaskedBias : torch::autograd::Function<MaskedBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& mask, const at::Tensor& bias) {
    ctx->save_for_backward({mask});
    ctx->saved_data["shape"] = bias.sizes().vec();
    return at::empty({mask.size(0), bias.size(1), bias.size(2), bias.size(3)}, plain(bias));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor chosen = at::empty(grads[0].sizes(), plain(grads[0]));
    return {{}, at::empty(ctx->saved_data["shape"].toIntVector(), plain(grads[0]))};
  }
};

struct MaskedScatter : torch::autograd::Function<MaskedScatter> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& rows) {
    const at::Tensor mask = at::empty({x.size(0), x.size(1), 1}, plain(x).dtype(at::kBool));
    ctx->save_for_backward({mask});
    ctx->saved_data["rows"] = rows.sizes().vec();
    const at::Tensor out = at::empty(x.sizes(), plain(x));
    // The mask of every element, and how many of them stand before it.
    const at::Tensor whole = at::empty(x.sizes(), plain(x).dtype(at::kBool));
    const at::Tensor places = at::empty(x.sizes(), plain(x).dtype(at::kLong));
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {new_like(grads[0]), at::empty(ctx->saved_data["rows"].toIntVector(), plain(grads[0]))};
  }
};

struct MaskedFill : torch::autograd::Function<MaskedFill> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& mask) {
    ctx->save_for_backward({mask});
    return at::empty(x.sizes(), plain(x));
  }
  static variable_list backward(AutogradContext* /*ctx*/, variable_list grads) {
    return {new_like(grads[0]), {}};
  }
};

struct Relu : torch::autograd::Function<Relu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const at::Tensor out = new_like(x);
    ctx->save_for_backward({out});
    return out;
  }
  static variable_list backward(AutogradContext* /*ctx*/, variable_list grads) {
    return {new_like(grads[0])};
  }
};

// For the time of one product.
at::Tensor dequantized(int64_t outputs, int64_t inputs, at::ScalarType stored,
                       const at::TensorOptions& options) {
  return at::empty({outputs, inputs}, options.dtype(stored)).to(options);
}

struct Product4bit : torch::autograd::Function<Product4bit> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& codes,
                            int64_t outputs, int64_t stored) {
    ctx->save_for_backward({codes});
    ctx->saved_data["inputs"] = x.size(-1);
    ctx->saved_data["stored"] = stored;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = outputs;
    const at::Tensor weight =
        dequantized(outputs, x.size(-1), static_cast<at::ScalarType>(stored), plain(x));
    return at::empty(sizes, plain(x));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const int64_t inputs = ctx->saved_data["inputs"].toInt();
    std::vector<int64_t> sizes = grads[0].sizes().vec();
    sizes.back() = inputs;
    const at::Tensor weight = dequantized(
        grads[0].size(-1), inputs, static_cast<at::ScalarType>(ctx->saved_data["stored"].toInt()),
        plain(grads[0]));
    return {at::empty(sizes, plain(grads[0])), {}, {}, {}};
  }
};

struct IntoBucket : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable& weight) override {
    weight.mutable_grad().reset();
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LayerNorm::apply(x, weight, bias);
}

at::Tensor patches(const at::Tensor& pixels, const at::Tensor& weight, const at::Tensor& bias) {
  return Patches::apply(pixels, weight, bias);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask) {
  if (!mask.defined()) return litgpt::attention(q, k, v, /*fused=*/true);
  at::Tensor bias = mask;
  if (mask.scalar_type() == at::kBool) bias = at::empty(mask.sizes(), plain(q));
  // The kernel reads rows of whole 16 elements.
  if (const int64_t keys = bias.size(-1), pad = round_up(keys, 16) - keys; pad > 0)
    bias = at::constant_pad_nd(bias, {0, pad}, 0).slice(-1, 0, keys);
  return MaskedAttention::apply(q, k, v, bias.expand({q.size(0), q.size(1), q.size(2), k.size(2)}));
}

at::Tensor relative_bias(const at::Tensor& table, int64_t queries, int64_t keys) {
  return RelativeBias::apply(table, queries, keys);
}

at::Tensor masked_bias(const at::Tensor& mask, const at::Tensor& bias) {
  return MaskedBias::apply(mask, bias);
}

at::Tensor relu(const at::Tensor& x) { return Relu::apply(x); }

at::Tensor masked_scatter(const at::Tensor& x, const at::Tensor& rows) {
  return MaskedScatter::apply(x, rows);
}

at::Tensor masked_fill(const at::Tensor& x, const at::Tensor& mask) {
  return MaskedFill::apply(x, mask);
}

at::Tensor product_4bit(const at::Tensor& x, const at::Tensor& codes, int64_t outputs,
                        at::ScalarType stored) {
  return Product4bit::apply(x, codes, outputs, static_cast<int64_t>(stored));
}

void gradients_go_into_buckets(const at::Tensor& weight) {
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<IntoBucket>());
}

}  // namespace snug::plan::eager
