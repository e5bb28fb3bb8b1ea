// What tests of objectives against other trainers share: the bases and their training, the answers
// in a file of expected values, and the comparison of gradients.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "data/sample_store.h"
#include "engine/engine.h"
#include "files/weights/tensor_source.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "recipe/recipe.h"

namespace snug::tests {

// A folder of tests/data/parity, and how it trains.
struct ParityBase {
  const char* name;
  bool has_adapters;
  double lr;
};
inline const ParityBase kAnswerBases[] = {
    {"llama", false, 2e-3}, {"gpt2", false, 2e-3}, {"qwen3", true, 1e-2}, {"gemma2", true, 1e-2}};

// In steps of `samples`, two in a micro-batch.
inline recipe::Recipe parity_recipe(const ParityBase& base,
                                    const recipe::ObjectiveOptions& objective, int64_t samples) {
  recipe::Recipe recipe;
  recipe.precision = "32-true";
  recipe.train.global_batch_size = samples;
  recipe.train.micro_batch_size = 2;
  recipe.model.dropout = 0;
  recipe.objective = objective;
  recipe.optimizer = {.name = "adamw", .lr = base.lr, .weight_decay = 0};
  recipe.lora = {.enabled = base.has_adapters,
                 .r = 8,
                 .alpha = 16,
                 .dropout = 0,
                 .key = true,
                 .projection = true};
  return recipe;
}

// The base's weights, and the adapters that the other trainer began with.
inline void load_start(models::Checkpoint& checkpoint, const files::TensorSource& expected,
                       const ParityBase& base) {
  models::load_weights(checkpoint);
  for (nn::Parameter* parameter : checkpoint.model->parameters()) {
    const std::string start = fmt::format("{}.start.{}", base.name, parameter->name);
    if (base.has_adapters && parameter->trained && !checkpoint.draws(*parameter))
      parameter->kept().detach().copy_(read(expected, start));
  }
}

// Rows ROWS.input_ids and ROWS.labels, without what fills them up.
inline data::SampleStore answers_in(const files::TensorSource& file, const std::string& rows) {
  const at::Tensor ids = read(file, rows + ".input_ids"), labels = read(file, rows + ".labels");
  data::SampleStore samples;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    data::Sample sample{.ids = ParityRows::tokens_of(ids, row)};
    const at::Tensor own = labels[row].slice(0, 0, std::ssize(sample.ids)).contiguous();
    const auto* const label = own.const_data_ptr<int32_t>();
    sample.labels.assign(label, label + own.numel());
    samples.append(sample);
  }
  return samples;
}

// Compares the gradients that the file has, each under PREFIX and its parameter's name. Returns how
// many they are.
inline size_t expect_gradients(const engine::Engine& engine, const files::TensorSource& expected,
                               const std::string& prefix, double tolerance) {
  size_t compared = 0;
  for (const auto& [name, tensor] : engine.parameters) {
    if (expected.find(prefix + name) == nullptr) continue;
    ++compared;
    expect_close("gradient of " + name, tensor.grad(), read(expected, prefix + name), tolerance);
  }
  const auto has_prefix = [&](const auto& tensor) { return tensor.name.starts_with(prefix); };
  EXPECT_EQ(compared, std::ranges::count_if(expected.tensors(), has_prefix));
  return compared;
}

// Of a test over bases and cases.
template <class Info>
std::string base_and_case(const Info& info) {
  std::string name =
      fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param).name);
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace snug::tests
