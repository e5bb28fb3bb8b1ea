// A unit's parameters, one after another in a flat tensor that is split into equal shards, one per
// rank (FSDP's flat parameters, Zhao et al. 2023). The parameters' values are views of it. A rank
// keeps and updates its pieces: the range of each parameter that lies in its shard.
//
// Parameters and shards start at multiples of 256 elements: no block of 8-bit optimizer states is
// split between two pieces, and every value is aligned for the kernels.
//
// In mixed precision weights are kept and updated in float32 but gathered in the 16-bit type of the
// computation: half the traffic, and half the memory for gathered weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory/ledger.h"
#include "core/nn/parameter.h"

namespace snug::exec {

// The elements [begin, end) of a parameter in row-major order, as a parameter of its own, shape
// (end - begin).
struct Piece {
  const nn::Parameter* whole = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;       // in the rank's shard
  nn::Parameter parameter;  // `value` on the device; `home` is its host copy if the host updates it
};

// Positions in the flat tensor, in elements.
struct FlatLayout {
  FlatLayout(const std::vector<nn::Parameter*>& parameters, int num_parts);
  int64_t total_elements() const { return part_elements * num_parts; }

  std::vector<int64_t> offsets;  // of each parameter
  int64_t part_elements = 0;
  int num_parts = 1;
};

class FlatUnit {
 public:
  // The type of the gathered values: the one they are kept in, or the one of the computation.
  enum class Form { Kept, Computed };

  // For parameters of one type that are not allocated yet, all or none of them experts that ranks
  // share among them; `type` is that of dense ones. Allocates
  // their values, content undefined.
  FlatUnit(std::vector<nn::Parameter*> parameters, at::Device device, at::ScalarType type, int part,
           int num_parts);

  const std::vector<nn::Parameter*>& parameters() const { return parameters_; }
  bool is_trained() const { return parameters_.front()->trained; }
  bool is_of_experts() const { return parameters_.front()->belongs_to_expert(); }
  std::vector<std::unique_ptr<Piece>>& pieces() { return pieces_; }
  bool holds(const nn::Parameter& parameter) const;

  // In the form chosen by show().
  const at::Tensor& values() const { return form_ == Form::Kept ? values_ : computed_values_; }
  at::Tensor own_values() const { return own_part_of(values()); }
  // This rank's shard of a flat tensor of the same layout.
  at::Tensor own_part_of(const at::Tensor& flat) const;

  // Gives the pieces' values memory of their own and frees that of values(). With `on_device` false
  // they get none on the device; the caller gives them host copies. `computed` is the type of
  // Form::Computed, which becomes the form shown.
  void keep_part_apart(bool on_device, at::ScalarType computed);
  // Makes the parameters' values views of this form. The memory of both forms must be freed.
  void show(Form form);
  // The shard after keep_part_apart(): vacant if the pieces live on the host; undefined before.
  const at::Tensor& part() const { return part_; }
  // Copy between the pieces and this rank's shard of values(), which must be allocated.
  void values_from_pieces() const;
  void pieces_from_values() const;

  // A flat tensor of gradients in the same layout; each parameter's gradient is a view of it.
  // Allocated by the first call after drop_gradients().
  const at::Tensor& provide_gradients();
  // Sets gradients that backward did not write to zero.
  void complete_gradients() const;
  const at::Tensor& gradients() const { return gradients_; }
  // Detaches the gradients from the parameters and returns the flat tensor.
  at::Tensor take_gradients();
  // A new tensor of one shard's size, content undefined.
  at::Tensor new_part(memory::Category category) const;
  // Gives each piece its range of the reduced shard as gradient.
  void give_to_pieces(const at::Tensor& reduced) const;
  // Whether any parameter or piece has a gradient.
  bool has_gradients() const;
  bool pieces_have_gradients() const;
  void drop_gradients();

  int32_t ledger_unit() const { return unit_; }

 private:
  at::Tensor view_of(const at::Tensor& flat, size_t index) const;
  std::vector<at::Tensor> views_of(const at::Tensor& flat) const;

  std::vector<nn::Parameter*> parameters_;
  FlatLayout layout_;
  int part_index_;
  int32_t unit_;  // the unit's id in the ledger
  at::Tensor values_;
  at::Tensor computed_values_;  // undefined if both forms are the same type
  std::vector<at::Tensor> views_, computed_views_;
  Form form_ = Form::Kept;
  at::Tensor part_;
  at::Tensor gradients_;
  bool kept_apart_ = false;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace snug::exec
