// Dropout (Srivastava et al. 2014): out[i] = kept(i) ? x[i] / (1 - probability) : 0. The mask is a
// hash of (key, i), so the backward and a recomputed forward draw it again instead of storing it,
// on any device and number of threads. And noise that is drawn and numbered the same way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/random_key.h"
#include "core/kernels/scalar.h"

namespace snug::kernels {

// Row numbers of two equally long ranges of a longer list of rows.
struct RowPlaces {
  int64_t stretch = 0;            // rows of each; 0: rows are numbered as they lie
  int64_t first = 0, second = 0;  // the rows that they begin with

  int64_t of(int64_t row) const {
    if (stretch == 0) return row;
    return row < stretch ? first + row : second + row - stretch;
  }
};

struct Dropout {
  Scalar type = Scalar::F32;
  int64_t count = 0;
  const void* x = nullptr;
  void* out = nullptr;  // may be x
  double probability = 0;
  uint64_t key = 0;
  const uint64_t* pass_key = nullptr;  // MaskKey::of_pass, on a GPU only
  int key_mixes = 0;                   // MaskKey::mixes
  bool accumulate = false;             // out += instead of out =
  int num_threads = 0;
  // For columns [first_column, first_column + columns) of a matrix with whole_columns, which get
  // that matrix's mask; columns 0: elements are numbered consecutively.
  int64_t columns = 0;
  int64_t first_column = 0;
  int64_t whole_columns = 0;
  // If first_column exceeds whole_columns, it also skips whole rows. Only with `columns`: the row
  // numbers, counted with the skipped rows.
  RowPlaces places;
  int64_t first_index = 0;  // of the first element
  // Given, for rows of `columns`: no mask, out[i] = x[i] + noise_scale * noise[row] * u(i), u
  // uniform in [-1, 1]; rows are those of first_column, before `places`.
  const float* noise = nullptr;
  float noise_scale = 1;

  // Elements whose 32 random bits are below this are dropped.
  uint32_t threshold() const { return static_cast<uint32_t>(probability * 4294967295.0); }
  float scale() const { return static_cast<float>(1.0 / (1.0 - probability)); }
};

// Dropout of probabilities; kept ones are scaled by 1 / (1 - probability). The mask is a hash of
// (key, row, column), row = head * N + token, column = the attended token's position in its
// document, so nothing is stored for the backward, and the number of threads does not matter.
struct ProbabilityDropout {
  double probability = 0;
  uint64_t key = 0;
  const uint64_t* pass_key = nullptr;  // MaskKey::of_pass, on a GPU only
  int key_mixes = 0;                   // MaskKey::mixes
  int64_t first_head = 0;  // what head 0 is numbered as, where the others are computed elsewhere
  // If this rank has only part of the tokens: the number of token 0, and the total; 0: all tokens
  // are here.
  int64_t first_row = 0, num_rows = 0;

  // Elements whose 32 random bits are below this are dropped.
  uint32_t threshold() const { return static_cast<uint32_t>(probability * 4294967295.0); }
  float scale() const { return static_cast<float>(1.0 / (1.0 - probability)); }
};

namespace cpu {
void dropout(const Dropout& args);
}  // namespace cpu

}  // namespace snug::kernels
