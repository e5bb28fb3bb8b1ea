// A linear layer's weight, bias and low-rank adapter (LoRA, Hu et al. 2021; DoRA, Liu et al. 2024),
// with the steps of forward and backward, without autograd, for core/ops/linear/linear.h and
// core/ops/loss/cross_entropy.h.
//   z = x·Wᵀ + scaling · dropout(x)·Aᵀ·Bᵀ        y = z + bias
//   with DoRA's magnitude m:  y = m / ‖W + scaling·B·A‖ ⊙ z + bias, norms by rows (out)
// Gradients are added directly to the buffers of trained tensors. The norm is treated as a constant
// in the gradient (DoRA, section 4.3). Shapes: N rows, in, out, r rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/kernels/dropout.h"
#include "core/kernels/random_key.h"
#include "core/ops/linear/matmul.h"
#include "core/ops/linear/stored_weight.h"

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
  kernels::MaskKey dropout_key;  // seeds the mask
  kernels::RowPlaces rows;       // row numbers of the input, for the mask

  bool is_trained() const { return a.requires_grad() || b.requires_grad(); }
};

// How a layer is split under tensor parallelism (Shoeybi et al. 2019). Outputs: each rank computes
// some of the output's features; Inputs: a term of the output's sum; None: each rank has the whole
// layer. With None and rows shared among ranks (core/ops/shared_rows.h) `group` is set, over which
// gradients are summed.
enum class Cut { None, Outputs, Inputs };

struct Part {
  Cut cut = Cut::None;
  dist::Group* group = nullptr;
  int64_t first_input = 0;  // with Inputs: this rank's first input, for the dropout mask
  int64_t whole_inputs = 0;
};

struct Projection {
  StoredWeight weight;  // (out, in)
  at::Tensor bias;      // (out) or undefined
  std::optional<LowRank> adapter;
  Part part;  // the sizes above are this rank's

  int64_t in_features() const { return weight.cols; }
  int64_t out_features() const { return weight.rows; }
  // Whether the backward needs the input.
  bool needs_input() const {
    return trains_weight() || (adapter && (adapter->is_trained() || has_magnitude()));
  }
  bool trains_weight() const { return weight.data.defined() && weight.data.requires_grad(); }
  // One of the trained tensors, if any, which makes autograd run a backward; it gets no gradient
  // through autograd.
  std::optional<at::Tensor> any_trained() const;
  std::vector<at::Tensor> trained() const;
  bool has_magnitude() const { return adapter && adapter->magnitude.defined(); }
};

// Whether the backward of several layers with one input needs it, and one of their trained
// tensors.
bool need_input(const std::vector<Projection>& projections);
std::optional<at::Tensor> any_trained(const std::vector<Projection>& projections);

// A projection prepared for products in one type: tensors of other types are cast for this object's
// lifetime.
class Projector {
 public:
  Projector(const Projection& projection, at::ScalarType compute);

  // For inputs in chunks: the next chunk's first row, so that it gets its part of the dropout mask.
  void start_at(int64_t row) { first_row_ = row; }

  // x (N, in) -> (N, out) of `type`. `inner` becomes dropout(x)·Aᵀ (N, r), which the backward
  // needs; undefined without an adapter.
  at::Tensor forward(const at::Tensor& x, at::ScalarType type, at::Tensor* inner = nullptr) const;
  // The same written into `out`.
  void forward_into(const at::Tensor& out, const at::Tensor& x, at::Tensor* inner = nullptr) const;

  // Backward, step 1 of 2, so that x can be freed before its gradient is allocated: adds the
  // gradients of weight, bias and adapter. d_out (N, out); x and inner as in forward. Returns the
  // gradient of x·Aᵀ (N, r), undefined without an adapter, for step 2.
  at::Tensor add_gradients(const at::Tensor& d_out, const at::Tensor& x,
                           const at::Tensor& inner) const;
  // Step 2: writes x's gradient to d_x (N, in), or adds it.
  void input_gradient(const at::Tensor& d_out, const at::Tensor& d_inner, const at::Tensor& d_x,
                      Into into = Into::Overwrite) const;

  // Step 1 in two parts, for callers that need x's gradient first.
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
  StoredWeight weight_;  // in the type of products
  at::Tensor a_, b_;
  // For DoRA, else undefined; computed once for all chunks.
  at::Tensor norms_;  // ‖W + scaling·B·A‖ by rows (out), float32
  at::Tensor scale_;  // m / norms (1, out), float32
};

// ‖W‖ by rows, (out) float32: DoRA's initial magnitude.
at::Tensor row_norms(const Projection& projection);

}  // namespace snug::ops
