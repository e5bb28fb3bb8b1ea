// What a linear layer multiplies by: a weight, a bias, and a low-rank adapter beside the weight
// (LoRA, Hu et al. 2021; DoRA, Liu et al. 2024). The parts of forward and backward without
// autograd; ops/linear.h and ops/cross_entropy.h put them together.
//   z = x·Wᵀ + scaling · dropout(x)·Aᵀ·Bᵀ        y = z + bias
//   with DoRA's magnitude m:  y = m / ‖W + scaling·B·A‖ ⊙ z + bias, norms by rows (out)
// Gradients of what is trained are added straight into its buffers. The norm is a constant to the
// gradient, as DoRA's section 4.3 has it.
// Shapes: N rows, in, out, r rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "kernels/cpu/dropout.h"
#include "ops/matmul.h"
#include "ops/quantized.h"

namespace snug::dist {
class Group;
}

namespace snug::ops {

struct LowRank {
  at::Tensor a;          // (r, in)
  at::Tensor b;          // (out, r)
  at::Tensor magnitude;  // (out); undefined: LoRA
  double scaling = 1;
  double dropout = 0;            // probability that an element of the adapter's input is zeroed
  uint64_t dropout_key = 0;      // which ones
  kernels::cpu::RowPlaces rows;  // what the input's rows are numbered as

  bool is_trained() const { return a.requires_grad() || b.requires_grad(); }
};

// The features that a projection has where the ranks of a group share a layer (Shoeybi et al.
// 2019). With Outputs each rank's product is a part of the layer's output; with Inputs, a term of
// it. With None each has the whole layer; where they have rows of their own (ops/shared_rows.h)
// `group` is set, and sums the gradients of what is trained.
enum class Cut { None, Outputs, Inputs };

struct Part {
  Cut cut = Cut::None;
  dist::Group* group = nullptr;
  int64_t first_input = 0;  // with Inputs, which get the dropout mask that they have in the whole
  int64_t whole_inputs = 0;
};

struct Projection {
  at::Tensor weight;                         // (out, in), or undefined:
  std::optional<QuantizedWeight> quantized;  // (out, in), frozen
  at::Tensor bias;                           // (out) or undefined
  std::optional<LowRank> adapter;
  Part part;  // the sizes above are then the part's

  int64_t in_features() const { return quantized ? quantized->cols : weight.size(1); }
  int64_t out_features() const { return quantized ? quantized->rows : weight.size(0); }
  // Whether a backward needs to know the input.
  bool needs_input() const {
    return trains_weight() || (adapter && (adapter->is_trained() || has_magnitude()));
  }
  bool trains_weight() const { return weight.defined() && weight.requires_grad(); }
  // One of the trained tensors, if any: autograd learns from it that an output needs a backward.
  // It gets no gradient through it.
  std::optional<at::Tensor> any_trained() const;
  std::vector<at::Tensor> trained() const;
  bool has_magnitude() const { return adapter && adapter->magnitude.defined(); }
};

// A projection made ready for products in one type: what is of another type is cast, for as long as
// this object lives.
class Projector {
 public:
  Projector(const Projection& projection, at::ScalarType compute);

  // For inputs that come in stretches: the first row of the one that follows, so that each has the
  // part of the dropout mask that belongs to it.
  void start_at(int64_t row) { first_row_ = row; }

  // x (N, in) -> (N, out) of `type`. `inner` becomes dropout(x)·Aᵀ (N, r), which the backward
  // wants; undefined without adapter.
  at::Tensor forward(const at::Tensor& x, at::ScalarType type, at::Tensor* inner = nullptr) const;
  // The same written into `out`.
  void forward_into(const at::Tensor& out, const at::Tensor& x, at::Tensor* inner = nullptr) const;

  // The backward in two steps, so that x can go before its gradient comes. First the gradients of
  // weight, bias and adapter are added: d_out (N, out); x and inner as in forward. Returns the
  // gradient of x·Aᵀ (N, r), undefined without adapter, which the second step wants.
  at::Tensor add_gradients(const at::Tensor& d_out, const at::Tensor& x,
                           const at::Tensor& inner) const;
  // Writes x's gradient into d_x (N, in), or adds it.
  void input_gradient(const at::Tensor& d_out, const at::Tensor& d_inner, const at::Tensor& d_x,
                      Into into = Into::Overwrite) const;

  // The first step in two of its own, for whoever wants x's gradient before the others'.
  at::Tensor inner_gradient(const at::Tensor& d_out) const;
  void add_own_gradients(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& inner,
                         const at::Tensor& d_inner) const;

 private:
  void without_bias(const at::Tensor& out, const at::Tensor& x, at::Tensor* inner) const;
  at::Tensor dropped(const at::Tensor& x) const;
  void add_magnitude_gradient(const at::Tensor& d_out, const at::Tensor& x) const;
  // The gradient before DoRA's scale.
  at::Tensor unscaled(const at::Tensor& d_out) const;

  const Projection& projection_;
  int64_t first_row_ = 0;
  at::Tensor weight_, a_, b_;  // in the type of products; weight_ undefined where it is quantized
  // DoRA's; undefined without. A pass over the weight makes them, once for all stretches.
  at::Tensor norms_;  // ‖W + scaling·B·A‖ by rows (out), float32
  at::Tensor scale_;  // m / norms (1, out), float32
};

// ‖W‖ by rows, (out) float32: what DoRA's magnitude starts from.
at::Tensor row_norms(const Projection& projection);

}  // namespace snug::ops
