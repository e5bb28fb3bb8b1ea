// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/library_attention.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "core/kernels/heads.h"
#include "core/ops/attention/score_block.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"

namespace snug::ops {
namespace {

thread_local std::optional<bool> planned_flash;

bool has_flash_attention(const at::Tensor& like) {
  return like.is_meta() && planned_flash ? *planned_flash : cuda::has_flash_attention();
}

AttentionOutput empty_output(const at::Tensor& q) {
  return {at::empty({q.size(0), q.size(1) * q.size(2)}, q.options()),
          at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat))};
}

// ---- Flash

// The window's keys to the left; libtorch does not count the row itself.
std::optional<int64_t> window_left(const AttentionContext& context) {
  if (context.sliding_window == 0) return std::nullopt;
  return context.sliding_window - 1;
}

// Causal attention has nothing to the right, but libtorch needs both sides of a window or neither.
std::optional<int64_t> window_right(const AttentionContext& context) {
  if (context.sliding_window == 0) return std::nullopt;
  return context.causal ? 0 : context.sliding_window - 1;
}

const at::Tensor& key_borders(const AttentionContext& context) {
  return context.kv_cu_seqlens.defined() ? context.kv_cu_seqlens : context.cu_seqlens;
}

int64_t longest_keys(const AttentionContext& context) {
  return context.kv_cu_seqlens.defined() ? context.max_kv_seqlen : context.max_seqlen;
}

// Pairs of a query and a key that it sees, over all documents. On meta their lengths are not known:
// each has the same share of the tokens.
double seen_pairs(int64_t queries, int64_t keys, const AttentionContext& context) {
  const auto documents = static_cast<double>(std::max<int64_t>(1, context.cu_seqlens.size(0) - 1));
  const double rows = static_cast<double>(queries) / documents;
  const double columns = static_cast<double>(keys) / documents;
  const auto window = static_cast<double>(context.sliding_window);
  if (window > 0 && window < columns)
    return documents * window * (context.causal ? rows - (window - 1) / 2 : 2 * rows);
  return documents * rows * (context.causal ? (columns + 1) / 2 : columns);
}

double bytes_of(const at::Tensor& x, double times = 1) {
  return times * static_cast<double>(x.nbytes());
}

// Two products forward and five backward, each of two operations a pair and element.
double attention_flops(const at::Tensor& q, const at::Tensor& k, const AttentionContext& context,
                       int products) {
  return 2.0 * products * static_cast<double>(q.size(1) * q.size(2)) *
         seen_pairs(q.size(0), k.size(0), context);
}

void note_flash_forward(const at::Tensor& q, const at::Tensor& k, const AttentionContext& context) {
  if (!calls_cuda(q)) return;
  note_work({.name = "aten::_flash_attention_forward",
             .bytes_read = bytes_of(q) + bytes_of(k, 2),
             .bytes_written = bytes_of(q) + 4.0 * static_cast<double>(q.size(0) * q.size(1)),
             .flops = attention_flops(q, k, context, 2),
             .type = q.scalar_type()});
}

// One kernel for each row's dot product of output and gradient, one for all gradients, one that
// rounds q's; where key heads are shared two more add their gradients up. q's gradient is summed in
// float32.
void note_flash_backward(const at::Tensor& q, const at::Tensor& k,
                         const AttentionContext& context) {
  if (!calls_cuda(q)) return;
  const double sums = 4.0 * static_cast<double>(q.numel());
  const bool shares_heads = q.size(1) != k.size(1);
  const double by_head =
      shares_heads
          ? bytes_of(k, 2.0 * static_cast<double>(q.size(1)) / static_cast<double>(k.size(1)))
          : 0;
  note_work({.name = "aten::_flash_attention_backward",
             .launches = shares_heads ? 5.0 : 3.0,
             .bytes_read = bytes_of(q, 5) + bytes_of(k, 2) + 2 * sums + by_head,
             .bytes_written = bytes_of(q) + bytes_of(k, 2) + 2 * sums + by_head,
             .flops = attention_flops(q, k, context, 5),
             .type = q.scalar_type()});
}

