// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/score_block.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/kernels/attention_scores.h"
#include "core/kernels/cpu/linalg/attention/attention.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"

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
  if (cu_seqlens.is_meta() && cu_seqlens.even_length() == 0)
    return counts_work() ? equal_borders(cu_seqlens.size(0) - 1, rows)
                         : std::vector<int64_t>{0, max_seqlen};
  return {host->begin(), host->end()};
}

constexpr int64_t kBlockRows = 256;

// Short documents share blocks, each filled up to as many rows and keys. The lengths are those of
// which a whole number takes the block, but for a row: so longer documents never take less memory,
// and a plan for them is enough for shorter ones.
constexpr std::array kFilledLengths = {16, 32, 51, 64, 85, 128, 256};
static_assert(kFilledLengths.back() == kBlockRows);

// 0: documents have blocks of their own.
int64_t filled_length(const AttentionContext& context) {
  const bool own = !context.kv_cu_seqlens.defined();
  if (context.cu_seqlens.size(0) <= 2 || context.sliding_window > 0 || (context.causal && !own))
    return 0;
  const int64_t longest =
      own ? context.max_seqlen : std::max(context.max_seqlen, context.max_kv_seqlen);
  const auto* length = std::ranges::lower_bound(kFilledLengths, longest);
  return length == kFilledLengths.end() ? 0 : *length;
}

std::vector<ScoreBlock> filled_blocks(const at::Tensor& q, const at::Tensor& k,
                                      const AttentionContext& context, int64_t length) {
  const at::Tensor& keys =
      context.kv_cu_seqlens.defined() ? context.kv_cu_seqlens : context.cu_seqlens;
  const std::vector<int64_t> borders =
      borders_of(context.cu_seqlens, context.max_seqlen, q.size(0));
  const int64_t documents = context.cu_seqlens.size(0) - 1, together = kBlockRows / length;
  // On meta the first block stands for all, where work is not counted.
  const int64_t counted = static_cast<int64_t>(borders.size()) - 1;
  std::vector<ScoreBlock> blocks;
  for (int64_t first = 0; first < counted; first += together) {
    const int64_t count = std::min(together, documents - first);
    const int64_t begin = borders[static_cast<size_t>(first)];
    blocks.push_back({.begin = begin,
                      .end = begin + length,
                      .last_key = length,
                      .query_document = begin,
                      .num_kv_heads = k.size(1),
                      .heads_per_kv = q.size(1) / k.size(1),
                      .documents = count,
                      .query_borders = context.cu_seqlens.slice(0, first, first + count + 1),
                      .key_borders = keys.slice(0, first, first + count + 1)});
  }
  return blocks;
}

}  // namespace

std::vector<ScoreBlock> score_blocks(const at::Tensor& q, const at::Tensor& k,
                                     const AttentionContext& context) {
  const std::vector<int64_t> queries =
      borders_of(context.cu_seqlens, context.max_seqlen, q.size(0));
  const bool own = !context.kv_cu_seqlens.defined();
  const int64_t even_rows = context.cu_seqlens.even_length();
  const bool is_even = even_rows > 0 && (own || context.kv_cu_seqlens.even_length() > 0);
  // Not where rows do not see all keys, nor documents that happen to be as long as each other: a
  // plan would have to know.
  const bool sees_all = !context.causal && context.sliding_window == 0;
  if (const int64_t length = filled_length(context); length > 0 && !(is_even && sees_all))
    return filled_blocks(q, k, context, length);
  const int64_t together = is_even && sees_all ? std::max<int64_t>(1, kBlockRows / even_rows) : 1;
  const std::vector<int64_t> keys =
      own ? queries : borders_of(context.kv_cu_seqlens, context.max_kv_seqlen, k.size(0));
  const int64_t window = context.sliding_window;
  std::vector<ScoreBlock> blocks;
  const size_t documents = queries.size() - 1;
  for (size_t document = 0; document < documents; document += together) {
    const int64_t more_keys =
        keys[document + 1] - keys[document] - (queries[document + 1] - queries[document]);
    // Where the token of the first query lies among the keys, and how far rows are from it.
    const int64_t shift = context.causal ? more_keys : 0;
    const int64_t to_key = keys[document] + shift - queries[document];
    for (int64_t begin = queries[document]; begin < queries[document + 1]; begin += kBlockRows) {
      ScoreBlock b{.begin = begin,
                   .end = std::min(begin + kBlockRows, queries[document + 1]),
                   .first_key = keys[document],
                   .last_key = keys[document + 1],
                   .query_document = queries[document],
                   .key_document = keys[document],
                   .shift = shift,
                   .num_kv_heads = k.size(1),
                   .heads_per_kv = q.size(1) / k.size(1),
                   .documents = std::min<int64_t>(together, documents - document)};
      if (window > 0) b.first_key = std::max(b.first_key, begin + to_key - window + 1);
      if (context.causal) b.last_key = b.end + to_key;
      if (!context.causal && window > 0) b.last_key = std::min(b.last_key, b.end - 1 + window);
      blocks.push_back(b);
    }
  }
  return blocks;
}

