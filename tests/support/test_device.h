// The device that a test program's tensors are on: the cpu, or what SNUG_TEST_DEVICE names. ctest
// runs the programs that include this a second time with cuda, labelled so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdlib>
#include <string>

#include "core/memory/ledger.h"
#include "engine/cuda_device.h"
#include "engine/host.h"

namespace snug::tests {

inline at::Device test_device() {
  const char* name = std::getenv("SNUG_TEST_DEVICE");
  return name == nullptr ? at::Device(at::kCPU) : at::Device(name);
}

// Why the tests cannot run, or empty. ctest knows the words.
inline std::string missing_device() {
  if (test_device().is_cpu() || engine::cuda::count() > 0) return {};
  return "no CUDA device: " + engine::cuda::why_none();
}

// Once, before the first tensor.
inline void prepare_test_device() {
  memory::install_allocators();
  // What cuBLAS takes by itself on an H100. Without a word on it libtorch refuses products under
  // FixedOrder.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  if (missing_device().empty()) engine::open_device(test_device().is_cpu() ? "cpu" : "cuda");
}

inline memory::Ledger& test_ledger() { return memory::ledger_of(test_device().type()); }

}  // namespace snug::tests
