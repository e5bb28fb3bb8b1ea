// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/kept.h"

#include <utility>

namespace snug::ops {
namespace {
thread_local std::vector<Kept*> listeners;
}  // namespace

KeptRecorder::KeptRecorder(Kept* kept) : kept_(kept) { listeners.push_back(kept); }
KeptRecorder::~KeptRecorder() { std::erase(listeners, kept_); }

void keep(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list tensors) {
  for (Kept* kept : listeners)
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined()) kept->tensors.push_back(tensor);
  ctx->save_for_backward(std::move(tensors));
}

void may_recompute(const at::Tensor& tensor, const std::function<void()>& compute) {
  for (Kept* kept : listeners) kept->recomputable.push_back({tensor, compute});
}

}  // namespace snug::ops
