// Parameters of one unit laid one after another in a flat tensor that is cut into equal parts, a
// part a rank (the flat parameters of FSDP, Zhao et al. 2023). The parameters' values are views of
// it. What a rank updates and keeps are its pieces: of each parameter the stretch that lies in its
// part.
//
// Each parameter begins at a multiple of 256 elements, and so does each part: a block of 8-bit
// states never lies in two pieces, and every value is aligned for the kernels.
//
// Where computing wants a shorter type than the one that weights are kept and updated in (mixed
// precision), ranks send each other that: half the bytes on the way, half the memory beside.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/ledger.h"
#include "nn/parameter.h"

namespace snug::exec {

// A stretch of a parameter's elements, row by row, as a parameter of its own: shape (end - begin).
struct Piece {
  const nn::Parameter* whole = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;       // in the rank's part
  nn::Parameter parameter;  // `value` on the device, `home` where it is updated on the host
};

// Where everything lies, in elements.
struct FlatLayout {
  FlatLayout(const std::vector<nn::Parameter*>& parameters, int num_parts);
  int64_t total_elements() const { return part_elements * num_parts; }

  std::vector<int64_t> offsets;  // of each parameter
  int64_t part_elements = 0;
  int num_parts = 1;
};

class FlatUnit {
 public:
  // In which type all values are at hand: the one they are kept in, or the one computed with.
  enum class Form { Kept, Computed };

  // Of parameters of one type that are not allocated yet, `type` being that of dense ones. Gives
  // them values; their content is undefined.
  FlatUnit(std::vector<nn::Parameter*> parameters, at::Device device, at::ScalarType type, int part,
           int num_parts);

  const std::vector<nn::Parameter*>& parameters() const { return parameters_; }
  bool is_trained() const { return parameters_.front()->trained; }
  std::vector<std::unique_ptr<Piece>>& pieces() { return pieces_; }
  bool holds(const nn::Parameter& parameter) const;

  // In the form that is shown.
  const at::Tensor& values() const { return form_ == Form::Kept ? values_ : computed_values_; }
  at::Tensor own_values() const { return own_part_of(values()); }
  // This rank's part of a flat tensor of the same layout.
  at::Tensor own_part_of(const at::Tensor& flat) const;

  // From now on the pieces' values have memory of their own: that of values() is given back.
  // `on_device` false: the pieces have none on the device, and are to be given homes. `computed`:
  // the type of Form::Computed, which is shown from here on.
  void keep_part_apart(bool on_device, at::ScalarType computed);
  // The parameters' values become views of this form. Neither form's memory may be there.
  void show(Form form);
  // The part that is kept apart, vacant where pieces live at home; undefined where none is.
  const at::Tensor& part() const { return part_; }
  // Between the pieces and this rank's part of values(), which must be there.
  void values_from_pieces() const;
  void pieces_from_values() const;

  // Gradients of the same layout, with a place for each parameter's. `whole` is made at the first
  // call after drop_gradients().
  const at::Tensor& provide_gradients();
  // Those that were not written are zero from here on.
  void complete_gradients() const;
  const at::Tensor& gradients() const { return gradients_; }
  // The parameters' gradients are no more theirs: what they were is returned.
  at::Tensor take_gradients();
  // New memory for one part, content undefined.
  at::Tensor new_part(memory::Category category) const;
  // Gives each piece its stretch of the reduced part as gradient.
  void give_to_pieces(const at::Tensor& reduced) const;
  // Of any parameter or piece.
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
  int32_t unit_;  // of the ledger
  at::Tensor values_;
  at::Tensor computed_values_;  // undefined where both forms are one
  std::vector<at::Tensor> views_, computed_views_;
  Form form_ = Form::Kept;
  at::Tensor part_;
  at::Tensor gradients_;
  bool kept_apart_ = false;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace snug::exec
