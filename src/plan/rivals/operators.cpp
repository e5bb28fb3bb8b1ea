// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/rivals/record.h"
#include "plan/rivals/sharding.h"

namespace snug::plan::rivals {
namespace {

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The sizes of x but for the last one.
Sizes with_last(const at::Tensor& x, int64_t last) {
  Sizes sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

Tensors one_like_result(const Tensors& /*kept*/, const at::Tensor& gradient) {
  return {at::empty_like(gradient)};
}

// Like x (B, H, T, D), in the kernels' order of memory.
at::Tensor in_rows(const at::Tensor& x) {
  return make({x.size(0), x.size(2), x.size(1), x.size(3)}, x).transpose(1, 2);
}

// The fused kernels' result, in the memory order of q or as (B, T, H, D), and the logarithms of
// sums that they keep.
std::pair<at::Tensor, at::Tensor> attention_results(const at::Tensor& q, bool flash) {
  const int64_t B = q.size(0), H = q.size(1), T = q.size(2);
  at::Tensor out = flash ? at::empty_like(q) : in_rows(q);
  return {std::move(out), make({B, H, flash ? T : round_up(T, 32)}, q, at::kFloat)};
}

at::Tensor attention_without_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto [out, lse] = attention_results(q, q.scalar_type() != at::kFloat);
  return record(out, {q, k, v}, {q, k, v, out, lse},
                [](const Tensors& kept, const at::Tensor& /*gradient*/) -> Tensors {
                  const at::Tensor& query = kept[0];
                  const int64_t B = query.size(0), H = query.size(1);
                  const int64_t rows = round_up(query.size(2), 128);
                  const at::Tensor delta = make({B, H, rows}, query, at::kFloat);
                  at::Tensor sums;  // of dq, in float32
                  if (query.scalar_type() != at::kFloat)
                    sums = make({B, H, rows, round_up(query.size(3), 32)}, query, at::kFloat);
                  // Gradients of every query head, before they are summed to keys' and values'.
                  at::Tensor of_key, of_value;
                  if (kept[1].size(1) != H) {
                    const Sizes sizes{B, H, kept[1].size(2), kept[1].size(3)};
                    of_key = make(sizes, query);
                    of_value = make(sizes, query);
                  }
                  return {at::empty_like(query), at::empty_like(kept[1]), at::empty_like(kept[2])};
                });
}

// Memory-efficient attention with a mask (B, H, T, U), expanded from whatever it is kept as.
at::Tensor attention_with_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& mask) {
  const auto [out, lse] = attention_results(q, /*flash=*/false);
  return record(out, {q, k, v, mask}, {q, k, v, mask, out, lse},
                [trains = mask.requires_grad()](const Tensors& kept, const at::Tensor&) -> Tensors {
                  const at::Tensor &query = kept[0], &key = kept[1];
                  const int64_t B = query.size(0), H = query.size(1), T = query.size(2),
                                U = key.size(2);
                  Tensors gradients{in_rows(query), in_rows(key), in_rows(key), {}};
                  if (trains)
                    gradients[3] = make({B, H, T, round_up(U, 16)}, kept[3]).slice(-1, 0, U);
                  const at::Tensor delta = make({B, H, T}, query, at::kFloat);
                  return gradients;
                });
}

// x rounded to 8 bits, whose outliers, found first, stay in 16; its scales are those of rows.
at::Tensor rounded_8bit(const at::Tensor& x) {
  const at::Tensor half = x.to(at::kHalf);
  const at::Tensor scales = make({x.numel() / x.size(-1)}, x, at::kFloat);
  at::Tensor codes = make(x.sizes().vec(), x, at::kChar);
  const at::Tensor size = at::empty_like(half), is_outlier = make(x.sizes().vec(), x, at::kBool);
  return codes;
}

at::Tensor product_8bit_on_gpu(const at::Tensor& x, int64_t outputs) {
  const at::Tensor codes = rounded_8bit(x);
  const at::Tensor sums = make(with_last(x, outputs), x, at::kInt);
  return make(with_last(x, outputs), x, at::kHalf).to(x.scalar_type());
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight) {
  Sizes sizes = ids.sizes().vec();
  sizes.push_back(weight.size(1));
  return record(make(sizes, weight), {weight}, {ids},
                [rows = weight.size(0)](const Tensors&, const at::Tensor& gradient) -> Tensors {
                  return {make({rows, gradient.size(-1)}, gradient)};
                });
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Sizes rows = with_last(x, 1);
  const at::Tensor mean = make(rows, x, at::kFloat), rstd = make(rows, x, at::kFloat);
  const bool trains = weight.requires_grad() || bias.requires_grad();
  return record(make(x.sizes().vec(), x), {x, weight, bias}, {x, weight, mean, rstd},
                [trains](const Tensors& kept, const at::Tensor& gradient) -> Tensors {
                  const at::Tensor of_x = make(gradient.sizes().vec(), gradient);
                  if (!trains) return {of_x, {}, {}};
                  return {of_x, at::empty_like(kept[1]), at::empty_like(kept[1])};
                });
}

at::Tensor dropout(const at::Tensor& x) {
  const at::Tensor mask = make(x.sizes().vec(), x, at::kBool);
  return record(at::empty_like(x), {x}, {mask}, one_like_result);
}

at::Tensor relu(const at::Tensor& x) {
  const at::Tensor out = at::empty_like(x);
  return record(out, {x}, {out}, one_like_result);
}

at::Tensor fused_attention(at::Tensor q, at::Tensor k, at::Tensor v, const at::Tensor& mask) {
  if (mask.defined()) {
    at::Tensor bias = mask;
    if (mask.scalar_type() == at::kBool) bias = make(mask.sizes().vec(), q);
    // The kernel reads rows of whole 16 elements.
    if (const int64_t keys = bias.size(-1), pad = round_up(keys, 16) - keys; pad > 0)
      bias = at::constant_pad_nd(bias, {0, pad}, 0).slice(-1, 0, keys);
    return attention_with_mask(q, k, v, bias.expand({q.size(0), q.size(1), q.size(2), k.size(2)}));
  }
  const int64_t size = q.size(-1);
  // Flash attention takes head sizes that are multiples of 8: the copies are what is kept.
  const int64_t pad = q.scalar_type() == at::kFloat ? 0 : round_up(size, 8) - size;
  if (pad == 0) return attention_without_mask(q, k, v);
  for (at::Tensor* t : {&q, &k, &v}) *t = at::constant_pad_nd(*t, {0, pad}, 0);
  return attention_without_mask(q, k, v).slice(-1, 0, size);
}

at::Tensor cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& mask) {
  at::Tensor bias;  // to be added
  if (mask.defined()) bias = make(mask.sizes().vec(), q);
  const auto [out, lse] = attention_results(q, /*flash=*/true);
  return record(out, {q, k, v}, {q, k, v, bias, out, lse},
                [](const Tensors& kept, const at::Tensor& /*gradient*/) -> Tensors {
                  Tensors gradients;
                  for (size_t i = 0; i < 3; ++i) gradients.push_back(in_rows(kept[i]));
                  return gradients;
                });
}

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const double scale = 0.5;  // any: shapes only
  const at::Tensor query = q.to(at::kFloat) * scale;
  const at::Tensor key = k.to(at::kFloat);
  const at::Tensor value = v.to(at::kFloat);
  const at::Tensor mask = at::ones({q.size(2), k.size(2)}, query.options());
  at::Tensor scores = at::matmul(query, key.transpose(-2, -1) * scale);
  scores.add_(mask);
  scores = at::softmax(scores, -1);
  return at::matmul(scores, value).to(q.scalar_type());
}

