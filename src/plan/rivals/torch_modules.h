// The weights of an eager PyTorch model and the layers that read them: in which type, what autocast
// copies, which of them train, what peft and bitsandbytes put beside or in place of them, and what
// DDP and FSDP make of them. Only shapes matter: it runs on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/precision.h"
#include "plan/rivals/litgpt_devices.h"
#include "recipe/recipe.h"

namespace snug::plan {

// How Lightning's strategies share a model.
enum class TorchSharding {
  None,
  DdpBucketViews,  // gradients lie in DDP's buckets, which stay
  FsdpUnits,       // FSDP around each of the modules that a policy names, and around the rest
};

class TorchModules {
 public:
  struct Options {
    nn::Precision precision;
    TorchSharding sharding = TorchSharding::None;
    int64_t ranks = 1;
    bool autocast = false;          // float32 weights, products in precision.compute
    recipe::LoraOptions lora = {};  // enabled: peft's, and nothing else trains
    std::string quantize = {};      // empty: none
  };
  struct Linear {
    int64_t in = 0, out = 0;
    at::Tensor *weight = nullptr, *bias = nullptr, *a = nullptr, *b = nullptr;
    bool quantized = false;
    at::Tensor absmax;  // quantized: float32, one a block of 64
  };
  struct Norm {
    at::Tensor *weight = nullptr, *bias = nullptr;  // no bias: T5's
  };

  explicit TorchModules(Options options);

  // Weights made from here on belong to a new FSDP unit; its index.
  size_t begin_unit();
  // … to the rest again, which is unit 0.
  void end_unit() { unit_ = 0; }
  at::Tensor* weight(std::vector<int64_t> sizes);
  // `name` is what lora_target_modules is compared with; `may_quantize`: bitsandbytes takes it.
  Linear linear(int64_t in, int64_t out, bool bias, const std::string& name,
                bool may_quantize = true);
  Norm layer_norm(int64_t width);
  Norm rms_norm(int64_t width) { return {.weight = weight({width})}; }
  // After the last weight: FSDP takes them apart, DDP makes its buckets.
  void share();

  at::Tensor run(const Linear& layer, const at::Tensor& x);
  at::Tensor run(const Norm& norm, const at::Tensor& x) const;
  // x in the type of products, where autocast makes it so.
  at::Tensor cast(const at::Tensor& x) const;
  at::ScalarType parameters() const { return options_.precision.parameters; }
  at::ScalarType compute() const { return options_.precision.compute; }
  bool is_sharded() const { return options_.sharding == TorchSharding::FsdpUnits; }
  bool autocast() const { return options_.autocast; }
  bool quantized() const { return !options_.quantize.empty(); }

  // Of what FSDP has taken apart.
  FlatWeights& flat(size_t unit) { return *flats_[unit]; }
  const std::vector<std::unique_ptr<FlatWeights>>& flats() const { return flats_; }
  // What the optimizer trains; with FSDP this rank's parts.
  const std::vector<at::Tensor>& trained() const { return trained_; }
  // Everything, in elements.
  int64_t num_elements() const { return num_elements_; }
  void drop_gradients();
  // Autocast keeps its casts of weights until the forward is over.
  void drop_weight_casts() { casts_.clear(); }

 private:
  at::Tensor* keep(at::Tensor weight, bool trains);
  at::Tensor cast_weight(const at::Tensor& weight);
  bool is_target(const std::string& name) const;

  Options options_;
  std::deque<at::Tensor> weights_;  // whose places stay
  std::vector<std::vector<at::Tensor*>> units_{1};
  size_t unit_ = 0;
  std::vector<std::string> targets_;
  std::vector<at::Tensor> trained_;
  std::vector<at::Tensor> buckets_;
  std::vector<std::pair<at::Tensor, at::Tensor>> casts_;  // weight, its 16-bit copy
  std::vector<std::unique_ptr<FlatWeights>> flats_;
  int64_t num_elements_ = 0;
};

}  // namespace snug::plan
