// SPDX-License-Identifier: Apache-2.0
#include "core/ops/vector_gradient.h"

#include <ATen/ops/empty.h>

#include "core/ops/device/device.h"
#include "core/ops/linear/matmul.h"

namespace snug::ops {

VectorGradient::VectorGradient(const at::Tensor& parameter, dist::Group* terms_of)
    : parameter_(parameter), terms_of_(terms_of) {
  if (!parameter.defined() || !parameter.requires_grad()) return;
  if (terms_of != nullptr) {
    target_ =
        at::empty(parameter.sizes(), parameter.options().dtype(at::kFloat).requires_grad(false));
    return;
  }
  const GradientBuffer buffer = gradient_buffer(parameter);
  target_ = buffer.tensor;
  accumulates_ = !buffer.fresh;
}

kernels::VectorGradient VectorGradient::target() const {
  if (!is_wanted()) return {};
  return {.data = write_pointer(target_),
          .type = to_scalar(target_.scalar_type()),
          .accumulate = accumulates_};
}

void VectorGradient::start() {
  if (is_wanted() && terms_of_ != nullptr) sum_ = terms_of_->all_reduce(target_);
}

void VectorGradient::finish() {
  if (!is_wanted() || terms_of_ == nullptr) return;
  terms_of_->wait(sum_);
  add_to_gradient(parameter_, target_);
}

void VectorGradient::sum_rows(const at::Tensor& x) const {
  sum_of_rows_into(target_, x, accumulates_ ? Into::Accumulate : Into::Overwrite);
}

}  // namespace snug::ops
