// The interface of tokenizer implementations: the pipeline of a tokenizer.json, and a sentencepiece
// model. Tokenizer adds chat templates and files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/json_node.h"
#include "text/tokenizer/steps/added_tokens.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace snug::tokenizer {

// Ids that encode(…, true) adds around a text.
struct Frame {
  std::vector<int32_t> before, after;
};

// Settings from the files beside a vocabulary.
struct EngineOptions {
  // Ids may be -1 for tokens the vocabulary knows, or kNextId.
  std::vector<AddedToken> added_tokens;
  // The first file that names a token says all about it; but any file can call it special.
  void add_token(AddedToken token) {
    for (AddedToken& known : added_tokens) {
      if (known.content != token.content) continue;
      known.special |= token.special;
      if (known.id == -1) known.id = token.id;
      return;
    }
    added_tokens.push_back(std::move(token));
  }
  std::optional<bool> add_bos,
      add_eos;  // where one is given, they replace the vocabulary's own frame
  std::string bos, eos;
  bool legacy = true;  // sentencepiece: every segment between special tokens gets the prefix space
};

class Engine {
 public:
  virtual ~Engine() = default;
  // `text` is valid UTF-8.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;
  virtual int32_t end_id() const = 0;                      // largest id + 1
  virtual int32_t find(std::string_view token) const = 0;  // -1 if absent
  virtual std::string token(int32_t id) const = 0;
  virtual const AddedToken* added_token(int32_t id) const = 0;  // nullptr: not an added one

  const Frame& frame() const { return frame_; }
  // How many tokens came behind the others (kNextId).
  int64_t num_appended() const { return num_appended_; }

 protected:
  // Applies the frame in the options, once the vocabulary is known.
  void override_frame(const EngineOptions& options);

  Frame frame_;
  int64_t num_appended_ = 0;
};

// What the library makes of a model's bytes. Throws UserError with `where` for what is none, also
// where the library itself throws.
void load_sentencepiece(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes,
                        const std::string& where);

std::unique_ptr<Engine> make_pipeline(const Node& tokenizer_json, const EngineOptions& options);
std::unique_ptr<Engine> make_sentencepiece(const std::filesystem::path& model,
                                           const EngineOptions& options);

// Sets the vocabulary's rules for a GGUF file whose tokens are set.
struct GgufVocabulary;
void set_gguf_rules(const std::filesystem::path& sentencepiece_model, GgufVocabulary& out);

}  // namespace snug::tokenizer
