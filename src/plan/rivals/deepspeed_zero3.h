// What DeepSpeed's ZeRO-3 with the optimizer's states on the host holds, as Lightning sets it up:
// on each GPU its part of the 16-bit weights, what is gathered of them, and the bucket in which
// gradients travel; on the host the float32 weights, gradients and Adam's states of that part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace snug::plan {

// Elements of the weights that are there at most, by DeepSpeed's own rule: a layer's are gathered
// for its use and ahead of it up to the prefetch bucket, and kept where they are used again within
// the reuse distance. `layers`: elements of each layer in the order of the forward.
int64_t most_gathered(const std::vector<int64_t>& layers);

class DeepSpeedZero3 {
 public:
  // `weights`: the model's, trained, in the order of the forward, whole on the GPU as they are when
  // DeepSpeed starts; it takes them apart.
  DeepSpeedZero3(std::vector<at::Tensor> weights, int64_t ranks);
  ~DeepSpeedZero3();
  DeepSpeedZero3(const DeepSpeedZero3&) = delete;
  DeepSpeedZero3& operator=(const DeepSpeedZero3&) = delete;

  void before_forward();
  void before_backward();
  void after_backward();
  // Of each GPU's process, between steps.
  int64_t host_bytes() const { return host_bytes_; }

 private:
  at::Tensor elements(int64_t count) const;

  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> parts_;
  at::Tensor bucket_, gathered_, scattered_;
  int64_t num_gathered_ = 0;
  int64_t host_bytes_ = 0;
};

}  // namespace snug::plan
