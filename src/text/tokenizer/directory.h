// The small files beside a vocabulary: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, generation_config.json and the chat template. All optional; each refines how
// the vocabulary is used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "text/tokenizer/engine.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {

struct Sidecars {
  EngineOptions options;
  std::map<std::string, std::string> named_tokens;  // "bos_token" -> "<s>", …
  int32_t num_extra_ids = 100;                      // T5's <extra_id_0> …
  int32_t generation_eos = -1;                      // the first of generation_config.json's
  std::string chat_template, chat_template_where;
};

Sidecars read_sidecars(const std::filesystem::path& directory,
                       const TokenizerChanges& changes = {});

// The tokenizer.json equivalent to vocab.json and merges.txt (byte-level BPE of GPT-2 and OPT);
// null without these files.
nlohmann::json byte_level_files(const std::filesystem::path& directory);

// The tokenizer.json equivalent to T5's spiece.model and its extra ids, as in transformers'
// T5Tokenizer; null without that file.
nlohmann::json t5_files(const std::filesystem::path& directory, int32_t num_extra_ids);

// Copies the vocabulary and the files above; does nothing when both directories are the same.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
// Makes the files in a directory say what `changes` does. `ids`: of its tokens.
void write_changes(const std::filesystem::path& directory, const TokenizerChanges& changes,
                   const std::vector<int32_t>& ids);
// The bytes that copy_tokenizer_files would copy.
int64_t tokenizer_files_bytes(const std::filesystem::path& directory);

}  // namespace snug::tokenizer
