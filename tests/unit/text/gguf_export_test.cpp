// Vocabularies on their way into a GGUF file: what is read from there gives the same ids.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "gguf_sample.h"
#include "mixed_text.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {
namespace {

void expect_same_ids(const Tokenizer& tokenizer, GgufVocabulary written) {
  const auto read = Tokenizer::from_gguf(std::move(written));
  for (const auto& line : MixedText(5).lines(300))
    ASSERT_EQ(read->encode(line, true), tokenizer.encode(line, true)) << line;
}

TEST(GgufExport, AVocabularyFromGgufComesOutAsItWas) {
  const GgufVocabulary v = smollm_vocabulary();
  const auto tokenizer = Tokenizer::from_gguf(v);
  const GgufVocabulary out = tokenizer->gguf_vocabulary(std::ssize(v.tokens));
  EXPECT_EQ(out.model, v.model);
  EXPECT_EQ(out.pre, v.pre);
  EXPECT_EQ(out.tokens, v.tokens);
  EXPECT_EQ(out.token_types, v.token_types);
  EXPECT_EQ(out.merges, v.merges);
  EXPECT_EQ(out.chat_template, v.chat_template);
  EXPECT_EQ(out.special.bos, v.special.bos);
  EXPECT_EQ(out.special.eos, v.special.eos);
  EXPECT_EQ(out.special.pad, v.special.pad);
  EXPECT_EQ(out.special.unk, v.special.unk);
  EXPECT_EQ(out.special.add_bos, v.special.add_bos);
}

class GgufExportOf : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(GgufExportOf, GivesTheSameIds) {
  const auto tokenizer = Tokenizer::from_directory(data_path(GetParam().first));
  const GgufVocabulary out = tokenizer->gguf_vocabulary(tokenizer->vocabulary_size());
  EXPECT_EQ(out.pre, GetParam().second);
  expect_same_ids(*tokenizer, out);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufExportOf,
                         testing::Values(std::pair("llama3", "llama-bpe"),
                                         std::pair("qwen2", "qwen2"), std::pair("o200k", "gpt-4o"),
                                         std::pair("llama2", "default"),
                                         std::pair("sentencepiece", "default")),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(GgufExport, EveryRowOfTheEmbeddingHasItsToken) {
  const auto tokenizer = Tokenizer::from_directory(data_path("qwen2"));
  const int64_t size = tokenizer->vocabulary_size();
  const GgufVocabulary padded = tokenizer->gguf_vocabulary(size + 3);
  ASSERT_EQ(std::ssize(padded.tokens), size + 3);
  EXPECT_EQ(padded.tokens.back(), "[PAD" + std::to_string(size + 2) + "]");
  EXPECT_EQ(padded.token_types.back(), 5);
  expect_same_ids(*tokenizer, padded);
}

// gpt2's puts a space in front of every text, which byte-level GGUF vocabularies cannot say.
TEST(GgufExport, WhatHasNoFormInGgufIsRefused) {
  for (const char* kind : {"gpt2", "t5", "zoo", "word_ends"}) {
    const auto tokenizer = Tokenizer::from_directory(data_path(kind));
    EXPECT_THROW(tokenizer->gguf_vocabulary(tokenizer->vocabulary_size()), UserError) << kind;
  }
}

}  // namespace
}  // namespace snug::tokenizer::test
