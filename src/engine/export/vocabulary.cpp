// SPDX-License-Identifier: Apache-2.0
#include "engine/export/vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "core/nn/head.h"
#include "files/checkpoint/adapters/peft_adapter.h"
#include "files/checkpoint/adapters/peft_config.h"
#include "text/template/named_templates.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using tokenizer::Tokenizer;
using tokenizer::TokenizerChanges;

constexpr size_t kMaxTemplateBytes = size_t{1} << 24;

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

// What the model itself says.
TokenizerChanges own_of(const models::Checkpoint& checkpoint) {
  if (checkpoint.gguf == nullptr) return tokenizer::changes_in(checkpoint.path);
  const tokenizer::GgufVocabulary own = read_vocabulary(*checkpoint.gguf);
  const int32_t eos = own.special.eos;
  const bool is_token = eos >= 0 && eos < std::ssize(own.tokens);
  return {.chat_template = own.chat_template, .eos_token = is_token ? own.tokens[eos] : ""};
}

// What stands beside an adapter and not in its model.
TokenizerChanges changes_beside(const fs::path& adapter, const models::Checkpoint& checkpoint) {
  TokenizerChanges changes = tokenizer::changes_in(adapter);
  if (changes.empty()) return changes;
  const TokenizerChanges own = own_of(checkpoint);
  if (changes.chat_template == own.chat_template) changes.chat_template.clear();
  if (changes.eos_token == own.eos_token) changes.eos_token.clear();
  return changes;
}

bool has_vocabulary(const fs::path& folder) {
  return std::ranges::any_of(
      std::array{"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json"},
      [&](const char* name) { return fs::exists(folder / name); });
}

// Whether an adapter brings its base's embedding, whose rows its own tokens may have.
bool trains_vocabulary(const fs::path& adapter) {
  if (!checkpoint::is_peft_directory(adapter)) return false;
  const auto config = checkpoint::read_peft_config(adapter / "adapter_config.json");
  return std::ranges::any_of(config.modules_to_save,
                             [](const std::string& module) { return module != nn::kScoreLayer; });
}

}  // namespace

bool has_tokenizer(const models::Checkpoint& checkpoint) {
  return checkpoint.gguf != nullptr ||
         (!checkpoint.path.empty() && has_vocabulary(checkpoint.path));
}

TokenizerChanges changes_of(const recipe::DataOptions& data) {
  const std::string& given = data.chat_template;
  TokenizerChanges changes{.where = "data.chat_template = " + given};
  if (const std::string_view named = tokenizer::named_template(given); !named.empty()) {
    changes.chat_template = named;
  } else if (given.find("{%") != std::string::npos || given.find("{{") != std::string::npos) {
    changes.chat_template = given;
    changes.where = "data.chat_template";
  } else if (fs::is_directory(given)) {
    changes = tokenizer::changes_in(given);
  } else if (fs::is_regular_file(given)) {
    changes.chat_template = read_file(given, kMaxTemplateBytes);
    changes.where = given;
  } else if (!given.empty()) {
    throw UserError(
        "data.chat_template = {}: there is no such file or folder, nor a template of that name; "
        "give a file of Jinja, a folder of a model that has a template, or one of {}",
        given, fmt::join(tokenizer::template_names(), ", "));
  }
  if (!given.empty() && trimmed(changes.chat_template).empty())
    throw UserError("data.chat_template = {}: there is no template in it", given);
  if (!data.eos_token.empty()) changes.eos_token = data.eos_token;
  changes.tokens = split_list(data.add_tokens);
  if (changes.tokens.empty() && !data.add_tokens.empty())
    throw UserError("tokens.add = {}: there is no token in it; separate tokens by commas",
                    data.add_tokens);
  return changes;
}

std::unique_ptr<Tokenizer> open_tokenizer(const models::Checkpoint& checkpoint,
                                          const fs::path& adapter,
                                          const recipe::DataOptions& data) {
  TokenizerChanges changes = changes_beside(adapter, checkpoint);
  const bool is_adapters_own =
      has_vocabulary(adapter) &&
      (!changes.empty() || checkpoint.has_more_rows || trains_vocabulary(adapter));
  TokenizerChanges wanted = changes_of(data);
  const bool has_template = !wanted.chat_template.empty();
  if (has_template) {
    changes.chat_template = std::move(wanted.chat_template);
    changes.where = std::move(wanted.where);
  }
  if (!wanted.eos_token.empty()) changes.eos_token = std::move(wanted.eos_token);
  changes.tokens = std::move(wanted.tokens);
  std::unique_ptr<Tokenizer> opened =
      is_adapters_own ? Tokenizer::from_directory(adapter, changes)
      : checkpoint.gguf != nullptr
          ? Tokenizer::from_gguf(read_vocabulary(*checkpoint.gguf), changes)
          : Tokenizer::from_directory(checkpoint.path, changes);
  if (has_template && opened->ends_of_answers().empty())
    warn(
        "{}: it ends an answer with no token that this vocabulary has as a special one, so the end "
        "is learnt as text, at which generating does not stop by itself (--stop TEXT does); add "
        "the template's marks with --tokens.add, or take alpaca, which ends answers with the "
        "eos_token",
        changes.where);
  return opened;
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
