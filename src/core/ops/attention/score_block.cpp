// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/score_block.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>
#include <span>

#include "core/kernels/cpu/linalg/attention/attention.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

// As many rows for each document.
std::vector<int64_t> equal_borders(int64_t documents, int64_t rows) {
  std::vector<int64_t> borders = {0};
  for (int64_t d = 1; d <= documents; ++d) borders.push_back(rows * d / documents);
  return borders;
}

// Where documents start and end among the rows, on the host.
std::vector<int64_t> borders_of(const Borders& cu_seqlens, int64_t max_seqlen, int64_t rows) {
  const auto host = cu_seqlens.host();
  if (cu_seqlens.is_meta())
    return counts_work() ? equal_borders(cu_seqlens.size(0) - 1, rows)
                         : std::vector<int64_t>{0, max_seqlen};
  return {host->begin(), host->end()};
}

// How many places each key is after each query of the block: (rows, keys) float32.
at::Tensor distances(const ScoreBlock& b, at::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  const int64_t offset = b.begin - b.query_document + b.key_document + b.shift;
  const at::Tensor row = integers(offset, offset + b.rows(), options).unsqueeze(1);
  return integers(b.first_key, b.last_key, options).unsqueeze(0).sub(row);
}

}  // namespace

std::vector<ScoreBlock> score_blocks(const at::Tensor& q, const at::Tensor& k,
                                     const AttentionContext& context, int64_t most_rows) {
  const std::vector<int64_t> queries =
      borders_of(context.cu_seqlens, context.max_seqlen, q.size(0));
  const bool own = !context.kv_cu_seqlens.defined();
  const std::vector<int64_t> keys =
      own ? queries : borders_of(context.kv_cu_seqlens, context.max_kv_seqlen, k.size(0));
  const int64_t window = context.sliding_window;
  std::vector<ScoreBlock> blocks;
  for (size_t document = 0; document + 1 < queries.size(); ++document) {
    const int64_t more_keys =
        keys[document + 1] - keys[document] - (queries[document + 1] - queries[document]);
    // Where the token of the first query lies among the keys, and how far rows are from it.
    const int64_t shift = context.causal ? more_keys : 0;
    const int64_t to_key = keys[document] + shift - queries[document];
    for (int64_t begin = queries[document]; begin < queries[document + 1]; begin += most_rows) {
      ScoreBlock b{.begin = begin,
                   .end = std::min(begin + most_rows, queries[document + 1]),
                   .first_key = keys[document],
                   .last_key = keys[document + 1],
                   .query_document = queries[document],
                   .key_document = keys[document],
                   .shift = shift,
                   .num_kv_heads = k.size(1),
                   .heads_per_kv = q.size(1) / k.size(1)};
      if (window > 0) b.first_key = std::max(b.first_key, begin + to_key - window + 1);
      if (context.causal) b.last_key = b.end + to_key;
      if (!context.causal && window > 0) b.last_key = std::min(b.last_key, b.end - 1 + window);
      blocks.push_back(b);
    }
  }
  return blocks;
}

void add_mask(const at::Tensor& scores, const ScoreBlock& block, const AttentionContext& context) {
  if (!context.causal && context.sliding_window == 0) return;
  const at::Tensor ahead = distances(block, scores.device());
  constexpr double kHuge = std::numeric_limits<float>::max();
  const auto reach = static_cast<double>(context.sliding_window - 1);
  // How far after, and before, what a row sees a key is, cut at 1.
  at::Tensor outside = context.causal ? ahead.clamp(0, 1) : ahead.sub(reach).clamp_(0, 1);
  if (context.sliding_window > 0) outside.add_(ahead.neg().sub_(reach).clamp_(0, 1));
  scores.add_(outside.mul_(-kHuge));
}

