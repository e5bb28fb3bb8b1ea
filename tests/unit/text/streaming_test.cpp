// Decoding id by id gives the same text as all at once, and never half a character.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/text.h"
#include "gguf_sample.h"
#include "mixed_text.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {
namespace {

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamingDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_EQ(find_invalid_utf8(part), std::string::npos);
    text += part;
  }
  return text + decoder.flush();
}

TEST(Streaming, GivesTheTextOfDecode) {
  const auto smollm = Tokenizer::from_gguf(smollm_vocabulary());
  const auto llama2 = Tokenizer::from_directory(data_path("llama2"));
  const auto sentencepiece = Tokenizer::from_directory(data_path("sentencepiece"));
  for (const auto& line : MixedText(11).lines(150)) {
    for (const auto* tokenizer : {smollm.get(), llama2.get(), sentencepiece.get()}) {
      const auto ids = tokenizer->encode(line, true);
      EXPECT_EQ(stream(*tokenizer, ids), tokenizer->decode(ids)) << line;
    }
  }
}

TEST(Streaming, HoldsBackHalfACharacter) {
  const auto tokenizer = Tokenizer::from_gguf(smollm_vocabulary());
  StreamingDecoder decoder(*tokenizer);
  const auto ids = tokenizer->encode("\U0001FAE0", false);
  ASSERT_GT(ids.size(), 1u);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids.back()), "\U0001FAE0");
}

TEST(Streaming, BytesThatNeverBecomeTextDoNotWaitForever) {
  const auto tokenizer = Tokenizer::from_gguf(smollm_vocabulary());
  const auto ids = tokenizer->encode("\U0001FAE0", false);
  StreamingDecoder decoder(*tokenizer);
  std::string text;
  for (int i = 0; i < 100; ++i) text += decoder.push(ids.front());
  EXPECT_FALSE(text.empty());
  for (const int32_t id : ids) text += decoder.push(id);
  text += decoder.flush();
  EXPECT_EQ(find_invalid_utf8(text), std::string::npos);
}

TEST(Streaming, UnknownIdsAreLeftOut) {
  const auto tokenizer = Tokenizer::from_gguf(smollm_vocabulary());
  EXPECT_EQ(stream(*tokenizer, {-1, 1 << 30, 40}), tokenizer->decode(std::vector<int32_t>{40}));
}

TEST(Streaming, SpacesStayBehindManyIdsWithoutText) {
  for (const char* name : {"llama2", "sentencepiece"}) {
    const auto tokenizer = Tokenizer::from_directory(data_path(name));
    std::vector<int32_t> ids = tokenizer->encode("one two", false);
    const std::vector<int32_t> next = tokenizer->encode("three four", false);
    ids.insert(ids.end(), 20, 1 << 30);
    ids.insert(ids.end(), next.begin(), next.end());
    EXPECT_EQ(stream(*tokenizer, ids), tokenizer->decode(ids)) << name;
    EXPECT_NE(tokenizer->decode(ids).find("two three"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace snug::tokenizer::test
