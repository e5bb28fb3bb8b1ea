// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "kernels/cpu/linalg/attention.h"
#include "ops/device.h"
#include "ops/kept.h"

namespace snug::ops {
namespace {

using kernels::cpu::RopeDirection;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const void* read_pointer(const at::Tensor& t) { return t.is_meta() ? nullptr : t.const_data_ptr(); }
void* write_pointer(const at::Tensor& t) { return t.is_meta() ? nullptr : t.mutable_data_ptr(); }

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

void attention_backward(const kernels::cpu::AttentionArgs& forward, const at::Tensor& d_out,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
  with_workspace(d_out, kernels::cpu::attention_workspace_bytes(forward, /*backward=*/true),
                 [&](void* scratch) {
                   kernels::cpu::attention_backward({.forward = forward,
                                                     .d_out = d_out.const_data_ptr(),
                                                     .dq = dq.mutable_data_ptr(),
                                                     .dk = dk.mutable_data_ptr(),
                                                     .dv = dv.mutable_data_ptr()},
                                                    scratch);
                 });
}

// The context's tensors ride along as inputs without gradients, so that they are kept and released
// with the graph like everything else.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionContext& context) {
    rotate_in_place(q, context.positions, context.rope, RopeDirection::Forward);
    rotate_in_place(k, context.positions, context.rope, RopeDirection::Forward);
    at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
    const at::Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
    const kernels::cpu::AttentionArgs args = arguments(q, k, v, out, lse, context);
    with_workspace(q, kernels::cpu::attention_workspace_bytes(args, /*backward=*/false),
                   [&](void* scratch) { kernels::cpu::attention_forward(args, scratch); });
    keep(ctx, {q, k, v, out, lse});
    ctx->saved_data["cu_seqlens"] = context.cu_seqlens;
    ctx->saved_data["positions"] = context.positions;
    ctx->saved_data["cos"] = context.rope.cos;
    ctx->saved_data["sin"] = context.rope.sin;
    ctx->saved_data["scale"] = context.scale;
    ctx->saved_data["window"] = context.sliding_window;
    return out;
  }

  static AttentionContext restore(AutogradContext* ctx) {
    auto& data = ctx->saved_data;
    return {.cu_seqlens = data["cu_seqlens"].toTensor(),
            .positions = data["positions"].toTensor(),
            .rope = {.cos = data["cos"].toTensor(), .sin = data["sin"].toTensor()},
            .scale = data["scale"].toDouble(),
            .sliding_window = data["window"].toInt()};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionContext context = restore(ctx);
    const at::Tensor d_out = grads[0].contiguous();
    at::Tensor dq = at::empty(saved[0].sizes(), saved[0].options());
    at::Tensor dk = at::empty(saved[1].sizes(), saved[1].options());
    at::Tensor dv = at::empty(saved[2].sizes(), saved[2].options());
    attention_backward(arguments(saved[0], saved[1], saved[2], saved[3], saved[4], context), d_out,
                       dq, dk, dv);
    rotate_in_place(dq, context.positions, context.rope, RopeDirection::Inverse);
    rotate_in_place(dk, context.positions, context.rope, RopeDirection::Inverse);
    return {dq, dk, dv, {}};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionContext& context) {
  SNUG_CHECK(q.size(1) % k.size(1) == 0 && k.sizes() == v.sizes(), "{} query and {} key heads",
             q.size(1), k.size(1));
  return AttentionFunction::apply(q, k, v, context);
}

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                            const at::Tensor& v_cache, int64_t length,
                            const AttentionContext& context) {
  at::Tensor out = at::empty({1, q.size(1) * q.size(2)}, q.options());
  const auto cached = static_cast<int32_t>(length);
  const kernels::cpu::DecodeAttentionArgs args{.num_sequences = 1,
                                               .num_heads = q.size(1),
                                               .num_kv_heads = k_cache.size(1),
                                               .head_dim = q.size(2),
                                               .type = to_scalar(q.scalar_type()),
                                               .q = read_pointer(q),
                                               .k_cache = read_pointer(k_cache),
                                               .v_cache = read_pointer(v_cache),
                                               .sequence_stride = k_cache.numel(),
                                               .token_stride = k_cache.stride(0),
                                               .lengths = &cached,
                                               .scale = static_cast<float>(context.scale),
                                               .sliding_window = context.sliding_window,
                                               .out = write_pointer(out)};
  with_workspace(q, kernels::cpu::decode_attention_workspace_bytes(args),
                 [&](void* scratch) { kernels::cpu::decode_attention(args, scratch); });
  return out;
}

}  // namespace snug::ops
