// Dropout (Srivastava et al. 2014): zeroes elements with a probability and scales the others by 1 /
// (1 - probability). The mask is a function of a key and the element's index, so nothing is saved
// for the backward, and a recomputed forward has the same mask.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/kernels/dropout.h"
#include "core/kernels/random_key.h"

namespace snug::ops {

// Returns x itself if probability is 0. If x is part of a larger tensor, it gets that tensor's
// mask: x begins at `first_element`; `whole_columns` is the larger tensor's number of columns if x
// has only some of them; `rows` maps the larger tensor's rows to those of one that is larger still.
at::Tensor dropout(const at::Tensor& x, double probability, kernels::MaskKey key,
                   int64_t first_element = 0, int64_t whole_columns = 0,
                   const kernels::RowPlaces& rows = {});

// Adds noise to x (c, D) in place, uniform within ±scale·noise[row]; gradients pass through
// unchanged. noise (rows) float32: those that x's begin in at `first_row`; where they end, x has no
// noise. Draws as dropout does.
void add_noise(const at::Tensor& x, const at::Tensor& noise, double scale, kernels::MaskKey key,
               int64_t first_row = 0, const kernels::RowPlaces& rows = {});

}  // namespace snug::ops