at::Tensor relative_bias(const at::Tensor& table, int64_t queries, int64_t keys) {
  const int64_t buckets = table.size(0), heads = table.size(1);
  const at::Tensor bucket = make({queries, keys}, table, at::kLong);
  return record(make({queries, keys, heads}, table).permute({2, 0, 1}).unsqueeze(0), {table},
                {bucket}, [buckets](const Tensors&, const at::Tensor& gradient) -> Tensors {
                  return {make({buckets, gradient.size(1)}, gradient)};
                });
}

at::Tensor masked_bias(const at::Tensor& mask, const at::Tensor& bias) {
  const Sizes sizes = bias.sizes().vec();
  return record(make({mask.size(0), sizes[1], sizes[2], sizes[3]}, bias), {bias}, {mask},
                [sizes](const Tensors&, const at::Tensor& gradient) -> Tensors {
                  const at::Tensor chosen = make(gradient.sizes().vec(), gradient);
                  return {make(sizes, gradient)};
                });
}

at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight) {
  return record(
      make({x.size(0), weight.size(0), x.size(2)}, x), {x, weight}, {x, weight},
      [](const Tensors& kept, const at::Tensor&) -> Tensors {
        return {make(kept[0].sizes().vec(), kept[0]), make(kept[1].sizes().vec(), kept[0])};
      });
}

at::Tensor patches(const at::Tensor& pixels, const at::Tensor& weight, const at::Tensor& bias) {
  return record(make({pixels.size(0), weight.size(0), pixels.size(2) / weight.size(2),
                      pixels.size(3) / weight.size(3)},
                     pixels),
                {weight, bias}, {pixels, weight, bias},
                [](const Tensors& kept, const at::Tensor&) -> Tensors {
                  return {at::empty_like(kept[1]), at::empty_like(kept[2])};
                });
}

at::Tensor spread_columns(const at::Tensor& x, int64_t width) {
  return record(make(with_last(x, width), x), {x}, {x},
                [](const Tensors& kept, const at::Tensor& gradient) -> Tensors {
                  return {make(kept[0].sizes().vec(), gradient)};
                });
}

