// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "core/ops/device/carried.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear/input_backward.h"
#include "core/ops/linear/linear.h"
#include "core/ops/shared_rows.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CutLayer {
  std::vector<Projection> projections;
  at::Tensor bias;  // of a layer cut by inputs
  std::optional<Activation> activation;
  Up kind_of_up = Up::Own;
  TensorShare share;
  int64_t num_tokens = 0;
};

struct OutputCutFunction : torch::autograd::Function<OutputCutFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::vector<Projection>& projections, int64_t num_tokens,
                               const TensorShare& share,
                               const std::optional<at::Tensor>& /*trained*/) {
    const at::Tensor all = GatheredRows(share, x, num_tokens).finish();
    variable_list outputs;
    variable_list kept{need_input(projections) ? x : at::Tensor()};
    for (const Projection& p : projections) {
      at::Tensor inner;
      outputs.push_back(Projector(p, x.scalar_type()).forward(all, x.scalar_type(), &inner));
      kept.push_back(inner);
    }
    keep(ctx, std::move(kept));
    carry(ctx, CutLayer{.projections = projections, .share = share, .num_tokens = num_tokens});
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& layer = carried<CutLayer>(ctx);
    const TensorShare& share = layer.share;
    std::optional<GatheredRows> gathering;
    if (saved[0].defined()) gathering.emplace(share, saved[0], layer.num_tokens);
    variable_list d_outs, d_inners;
    for (size_t i = 0; i < layer.projections.size(); ++i) {
      d_outs.push_back(std::exchange(grads[i], {}).contiguous());
      d_inners.push_back(
          Projector(layer.projections[i], d_outs[i].scalar_type()).inner_gradient(d_outs[i]));
    }
    std::optional<SummedRows> d_x;
    if (ctx->needs_input_grad(0)) {
      const int64_t columns = layer.projections.front().in_features();
      d_x.emplace(share, layer.num_tokens, columns, d_outs.front().options());
      for (size_t i = 0; i < layer.projections.size(); ++i)
        Projector(layer.projections[i], d_outs[i].scalar_type())
            .input_gradient(d_outs[i], d_inners[i], d_x->terms(),
                            i == 0 ? Into::Overwrite : Into::Accumulate);
      d_x->start();
    }
    const at::Tensor x = gathering ? gathering->finish() : at::Tensor();
    for (size_t i = 0; i < layer.projections.size(); ++i)
      Projector(layer.projections[i], d_outs[i].scalar_type())
          .add_own_gradients(d_outs[i], x, saved[i + 1], d_inners[i]);
    return {d_x ? d_x->finish() : at::Tensor(), {}, {}, {}, {}};
  }
};

// The layer without its bias, which is no term of the sum.
CutLayer input_cut_layer(const Projection& projection, const TensorShare& share,
                         int64_t num_tokens) {
  CutLayer layer{.projections = {projection}, .share = share, .num_tokens = num_tokens};
  layer.bias = std::exchange(layer.projections.front().bias, {});
  return layer;
}

at::Tensor input_cut_forward(const CutLayer& layer, const at::Tensor& x, at::Tensor* inner) {
  const Projection& p = layer.projections.front();
  SummedRows out(layer.share, x.size(0), p.out_features(), x.options());
  Projector(p, x.scalar_type()).forward_into(out.terms(), x, inner);
  out.start();
  at::Tensor result = out.finish();
  if (layer.bias.defined()) result.add_(weight_in(result.scalar_type(), layer.bias));
  return result;
}

// All rows of the output's gradient; the bias takes its own from them.
at::Tensor gather_output_gradient(const CutLayer& layer, const at::Tensor& d_own) {
  at::Tensor d_out = GatheredRows(layer.share, d_own.contiguous(), layer.num_tokens).finish();
  if (layer.bias.defined() && layer.bias.requires_grad()) add_bias_gradient(layer.bias, d_out);
  return d_out;
}

struct InputCutFunction : torch::autograd::Function<InputCutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::optional<at::Tensor>& up,
                            const std::optional<Activation>& activation, Up kind_of_up,
                            const Projection& projection, const TensorShare& share,
                            const std::optional<at::Tensor>& /*trained*/) {
    const ProductInput input{x, up, activation};
    CutLayer layer = input_cut_layer(projection, share, x.size(0));
    layer.activation = activation;
    layer.kind_of_up = kind_of_up;
    at::Tensor inner;
    at::Tensor out = input_cut_forward(layer, input.value(), &inner);
    keep(ctx, {input.keeps(projection.needs_input()) ? x : at::Tensor(), up.value_or(at::Tensor()),
               inner});
    carry(ctx, std::move(layer));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& layer = carried<CutLayer>(ctx);
    ProductInput input{saved[0], std::nullopt, layer.activation, layer.kind_of_up};
    if (saved[1].defined()) input.up = saved[1];
    const Projection& p = layer.projections.front();
    InputBackward backward(std::move(input), p.needs_input(), ctx->needs_input_grad(0));
    backward.add(p, gather_output_gradient(layer, std::exchange(grads[0], {})), saved[2]);
    const auto [d_x, d_up] = backward.gradients();
    return {d_x, d_up, {}, {}, {}, {}, {}};
  }
};

struct CutEmbeddingFunction : torch::autograd::Function<CutEmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids, const at::Tensor& weight,
                            const TablePart& part, at::ScalarType type, const TensorShare& share) {
    carry(ctx, CutLayer{.share = share, .num_tokens = ids.size(0)});
    SummedRows out(share, ids.size(0), weight.size(1), weight.options().dtype(type));
    if (type == weight.scalar_type()) {
      look_up(out.terms(), ids, weight, part);
    } else {
      const at::Tensor rows = at::empty({ids.size(0), weight.size(1)}, weight.options());
      look_up(rows, ids, weight, part);
      copy(out.terms(), rows);
    }
    out.start();
    ctx->saved_data["ids"] = ids;
    ctx->saved_data["weight"] = weight;
    ctx->saved_data["first"] = part.first;
    ctx->saved_data["whole"] = part.whole;
    return out.finish();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto& layer = carried<CutLayer>(ctx);
    const at::Tensor d_out =
        GatheredRows(layer.share, grads[0].contiguous(), layer.num_tokens).finish();
    add_row_gradients(ctx->saved_data["weight"].toTensor(), ctx->saved_data["ids"].toTensor(),
                      d_out, {ctx->saved_data["first"].toInt(), ctx->saved_data["whole"].toInt()});
    return {{}, {}, {}, {}, {}};
  }
};

}  // namespace

std::vector<at::Tensor> output_cut_linears(const at::Tensor& x,
                                           const std::vector<Projection>& projections,
                                           int64_t num_tokens, const TensorShare& share) {
  return OutputCutFunction::apply(x, projections, num_tokens, share, any_trained(projections));
}

at::Tensor input_cut_linear(const ProductInput& input, const Projection& projection,
                            const TensorShare& share) {
  return InputCutFunction::apply(input.x, input.up, input.activation, input.kind_of_up, projection,
                                 share, projection.any_trained());
}

at::Tensor cut_embedding(const at::Tensor& ids, const at::Tensor& weight, const TablePart& part,
                         at::ScalarType type, const TensorShare& share) {
  return CutEmbeddingFunction::apply(ids, weight, part, type, share);
}

}  // namespace snug::ops