at::Tensor bias_intervals(int64_t num_buckets, int64_t max_distance, bool causal,
                          at::Device device) {
  const kernels::cpu::BiasTable of{
      .num_buckets = num_buckets, .max_distance = max_distance, .both_directions = !causal};
  constexpr float kFar = std::numeric_limits<float>::max();
  const at::Tensor host = at::empty({2, num_buckets}, at::kFloat);
  const std::span first(host.mutable_data_ptr<float>(), static_cast<size_t>(num_buckets));
  const std::span last(first.data() + num_buckets, first.size());
  std::ranges::fill(first, kFar);
  std::ranges::fill(last, -kFar);
  for (int64_t distance = -max_distance; distance <= max_distance; ++distance) {
    const auto bucket = static_cast<size_t>(kernels::cpu::relative_bucket(distance, of));
    const auto place = static_cast<float>(distance);
    first[bucket] = std::min(first[bucket], distance == -max_distance ? -kFar : place);
    last[bucket] = std::max(last[bucket], distance == max_distance ? kFar : place);
  }
  at::Tensor result = at::empty(host.sizes(), host.options().device(device));
  note_host_wait(kernel_device(result));
  if (!result.is_meta()) result.copy_(host);
  return result;
}

BlockBias::BlockBias(const AttentionContext& context) {
  if (!context.bias_table.defined()) return;
  table_ = context.bias_table.to(at::kFloat);
  intervals_ = context.bias_intervals;
  if (!intervals_.defined())
    intervals_ =
        bias_intervals(table_.size(0), context.max_distance, context.causal, table_.device());
}

at::Tensor BlockBias::memberships(const ScoreBlock& block) const {
  const at::Tensor each = distances(block, table_.device()).view({block.rows() * block.keys(), 1});
  return each.ge(intervals_.select(0, 0))
      .bitwise_and_(each.le(intervals_.select(0, 1)))
      .to(at::kFloat);
}

void BlockBias::add_to(const at::Tensor& scores, const ScoreBlock& block) const {
  if (!present()) return;
  const at::NoTF32Guard exact;  // a bias is looked up, so that it keeps all of its bits
  scores.add_(at::mm(table_.t(), memberships(block).t()).view(scores.sizes()));
}

void BlockBias::add_gradient(const at::Tensor& sums, const at::Tensor& d_scores,
                             const ScoreBlock& block) const {
  sums.add_(
      at::mm(d_scores.view({block.heads(), block.rows() * block.keys()}), memberships(block)));
}

// The arithmetic is that of 32 bits, in tensors of 64, whose products of two such numbers wrap
// around far above what is kept.
at::Tensor kept_factors(const at::Tensor& like, const ScoreBlock& block, int64_t num_tokens,
                        const AttentionContext& context) {
  const kernels::cpu::ProbabilityDropout dropout{.probability = context.dropout,
                                                 .key = context.dropout_key};
  constexpr int64_t kLow = 0xffffffff;
  const auto options = like.options().dtype(at::kLong);
  const auto key_low = static_cast<int64_t>(dropout.key & kLow);
  const auto key_high = static_cast<int64_t>(dropout.key >> 32);
  const int64_t first = context.dropout_first_head;
  const int64_t num_rows = context.dropout_num_rows > 0 ? context.dropout_num_rows : num_tokens;
  const at::Tensor head =
      integers(first, first + block.heads(), options).mul_(num_rows).view({-1, 1, 1});
  const int64_t begin = context.dropout_first_row + block.begin;
  at::Tensor row = integers(begin, begin + block.rows(), options).view({1, -1, 1}).add(head);
  row.mul_(int64_t{0x9e3779b9}).add_(key_low).bitwise_and_(kLow);
  const int64_t start = block.key_document;
  const at::Tensor column = integers(block.first_key - start, block.last_key - start, options);
  at::Tensor x = row.bitwise_xor(column);  // (H, rows, keys)
  x.bitwise_xor_(x.bitwise_right_shift(16)).mul_(int64_t{0x7feb352d}).bitwise_and_(kLow);
  x.bitwise_xor_(x.bitwise_right_shift(15)).bitwise_xor_(key_high);
  x.mul_(int64_t{0x846ca68b}).bitwise_and_(kLow);
  x.bitwise_xor_(x.bitwise_right_shift(16));
  return x.ge(static_cast<int64_t>(dropout.threshold())).to(at::kFloat).mul_(dropout.scale());
}

}  // namespace snug::ops
