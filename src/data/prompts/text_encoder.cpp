// SPDX-License-Identifier: Apache-2.0
#include "data/prompts/text_encoder.h"

namespace snug::data {

std::vector<int32_t> TextEncoder::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids = encode(text);
  // A chat template may already contain the token.
  if (add_bos && bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

std::vector<int32_t> TextEncoder::encode_response(std::string_view text) const {
  std::vector<int32_t> ids = encode(text);
  if (eos >= 0 && (ids.empty() || ids.back() != eos)) ids.push_back(eos);
  return ids;
}

TextEncoder make_encoder(const tokenizer::Tokenizer& tokenizer) {
  const tokenizer::SpecialTokens& special = tokenizer.special();
  TextEncoder encoder;
  encoder.bos = special.bos;
  encoder.eos = special.eos;
  encoder.pad = special.pad;
  encoder.add_bos = special.add_bos;
  encoder.encode = [&tokenizer](std::string_view text) { return tokenizer.encode(text, false); };
  if (tokenizer.has_chat_template())
    encoder.chat = [&tokenizer](std::span<const tokenizer::Message> turns, bool open) {
      return tokenizer.apply_chat_template(turns, open);
    };
  return encoder;
}

}  // namespace snug::data
