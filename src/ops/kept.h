// What a unit's forward keeps for its backward, as the operations tell it: so that a technique can
// move those tensors elsewhere, or drop those that are cheap to compute again, without knowing the
// operations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <vector>

namespace snug::ops {

// A kept tensor that a cheap operation made of others that are kept anyway.
struct Recomputable {
  at::Tensor tensor;
  std::function<void()> compute;  // fills the tensor's memory again, to the same bits
};

struct Kept {
  std::vector<at::Tensor> tensors;
  std::vector<Recomputable> recomputable;
};

// While it lives, keep() and may_recompute() of this thread write into `kept`. There may be
// several.
class KeptRecorder {
 public:
  explicit KeptRecorder(Kept* kept);
  ~KeptRecorder();
  KeptRecorder(const KeptRecorder&) = delete;
  KeptRecorder& operator=(const KeptRecorder&) = delete;

 private:
  Kept* kept_;
};

// ctx->save_for_backward, told to all recorders of this thread.
void keep(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list tensors);

// Says that whoever keeps `tensor` may drop its memory and have it computed again.
void may_recompute(const at::Tensor& tensor, const std::function<void()>& compute);

}  // namespace snug::ops
