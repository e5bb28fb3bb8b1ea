// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/forked_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"
#include "core/ops/attention/attend.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

using kernels::RopeDirection;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor room_for_keys(const at::Tensor& rows, const Forks& forks) {
  return at::empty({forks.num_keys, rows.size(1), rows.size(2)}, rows.options());
}

// The keys there are. A plan has none, and counts all there may be.
at::Tensor used(const at::Tensor& room, const Forks& forks) {
  if (room.is_meta()) return room;
  return room.narrow(0, 0, forks.kv_cu_seqlens.host()->back());
}

template <class Visit>
void for_each_run(const Forks& forks, const Visit& visit) {
  int64_t first_key = 0;
  for (const KeyRun& run : forks.runs) {
    visit(run, first_key);
    first_key += run.count;
  }
}

// Rows (N, Hkv, D) as keys (num_keys, Hkv, D).
at::Tensor as_keys(const at::Tensor& rows, const Forks& forks) {
  at::Tensor keys = room_for_keys(rows, forks);
  for_each_run(forks, [&](const KeyRun& run, int64_t first_key) {
    keys.narrow(0, first_key, run.count).copy_(rows.narrow(0, run.first_row, run.count));
  });
  return keys;
}

// Gradients of the keys added up as those of `like`'s rows.
at::Tensor as_rows(const at::Tensor& keys, const at::Tensor& like, const Forks& forks) {
  at::Tensor rows = at::empty(like.sizes(), like.options());
  for_each_run(forks, [&](const KeyRun& run, int64_t first_key) {
    const at::Tensor own = rows.narrow(0, run.first_row, run.count);
    const at::Tensor gradients = keys.narrow(0, first_key, run.count);
    if (run.is_again)
      accumulate(own, gradients);
    else
      own.copy_(gradients);
  });
  return rows;
}

AttentionContext context_of(const AttentionContext& rows, const Forks& forks) {
  AttentionContext context = rows;
  context.positions.reset();
  context.rope = {};
  context.kv_cu_seqlens = forks.kv_cu_seqlens;
  context.max_kv_seqlen = forks.max_kv_seqlen;
  return context;
}

struct ForkedContext {
  AttentionContext context;
  Forks forks;
};

struct ForkedAttentionFunction : torch::autograd::Function<ForkedAttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                            const AttentionContext& context, const Forks& forks) {
    rotate_in_place(q, k, context.positions, context.rope, RopeDirection::Forward);
    AttentionOutput result;
    {
      const at::Tensor keys = as_keys(k, forks), values = as_keys(v, forks);
      result = attend(q, used(keys, forks), used(values, forks), context_of(context, forks));
    }
    keep(ctx, {q, k, v, result.out, result.lse, sinks.value_or(at::Tensor())});
    ForkedContext own{context, forks};
    own.context.sinks.reset();
    carry(ctx, std::move(own));
    return result.out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& [context, forks] = carried<ForkedContext>(ctx);
    AttentionContext of_keys = context_of(context, forks);
    of_keys.sinks = saved[5];
    const bool trains_sinks = saved[5].defined() && ctx->needs_input_grad(3);
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const at::Tensor d_out = std::exchange(grads[0], {}).contiguous().view(q.sizes());
    AttentionGradients gradients;
    {
      const at::Tensor keys = as_keys(k, forks), values = as_keys(v, forks);
      // Library kernels have gradients of their own; ours write where they are told.
      AttentionGradients room;
      if (kernel_device(q) != at::kCUDA)
        room = {.dk = used(room_for_keys(k, forks), forks),
                .dv = used(room_for_keys(v, forks), forks)};
      gradients = attend_backward(d_out, q, used(keys, forks), used(values, forks),
                                  {.out = saved[3], .lse = saved[4]}, of_keys,
                                  {.sinks = trains_sinks}, room);
    }
    at::Tensor dk = as_rows(std::exchange(gradients.dk, {}), k, forks);
    at::Tensor dv = as_rows(std::exchange(gradients.dv, {}), v, forks);
    rotate_in_place(gradients.dq, dk, context.positions, context.rope, RopeDirection::Inverse);
    return {gradients.dq, dk, dv, gradients.d_sinks, {}, {}};
  }
};

}  // namespace

at::Tensor forked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionContext& context, const Forks& forks) {
  SNUG_CHECK(q.size(1) % k.size(1) == 0 && k.sizes() == v.sizes() && q.size(0) == k.size(0),
             "{} queries of {} heads, {} keys of {}", q.size(0), q.size(1), k.size(0), k.size(1));
  SNUG_CHECK(context.causal && !context.bias_table.defined(),
             "documents that share their beginning need a causal mask and no biases");
  SNUG_CHECK(forks.kv_cu_seqlens.sizes() == context.cu_seqlens.sizes(),
             "{} documents of queries, {} of keys", context.cu_seqlens.size(0) - 1,
             forks.kv_cu_seqlens.size(0) - 1);
  return ForkedAttentionFunction::apply(
      q, k, v, context.sinks.defined() ? std::optional(context.sinks) : std::nullopt, context,
      forks);
}

}  // namespace snug::ops
