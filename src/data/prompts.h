// Prompts: how a row becomes the text before its answer, that text as ids, and the file beside a
// model that records the prompt style it was trained with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::data {

// The part of a tokenizer that samples need, so that this folder can be tested with any tokenizer.
struct TextEncoder {
  // Text to ids, without special tokens. Must be thread-safe.
  std::function<std::vector<int32_t>(std::string_view)> encode;
  // Renders turns with the model's chat template, optionally with the start of an assistant turn.
  // Empty: no template.
  // `tools`: a JSON array; empty: none.
  std::function<std::string(std::span<const tokenizer::Message>, bool add_generation_prompt,
                            std::string_view tools)>
      chat;
  // The same of a whole conversation, and whose words are where in it.
  std::function<tokenizer::RenderedChat(std::span<const tokenizer::Message>,
                                        std::string_view tools)>
      whole_chat;
  // Whether an id is a mark, as at the end of a turn, and no text. Empty: `eos` alone is.
  std::function<bool(int32_t)> is_special;
  std::function<std::string(int32_t)> text_of;  // marks too; may be empty
  int32_t bos = -1, eos = -1, pad = -1;         // -1: the tokenizer has none
  bool add_bos = false;                         // but to what a chat template writes

  // Encodes the start of a document, with the beginning-of-sequence token if the tokenizer adds it.
  std::vector<int32_t> encode_prompt(std::string_view text) const;
  // Encodes the end of a document, with exactly one end-of-sequence token if there is one.
  std::vector<int32_t> encode_response(std::string_view text) const {
    return with_eos(encode(text));
  }
  bool ends_turn(int32_t id) const { return id == eos || (is_special && is_special(id)); }
  // With the end-of-sequence token, unless it is there or the tokenizer has none.
  std::vector<int32_t> with_eos(std::vector<int32_t> ids) const;
};

// Borrows the tokenizer, which must outlive the encoder.
TextEncoder make_encoder(const tokenizer::Tokenizer& tokenizer);

// Turns a row into the prompt before its answer.
class PromptStyle {
 public:
  // "alpaca", "flan", "longform": LitGPT's texts of these names. "chat": the model's own chat
  // template. "plain" (also "default", "none"): the instruction, and the input below it. Throws
  // UserError for an unknown name and for "chat" without a template.
  static PromptStyle make(std::string_view name, const TextEncoder& encoder);
  static std::vector<std::string> names();

  std::string prompt(const Row& row) const;
  // The user's turn of a chat that a row without messages stands for.
  static Message question(const Row& row);
  // Renders turns with the chat template; only if is_chat().
  std::string render(std::span<const Message> turns, bool add_generation_prompt,
                     std::string_view tools = {}) const;
  tokenizer::RenderedChat render_chat(std::span<const Message> turns,
                                      std::string_view tools = {}) const;
  // For prompts of this style: what a chat template writes is the whole text, and no token is added
  // in front of it.
  TextEncoder encoder_of_prompts(TextEncoder encoder) const {
    encoder.add_bos = encoder.add_bos && !is_chat();
    return encoder;
  }
  bool is_chat() const { return kind_ == Kind::Chat; }
  const std::string& name() const { return name_; }

 private:
  enum class Kind { Alpaca, Flan, Longform, Chat, Plain };
  Kind kind_ = Kind::Plain;
  std::string name_;
  decltype(TextEncoder::chat) chat_;
  decltype(TextEncoder::whole_chat) whole_chat_;
};

// prompt_style.json: LitGPT's key "class_path" and two more keys, which cover all styles.
struct PromptRecord {
  std::string style;                // as PromptStyle::make() takes it
  std::optional<bool> mask_prompt;  // whether prompts had no loss; unset in LitGPT's files
  std::string system;               // the message with which every chat began; empty: none
};

// Reads it from a model's or an adapter's folder. std::nullopt if there is no such file; also, with
// a warning, if it cannot be read or names an unknown style.
std::optional<PromptRecord> read_prompt_record(const std::filesystem::path& folder);
void write_prompt_record(const std::filesystem::path& folder, const PromptRecord& record);
// Copies the file from one model's folder to another's.
void copy_prompt_record(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace snug::data