at::Tensor masked_scatter(const at::Tensor& x, const at::Tensor& rows) {
  const Sizes sizes = x.sizes().vec();
  const at::Tensor mask = make({x.size(0), x.size(1), 1}, x, at::kBool);
  const at::Tensor out = make(sizes, x);
  // The mask of every element, and its prefix sum.
  const at::Tensor whole = make(sizes, x, at::kBool);
  const at::Tensor places = make(sizes, x, at::kLong);
  return record(
      out, {x, rows}, {mask},
      [sizes = rows.sizes().vec()](const Tensors&, const at::Tensor& gradient) -> Tensors {
        return {at::empty_like(gradient), make(sizes, gradient)};
      });
}

at::Tensor masked_fill(const at::Tensor& x, const at::Tensor& mask) {
  return record(make(x.sizes().vec(), x), {x}, {mask}, one_like_result);
}

at::Tensor dequantized_4bit(const at::Tensor& codes, int64_t outputs, int64_t inputs,
                            at::ScalarType stored, bool quantized_scales) {
  constexpr int64_t kBlock = 64;  // what bitsandbytes takes together
  at::Tensor scales;
  if (quantized_scales)
    scales = make({(outputs * inputs + kBlock - 1) / kBlock}, codes, at::kFloat);
  return make({outputs, inputs}, codes, stored);
}

at::Tensor dequantized_8bit(const at::Tensor& codes) {
  const at::Tensor scaled = make(codes.sizes().vec(), codes, at::kFloat);
  return at::empty_like(scaled);
}

at::Tensor product_8bit(const at::Tensor& x, const at::Tensor& codes, at::ScalarType product,
                        bool on_cpu) {
  const at::ScalarType type = x.scalar_type();
  const int64_t outputs = codes.size(0);
  at::Tensor out;
  if (on_cpu) {
    const at::Tensor weight = make(codes.sizes().vec(), x);
    const at::Tensor narrow = weight.to(product), given = x.to(product);
    out = make(with_last(x, outputs), x, product);
  } else {
    out = product_8bit_on_gpu(x, outputs);
  }
  keep_past_recomputation(x);
  // Attributes of the function's context, which live as long as the graph.
  const Tensors held{x.variable_data(), codes};
  return record(out, {x}, {}, [held, type](const Tensors&, const at::Tensor& gradient) -> Tensors {
    const at::Tensor weight = make(held[1].sizes().vec(), held[0], type);
    const at::Tensor wide = gradient.to(type);
    return {at::empty_like(held[0])};
  });
}

at::Tensor product_4bit(const at::Tensor& x, const at::Tensor& codes, int64_t outputs,
                        at::ScalarType stored, bool quantized_scales) {
  const int64_t inputs = x.size(-1);
  const auto dequantized = [=](const at::Tensor& from, const at::Tensor& like) {
    return dequantized_4bit(from, outputs, inputs, stored, quantized_scales).to(like.scalar_type());
  };
  const at::Tensor weight = dequantized(codes, x);
  return record(make(with_last(x, outputs), x), {x}, {codes},
                [=](const Tensors& kept, const at::Tensor& gradient) -> Tensors {
                  const at::Tensor again = dequantized(kept[0], gradient);
                  return {make(with_last(gradient, inputs), gradient)};
                });
}

std::pair<at::Tensor, at::Tensor> top_columns(const at::Tensor& x, int64_t count) {
  const at::Tensor indices = make({x.size(0), count}, x, at::kLong);
  const at::Tensor values =
      record(make({x.size(0), count}, x), {x}, {indices},
             [sizes = x.sizes().vec()](const Tensors&, const at::Tensor& gradient) -> Tensors {
               return {make(sizes, gradient)};
             });
  return {values, indices};
}

at::Tensor taken_rows(const at::Tensor& x, const at::Tensor& indices) {
  Sizes sizes = x.sizes().vec();
  sizes.front() = indices.size(0);
  return record(make(sizes, x), {x}, {indices},
                [of_x = x.sizes().vec()](const Tensors&, const at::Tensor& gradient) -> Tensors {
                  return {make(of_x, gradient)};
                });
}

at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor given = x.to(weight.scalar_type());
  const bool trains = weight.requires_grad();
  return record(make({x.size(0), weight.size(1)}, given), {given, weight},
                {weight, trains ? given : at::Tensor()},
                [trains](const Tensors& kept, const at::Tensor& gradient) -> Tensors {
                  const at::Tensor of_x = make({gradient.size(0), kept[0].size(2)}, gradient);
                  return {of_x, trains ? at::empty_like(kept[0]) : at::Tensor()};
                });
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.view({-1}), {},
                                at::Reduction::Mean, ignored, 0.0);
}

}  // namespace snug::plan::rivals
