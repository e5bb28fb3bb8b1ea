// SPDX-License-Identifier: Apache-2.0
#include "engine/export/vocabulary.h"

#include "base/error.h"

namespace snug::engine {
namespace {

tokenizer::GgufVocabulary read_vocabulary(const files::GgufFile& file) {
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

void write_vocabulary(const tokenizer::GgufVocabulary& v, files::GgufWriter& out) {
  const auto id = [&](const char* key, int32_t value) {
    if (value >= 0) out.set_u32(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(value));
  };
  out.set_text("tokenizer.ggml.model", v.model);
  out.set_text("tokenizer.ggml.pre", v.pre);
  out.set_texts("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) out.set_f32s("tokenizer.ggml.scores", v.scores);
  out.set_i32s("tokenizer.ggml.token_type", v.token_types);
  if (!v.merges.empty()) out.set_texts("tokenizer.ggml.merges", v.merges);
  id("bos_token_id", v.special.bos);
  id("eos_token_id", v.special.eos);
  id("padding_token_id", v.special.pad);
  id("unknown_token_id", v.special.unk);
  out.set_bool("tokenizer.ggml.add_bos_token", v.special.add_bos);
  out.set_bool("tokenizer.ggml.add_eos_token", v.special.add_eos);
  out.set_bool("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  if (!v.chat_template.empty()) out.set_text("tokenizer.chat_template", v.chat_template);
}

}  // namespace snug::engine