at::Tensor bias_buckets(int64_t num_buckets, int64_t max_distance, bool causal, at::Device device) {
  const kernels::cpu::BiasTable of{
      .num_buckets = num_buckets, .max_distance = max_distance, .both_directions = !causal};
  const at::Tensor host = at::empty({2 * max_distance + 1}, at::kInt);
  const std::span values(host.mutable_data_ptr<int32_t>(), static_cast<size_t>(host.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int32_t>(
        kernels::cpu::relative_bucket(static_cast<int64_t>(i) - max_distance, of));
  at::Tensor result = at::empty(host.sizes(), host.options().device(device));
  note_host_wait(kernel_device(result));
  if (!result.is_meta()) result.copy_(host);
  return result;
}

ScoreSweeps::ScoreSweeps(const AttentionContext& context, int64_t num_tokens)
    : context_(context), num_tokens_(num_tokens) {
  if (!context.bias_table.defined()) return;
  table_ = context.bias_table.to(at::kFloat);
  buckets_ = context.bias_buckets;
  if (!buckets_.defined())
    buckets_ = bias_buckets(table_.size(0), context.max_distance, context.causal, table_.device());
}

kernels::AttentionScores ScoreSweeps::arguments(const at::Tensor& scores, const at::Tensor& lse,
                                                const ScoreBlock& b) const {
  const int64_t rows = context_.dropout_num_rows > 0 ? context_.dropout_num_rows : num_tokens_;
  kernels::AttentionScores args{
      .scores = write_pointer<float>(scores),
      .documents = b.documents,
      .heads = b.heads(),
      .rows = b.rows(),
      .keys = b.keys(),
      .query_borders = read_pointer<int32_t>(b.query_borders),
      .key_borders = read_pointer<int32_t>(b.key_borders),
      .scale = static_cast<float>(context_.scale),
      .cap = static_cast<float>(context_.score_cap),
      .first_distance = b.first_key - b.key_document - b.shift - (b.begin - b.query_document),
      .causal = context_.causal,
      .sliding_window = context_.sliding_window,
      .bias = read_pointer<float>(table_),
      .bias_buckets = read_pointer<int32_t>(buckets_),
      .num_buckets = table_.defined() ? table_.size(0) : 0,
      .max_distance = context_.max_distance,
      .dropout = {.probability = context_.dropout,
                  .key = context_.dropout_key.own,
                  .pass_key = context_.dropout_key.of_pass,
                  .key_mixes = context_.dropout_key.mixes,
                  .first_head = context_.dropout_first_head,
                  .first_row = context_.dropout_first_row + b.begin,
                  .num_rows = rows},
      .first_column = b.first_key - b.key_document};
  if (lse.defined()) {
    args.lse = write_pointer<float>(lse.slice(1, b.begin));
    args.lse_stride = lse.stride(0);
  }
  return args;
}

void ScoreSweeps::softmax(const at::Tensor& scores, const at::Tensor& lse,
                          const ScoreBlock& block) const {
  const kernels::AttentionScores args = arguments(scores, lse, block);
  run_on(
      scores, [&] { kernels::cpu::attention_softmax(args); },
      [&] { cuda::attention_softmax(args); });
}

at::Tensor ScoreSweeps::probabilities(const at::Tensor& scores, const at::Tensor& lse,
                                      const ScoreBlock& block) const {
  at::Tensor result = at::empty(scores.sizes(), scores.options());
  const kernels::AttentionScores args = arguments(scores, lse, block);
  auto* out = write_pointer<float>(result);
  run_on(
      scores, [&] { kernels::cpu::attention_probabilities(args, out); },
      [&] { cuda::attention_probabilities(args, out); });
  return result;
}

void ScoreSweeps::backward(const at::Tensor& scores, const at::Tensor& lse,
                           const at::Tensor& arriving, const at::Tensor& delta,
                           const ScoreBlock& block) const {
  const kernels::AttentionScores args = arguments(scores, lse, block);
  const auto* gradient = read_pointer<float>(arriving);
  const auto* of_rows = read_pointer<float>(delta);
  run_on(
      scores, [&] { kernels::cpu::attention_scores_backward(args, gradient, of_rows); },
      [&] { cuda::attention_scores_backward(args, gradient, of_rows); });
}

void ScoreSweeps::bias_backward(const at::Tensor& d_scores, const at::Tensor& sums,
                                const ScoreBlock& block) const {
  const kernels::AttentionScores args = arguments(d_scores, {}, block);
  auto* totals = write_pointer<float>(sums);
  run_on(
      d_scores, [&] { kernels::cpu::attention_bias_backward(args, totals); },
      [&] { cuda::attention_bias_backward(args, totals); });
}

}  // namespace snug::ops
