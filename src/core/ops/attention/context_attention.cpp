// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/context_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"
#include "core/dist/group.h"
#include "core/memory/guards.h"
#include "core/ops/attention/attend.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

using kernels::RopeDirection;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The rows of one of this rank's two chunks, from (2 L, Hkv, D).
at::Tensor rows_of(const at::Tensor& own, size_t chunk) {
  const int64_t length = own.size(0) / 2;
  return own.narrow(0, static_cast<int64_t>(chunk) * length, length);
}

// One half of all rows (2 C L, Hkv, D), which has one chunk of each rank.
at::Tensor half_of(const at::Tensor& whole, size_t chunk) { return rows_of(whole, chunk); }

dist::Group& group_of(const ContextShare& share, size_t chunk) {
  return chunk == 0 ? *share.group : *share.reversed;
}

at::Tensor buffer(const at::Tensor& own, int64_t num_rows) {
  const memory::CategoryGuard category(memory::Category::Communication);
  return at::empty({num_rows, own.size(1), own.size(2)}, own.options());
}

// An asynchronous all-gather of all ranks' rows, in the order of tokens. For the second half the
// group has the ranks in reverse order, like their chunks.
class GatheredTokens {
 public:
  // `own` (2 L, Hkv, D) of this rank.
  GatheredTokens(const ContextShare& share, const at::Tensor& own)
      : share_(share), whole_(buffer(own, own.size(0) * share.group->size())) {
    const memory::CategoryGuard category(memory::Category::Communication);
    for (size_t c = 0; c < tickets_.size(); ++c)
      tickets_[c] = group_of(share, c).all_gather(half_of(whole_, c), rows_of(own, c).contiguous());
  }
  // (2 C L, Hkv, D)
  at::Tensor finish() {
    for (size_t c = 0; c < tickets_.size(); ++c)
      group_of(share_, c).wait(std::exchange(tickets_[c], {}));
    return std::exchange(whole_, {});
  }

 private:
  const ContextShare& share_;
  at::Tensor whole_;
  std::array<dist::Group::Ticket, 2> tickets_;
};

// An asynchronous reduce-scatter: sums all ranks' gradients of all rows, and returns this rank's
// rows.
class ScatteredSums {
 public:
  // `whole` (2 C L, Hkv, D)
  ScatteredSums(const ContextShare& share, const at::Tensor& whole)
      : share_(share),
        own_(at::empty({whole.size(0) / share.group->size(), whole.size(1), whole.size(2)},
                       whole.options())) {
    for (size_t c = 0; c < tickets_.size(); ++c)
      tickets_[c] = group_of(share, c).reduce_scatter(rows_of(own_, c), half_of(whole, c));
  }
  // (2 L, Hkv, D)
  at::Tensor finish() {
    for (size_t c = 0; c < tickets_.size(); ++c)
      group_of(share_, c).wait(std::exchange(tickets_[c], {}));
    return std::exchange(own_, {});
  }

 private:
  const ContextShare& share_;
  at::Tensor own_;
  std::array<dist::Group::Ticket, 2> tickets_;
};

// The keys that a chunk of L tokens attends to.
at::Tensor keys_of(const at::Tensor& all, const ContextChunk& chunk, int64_t length) {
  return all.slice(0, chunk.first_key, chunk.first_row + length);
}

AttentionContext context_of(const AttentionContext& all, const ContextShare& share,
                            const ContextChunk& chunk) {
  AttentionContext own = all;
  own.positions.reset();
  own.rope = {};
  own.cu_seqlens = chunk.cu_seqlens;
  own.max_seqlen = chunk.max_seqlen;
  own.kv_cu_seqlens = chunk.kv_cu_seqlens;
  own.max_kv_seqlen = chunk.max_kv_seqlen;
  own.dropout_first_row = chunk.first_row;
  own.dropout_num_rows = share.num_tokens;
  return own;
}

struct SharedContext {
  AttentionContext context;
  ContextShare share;
};

// Gradients of all rows of keys or values; those from the second chunk are written in place, since
// it attends to more keys.
struct KeyGradients {
  KeyGradients(const at::Tensor& all, const ContextChunk& later, int64_t length)
      : whole(buffer(all, all.size(0))), of_later(keys_of(whole, later, length)) {
    fill(whole.slice(0, 0, later.first_key), 0);
    fill(whole.slice(0, later.first_row + length), 0);
  }
  void add(const at::Tensor& of_earlier, const ContextChunk& earlier, int64_t length) const {
    accumulate(keys_of(whole, earlier, length), of_earlier);
  }

  at::Tensor whole, of_later;
};

