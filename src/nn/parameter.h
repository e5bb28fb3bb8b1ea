// A named tensor that a unit owns and an optimizer may train.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace snug::nn {

// How a parameter starts when no checkpoint gives it.
enum class Init { Normal, Ones, Zeros };

struct Parameter {
  std::string name;            // as in the family's Hugging Face files
  std::vector<int64_t> shape;  // row-major
  Init init = Init::Normal;
  bool trained = true;
  at::Tensor value;  // on the device; undefined until allocate()
  at::Tensor home;   // in host memory, where the weight is kept and updated; undefined: in `value`

  // Where the weight is read from and written to between steps.
  const at::Tensor& kept() const { return home.defined() ? home : value; }

  int64_t num_elements() const;
  // Memory of `type` on `device`, tagged as parameters; content undefined.
  void allocate(at::Device device, at::ScalarType type);
  // Gives it a home of `type` in the host memory beside its device. Content undefined.
  void allocate_home(at::ScalarType type);
  // Fills kept() from Normal(0, deviation), ones or zeros; the same numbers for the same (seed,
  // name).
  void initialize(uint64_t seed, double deviation);
};

}  // namespace snug::nn
