// Dropout (Srivastava et al. 2014): zeroes elements with a probability and scales the others by
// 1 / (1 - probability). Which ones a key says, and the element's number: nothing is kept for the
// backward, and a recomputed forward drops the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/cpu/dropout.h"

namespace snug::ops {

// x itself where probability is 0. Of a longer tensor x is the part that begins with element
// `first_element`, and has its mask: the elements that follow, or with `whole_columns`, which then
// are the whole's, as many of its columns as x has. With `rows` that whole's rows, of which
// `first_element` counts, are themselves some of a longer tensor's.
at::Tensor dropout(const at::Tensor& x, double probability, uint64_t key, int64_t first_element = 0,
                   int64_t whole_columns = 0, const kernels::cpu::RowPlaces& rows = {});

}  // namespace snug::ops
