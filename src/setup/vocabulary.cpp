// SPDX-License-Identifier: Apache-2.0
#include "setup/vocabulary.h"

namespace snug::setup {
namespace {

tokenizer::GgufVocabulary read_vocabulary(const formats::GgufFile& file) {
  const auto id = [&](const char* key) {
    return static_cast<int32_t>(file.integer(std::string("tokenizer.ggml.") + key, -1));
  };
  tokenizer::GgufVocabulary v;
  v.model = file.text("tokenizer.ggml.model");
  v.pre = file.text("tokenizer.ggml.pre", "default");
  v.tokens = file.texts("tokenizer.ggml.tokens");
  if (file.has("tokenizer.ggml.scores")) v.scores = file.numbers("tokenizer.ggml.scores");
  if (file.has("tokenizer.ggml.token_type"))
    v.token_types = file.integers("tokenizer.ggml.token_type");
  if (file.has("tokenizer.ggml.merges")) v.merges = file.texts("tokenizer.ggml.merges");
  v.special = {.bos = id("bos_token_id"),
               .eos = id("eos_token_id"),
               .pad = id("padding_token_id"),
               .unk = id("unknown_token_id"),
               .add_bos = file.boolean("tokenizer.ggml.add_bos_token", v.model == "llama"),
               .add_eos = file.boolean("tokenizer.ggml.add_eos_token", false)};
  v.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix", true);
  v.chat_template = file.text("tokenizer.chat_template", "");
  return v;
}

}  // namespace

std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const models::Checkpoint& checkpoint) {
  if (checkpoint.gguf != nullptr)
    return tokenizer::Tokenizer::from_gguf(read_vocabulary(*checkpoint.gguf));
  return tokenizer::Tokenizer::from_directory(checkpoint.path);
}

}  // namespace snug::setup
