// SPDX-License-Identifier: Apache-2.0
#include "core/ops/sequence/delta_rule.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "core/kernels/delta_rule.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// q, k, v, g, beta and, of a sum, skip.
kernels::StateForm form_of(const variable_list& inputs) {
  return inputs.size() == 6 ? kernels::StateForm::Sum : kernels::StateForm::Delta;
}
const float* skip_of(const variable_list& inputs) {
  return inputs.size() == 6 ? read_pointer<float>(inputs[5]) : nullptr;
}

kernels::DeltaRuleSizes sizes_of(const variable_list& inputs, const DeltaRuleContext& context) {
  const at::Tensor &q = inputs[0], &v = inputs[2];
  return {.type = to_scalar(v.scalar_type()),
          .num_tokens = v.size(0),
          .num_key_heads = q.size(1),
          .num_value_heads = v.size(1),
          .key_dim = q.size(2),
          .value_dim = v.size(2),
          .num_documents = context.cu_seqlens.size(0) - 1,
          .max_seqlen = context.max_seqlen,
          .chunk = context.chunk,
          .form = form_of(inputs)};
}

kernels::DeltaRuleForward forward_args(const variable_list& inputs, const DeltaRuleContext& context,
                                       const at::Tensor& out) {
  const at::Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
  return {.sizes = sizes_of(inputs, context),
          .cu_seqlens = read_pointer<int32_t>(context.cu_seqlens),
          .q = read_pointer(q),
          .k = read_pointer(k),
          .v = read_pointer(v),
          .q_stride = q.stride(0),
          .k_stride = k.stride(0),
          .v_stride = v.stride(0),
          .g = read_pointer<float>(inputs[3]),
          .beta = read_pointer<float>(inputs[4]),
          .skip = skip_of(inputs),
          .out = write_pointer(out),
          .final_states = write_pointer<float>(context.final_states)};
}

at::Tensor room_like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

struct DeltaRuleFunction : torch::autograd::Function<DeltaRuleFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& g, const at::Tensor& beta,
                            const std::optional<at::Tensor>& skip,
                            const DeltaRuleContext& context) {
    variable_list inputs = {q, k, v, g, beta};
    if (skip) inputs.push_back(*skip);
    at::Tensor out = room_like(v);
    const kernels::DeltaRuleForward args = forward_args(inputs, context, out);
    const int64_t bytes = kernel_device(q) == at::kCUDA
                              ? cuda::delta_rule_forward_workspace_bytes(args.sizes)
                              : kernels::cpu::delta_rule_forward_workspace_bytes(args);
    with_workspace(q, bytes, [&](void* scratch) {
      run_on(
          q, [&] { kernels::cpu::delta_rule_forward(args, scratch); },
          [&] { cuda::delta_rule_forward(args, scratch); });
    });
    keep(ctx, inputs);
    DeltaRuleContext own = context;
    own.final_states.reset();
    carry(ctx, std::move(own));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list inputs = ctx->get_saved_variables();
    const at::Tensor d_out = grads[0].contiguous();
    variable_list gradients;
    for (size_t i = 0; i < 5; ++i) gradients.push_back(room_like(inputs[i]));
    const at::Tensor of_tokens = inputs.size() == 6 ? room_like(inputs[3]) : at::Tensor();
    const kernels::DeltaRuleBackward args{
        .forward = forward_args(inputs, carried<DeltaRuleContext>(ctx), {}),
        .d_out = read_pointer(d_out),
        .dq = write_pointer(gradients[0]),
        .dk = write_pointer(gradients[1]),
        .dv = write_pointer(gradients[2]),
        .dg = write_pointer<float>(gradients[3]),
        .dbeta = write_pointer<float>(gradients[4]),
        .dskip = write_pointer<float>(of_tokens)};
    const int64_t bytes = kernel_device(d_out) == at::kCUDA
                              ? cuda::delta_rule_backward_workspace_bytes(args.forward.sizes)
                              : kernels::cpu::delta_rule_backward_workspace_bytes(args.forward);
    with_workspace(d_out, bytes, [&](void* scratch) {
      run_on(
          d_out, [&] { kernels::cpu::delta_rule_backward(args, scratch); },
          [&] { cuda::delta_rule_backward(args, scratch); });
    });
    gradients.push_back(of_tokens.defined() ? of_tokens.sum(0) : at::Tensor());
    gradients.emplace_back();
    return gradients;
  }
};

