// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/linalg/attention/attention.h"
#include "core/ops/attention/attend.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"

namespace snug::ops {
namespace {

using kernels::RopeDirection;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::cpu::BiasTable bias_of(const AttentionContext& context) {
  const at::Tensor& table = context.bias_table;
  if (!table.defined()) return {};
  return {.num_buckets = table.size(0),
          .data = read_pointer(table),
          .type = to_scalar(table.scalar_type()),
          .max_distance = context.max_distance,
          .both_directions = !context.causal};
}

kernels::cpu::AttentionArgs arguments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& lse,
                                      const AttentionContext& context) {
  return {.num_tokens = q.size(0),
          .num_heads = q.size(1),
          .num_kv_heads = k.size(1),
          .head_dim = q.size(2),
          .num_documents = context.cu_seqlens.size(0) - 1,
          .cu_seqlens = static_cast<const int32_t*>(read_pointer(context.cu_seqlens)),
          .type = to_scalar(q.scalar_type()),
          .q = read_pointer(q),
          .k = read_pointer(k),
          .v = read_pointer(v),
          .q_stride = q.stride(0),
          .k_stride = k.stride(0),
          .v_stride = v.stride(0),
          .scale = static_cast<float>(context.scale),
          .sliding_window = context.sliding_window,
          .causal = context.causal,
          .num_keys = context.kv_cu_seqlens.defined() ? k.size(0) : 0,
          .kv_cu_seqlens = read_pointer<int32_t>(context.kv_cu_seqlens),
          .bias = bias_of(context),
          .score_cap = static_cast<float>(context.score_cap),
          .sinks = read_pointer<float>(context.sinks),
          .dropout = {.probability = context.dropout,
                      .key = context.dropout_key.own,
                      .first_head = context.dropout_first_head,
                      .first_row = context.dropout_first_row,
                      .num_rows = context.dropout_num_rows},
          .out = write_pointer(out),
          .lse = static_cast<float*>(write_pointer(lse))};
}

// The context is carried; of its tensors only the biases and the sinks are inputs of the graph.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  // libtorch numbers the inputs that there are, and there are never both.
  static constexpr size_t kBiasOrSinks = 3;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& bias_table,
                            const std::optional<at::Tensor>& sinks,
                            const AttentionContext& context) {
    rotate_in_place(q, k, context.positions, context.rope, RopeDirection::Forward);
    const AttentionOutput result = attend(q, k, v, context);
    keep(ctx, {q, k, v, result.out, result.lse, bias_table.value_or(at::Tensor()),
               sinks.value_or(at::Tensor())});
    AttentionContext own = context;
    own.bias_table.reset();
    own.sinks.reset();
    carry(ctx, std::move(own));
    return result.out;
  }

  static AttentionContext restore(AutogradContext* ctx, const variable_list& saved) {
    AttentionContext context = carried<AttentionContext>(ctx);
    context.bias_table = saved[5];
    context.sinks = saved[6];
    return context;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionContext context = restore(ctx, saved);
    const at::Tensor d_out = grads[0].contiguous().view(saved[0].sizes());
    const auto trains = [&](const at::Tensor& input) {
      return input.defined() && ctx->needs_input_grad(kBiasOrSinks);
    };
    auto [dq, dk, dv, d_bias, d_sinks] =
        attend_backward(d_out, saved[0], saved[1], saved[2], {.out = saved[3], .lse = saved[4]},
                        context, {.bias = trains(saved[5]), .sinks = trains(saved[6])});
    rotate_in_place(dq, dk, context.positions, context.rope, RopeDirection::Inverse);
    if (d_bias.defined()) d_bias = d_bias.to(context.bias_table.scalar_type());
    return {dq, dk, dv, d_bias, d_sinks, {}};
  }
};

void check_context(const at::Tensor& q, const at::Tensor& k, const AttentionContext& context) {
  const at::Tensor& table = context.bias_table;
  SNUG_CHECK(
      !table.defined() || (table.dim() == 2 && table.size(1) == q.size(1) && table.is_contiguous()),
      "the table of relative biases must have a column for each of {} heads", q.size(1));
  SNUG_CHECK(!table.defined() || (context.score_cap == 0 && !context.sinks.defined()),
             "attention with biases has neither a cap nor sinks");
  const at::Tensor& sinks = context.sinks;
  SNUG_CHECK(!sinks.defined() || (sinks.dim() == 1 && sinks.size(0) == q.size(1) &&
                                  sinks.scalar_type() == at::kFloat && sinks.is_contiguous()),
             "attention needs one float32 sink for each of {} heads", q.size(1));
  if (!context.kv_cu_seqlens.defined()) {
    SNUG_CHECK(q.size(0) == k.size(0), "self-attention with {} queries and {} keys", q.size(0),
               k.size(0));
    return;
  }
  SNUG_CHECK(
      (context.causal || context.sliding_window == 0) && !context.rope.cos.defined(),
      "cross-attention has no rotary embeddings, and a sliding window only with a causal mask");
  SNUG_CHECK(context.kv_cu_seqlens.sizes() == context.cu_seqlens.sizes() && k.size(0) > 0,
             "{} documents of queries, {} of keys", context.cu_seqlens.size(0) - 1,
             context.kv_cu_seqlens.size(0) - 1);
}

}  // namespace

AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionContext& context, const at::Tensor& out) {
  if (kernel_device(q) == at::kCUDA) {
    AttentionOutput result =
        library_attention_forward(choose_library_attention(q, context), q, k, v, context);
    if (out.defined()) result.out = out.copy_(result.out);
    return result;
  }
  const AttentionOutput result{
      out.defined() ? out : at::empty({q.size(0), q.size(1) * q.size(2)}, q.options()),
      at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat))};
  const kernels::cpu::AttentionArgs args = arguments(q, k, v, result.out, result.lse, context);
  with_workspace(q, kernels::cpu::attention_workspace_bytes(args, /*backward=*/false),
                 [&](void* scratch) { kernels::cpu::attention_forward(args, scratch); });
  return result;
}

AttentionGradients attend_backward(const at::Tensor& d_out, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOutput& forward, const AttentionContext& context,
                                   Trained trained, const AttentionGradients& room) {
  if (kernel_device(q) == at::kCUDA) {
    AttentionGradients result = library_attention_backward(choose_library_attention(q, context),
                                                           d_out, q, k, v, forward, context);
    if (!trained.bias) result.d_bias.reset();
    if (trained.sinks) result.d_sinks = sink_gradients(d_out, forward, context);
    if (room.dq.defined()) result.dq = room.dq.copy_(result.dq);
    if (room.dk.defined()) result.dk = room.dk.copy_(result.dk);
    if (room.dv.defined()) result.dv = room.dv.copy_(result.dv);
    return result;
  }
  const auto like = [](const at::Tensor& given, const at::Tensor& x) {
    return given.defined() ? given : at::empty(x.sizes(), x.options());
  };
  AttentionGradients gradients{like(room.dq, q), like(room.dk, k), like(room.dv, v)};
  const auto floats = q.options().dtype(at::kFloat);
  if (trained.bias) gradients.d_bias = at::empty(context.bias_table.sizes(), floats);
  if (trained.sinks) gradients.d_sinks = at::empty(context.sinks.sizes(), floats);
  const kernels::cpu::AttentionBackwardArgs args{
      .forward = arguments(q, k, v, forward.out, forward.lse, context),
      .d_out = read_pointer(d_out),
      .dq = write_pointer(gradients.dq),
      .dk = write_pointer(gradients.dk),
      .dv = write_pointer(gradients.dv),
      .d_bias = static_cast<float*>(write_pointer(gradients.d_bias)),
      .d_sinks = static_cast<float*>(write_pointer(gradients.d_sinks))};
  with_workspace(d_out, kernels::cpu::attention_workspace_bytes(args.forward, /*backward=*/true),
                 [&](void* scratch) { kernels::cpu::attention_backward(args, scratch); });
  return gradients;
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionContext& context) {
  SNUG_CHECK(q.size(1) % k.size(1) == 0 && k.sizes() == v.sizes(), "{} query and {} key heads",
             q.size(1), k.size(1));
  check_context(q, k, context);
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional(x) : std::nullopt;
  };
  return AttentionFunction::apply(q, k, v, optional(context.bias_table), optional(context.sinks),
                                  context);
}

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                            const at::Tensor& v_cache, int64_t length,
                            const AttentionContext& context) {
  if (kernel_device(q) == at::kCUDA)
    return library_decode_attention(q, k_cache, v_cache, length, context)
        .view({q.size(0), q.size(1) * q.size(2)});
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  const std::vector<int32_t> lengths(static_cast<size_t>(q.size(0)), static_cast<int32_t>(length));
  const kernels::cpu::DecodeAttentionArgs args{.num_sequences = q.size(0),
                                               .num_heads = q.size(1),
                                               .num_kv_heads = k_cache.size(2),
                                               .head_dim = q.size(2),
                                               .type = to_scalar(q.scalar_type()),
                                               .q = read_pointer(q),
                                               .k_cache = read_pointer(k_cache),
                                               .v_cache = read_pointer(v_cache),
                                               .sequence_stride = k_cache.stride(0),
                                               .token_stride = k_cache.stride(1),
                                               .lengths = lengths.data(),
                                               .scale = static_cast<float>(context.scale),
                                               .sliding_window = context.sliding_window,
                                               .bias = bias_of(context),
                                               .score_cap = static_cast<float>(context.score_cap),
                                               .sinks = read_pointer<float>(context.sinks),
                                               .out = write_pointer(out)};
  with_workspace(q, kernels::cpu::decode_attention_workspace_bytes(args),
                 [&](void* scratch) { kernels::cpu::decode_attention(args, scratch); });
  return out;
}

}  // namespace snug::ops