// The state of the dropout's generator, which libtorch 2.11 makes and no dropout reads: two
// numbers, and one that it keeps for those who ask for a third.
AttentionOutput flash_forward_on_meta(const at::Tensor& q) {
  AttentionOutput output = empty_output(q);
  const auto numbers = q.options().dtype(at::kUInt64);
  const at::Tensor state = at::empty({2}, numbers), unused = at::empty({}, numbers);
  return output;
}

AttentionOutput flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionContext& context) {
  if (q.is_meta()) {
    note_flash_forward(q, k, context);
    return flash_forward_on_meta(q);
  }
  const auto result = at::_flash_attention_forward(
      q, k, v, context.cu_seqlens, key_borders(context), context.max_seqlen, longest_keys(context),
      /*dropout_p=*/0.0, context.causal, /*return_debug_mask=*/false, context.scale,
      window_left(context), window_right(context));
  return {std::get<0>(result).view({q.size(0), -1}), std::get<1>(result)};
}

// What libtorch 2.11's flash backward asks for, in its order: the gradients, a float per head and
// row and the gradient of q summed in float32, both with 128 rows to spare for each document, and
// where key heads are shared their gradients for every query head.
AttentionGradients flash_backward_on_meta(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const AttentionContext& context) {
  const AttentionGradients gradients{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  const int64_t heads = q.size(1);
  const int64_t rows = q.size(0) + 128 * (context.cu_seqlens.size(0) - 1);
  const int64_t multiple = q.size(2) <= 128 ? 32 : 64;
  const int64_t padded_dim = (q.size(2) + multiple - 1) / multiple * multiple;
  const auto floats = q.options().dtype(at::kFloat);
  const at::Tensor row_sums = at::empty({heads, rows}, floats);
  const at::Tensor dq_sum = at::empty({rows, heads, padded_dim}, floats);
  at::Tensor dk_of_heads;
  at::Tensor dv_of_heads;
  if (heads != k.size(1)) {
    dk_of_heads = at::empty({k.size(0), heads, k.size(2)}, k.options());
    dv_of_heads = at::empty({k.size(0), heads, k.size(2)}, k.options());
  }
  return gradients;
}

AttentionGradients flash_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const AttentionOutput& forward,
                                  const AttentionContext& context) {
  if (q.is_meta()) {
    note_flash_backward(q, k, context);
    return flash_backward_on_meta(q, k, v, context);
  }
  // The state of the dropout's generator, which no dropout reads.
  const at::Tensor no_state = at::empty({0}, q.options().dtype(at::kUInt64));
  const auto result = at::_flash_attention_backward(
      d_out, q, k, v, forward.out.view(q.sizes()), forward.lse, context.cu_seqlens,
      key_borders(context), context.max_seqlen, longest_keys(context), /*dropout_p=*/0.0,
      context.causal, no_state, no_state, context.scale, window_left(context),
      window_right(context));
  return {std::get<0>(result), std::get<1>(result), std::get<2>(result)};
}

// Flash attention takes heads of multiples of 8 elements. Others (OpenLLaMA 3B has 100) get zeros
// at their ends, which change no score, and whose outputs and gradients are left out.
constexpr int64_t kHeadMultiple = 8;

bool needs_padding(const at::Tensor& q) { return q.size(2) % kHeadMultiple != 0; }

int64_t wide_dim(int64_t dim) { return (dim + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple; }

at::Tensor with_heads_together(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) ? x : x.contiguous();
}

// Copies of (N, H, D) tensors of one type as (N, H, dim), in one launch.
std::vector<at::Tensor> with_heads_of(int64_t dim, const std::vector<at::Tensor>& tensors) {
  kernels::HeadWidths args{.type = to_scalar(tensors.front().scalar_type()),
                           .from_dim = tensors.front().size(2),
                           .to_dim = dim};
  std::vector<at::Tensor> sources, copies;
  for (const at::Tensor& x : tensors) {
    sources.push_back(with_heads_together(x));
    copies.push_back(at::empty({x.size(0), x.size(1), dim}, x.options()));
    args.copies[copies.size() - 1] = {.from = read_pointer(sources.back()),
                                      .from_stride = sources.back().stride(0),
                                      .to = write_pointer(copies.back()),
                                      .tokens = x.size(0),
                                      .heads = x.size(1)};
  }
  if (calls_cuda(tensors.front())) cuda::change_head_widths(args);
  return copies;
}