bool has_whole_rows(const at::Tensor& x) {
  return x.dim() == 3 && x.stride(2) == 1 && x.stride(1) == x.size(2);
}

void check_inputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& g, const at::Tensor& beta) {
  SNUG_CHECK(has_whole_rows(q) && has_whole_rows(k) && has_whole_rows(v),
             "the delta rule takes q, k and v as (tokens, heads, dim), a token's heads together");
  SNUG_CHECK(q.sizes() == k.sizes() && q.size(0) == v.size(0) && v.size(1) % q.size(1) == 0,
             "the delta rule with {} queries, {} keys and {} values of {} and {} heads", q.size(0),
             k.size(0), v.size(0), q.size(1), v.size(1));
  SNUG_CHECK(q.scalar_type() == v.scalar_type() && k.scalar_type() == v.scalar_type(),
             "q, k and v of the delta rule are of one type");
  for (const at::Tensor* gate : {&g, &beta})
    SNUG_CHECK(gate->scalar_type() == at::kFloat && gate->is_contiguous() && gate->dim() == 2 &&
                   gate->size(0) == v.size(0) && gate->size(1) == v.size(1),
               "the delta rule's g and beta are float32, one for each of {} tokens and {} heads",
               v.size(0), v.size(1));
}

void check_states(const at::Tensor& states, int64_t count, const at::Tensor& q,
                  const at::Tensor& v) {
  SNUG_CHECK(states.scalar_type() == at::kFloat && states.is_contiguous() &&
                 states.sizes() == at::IntArrayRef({count, v.size(1), q.size(2), v.size(2)}),
             "the delta rule's states are float32, {} x {} matrices of {} x {}", count, v.size(1),
             q.size(2), v.size(2));
}

void check_skip(const at::Tensor& skip, const at::Tensor& v) {
  SNUG_CHECK(skip.scalar_type() == at::kFloat && skip.is_contiguous() &&
                 skip.sizes() == at::IntArrayRef({v.size(1)}),
             "what skips a scan is float32, a number for each of {} heads", v.size(1));
}

at::Tensor step(const variable_list& inputs, const at::Tensor& states) {
  const at::Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
  at::Tensor out = room_like(v);
  const kernels::DeltaRuleStep args{.type = to_scalar(v.scalar_type()),
                                    .form = form_of(inputs),
                                    .num_sequences = v.size(0),
                                    .num_key_heads = q.size(1),
                                    .num_value_heads = v.size(1),
                                    .key_dim = q.size(2),
                                    .value_dim = v.size(2),
                                    .q = read_pointer(q),
                                    .k = read_pointer(k),
                                    .v = read_pointer(v),
                                    .q_stride = q.stride(0),
                                    .k_stride = k.stride(0),
                                    .v_stride = v.stride(0),
                                    .g = read_pointer<float>(inputs[3]),
                                    .beta = read_pointer<float>(inputs[4]),
                                    .skip = skip_of(inputs),
                                    .states = write_pointer<float>(states),
                                    .out = write_pointer(out)};
  run_on(
      q, [&] { kernels::cpu::delta_rule_step(args); }, [&] { cuda::delta_rule_step(args); });
  return out;
}

}  // namespace

at::Tensor gated_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& g, const at::Tensor& beta,
                            const DeltaRuleContext& context) {
  check_inputs(q, k, v, g, beta);
  if (context.final_states.defined())
    check_states(context.final_states, context.cu_seqlens.size(0) - 1, q, v);
  return DeltaRuleFunction::apply(q, k, v, g, beta, std::nullopt, context);
}

at::Tensor mamba_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& g, const at::Tensor& beta, const at::Tensor& skip,
                      const DeltaRuleContext& context) {
  check_inputs(q, k, v, g, beta);
  check_skip(skip, v);
  if (context.final_states.defined())
    check_states(context.final_states, context.cu_seqlens.size(0) - 1, q, v);
  return DeltaRuleFunction::apply(q, k, v, g, beta, std::optional(skip), context);
}

at::Tensor gated_delta_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& g, const at::Tensor& beta, const at::Tensor& states) {
  check_inputs(q, k, v, g, beta);
  check_states(states, v.size(0), q, v);
  return step({q, k, v, g, beta}, states);
}

at::Tensor mamba_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& g, const at::Tensor& beta, const at::Tensor& skip,
                      const at::Tensor& states) {
  check_inputs(q, k, v, g, beta);
  check_skip(skip, v);
  check_states(states, v.size(0), q, v);
  return step({q, k, v, g, beta, skip}, states);
}

}  // namespace snug::ops
