// NVIDIA's management library (NVML), opened at run time: information about GPUs from the driver.
// The few types and numbers of its interface that are needed are declared in nvml.cpp, so that a
// build without CUDA sees GPUs as well.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "watch/machine/machine.h"

namespace snug::machine {

class Nvml {
 public:
  // Opens the first library that exists. Never throws: look() gives the reason if there are no
  // GPUs.
  explicit Nvml(const std::vector<std::string>& libraries);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  Gpus look(Links links) const;

 private:
  struct Calls;
  std::unique_ptr<Calls> calls_;
  std::string why_not_;
  void* library_ = nullptr;
  bool is_open_ = false;
};

}  // namespace snug::machine
