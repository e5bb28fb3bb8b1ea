// Reading expected values and comparing with them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "data/micro_batch.h"
#include "formats/tensor_source.h"

namespace snug::tests {

inline at::Tensor read(const formats::TensorSource& source, const std::string& name) {
  const formats::TensorInfo* info = source.find(name);
  if (info == nullptr) throw std::runtime_error("no " + name);
  const bool integers = info->dtype == formats::DType::I32;
  at::Tensor out = at::empty(info->shape, integers ? at::kInt : at::kFloat);
  source.read(*info, info->dtype, out.mutable_data_ptr());
  return out;
}

// |a - b| relative to the largest expected magnitude; names the worst element.
inline void expect_close(const std::string& what, const at::Tensor& actual,
                         const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const at::Tensor difference = (actual.cpu().to(at::kFloat) - expected).abs().flatten();
  const auto worst = difference.argmax().item<int64_t>();
  const double scale = std::max(1e-3, expected.abs().max().item<double>());
  EXPECT_LE(difference[worst].item<double>(), tolerance * scale)
      << what << " differs most at flat index " << worst << ": "
      << actual.flatten()[worst].item<double>() << " for "
      << expected.flatten()[worst].item<double>();
}

inline data::MicroBatch rows_as_batch(const at::Tensor& ids, const at::Tensor& labels,
                                      int64_t begin, int64_t count) {
  std::vector<data::Sample> samples;
  for (int64_t row = begin; row < begin + count; ++row) {
    const at::Tensor i = ids[row].contiguous();
    const at::Tensor l = labels[row].contiguous();
    const auto* id = i.const_data_ptr<int32_t>();
    const auto* label = l.const_data_ptr<int32_t>();
    samples.push_back({.ids = {id, id + i.numel()}, .labels = {label, label + l.numel()}});
  }
  return data::make_micro_batch(samples);
}

}  // namespace snug::tests
