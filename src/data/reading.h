// What a model reads besides decoder tokens, for which samples are made accordingly.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace snug::data {

struct Reading {
  bool source = false;  // an encoder reads the prompt, and the decoder learns the answer
  int32_t decoder_start_token = -1;  // before a decoder's first target
  int64_t image_size = 0;            // pixels per side of a picture; 0: no pictures
  int64_t num_picture_tokens = 0;    // placeholders per picture
  int32_t picture_token = -1;        // the placeholders' id
  bool pictures_anywhere = false;    // any number of pictures in a sample, among its text; else one
                                     // picture, whose placeholders come first
  int64_t longest_side = 0;          // of a picture before it is cut into tiles; 0: four of them
  bool marks_padding = false;        // padded rows must be known from others
  bool rotates_by_length = false;    // tokens, by the length of their document (longrope)
  bool reads_rows_before = false;    // besides by attention: convolutions, recurrences
  bool scores_documents = false;     // a head that scores whole documents: no token has a loss
  int32_t pad_token = -1;      // of a model that scores documents: it scores what is before it
  int64_t usual_pictures = 1;  // of a picture with its tiles, for samples that are made up
  std::array<float, 3> image_mean{}, image_std{};  // of red, green, blue in 0..1

  // Whether documents may share the rows of their beginning: only attention knows how.
  bool shares_rows() const { return !rotates_by_length && !reads_rows_before; }
  // Pixels to which the longer side of a picture is scaled before it is cut.
  int64_t scaled_side() const { return longest_side > 0 ? longest_side : 4 * image_size; }
};

}  // namespace snug::data
