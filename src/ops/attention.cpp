// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "base/error.h"
#include "kernels/cpu/linalg/attention.h"
#include "ops/device.h"
#include "ops/kept.h"
#include "ops/library_attention.h"

namespace snug::ops {
namespace {

using kernels::cpu::RopeDirection;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
          .causal = true,
          .out = write_pointer(out),
          .lse = static_cast<float*>(write_pointer(lse))};
}

AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionContext& context) {
  if (kernel_device(q) == at::kCUDA)
    return library_attention_forward(choose_library_attention(q), q, k, v, context);
  const AttentionOutput result{at::empty({q.size(0), q.size(1) * q.size(2)}, q.options()),
                               at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat))};
  const kernels::cpu::AttentionArgs args = arguments(q, k, v, result.out, result.lse, context);
  with_workspace(q, kernels::cpu::attention_workspace_bytes(args, /*backward=*/false),
                 [&](void* scratch) { kernels::cpu::attention_forward(args, scratch); });
  return result;
}

AttentionGradients attend_backward(const at::Tensor& d_out, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOutput& forward,
                                   const AttentionContext& context) {
  if (kernel_device(q) == at::kCUDA)
    return library_attention_backward(choose_library_attention(q), d_out, q, k, v, forward,
                                      context);
  const AttentionGradients gradients{at::empty(q.sizes(), q.options()),
                                     at::empty(k.sizes(), k.options()),
                                     at::empty(v.sizes(), v.options())};
  const kernels::cpu::AttentionBackwardArgs args{
      .forward = arguments(q, k, v, forward.out, forward.lse, context),
      .d_out = read_pointer(d_out),
      .dq = write_pointer(gradients.dq),
      .dk = write_pointer(gradients.dk),
      .dv = write_pointer(gradients.dv)};
  with_workspace(d_out, kernels::cpu::attention_workspace_bytes(args.forward, /*backward=*/true),
                 [&](void* scratch) { kernels::cpu::attention_backward(args, scratch); });
  return gradients;
}

// The context's tensors ride along as inputs without gradients, so that they are kept and released
// with the graph like everything else.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionContext& context) {
    rotate_in_place(q, context.positions, context.rope, RopeDirection::Forward);
    rotate_in_place(k, context.positions, context.rope, RopeDirection::Forward);
    const AttentionOutput result = attend(q, k, v, context);
    keep(ctx, {q, k, v, result.out, result.lse});
    ctx->saved_data["cu_seqlens"] = context.cu_seqlens;
    ctx->saved_data["max_seqlen"] = context.max_seqlen;
    ctx->saved_data["positions"] = context.positions;
    ctx->saved_data["cos"] = context.rope.cos;
    ctx->saved_data["sin"] = context.rope.sin;
    ctx->saved_data["scale"] = context.scale;
    ctx->saved_data["window"] = context.sliding_window;
    return result.out;
  }

  static AttentionContext restore(AutogradContext* ctx) {
    auto& data = ctx->saved_data;
    return {.cu_seqlens = data["cu_seqlens"].toTensor(),
            .max_seqlen = data["max_seqlen"].toInt(),
            .positions = data["positions"].toTensor(),
            .rope = {.cos = data["cos"].toTensor(), .sin = data["sin"].toTensor()},
            .scale = data["scale"].toDouble(),
            .sliding_window = data["window"].toInt()};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionContext context = restore(ctx);
    const at::Tensor d_out = grads[0].contiguous().view(saved[0].sizes());
    auto [dq, dk, dv] = attend_backward(d_out, saved[0], saved[1], saved[2],
                                        {.out = saved[3], .lse = saved[4]}, context);
    rotate_in_place(dq, context.positions, context.rope, RopeDirection::Inverse);
    rotate_in_place(dk, context.positions, context.rope, RopeDirection::Inverse);
    return {dq, dk, dv, {}};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionContext& context) {
  SNUG_CHECK(context.causal && !context.kv_cu_seqlens.defined() && !context.bias_table.defined() &&
                 context.dropout == 0,
             "only causal self-attention without biases and dropout");
  SNUG_CHECK(q.size(1) % k.size(1) == 0 && k.sizes() == v.sizes(), "{} query and {} key heads",
             q.size(1), k.size(1));
  return AttentionFunction::apply(q, k, v, context);
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
                                               .out = write_pointer(out)};
  with_workspace(q, kernels::cpu::decode_attention_workspace_bytes(args),
                 [&](void* scratch) { kernels::cpu::decode_attention(args, scratch); });
  return out;
}

}  // namespace snug::ops
