// The gradient of a norm's weight or bias, which a kernel writes into the parameter's buffer; or,
// where ranks have terms of it, into float32 numbers that are added up before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/dist/group.h"
#include "core/kernels/vector_gradient.h"

namespace snug::ops {

class VectorGradient {
 public:
  // `parameter` (D), undefined or without a gradient: nothing is wanted. `terms_of`: the ranks that
  // have terms; null: none.
  VectorGradient(const at::Tensor& parameter, dist::Group* terms_of);

  bool is_wanted() const { return target_.defined(); }
  kernels::VectorGradient target() const;
  // Instead of a kernel of the caller's: the sum of x's (N, D) rows, which is a bias's gradient.
  void sum_rows(const at::Tensor& x) const;
  // Both once the kernel is called, in order, so that several sums may be under way.
  void start();
  void finish();

 private:
  at::Tensor parameter_, target_;
  dist::Group* terms_of_;
  dist::Group::Ticket sum_;
  bool accumulates_ = false;
};

}  // namespace snug::ops
