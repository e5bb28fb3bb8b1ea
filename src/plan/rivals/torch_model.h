// What the loop that trains an eager PyTorch model asks of it, and what models share: units of an
// FSDP policy, checkpointed blocks, dropout, heads of attention.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plan/rivals/litgpt_devices.h"
#include "plan/rivals/torch_modules.h"

namespace snug::plan {

class TorchModel {
 public:
  struct Options {
    TorchModules::Options weights;
    bool checkpointing = false;  // of each block
    int64_t batch = 1;           // samples of a micro-batch
    int64_t tokens = 1;          // of each, padded
    int64_t labels = 0;          // of each, where a decoder has a length of its own
  };

  explicit TorchModel(const Options& options) : options_(options), modules_(options.weights) {}
  virtual ~TorchModel() = default;
  TorchModel(const TorchModel&) = delete;
  TorchModel& operator=(const TorchModel&) = delete;

  // The loss of one micro-batch, whose inputs it makes. Its outputs live until drop_outputs().
  at::Tensor forward();
  void drop_outputs() { outputs_.clear(); }
  TorchModules& modules() { return modules_; }

 protected:
  virtual at::Tensor loss() = 0;

  // module(inputs) as an FSDP unit, checkpointed where that is wanted.
  at::Tensor run_block(size_t unit, const std::string& name, const std::vector<at::Tensor>& inputs,
                       TensorModule module);
  at::Tensor run(const TorchModules::Linear& layer, const at::Tensor& x) {
    return modules_.run(layer, x);
  }
  at::Tensor run(const TorchModules::Norm& norm, const at::Tensor& x) {
    return modules_.run(norm, x);
  }
  static at::Tensor drop(const at::Tensor& x, double probability);
  // (B, T, H * D) -> (B, H, T, D) and back.
  static at::Tensor split_heads(const at::Tensor& x, int64_t heads);
  static at::Tensor join_heads(const at::Tensor& x);
  // GELU by tanh, written out in Python: an operator for each step.
  at::Tensor tanh_gelu(const at::Tensor& x) const;
  static at::Tensor new_ids(int64_t rows, int64_t columns);

  Options options_;
  TorchModules modules_;
  std::vector<at::Tensor> outputs_;  // what a training_step's variables hold

 private:
  void finish_gathers();

  std::vector<size_t> gathered_;  // FSDP units that are there, in order
  std::vector<size_t> order_;     // of units in the forward
};

}  // namespace snug::plan
