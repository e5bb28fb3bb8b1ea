// Optimizers over a few small tensors with random gradients, in any types and on any device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/memory/ledger.h"
#include "core/optim/optimizer.h"
#include "recipe/tables/optimizers.h"

namespace snug::optim {

// A name for the test and the options it stands for.
struct Case {
  std::string name;
  recipe::OptimizerOptions options;
  at::ScalarType weights = at::kFloat;
  at::ScalarType gradients = at::kFloat;
};

inline recipe::OptimizerOptions options_of(const std::string& name, double lr = 0.01) {
  recipe::OptimizerOptions options = recipe::optimizer_defaults(name);
  options.lr = lr;
  return options;
}

struct Bench {
  Bench(const Case& c, at::Device device, std::vector<std::vector<int64_t>> shapes)
      : lr(c.options.lr) {
    at::manual_seed(3);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const at::Tensor value = at::randn(shapes[i]).to(c.weights).to(device);
      parameters.push_back({"p" + std::to_string(i), value});
    }
    optimizer = make_optimizer(c.options, parameters);
  }

  // The same gradients for the same `seed`.
  void set_gradients(uint64_t seed, at::ScalarType type) {
    at::manual_seed(seed);
    for (const NamedTensor& parameter : parameters) {
      const at::Tensor& value = parameter.tensor;
      value.mutable_grad() = (at::randn(value.sizes()) * 0.1).to(type).to(value.device());
    }
  }

  double lr;
  std::vector<NamedTensor> parameters;
  std::unique_ptr<Optimizer> optimizer;
};

inline void expect_same(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_TRUE(at::equal(a[i].tensor, b[i].tensor)) << a[i].name;
  }
}

}  // namespace snug::optim
