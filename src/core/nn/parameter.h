// A named tensor that a unit owns and an optimizer may train.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/quantized_matrix.h"
#include "core/nn/split.h"
#include "core/ops/tensor_share.h"

namespace snug::ops {
struct StoredWeight;
}

namespace snug::nn {

// What a parameter is in its model, from which an optimizer's groups are formed.
enum class ParameterRole { Embedding, Head, Matrix, Vector, AdapterA, AdapterB, AdapterMagnitude };

// How a parameter is initialized without a checkpoint.
enum class Init { Normal, Uniform, Ones, Zeros };

// A seed from a name (FNV-1a), the same on every machine.
uint64_t hash_name(const std::string& name);

// A weight stored in 4 or 8 bits. It is frozen: quantized codes cannot be trained.
struct Quantization {
  kernels::QuantizedFormat format;
  at::ScalarType source = at::kFloat;  // type that values are rounded to before quantization
};

// This rank's slice of a parameter under tensor parallelism: along `dim` a range from `begin` on,
// everything along the other dimensions. With several sections (nn::Split) the slice has the same
// range of each, and `begin` counts within a section. Under expert parallelism a slice is all of
// the parameter or nothing.
struct Slice {
  int64_t dim = 0;
  int64_t begin = 0;
  std::vector<int64_t> whole;  // shape of the unsplit tensor
  int64_t sections = 1;
  std::optional<int64_t> owner;  // of an expert: the rank that has all of it

  // The shape with `dim` split into (sections, size of a section): there the slice is one range of
  // dim + 1.
  std::vector<int64_t> by_sections(std::vector<int64_t> shape) const;
};

// A range of consecutive elements of the unsplit tensor, row-major.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Parameter {
  std::string name;            // as in the family's Hugging Face checkpoints
  std::vector<int64_t> shape;  // row-major; of the slice if there is one
  ParameterRole role = shape.size() < 2 ? ParameterRole::Vector : ParameterRole::Matrix;
  Init init = Init::Normal;
  std::optional<double> init_scale;  // deviation or bound; absent: the model's deviation
  bool trained = true;
  bool constant = false;               // nothing trains it, and it is float32, also in files
  bool exact = false;                  // a matrix used in float32, whatever type products have
  std::optional<at::ScalarType> held;  // its type, where that is not the one of all parameters
  std::optional<Quantization>
      quantization;          // if set, `value` holds bytes: core/ops/linear/stored_weight.h
  bool stays_plain = false;  // not quantized with the others: its checkpoint keeps it so
  at::Tensor value;          // on the device; undefined until allocate()
  at::Tensor home;           // host copy, where the weight is kept and updated, if any
  // Where products keep its copy in their type, if anywhere: a policy keeps it for a step.
  std::shared_ptr<at::Tensor> kept_cast;
  std::optional<Slice> slice;  // set by cut() and place()
  // The ranks that have the slices; of a parameter without one, those of tensor parallelism.
  std::shared_ptr<const ops::TensorShare> share;

  // Whether it belongs to an adapter, and so is in no model file.
  bool is_added() const { return role >= ParameterRole::AdapterA; }
  // The copy that checkpoints read and write: the host copy if there is one.
  const at::Tensor& kept() const { return home.defined() ? home : value; }

  int64_t num_elements() const;
  const std::vector<int64_t>& whole_shape() const { return slice ? slice->whole : shape; }
  // The ranges of its elements in the unsplit tensor, in order.
  std::vector<ElementRange> ranges() const;
  // Takes this rank's slice; null undoes it. Call before allocate().
  void cut(std::shared_ptr<const ops::TensorShare> with, const std::optional<Split>& split);
  // Leaves it to rank `owner` alone: elsewhere no element remains. Call before allocate().
  void place(std::shared_ptr<const ops::TensorShare> on, int64_t owner);
  // Norms and biases are used in float32.
  bool is_rounded_when_used() const { return shape.size() >= 2 && !exact && !quantization; }
  bool belongs_to_expert() const { return slice && slice->owner; }
  bool is_elsewhere() const { return belongs_to_expert() && shape.front() == 0; }
  // Whether this rank's gradient enters the global norm: a parameter that every rank has whole
  // counts once.
  bool counts_here() const { return slice || share == nullptr || share->rank() == 0; }
  // Writes `dense` (shape, on the host) to kept(), converted or quantized.
  void write(const at::Tensor& dense) const;
  // Allocates `value` on `device` in stored_type(`type`), tagged as parameters; content undefined.
  void allocate(at::Device device, at::ScalarType type);
  // Allocates the host copy `home`, content undefined.
  void allocate_home();
  // Fills kept() as `init` says: Normal(0, init_scale), Uniform(-init_scale, init_scale), ones or
  // zeros; `deviation` replaces an absent init_scale.
  void initialize(uint64_t seed, double deviation);
  // How `value` is stored: (number of bytes) uint8 if quantized, else as its shape says, in the
  // type in which it is held or else in `plain`, that of all parameters.
  std::vector<int64_t> stored_shape() const;
  at::ScalarType stored_type(at::ScalarType plain) const;
  at::ScalarType unquantized_type(at::ScalarType plain) const { return held.value_or(plain); }
  // A copy of the weight, value or kept(), for operators.
  ops::StoredWeight stored(const at::Tensor& copy) const;
};

}  // namespace snug::nn
