// SPDX-License-Identifier: Apache-2.0
#include "setup/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "memory/guards.h"

namespace snug::setup {
namespace {

at::Tensor copy(const std::vector<int32_t>& values, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kInt);
  const auto size = static_cast<int64_t>(values.size());
  at::Tensor result = at::empty({size}, options.device(device));
  if (!device.is_meta())
    result.copy_(at::from_blob(const_cast<int32_t*>(values.data()), {size}, options));
  return result;
}

}  // namespace

nn::Batch to_device(const data::MicroBatch& batch, at::Device device) {
  const memory::CategoryGuard category(memory::Category::Data);
  return {.input_ids = copy(batch.input_ids, device),
          .targets = copy(batch.targets, device),
          .positions = copy(batch.positions, device),
          .cu_seqlens = copy(batch.cu_seqlens, device),
          .max_seqlen = batch.max_seqlen,
          .loss_tokens = batch.loss_tokens};
}

}  // namespace snug::setup
