// What a model reads besides the tokens whose targets make its loss; samples are made for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace snug::data {

struct Reading {
  bool source = false;               // an encoder reads the prompt, a decoder learns the answer
  int32_t decoder_start_token = -1;  // before a decoder's first target
  int64_t image_size = 0;            // pixels a side of each sample's picture; 0: no pictures
  int64_t num_picture_tokens = 0;    // places that a picture's features take, first in its sample
  int32_t picture_token = -1;        // the id that stands in those places
  std::array<float, 3> image_mean{}, image_std{};  // of red, green, blue in 0..1
};

}  // namespace snug::data
