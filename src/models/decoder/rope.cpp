// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/rope.h"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sub.h>

#include "base/error.h"
#include "core/nn/kv_cache.h"

namespace snug::models::decoder {
namespace {

// Positions with `shift` added in documents of more than `longest` tokens.
at::Tensor shifted_where_long(const nn::Batch& batch, int64_t longest, int64_t shift) {
  if (batch.positions.is_meta()) return at::empty_like(batch.positions);
  const at::Tensor begins = batch.cu_seqlens.slice(0, 0, -1), ends = batch.cu_seqlens.slice(0, 1);
  const at::Tensor shifts = at::sub(ends, begins).gt(longest).to(at::kInt).mul(shift);
  const at::Tensor tokens = at::arange(batch.positions.size(0), batch.positions.options());
  const at::Tensor document =
      at::searchsorted(ends.contiguous(), tokens, /*out_int32=*/true, /*right=*/true);
  return at::add(batch.positions, shifts.index_select(0, document));
}

}  // namespace

void Rope::prepare(const kernels::cpu::RopeScaling& scaling, const RotatedPart& part,
                   int64_t max_seqlen, at::Device device) {
  const auto tables_of = [&](int64_t positions) {
    ops::RopeTables tables = ops::make_rope_tables(scaling, part.dim, positions, device);
    tables.paired = part.pairs;
    tables.first = part.first;
    return tables;
  };
  const int64_t original = scaling.original_max_position;
  if (scaling.type == kernels::cpu::RopeType::Dynamic && max_seqlen > original)
    throw UserError(
        "rope_scaling of type dynamic turns each row of more than max_position_embeddings = {0} "
        "tokens by frequencies for its own length, which snug does not do; use "
        "--train.max_seq_length {0}",
        original);
  const bool has_both = scaling.type == kernels::cpu::RopeType::LongRope && max_seqlen > original;
  short_rows_ = has_both ? original : 0;
  tables_ = tables_of(max_seqlen);
  if (!has_both) return;
  const ops::RopeTables of_short = tables_of(original);
  tables_.cos = at::cat({of_short.cos, tables_.cos});
  tables_.sin = at::cat({of_short.sin, tables_.sin});
}

at::Tensor Rope::places(const nn::Batch& batch) const {
  if (short_rows_ == 0) return batch.positions;
  const bool is_generation = batch.cache != nullptr;
  const int64_t longest = is_generation ? batch.cache->capacity() : batch.max_seqlen;
  if (longest <= short_rows_) return batch.positions;
  if (is_generation) return at::add(batch.positions, short_rows_);
  if (!batch.context) return shifted_where_long(batch, short_rows_, short_rows_);
  if (batch.context->num_tokens > longest)
    throw UserError(
        "mesh cp with longrope: a micro-batch has several rows, and one of {} tokens is longer "
        "than original_max_position_embeddings = {}; devices that share the rows do not know which "
        "of the two sets of factors each row needs: use train.micro_batch_size 1, or "
        "train.max_seq_length {}",
        longest, short_rows_, short_rows_);
  return at::add(batch.positions, short_rows_);
}

}  // namespace snug::models::decoder
