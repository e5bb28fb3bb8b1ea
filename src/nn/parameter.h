// A named tensor that a unit owns and an optimizer may train.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/linalg/quantized_matrix.h"
#include "ops/shared_rows.h"

namespace snug::nn {

// How a parameter starts when no checkpoint gives it.
enum class Init { Normal, Uniform, Ones, Zeros };

// Separates random streams by name, alike on every machine.
uint64_t hash_name(const std::string& name);

// A weight that is stored in 4 or 8 bits: frozen, since its codes cannot be trained.
struct Quantization {
  kernels::cpu::QuantizedFormat format;
  at::ScalarType source = at::kFloat;  // what numbers are rounded to before
};

// The part of a whole tensor that a parameter is, where ranks share its layer: along `dim` the
// shape's size from `begin` on, everything along the others. Where layers lie side by side in one
// tensor (q, k and v in one product) dim has as many sections, and the part is one of each: begin
// and an equal share of the shape's size count within a section.
struct Slice {
  int64_t dim = 0;
  int64_t begin = 0;
  std::vector<int64_t> whole;  // the shape of the whole
  int64_t sections = 1;

  // A shape with dim as two dimensions, sections and size within one: there the slice is a box,
  // with a range of dim + 1.
  std::vector<int64_t> by_sections(std::vector<int64_t> shape) const;
};

// Elements that follow each other in a whole tensor, row by row.
struct Stretch {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Parameter {
  std::string name;            // as in the family's Hugging Face files
  std::vector<int64_t> shape;  // row-major; of the slice, if there is one
  Init init = Init::Normal;
  std::optional<double> init_scale;  // deviation or bound; absent: the model's deviation
  std::optional<int64_t> cut_dim;    // along which ranks may share it; none: each has all of it
  int64_t cut_sections = 1;          // each of which is shared alike: Slice
  bool trained = true;
  bool added = false;  // belongs to an adapter: no model file holds it
  bool exact = false;  // a matrix that is read in float32, whatever products are made in
  std::optional<Quantization> quantization;  // then `value` holds bytes: ops/quantized.h
  at::Tensor value;                          // on the device; undefined until allocate()
  at::Tensor home;  // in host memory, where the weight is kept and updated; undefined: in `value`
  std::optional<Slice> slice;                     // set by cut()
  std::shared_ptr<const ops::TensorShare> share;  // null: nobody shares the work with it

  // Where the weight is read from and written to between steps.
  const at::Tensor& kept() const { return home.defined() ? home : value; }

  int64_t num_elements() const;
  const std::vector<int64_t>& whole_shape() const { return slice ? slice->whole : shape; }
  // Where its elements are in the whole, in order.
  std::vector<Stretch> stretches() const;
  // Takes this rank's slice along cut_dim; null: the whole again. Before it is allocated.
  void cut(std::shared_ptr<const ops::TensorShare> with);
  // Whether this rank adds the parameter's gradient to what all of them make up: what each has
  // whole counts once.
  bool counts_here() const { return slice || share == nullptr || share->group->rank() == 0; }
  // Sets kept() to these numbers, (shape) on the host: converted, or quantized.
  void write(const at::Tensor& dense) const;
  // Memory of `type`, or for a quantized weight's bytes, on `device`, tagged as parameters; content
  // undefined.
  void allocate(at::Device device, at::ScalarType type);
  // Gives it a home in the host memory beside its device. Content undefined.
  void allocate_home();
  // Fills kept() as `init` says: Normal(0, init_scale), Uniform(-init_scale, init_scale), ones or
  // zeros; `deviation` where there is no init_scale.
  void initialize(uint64_t seed, double deviation);
  // Of a quantized weight.
  int64_t stored_bytes() const;
};

}  // namespace snug::nn
