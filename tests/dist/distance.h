// How far the weights of a run on many ranks are from those of one process, which has the whole
// model. A rank compares what it can see: all of them, or those of its stage of a pipeline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "engine/exec/policies/sharding.h"
#include "engine/parallel/tensor_parallel.h"
#include "ranks_main.h"
#include "support/tiny_training.h"
#include "support/unseen_rows.h"

namespace snug::tests {

struct Distance {
  double loss = 0;     // the worst of |a - b| / max(1, a), by step
  double whole = 0;    // |a - b| / |a| of all weights together
  double tensor = 0;   // the worst of |a - b| / |a|, by tensor
  double element = 0;  // the worst of max|a - b| / max|a|, by tensor
  double grown = 0;    // that of what begins at zero, biases and B of LoRA: all is made by training
  double unseen = 0;   // max|a - b| of what no gradient but rounding reaches
  bool same_bits = true;
  std::set<std::string> different;     // tensors with other bits
  std::string worst = "none differs";  // the tensor that `tensor` is of
};

// Sums of squares over tensors.
struct Squares {
  double difference = 0, size = 0;
};

inline void add_to(Distance& all, Squares& squares, const std::string& name, at::Tensor a,
                   at::Tensor b) {
  if (!at::equal(a, b)) {
    all.same_bits = false;
    all.different.insert(name);
  }
  a = a.to(at::kDouble).clone();
  b = b.to(at::kDouble).clone();
  if (const auto [begin, end] = unseen_rows(name, a.size(0)); begin < end) {
    const at::Tensor hidden = a.slice(0, begin, end), found = b.slice(0, begin, end);
    all.unseen = std::max(all.unseen, (hidden - found).abs().max().item<double>());
    found.copy_(hidden);
  }
  const double off = (a - b).norm().item<double>(), size = a.norm().item<double>();
  squares.difference += off * off;
  squares.size += size * size;
  if (off == 0) return;
  const double element = (a - b).abs().max().item<double>() / a.abs().max().item<double>();
  if (name.ends_with(".bias") || name.ends_with(".lora_B.weight")) {
    all.grown = std::max(all.grown, element);
    return;
  }
  all.element = std::max(all.element, element);
  if (off / size <= all.tensor) return;
  all.tensor = off / size;
  all.worst = name;
}

inline Distance distance(const TinyRun& one, const TinyRun& many) {
  std::map<std::string, at::Tensor> expected;
  for (const nn::Parameter* parameter : one.model->parameters())
    expected[parameter->name] = parameter->value.detach();
  Distance result;
  Squares squares;
  for (size_t i = 0; i < many.engine.units.size(); ++i) {
    if (many.engine.sharding != nullptr) many.engine.sharding->open(i);
    for (const nn::Parameter* parameter : many.engine.units[i]->parameters())
      add_to(result, squares, parameter->name, expected.at(parameter->name),
             engine::assemble(*parameter, parameter->value.detach()));
    if (many.engine.sharding != nullptr) many.engine.sharding->close(i);
  }
  result.whole = std::sqrt(squares.difference / squares.size);
  return result;
}

inline void add_losses(Distance& distance, const std::vector<double>& expected,
                       const std::vector<double>& found) {
  distance.same_bits = distance.same_bits && expected == found;
  // Logits are rounded as they were when the loss was larger than what is left of it.
  for (size_t i = 0; i < expected.size(); ++i)
    distance.loss =
        std::max(distance.loss, std::abs(found[i] - expected[i]) / std::max(1.0, expected[i]));
}

// With SNUG_SHOW_DISTANCES rank 0 prints the worst of all ranks; all of them have to call it.
inline void show(const std::string& what, const Distance& distance) {
  if (std::getenv("SNUG_SHOW_DISTANCES") == nullptr) return;
  const auto worst = [](double value) {
    std::vector<double> all(static_cast<size_t>(test::world().size()));
    all[static_cast<size_t>(test::world().rank())] = value;
    return std::ranges::max(test::row().data().sum(std::move(all)));
  };
  const std::string line = fmt::format(
      "{:<48} loss {:.1e}  all {:.1e}  tensor {:.1e}  element {:.1e}  grown {:.1e}  unseen {:.1e}  "
      "{}\n",
      what, worst(distance.loss), worst(distance.whole), worst(distance.tensor),
      worst(distance.element), worst(distance.grown), worst(distance.unseen),
      worst(distance.same_bits ? 0 : 1) > 0 ? "" : "same bits");
  if (test::world().rank() == 0) std::fputs(line.c_str(), stdout);
}

}  // namespace snug::tests
