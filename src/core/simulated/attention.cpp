// Flash attention as libtorch's CUDA half has it: its schemas, the memory that it takes, and plain
// formulas (Dao et al. 2022) for what comes out.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <cmath>
#include <functional>

#include "core/simulated/operators.h"

namespace snug::simulated {
namespace {

using kernels::simulated::Use;

struct Options {
  bool is_causal = false;
  double scale = 1;
  std::optional<int64_t> left, right;
};

// One document's rows of queries and keys, heads first, key heads repeated for their queries, in
// float32: (H, n, D) and (H, m, D).
struct Document {
  int64_t begin = 0, end = 0, first_key = 0, last_key = 0;

  at::Tensor queries(const at::Tensor& x) const {
    return x.slice(0, begin, end).transpose(0, 1).to(at::kFloat);
  }
  at::Tensor keys(const at::Tensor& x, int64_t heads) const {
    return x.slice(0, first_key, last_key)
        .transpose(0, 1)
        .to(at::kFloat)
        .repeat_interleave(heads / x.size(1), 0);
  }
  // Sums over the heads that share a key head.
  void put_keys(const at::Tensor& to, const at::Tensor& gradient) const {
    const int64_t shared = gradient.size(0) / to.size(1);
    to.slice(0, first_key, last_key)
        .copy_(gradient.view({to.size(1), shared, gradient.size(1), gradient.size(2)})
                   .sum(1)
                   .transpose(0, 1));
  }
};

std::vector<Document> documents(const at::Tensor& query_borders, const at::Tensor& key_borders) {
  std::vector<Document> result;
  const int32_t* q = query_borders.const_data_ptr<int32_t>();
  const int32_t* k = key_borders.const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < query_borders.size(0); ++i)
    result.push_back({q[i], q[i + 1], k[i], k[i + 1]});
  return result;
}

// (H, n, m): the last query stands beside the last key.
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const Options& options) {
  at::Tensor result = at::matmul(q, k.transpose(1, 2)).mul_(options.scale);
  const int64_t rows = q.size(1), keys = k.size(1), shift = keys - rows;
  at::Tensor mask = at::ones({rows, keys}, at::kBool);
  if (options.is_causal) mask = mask.tril(shift);
  if (options.left) mask = mask.triu(shift - *options.left);
  if (options.right) mask = mask.tril(shift + *options.right);
  return result.masked_fill_(mask.logical_not(), -INFINITY);
}

Options options_of(bool is_causal, std::optional<double> scale, const at::Tensor& query,
                   std::optional<c10::SymInt> left, std::optional<c10::SymInt> right) {
  const auto number = [](const std::optional<c10::SymInt>& side) {
    return side && side->expect_int() >= 0 ? std::optional(side->expect_int()) : std::nullopt;
  };
  return {is_causal, scale.value_or(1 / std::sqrt(static_cast<double>(query.size(2)))),
          number(left), number(right)};
}

void check(const at::Tensor& query, double dropout) {
  TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
  TORCH_CHECK(query.size(2) % 8 == 0 && query.size(2) <= 256,
              "FlashAttention forward only supports head dimension at most 256, a multiple of 8");
  TORCH_CHECK(dropout == 0, "simulated GPU: flash attention has no dropout here");
}

void touch_all(const std::vector<at::Tensor>& tensors, Use use) {
  for (const at::Tensor& tensor : tensors) touch_tensor(tensor, use);
}

std::vector<at::Tensor> all_on_cpu(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(on_cpu(tensor));
  return result;
}

using Tensor = at::Tensor;
using MaybeTensor = std::optional<at::Tensor>;
using MaybeInt = std::optional<c10::SymInt>;

