// What the loop that trains an eager PyTorch model asks of it, and what models share: units of an
// FSDP policy, checkpointed blocks, dropout, heads of attention.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "plan/rivals/modules.h"

namespace snug::plan::rivals {

class Model {
 public:
  struct Options {
    Modules::Options weights;
    bool checkpointing = false;  // of each block
    int64_t batch = 1;           // samples of a micro-batch
    int64_t tokens = 1;          // of each, padded
    int64_t labels = 0;          // of each, where a decoder has a length of its own
  };

  explicit Model(const Options& options) : options_(options), modules_(options.weights) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Inputs that the loop makes, before anything else of a micro-batch.
  virtual void make_inputs() {}
  // The loss of one micro-batch. What a training_step's variables hold lives until drop_outputs()
  // or the next one's.
  at::Tensor forward();
  void drop_outputs() { outputs_.clear(); }
  Modules& modules() { return modules_; }

 protected:
  virtual at::Tensor loss() = 0;

  // module(inputs) as an FSDP unit, checkpointed where that is wanted.
  at::Tensor run_block(size_t unit, const std::string& name, const std::vector<at::Tensor>& inputs,
                       TensorModule module);
  // Block after block: each one's result takes the place of x, and `run(block, given)` gets that
  // and the others.
  template <class Block, class Run>
  at::Tensor run_blocks(const std::string& name, const std::vector<Block>& blocks, at::Tensor x,
                        const std::vector<at::Tensor>& others, Run run) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::vector<at::Tensor> inputs{std::move(x)};
      inputs.insert(inputs.end(), others.begin(), others.end());
      x = run_block(blocks[i].unit, name + " " + std::to_string(i), inputs,
                    [&block = blocks[i], run](const auto& given) { return run(block, given); });
    }
    return x;
  }
  // The last block has run, and with it the last FSDP unit but for the rest.
  void finish_gathers();
  // Where the backward of a unit begins: when its output's gradient is there.
  static void mark_unit(const at::Tensor& output, int32_t unit);
  at::Tensor run(const Modules::Linear& layer, const at::Tensor& x) {
    return modules_.run(layer, x);
  }
  at::Tensor run(const Modules::Norm& norm, const at::Tensor& x) { return modules_.run(norm, x); }
  static at::Tensor drop(const at::Tensor& x, double probability);
  // (B, T, H * D) -> (B, H, T, D) and back.
  static at::Tensor split_heads(const at::Tensor& x, int64_t heads);
  static at::Tensor join_heads(const at::Tensor& x);
  // GELU by tanh, written out in Python: an operator for each step.
  at::Tensor tanh_gelu(const at::Tensor& x) const;
  // A number of a Hugging Face config.
  static int64_t number(const nlohmann::json& config, const char* key, int64_t fallback);
  static at::Tensor new_ids(int64_t rows, int64_t columns);

  Options options_;
  Modules modules_;
  std::vector<at::Tensor> outputs_;

 private:
  std::vector<size_t> gathered_;  // FSDP units that are there, in order
  std::vector<size_t> order_;     // of units in the forward
};

}  // namespace snug::plan::rivals
