// SPDX-License-Identifier: Apache-2.0
#include "setup/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "memory/guards.h"

namespace snug::setup {
namespace {

// A flat list as a tensor of these sizes.
template <class T>
at::Tensor copy(const std::vector<T>& values, at::IntArrayRef sizes, at::ScalarType type,
                at::Device device) {
  const auto options = at::TensorOptions().dtype(type);
  at::Tensor result = at::empty(sizes, options.device(device));
  if (!device.is_meta()) result.copy_(at::from_blob(const_cast<T*>(values.data()), sizes, options));
  return result;
}
at::Tensor copy(const std::vector<int32_t>& values, at::Device device) {
  return copy(values, {std::ssize(values)}, at::kInt, device);
}

ops::CountedRows counted_rows(const std::vector<int32_t>& targets, int64_t ignore_index,
                              at::Device device) {
  std::vector<int32_t> rows, counted;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == ignore_index) continue;
    rows.push_back(static_cast<int32_t>(i));
    counted.push_back(targets[i]);
  }
  // Where nothing counts, one row that does not: what a head trains gets a gradient, of zero.
  if (rows.empty()) counted.push_back(static_cast<int32_t>(ignore_index));
  const int64_t count = std::ssize(counted);
  rows.resize(targets.size());
  counted.resize(targets.size());
  return {copy(rows, device), copy(counted, device), count};
}

}  // namespace

nn::Batch to_device(const data::MicroBatch& batch, at::Device device,
                    std::optional<int64_t> ignore_index) {
  const memory::CategoryGuard category(memory::Category::Data);
  nn::Batch result{.input_ids = copy(batch.input_ids, device),
                   .targets = copy(batch.targets, device),
                   .positions = copy(batch.positions, device),
                   .cu_seqlens = copy(batch.cu_seqlens, device),
                   .max_seqlen = batch.max_seqlen,
                   .loss_tokens = batch.loss_tokens};
  if (ignore_index && batch.picks_rows)
    result.counted = counted_rows(batch.targets, *ignore_index, device);
  if (!batch.source_ids.empty())
    result.source = nn::Source{.input_ids = copy(batch.source_ids, device),
                               .positions = copy(batch.source_positions, device),
                               .cu_seqlens = copy(batch.source_cu_seqlens, device),
                               .max_seqlen = batch.source_max_seqlen};
  // A plan knows the pictures' size alone.
  if (!batch.pixels.empty() || (device.is_meta() && batch.image_size > 0)) {
    const int64_t pictures = std::ssize(batch.cu_seqlens) - 1, side = batch.image_size;
    result.pixels = copy(batch.pixels, {pictures, side, side, 3}, at::kByte, device);
    result.picture_rows = copy(batch.picture_rows, device);
  }
  return result;
}

at::Tensor to_device(const std::vector<int32_t>& values, at::Device device) {
  const memory::CategoryGuard category(memory::Category::Data);
  return copy(values, device);
}

}  // namespace snug::setup
