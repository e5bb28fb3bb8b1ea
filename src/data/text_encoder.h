// What samples need of a tokenizer, so that this folder can be used and tested with any of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace snug::data {

struct TextEncoder {
  // Text to ids, adding no special tokens. Called from several threads at once.
  std::function<std::vector<int32_t>(std::string_view)> encode;
  // Turns to text by the model's chat template, optionally opening the assistant's turn. Empty: no
  // template.
  std::function<std::string(std::span<const tokenizer::Message>, bool add_generation_prompt)> chat;
  int32_t bos = -1, eos = -1, pad = -1;  // -1: the tokenizer has none
  bool add_bos = false;

  // The start of a document: with the beginning-of-sequence token if the tokenizer adds it.
  std::vector<int32_t> encode_prompt(std::string_view text) const;
  // The end of a document: with exactly one end-of-sequence token, if there is such a token.
  std::vector<int32_t> encode_response(std::string_view text) const;
};

// Borrows the tokenizer, which must outlive the encoder.
TextEncoder make_encoder(const tokenizer::Tokenizer& tokenizer);

}  // namespace snug::data
