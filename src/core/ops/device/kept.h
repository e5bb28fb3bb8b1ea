// Operators report here which tensors they save for the backward, so that a policy can move them to
// the host, or drop those that are cheap to recompute, without knowing the operators.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <vector>

namespace snug::ops {

// A saved tensor that is cheap to recompute from others that are saved anyway.
struct Recomputable {
  at::Tensor tensor;
  std::function<void()> compute;  // refills the tensor's memory with the same bits
};

struct Kept {
  std::vector<at::Tensor> tensors;
  std::vector<Recomputable> recomputable;
};

// While it lives, this thread's keep() and may_recompute() write to `kept`. Recorders may nest.
class KeptRecorder {
 public:
  explicit KeptRecorder(Kept* kept);
  ~KeptRecorder();
  KeptRecorder(const KeptRecorder&) = delete;
  KeptRecorder& operator=(const KeptRecorder&) = delete;

 private:
  Kept* kept_;
};

// ctx->save_for_backward, also reported to this thread's recorders.
void keep(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list tensors);

// Reports that the memory of the saved `tensor` may be dropped and recomputed by `compute`.
void may_recompute(const at::Tensor& tensor, const std::function<void()>& compute);

}  // namespace snug::ops
