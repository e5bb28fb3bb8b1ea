// SPDX-License-Identifier: Apache-2.0
#include "core/ops/shared_rows.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

at::Tensor buffer(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  const memory::CategoryGuard category(memory::Category::Communication);
  return at::empty({rows, columns}, options);
}

}  // namespace

int64_t TensorShare::rank() const { return group->rank(); }
int64_t TensorShare::size() const { return group->size(); }

int64_t TensorShare::rows_of(int64_t num_tokens) const {
  return sequence_parallel ? (num_tokens + size() - 1) / size() : num_tokens;
}

GatheredRows::GatheredRows(const TensorShare& share, const at::Tensor& own, int64_t num_tokens)
    : share_(share), whole_(own), num_tokens_(num_tokens) {
  SNUG_CHECK(own.size(0) == share.rows_of(num_tokens), "{} rows of {} tokens at each of {} ranks",
             own.size(0), num_tokens, share.group->size());
  if (!share.sequence_parallel) return;
  whole_ = buffer(own.size(0) * share.group->size(), own.size(1), own.options());
  ticket_ = share.group->all_gather(whole_, own);
}

at::Tensor GatheredRows::finish() {
  share_.group->wait(ticket_);
  ticket_ = nullptr;
  return std::exchange(whole_, {}).narrow(0, 0, num_tokens_);
}

SummedRows::SummedRows(const TensorShare& share, int64_t num_tokens, int64_t columns,
                       const at::TensorOptions& options)
    : share_(share) {
  room_ = share.sequence_parallel
              ? buffer(share.rows_of(num_tokens) * share.group->size(), columns, options)
              : at::empty({num_tokens, columns}, options);
  terms_ = room_.narrow(0, 0, num_tokens);
}

void SummedRows::start() {
  if (!share_.sequence_parallel) {
    sum_ = room_;
    ticket_ = share_.group->all_reduce(sum_);
    return;
  }
  const int64_t num_tokens = terms_.size(0);
  const int64_t beyond = room_.size(0) - num_tokens;
  if (beyond > 0) fill(room_.narrow(0, num_tokens, beyond), 0);
  sum_ = at::empty({room_.size(0) / share_.group->size(), room_.size(1)}, room_.options());
  ticket_ = share_.group->reduce_scatter(sum_, room_);
}

at::Tensor SummedRows::finish() {
  share_.group->wait(ticket_);
  ticket_ = nullptr;
  terms_ = at::Tensor();
  room_ = at::Tensor();
  return std::exchange(sum_, {});
}

}  // namespace snug::ops