AttentionOutput padded_flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionContext& context) {
  if (!needs_padding(q)) return flash_forward(q, k, v, context);
  const int64_t dim = wide_dim(q.size(2));
  std::vector<at::Tensor> wide = with_heads_of(dim, {q, k, v});
  const AttentionOutput output = flash_forward(wide[0], wide[1], wide[2], context);
  wide.clear();
  const at::Tensor heads = output.out.view({q.size(0), q.size(1), dim});
  return {with_heads_of(q.size(2), {heads})[0].view({q.size(0), -1}), output.lse};
}

AttentionGradients padded_flash_backward(const at::Tensor& d_out, const at::Tensor& q,
                                         const at::Tensor& k, const at::Tensor& v,
                                         const AttentionOutput& forward,
                                         const AttentionContext& context) {
  if (!needs_padding(q)) return flash_backward(d_out, q, k, v, forward, context);
  std::vector<at::Tensor> wide =
      with_heads_of(wide_dim(q.size(2)), {forward.out.view(q.sizes()), d_out, q, k, v});
  const AttentionGradients wide_gradients =
      flash_backward(wide[1], wide[2], wide[3], wide[4], {wide[0], forward.lse}, context);
  wide.clear();
  const std::vector<at::Tensor> gradients =
      with_heads_of(q.size(2), {wide_gradients.dq, wide_gradients.dk, wide_gradients.dv});
  return {gradients[0], gradients[1], gradients[2]};
}

// ---- Products

// All of a block is float32; the G query heads that share a key head stand below each other, so
// that one product serves them. B: documents of the block times key heads.
using Block = ScoreBlock;
using Way = kernels::HeadRows::Way;

// Tokens (N or M, heads, D) of one side of a block.
struct BlockSide {
  const at::Tensor& tokens;
  bool of_keys = false;
  int64_t rows(const Block& b) const { return of_keys ? b.keys() : b.rows(); }
};
BlockSide queries(const at::Tensor& tokens) { return {tokens, false}; }
BlockSide keys(const at::Tensor& tokens) { return {tokens, true}; }

// Where the block's documents lie among the tokens, besides the addresses.
kernels::HeadRows::Array rows_of(const BlockSide& side, const Block& b) {
  return {.stride = side.tokens.stride(0),
          .heads = side.tokens.size(1),
          .rows = side.rows(b),
          .borders = read_pointer<int32_t>(side.of_keys ? b.key_borders : b.query_borders)};
}

// The tokens from the block's first one on; all, where borders count from the start.
at::Tensor from_first(const BlockSide& side, const Block& b) {
  if (b.query_borders.defined()) return side.tokens;
  return side.tokens.slice(0, side.of_keys ? b.first_key : b.begin);
}

void move_head_rows(const kernels::HeadRows& args, const at::Tensor& like) {
  run_on(
      like, [&] { kernels::cpu::move_head_rows(args); }, [&] { cuda::move_head_rows(args); });
}

// Rows of tensors of one type in float32: queries as (B, G * rows, D), keys as (B, keys, D).
std::vector<at::Tensor> read_rows(const Block& b, std::initializer_list<BlockSide> sides) {
  const at::Tensor& like = sides.begin()->tokens;
  kernels::HeadRows args{
      .type = to_scalar(like.scalar_type()), .documents = b.documents, .dim = like.size(2)};
  std::vector<at::Tensor> sources, rows;
  sources.reserve(sides.size());
  rows.reserve(sides.size());
  for (const BlockSide& side : sides) {
    sources.push_back(with_heads_together(side.tokens));
    const BlockSide source{sources.back(), side.of_keys};
    rows.push_back(at::empty({b.documents * b.num_kv_heads,
                              side.tokens.size(1) / b.num_kv_heads * side.rows(b), like.size(2)},
                             like.options().dtype(at::kFloat)));
    kernels::HeadRows::Array& array = args.arrays[rows.size() - 1];
    array = rows_of(source, b);
    array.from = read_pointer(from_first(source, b));
    array.to = write_pointer(rows.back());
  }
  move_head_rows(args, like);
  return rows;
}