// A buffer for gradients of the keys of a first-half chunk. It has the size of that half, so that
// with our kernels memory depends neither on the rank nor on document boundaries, which a plan
// cannot know. Library kernels have their own buffers, of the size of the chunk's keys.
at::Tensor room_for(const at::Tensor& all, const ContextChunk& chunk, int64_t length) {
  return keys_of(buffer(all, all.size(0) / 2), chunk, length);
}

struct ContextAttentionFunction : torch::autograd::Function<ContextAttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                            const AttentionContext& context, const ContextShare& share) {
    GatheredTokens values(share, v);
    rotate_in_place(k, context.positions, context.rope, RopeDirection::Forward);
    GatheredTokens keys(share, k);
    rotate_in_place(q, context.positions, context.rope, RopeDirection::Forward);
    const at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
    const at::Tensor all_v = values.finish(), all_k = keys.finish();
    variable_list kept{q, k, v, out, sinks.value_or(at::Tensor())};
    const int64_t length = q.size(0) / 2;
    for (size_t c = 0; c < share.chunks.size(); ++c) {
      const ContextChunk& chunk = share.chunks[c];
      kept.push_back(attend(rows_of(q, c), keys_of(all_k, chunk, length),
                            keys_of(all_v, chunk, length), context_of(context, share, chunk),
                            rows_of(out, c))
                         .lse);
    }
    keep(ctx, std::move(kept));
    SharedContext own{context, share};
    own.context.sinks.reset();
    carry(ctx, std::move(own));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    AttentionContext context = carried<SharedContext>(ctx).context;
    const ContextShare& share = carried<SharedContext>(ctx).share;
    context.sinks = saved[4];
    const bool trains_sinks = saved[4].defined() && ctx->needs_input_grad(3);
    const at::Tensor &q = saved[0], &out = saved[3];
    GatheredTokens values(share, saved[2]), keys(share, saved[1]);
    const at::Tensor d_out = std::exchange(grads[0], {}).contiguous().view(q.sizes());
    const at::Tensor dq = at::empty(q.sizes(), q.options());
    at::Tensor all_v = values.finish(), all_k = keys.finish();
    const int64_t length = q.size(0) / 2;
    const auto& [earlier, later] = share.chunks;
    KeyGradients dk(all_k, later, length), dv(all_v, later, length);
    const auto gradients_of = [&](size_t c, const AttentionGradients& room) {
      const ContextChunk& chunk = share.chunks[c];
      return attend_backward(rows_of(d_out, c), rows_of(q, c), keys_of(all_k, chunk, length),
                             keys_of(all_v, chunk, length),
                             {.out = rows_of(out, c), .lse = saved[5 + c]},
                             context_of(context, share, chunk), {.sinks = trains_sinks}, room);
    };
    at::Tensor d_sinks =
        gradients_of(1, {.dq = rows_of(dq, 1), .dk = dk.of_later, .dv = dv.of_later}).d_sinks;
    {
      const AttentionGradients more = gradients_of(0, {.dq = rows_of(dq, 0),
                                                       .dk = room_for(all_k, earlier, length),
                                                       .dv = room_for(all_v, earlier, length)});
      if (d_sinks.defined()) d_sinks.add_(more.d_sinks);
      dk.add(more.dk, earlier, length);
      dv.add(more.dv, earlier, length);
    }
    all_k.reset();
    all_v.reset();
    ScatteredSums own_dk(share, dk.whole), own_dv(share, dv.whole);
    rotate_in_place(dq, context.positions, context.rope, RopeDirection::Inverse);
    at::Tensor k_gradient = own_dk.finish(), v_gradient = own_dv.finish();
    rotate_in_place(k_gradient, context.positions, context.rope, RopeDirection::Inverse);
    return {dq, k_gradient, v_gradient, d_sinks, {}, {}};
  }
};

}  // namespace

at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionContext& context, const ContextShare& share) {
  SNUG_CHECK(q.size(1) % k.size(1) == 0 && k.sizes() == v.sizes(), "{} query and {} key heads",
             q.size(1), k.size(1));
  SNUG_CHECK(q.size(0) == k.size(0) && q.size(0) % 2 == 0 && q.size(0) > 0,
             "{} queries and {} keys are not two chunks of tokens", q.size(0), k.size(0));
  SNUG_CHECK(context.causal && !context.bias_table.defined(),
             "context parallelism requires a causal mask and no biases");
  return ContextAttentionFunction::apply(
      q, k, v, context.sinks.defined() ? std::optional(context.sinks) : std::nullopt, context,
      share);
}

}  // namespace snug::ops