// query (N, H, D), key and value (M, Hkv, D), borders (documents + 1) -> (N, H, D), (H, N)
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& query_borders,
    const MaybeTensor& key_borders, c10::SymInt, c10::SymInt, double dropout, bool is_causal, bool,
    std::optional<double> scale, MaybeInt left, MaybeInt right, const MaybeTensor&,
    const MaybeTensor&) {
  check(query, dropout);
  TORCH_CHECK(query_borders && key_borders, "simulated GPU: flash attention without borders");
  const Tensor out = at::empty_like(query);
  const Tensor lse = at::empty({query.size(1), query.size(0)}, query.options().dtype(at::kFloat));
  const auto numbers = query.options().dtype(at::kUInt64);
  Tensor state = at::empty({2}, numbers), unused = at::empty({}, numbers);
  const Options options = options_of(is_causal, scale, query, left, right);
  enqueue_operator("aten::_flash_attention_forward",
                   [in = all_on_cpu({query, key, value, *query_borders, *key_borders}),
                    results = all_on_cpu({out, lse}), options] {
                     touch_all(in, Use::Reads);
                     touch_all(results, Use::Writes);
                     const int64_t heads = in[0].size(1);
                     for (const Document& d : documents(in[3], in[4])) {
                       const Tensor s = scores(d.queries(in[0]), d.keys(in[1], heads), options);
                       const Tensor sums = s.logsumexp(-1);
                       const Tensor p =
                           s.sub(sums.unsqueeze(-1)).exp_().to(in[0].scalar_type()).to(at::kFloat);
                       results[0]
                           .slice(0, d.begin, d.end)
                           .copy_(at::matmul(p, d.keys(in[2], heads)).transpose(0, 1));
                       results[1].slice(1, d.begin, d.end).copy_(sums);
                     }
                   });
  return {out, lse, state, unused, at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor> backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& lse, const Tensor& query_borders, const Tensor& key_borders,
    c10::SymInt, c10::SymInt, double dropout, bool is_causal, const Tensor&, const Tensor&,
    std::optional<double> scale, MaybeInt left, MaybeInt right) {
  check(query, dropout);
  Tensor dq = at::empty_like(query), dk = at::empty_like(key), dv = at::empty_like(value);
  // Sums of rows and of the queries' gradient, both with 128 rows to spare for each document; and
  // where key heads are shared their gradients by query head.
  const int64_t heads = query.size(1);
  const int64_t rows = query.size(0) + 128 * (query_borders.size(0) - 1);
  const int64_t multiple = query.size(2) <= 128 ? 32 : 64;
  const auto floats = query.options().dtype(at::kFloat);
  const Tensor row_sums = at::empty({heads, rows}, floats);
  const Tensor dq_sum =
      at::empty({rows, heads, (query.size(2) + multiple - 1) / multiple * multiple}, floats);
  Tensor dk_of_heads, dv_of_heads;
  if (heads != key.size(1)) {
    dk_of_heads = at::empty({key.size(0), heads, key.size(2)}, key.options());
    dv_of_heads = at::empty({key.size(0), heads, key.size(2)}, key.options());
  }
  const Options options = options_of(is_causal, scale, query, left, right);
  enqueue_operator(
      "aten::_flash_attention_backward",
      [in = all_on_cpu({grad_out, query, key, value, out, lse, query_borders, key_borders}),
       results = all_on_cpu({dq, dk, dv}), options, heads] {
        touch_all(in, Use::Reads);
        touch_all(results, Use::Writes);
        for (const Document& d : documents(in[6], in[7])) {
          const Tensor d_rows = d.queries(in[0]), q = d.queries(in[1]);
          const Tensor k = d.keys(in[2], heads), v = d.keys(in[3], heads);
          const Tensor p =
              scores(q, k, options).sub_(in[5].slice(1, d.begin, d.end).unsqueeze(-1)).exp_();
          d.put_keys(results[2], at::matmul(p.transpose(1, 2), d_rows));
          const Tensor delta = d.queries(in[4]).mul(d_rows).sum(-1, /*keepdim=*/true);
          const Tensor ds =
              at::matmul(d_rows, v.transpose(1, 2)).sub_(delta).mul_(p).mul_(options.scale);
          results[0].slice(0, d.begin, d.end).copy_(at::matmul(ds, k).transpose(0, 1));
          d.put_keys(results[1], at::matmul(ds.transpose(1, 2), q));
        }
      });
  return {dq, dk, dv};
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_flash_attention_forward", TORCH_FN(forward));
  m.impl("_flash_attention_backward", TORCH_FN(backward));
}

}  // namespace
}  // namespace snug::simulated