// The way back into the tokens; Add: added to them.
void write_rows(kernels::HeadRows::Way way, const BlockSide& side, const at::Tensor& rows,
                const Block& b) {
  kernels::HeadRows args{.way = way,
                         .type = to_scalar(side.tokens.scalar_type()),
                         .documents = b.documents,
                         .dim = side.tokens.size(2)};
  args.arrays[0] = rows_of(side, b);
  args.arrays[0].from = read_pointer(rows);
  args.arrays[0].to = write_pointer(from_first(side, b));
  move_head_rows(args, side.tokens);
}

AttentionOutput products_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionContext& context) {
  const ScoreSweeps sweeps(context, q.size(0));
  AttentionOutput result = empty_output(q);
  for (const Block& b : score_blocks(q, k, context)) {
    const std::vector<at::Tensor> rows = read_rows(b, {queries(q), keys(k), keys(v)});
    const at::Tensor scores = at::bmm(rows[0], rows[1].transpose(1, 2));
    sweeps.softmax(scores, result.lse, b);
    write_rows(Way::Write, queries(result.out.view(q.sizes())), at::bmm(scores, rows[2]), b);
  }
  return result;
}

AttentionGradients products_backward(const at::Tensor& d_out, const at::Tensor& q,
                                     const at::Tensor& k, const at::Tensor& v,
                                     const AttentionOutput& forward,
                                     const AttentionContext& context) {
  const ScoreSweeps sweeps(context, q.size(0));
  const auto floats = q.options().dtype(at::kFloat);
  at::Tensor dq = at::empty(q.sizes(), q.options());
  // Sums over blocks.
  const at::Tensor dk = at::zeros(k.sizes(), floats);
  const at::Tensor dv = at::zeros(v.sizes(), floats);
  at::Tensor d_bias;
  if (context.bias_table.defined())
    d_bias = at::zeros({q.size(1), context.bias_table.size(0)}, floats);
  for (const Block& b : score_blocks(q, k, context)) {
    std::vector<at::Tensor> rows = read_rows(
        b, {queries(q), keys(k), keys(v), queries(d_out), queries(forward.out.view(q.sizes()))});
    const at::Tensor scores = at::bmm(rows[0], rows[1].transpose(1, 2));
    {
      const at::Tensor p = sweeps.probabilities(scores, forward.lse, b);
      write_rows(Way::Add, keys(dv), at::bmm(p.transpose(1, 2), rows[3]), b);
    }
    const at::Tensor delta = rows[4].mul_(rows[3]).sum(-1);
    rows[4].reset();
    {
      const at::Tensor arriving = at::bmm(rows[3], rows[2].transpose(1, 2));
      sweeps.backward(scores, forward.lse, arriving, delta, b);
    }
    rows[2].reset();
    rows[3].reset();
    if (d_bias.defined()) sweeps.bias_backward(scores, d_bias, b);
    write_rows(Way::Write, queries(dq), at::bmm(scores, rows[1]), b);
    write_rows(Way::Add, keys(dk), at::bmm(scores.transpose(1, 2), rows[0]), b);
  }
  if (d_bias.defined()) d_bias = d_bias.t().contiguous();
  return {dq, dk.to(k.scalar_type()), dv.to(v.scalar_type()), d_bias};
}

// ---- Sinks

// Probabilities without a sink become those with it: of the sum of exp(score) the keys have the
// share sigmoid(lse - sink). Backwards nothing else changes: probabilities come from lse, and a key
// whose value is zero adds nothing to the rest.
void add_sinks(const AttentionOutput& result, const at::Tensor& sinks) {
  const at::Tensor sink = sinks.detach().view({-1, 1});
  {
    const at::Tensor share = result.lse.sub(sink).sigmoid_();  // (H, N)
    at::Tensor heads = result.out.view({share.size(1), share.size(0), -1});
    heads.mul_(share.t().unsqueeze(2));
  }
  at::Tensor lse = result.lse;
  at::logaddexp_out(lse, lse, sink);
}

}  // namespace

PlannedFlashAttention::PlannedFlashAttention(std::optional<bool> has) : saved_(planned_flash) {
  planned_flash = has;
}
PlannedFlashAttention::~PlannedFlashAttention() { planned_flash = saved_; }

