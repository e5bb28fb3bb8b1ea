// Counts what a GPU would do in a step that runs on meta: every kernel of snug's and every operator
// of libtorch's that is one, with the bytes that it reads and writes and the operations of its
// products. In a WorkCounter's scope operators call the CUDA kernels of cuda.h for meta tensors
// too, and these say what they would have done.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <string>

namespace snug::ops {

struct Work {
  std::string name;  // of the function in cuda.h, or of libtorch's operator: rope_apply, aten::mm
  double launches = 1;
  // Each array counts once, however often a kernel comes back to it.
  double bytes_read = 0, bytes_written = 0;
  double link_bytes = 0;  // of a copy between host and device, which are not in the two above
  double flops = 0;       // of matrix products and attention: two for a multiply and an add
  at::ScalarType type = at::kFloat;  // of the products' operands
};

// One for a thread at a time.
class WorkCounter {
 public:
  explicit WorkCounter(std::function<void(const Work&)> note);
  ~WorkCounter();
  WorkCounter(const WorkCounter&) = delete;
  WorkCounter& operator=(const WorkCounter&) = delete;

 private:
  std::function<void(const Work&)> note_;
  c10::impl::IncludeDispatchKeyGuard sees_operators_;
};

// Whether one is in scope.
bool counts_work();
// To the one in scope.
void note_work(const Work& work);
// a (m, k) · b (k, n) into out (m, n), which is read too if it is added to.
void note_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulates,
                  bool is_scaled);
// table[index] into `rows`, by libtorch.
void note_selected_rows(const at::Tensor& rows, const at::Tensor& index);

}  // namespace snug::ops
