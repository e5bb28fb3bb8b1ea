// SPDX-License-Identifier: Apache-2.0
#include "core/ops/exchanged_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/ops/device/carried.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/pictures.h"
#include "core/ops/shared_rows.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AllRowsFunction : torch::autograd::Function<AllRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t num_rows,
                            const TensorShare& share) {
    carry(ctx, share);
    if (!share.sequence_parallel) return x.alias();
    SNUG_CHECK(x.size(0) == share.rows_of(num_rows), "{} rows of {} at each of {} ranks", x.size(0),
               num_rows, share.group->size());
    // Not tagged as communication, since the result is kept.
    const at::Tensor whole = at::empty({x.size(0) * share.group->size(), x.size(1)}, x.options());
    share.group->wait(share.group->all_gather(whole, x.contiguous()));
    return whole.narrow(0, 0, num_rows);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = std::exchange(grads[0], {});
    SummedRows sum(carried<TensorShare>(ctx), d_out.size(0), d_out.size(1), d_out.options());
    copy(sum.terms(), d_out.contiguous());
    sum.start();
    return {sum.finish(), {}, {}};
  }
};

// This rank's rows of the whole tensor, from `first` on; the last ranks may have fewer than c, or
// none.
struct Range {
  Range(const TensorShare& share, int64_t num_rows)
      : here(share.rows_of(num_rows)),
        first(std::min(share.group->rank() * here, num_rows)),
        count(std::min(here, num_rows - first)) {}
  int64_t here, first, count;
};

struct OwnRowsFunction : torch::autograd::Function<OwnRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const TensorShare& share) {
    carry(ctx, share);
    ctx->saved_data["num_rows"] = x.size(0);
    const Range own(share, x.size(0));
    at::Tensor out = at::empty({own.here, x.size(1)}, x.options());
    if (own.count > 0) copy(out.narrow(0, 0, own.count), x.narrow(0, own.first, own.count));
    if (own.count < own.here) fill(out.narrow(0, own.count, own.here - own.count), 0);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = std::exchange(grads[0], {}).contiguous();
    const int64_t num_rows = ctx->saved_data["num_rows"].toInt();
    const Range own(carried<TensorShare>(ctx), num_rows);
    at::Tensor d_x = at::empty({num_rows, d_out.size(1)}, d_out.options());
    fill(d_x, 0);
    if (own.count > 0) copy(d_x.narrow(0, own.first, own.count), d_out.narrow(0, 0, own.count));
    return {d_x, {}};
  }
};

// x (c, D) with rows[i] at global row index[i], if it is on this rank. Other rows are written to an
// extra row after x, which is not read.
at::Tensor with_own_rows(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& index,
                         const TensorShare& share) {
  const int64_t here = x.size(0), first = share.group->rank() * here;
  const at::Tensor room = at::empty({here + 1, x.size(1)}, x.options());
  copy(room.narrow(0, 0, here), x);
  const at::Tensor place = index - first;
  constexpr int32_t kFar = 1 << 30;
  place.add_((place < 0).to(at::kInt), kFar).clamp_max_(here);
  put_rows(room, rows, place);
  return room.narrow(0, 0, here);
}

struct ReplaceSharedRowsFunction : torch::autograd::Function<ReplaceSharedRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& rows,
                            const at::Tensor& index, const TensorShare& share) {
    carry(ctx, share);
    ctx->saved_data["index"] = index;
    const at::Tensor own = rows.contiguous();
    const at::Tensor all = GatheredRows(share, own, index.size(0)).finish();
    return with_own_rows(hidden.contiguous(), all, index, share);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = std::exchange(grads[0], {}).contiguous();
    const at::Tensor index = ctx->saved_data["index"].toTensor();
    const TensorShare& share = carried<TensorShare>(ctx);
    const int64_t here = d_out.size(0), num_rows = index.size(0);
    at::Tensor d_hidden, d_rows;
    if (ctx->needs_input_grad(1)) {
      SummedRows sum(share, num_rows, d_out.size(1), d_out.options());
      look_up(sum.terms(), index, d_out,
              {.first = share.group->rank() * here, .whole = share.group->size() * here});
      sum.start();
      d_rows = sum.finish();
    }
    if (ctx->needs_input_grad(0))
      d_hidden =
          with_own_rows(d_out, at::zeros({num_rows, d_out.size(1)}, d_out.options()), index, share);
    return {d_hidden, d_rows, {}, {}};
  }
};

}  // namespace

at::Tensor all_rows(const at::Tensor& x, int64_t num_rows, const TensorShare& share) {
  return AllRowsFunction::apply(x, num_rows, share);
}

at::Tensor own_rows(const at::Tensor& x, const TensorShare& share) {
  if (!share.sequence_parallel) return x;
  return OwnRowsFunction::apply(x, share);
}

at::Tensor replace_shared_rows(const at::Tensor& hidden, const at::Tensor& rows,
                               const at::Tensor& index, const TensorShare& share) {
  if (!share.sequence_parallel) return replace_rows(hidden, rows, index);
  return ReplaceSharedRowsFunction::apply(hidden, rows, index, share);
}

at::Tensor join_slices(const at::Tensor& own, int64_t dim, const std::vector<int64_t>& whole,
                       const TensorShare& share) {
  dist::Group& group = *share.group;
  const int64_t size = whole[static_cast<size_t>(dim)];
  const int64_t least = size / group.size(), larger = size % group.size();
  const memory::CategoryGuard category(memory::Category::Communication);
  // Shorter slices are padded to the longest.
  std::vector<int64_t> shape = own.sizes().vec();
  shape[static_cast<size_t>(dim)] = least + (larger > 0 ? 1 : 0);
  const at::Tensor sent = at::empty(shape, own.options());
  sent.narrow(dim, 0, own.size(dim)).copy_(own);
  shape.insert(shape.begin(), group.size());
  const at::Tensor parts = at::empty(shape, own.options());
  group.wait(group.all_gather(parts, sent));
  at::Tensor joined = at::empty(whole, own.options());
  for (int64_t rank = 0, begin = 0; rank < group.size(); ++rank) {
    const int64_t count = least + (rank < larger ? 1 : 0);
    joined.narrow(dim, begin, count).copy_(parts.select(0, rank).narrow(dim, 0, count));
    begin += count;
  }
  return joined;
}

}  // namespace snug::ops