LibraryAttention choose_library_attention(const at::Tensor& q, const AttentionContext& context) {
  const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  if (!has_flash_attention(q))
    warn(
        "attention runs as plain matrix products, since flash attention wants a GPU of compute "
        "capability 8.0 (Ampere) or newer: slower{}",
        q.scalar_type() == at::kBFloat16
            ? "; such a GPU has no tensor cores for bfloat16 either: --precision 16-mixed is faster"
            : "");
  else if (!half)
    warn(
        "attention in float32 runs as plain matrix products, since flash attention is made for 16 "
        "bits: slower; --precision bf16-true or bf16-mixed has it");
  else if (q.size(2) > 256)
    warn(
        "attention with heads of {} elements runs as plain matrix products, since flash attention "
        "takes 256 at most: slower",
        q.size(2));
  else if (context.bias_table.defined() || context.dropout > 0 || context.score_cap > 0)
    warn(
        "attention with {} runs as plain matrix products, since libtorch's flash attention has "
        "none: slower",
        context.bias_table.defined() ? "relative biases"
        : context.dropout > 0        ? "dropped probabilities"
                                     : "capped scores");
  else
    return LibraryAttention::Flash;
  return LibraryAttention::Products;
}

AttentionOutput library_attention_forward(LibraryAttention way, const at::Tensor& q,
                                          const at::Tensor& k, const at::Tensor& v,
                                          const AttentionContext& context) {
  // Libtorch's kernels refuse what a micro-batch without pictures has.
  if (q.size(0) == 0) return empty_output(q);
  AttentionOutput result = way == LibraryAttention::Flash ? padded_flash_forward(q, k, v, context)
                                                          : products_forward(q, k, v, context);
  if (context.sinks.defined()) add_sinks(result, context.sinks);
  return result;
}

AttentionGradients library_attention_backward(LibraryAttention way, const at::Tensor& d_out,
                                              const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& forward,
                                              const AttentionContext& context) {
  if (q.size(0) == 0) return {at::empty_like(q), at::zeros_like(k), at::zeros_like(v)};
  return way == LibraryAttention::Flash ? padded_flash_backward(d_out, q, k, v, forward, context)
                                        : products_backward(d_out, q, k, v, forward, context);
}

// A sink's probability is exp(sink - lse), and its value zero.
at::Tensor sink_gradients(const at::Tensor& d_out, const AttentionOutput& forward,
                          const AttentionContext& context) {
  const at::Tensor delta =
      at::mul(d_out, forward.out.view(d_out.sizes())).sum(2, false, at::kFloat);
  const at::Tensor probability = context.sinks.detach().view({-1, 1}).sub(forward.lse).exp_();
  return probability.mul_(delta.t()).sum(1).neg_();
}

at::Tensor library_decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                                    const at::Tensor& v_cache, int64_t length,
                                    const AttentionContext& context) {
  const int64_t seen =
      context.sliding_window > 0 ? std::min(context.sliding_window, length) : length;
  const int64_t batch = q.size(0) * k_cache.size(2);  // sequences times key heads: B
  const auto heads_first = [&](const at::Tensor& cache) {
    const at::Tensor rows = cache.slice(1, length - seen, length).to(at::kFloat);
    return rows.transpose(1, 2).reshape({batch, seen, q.size(2)});
  };
  const at::Tensor q_rows =
      q.to(at::kFloat).view({batch, q.numel() / batch / q.size(2), q.size(2)});
  at::Tensor scores = at::bmm(q_rows, heads_first(k_cache).transpose(1, 2));
  const at::Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  // A sequence is a document of one row, the last of its keys.
  const ScoreBlock block{.begin = 0,
                         .end = 1,
                         .first_key = 0,
                         .last_key = seen,
                         .shift = seen - 1,
                         .num_kv_heads = k_cache.size(2),
                         .heads_per_kv = q.size(1) / k_cache.size(2),
                         .documents = q.size(0)};
  ScoreSweeps(context, q.size(0)).softmax(scores, lse, block);
  if (context.sinks.defined()) {
    const at::Tensor share = lse.sub(context.sinks.detach().view({-1, 1})).sigmoid_();  // (H, S)
    scores.view({q.size(0), q.size(1), seen}).mul_(share.t().unsqueeze(2));
  }
  const at::Tensor rows = at::bmm(scores, heads_first(v_cache));  // (B, G, D)
  return rows.view(q.sizes()).to(q.scalar_type());
}

}  // namespace snug::ops
