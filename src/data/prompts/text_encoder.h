// The part of a tokenizer that samples need, so that this folder can be tested with any tokenizer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace snug::data {

struct TextEncoder {
  // Text to ids, without special tokens. Must be thread-safe.
  std::function<std::vector<int32_t>(std::string_view)> encode;
  // Renders turns with the model's chat template, optionally with the start of an assistant turn.
  // Empty: no template.
  std::function<std::string(std::span<const tokenizer::Message>, bool add_generation_prompt)> chat;
  int32_t bos = -1, eos = -1, pad = -1;  // -1: the tokenizer has none
  bool add_bos = false;

  // Encodes the start of a document, with the beginning-of-sequence token if the tokenizer adds it.
  std::vector<int32_t> encode_prompt(std::string_view text) const;
  // Encodes the end of a document, with exactly one end-of-sequence token if there is one.
  std::vector<int32_t> encode_response(std::string_view text) const;
};

// Borrows the tokenizer, which must outlive the encoder.
TextEncoder make_encoder(const tokenizer::Tokenizer& tokenizer);

}  // namespace snug::data
