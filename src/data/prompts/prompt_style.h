// Turns a row into the prompt before its answer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/prompts/text_encoder.h"
#include "data/rows/rows.h"

namespace snug::data {

class PromptStyle {
 public:
  // "alpaca", "flan", "longform": LitGPT's texts of these names. "chat": the model's own chat
  // template. "plain" (also "default", "none"): the instruction, and the input below it. Throws
  // UserError for an unknown name and for "chat" without a template.
  static PromptStyle make(std::string_view name, const TextEncoder& encoder);
  static std::vector<std::string> names();

  std::string prompt(const Row& row) const;
  // Renders turns with the chat template; only if is_chat().
  std::string render(std::span<const Message> turns, bool add_generation_prompt) const;
  bool is_chat() const { return kind_ == Kind::Chat; }
  const std::string& name() const { return name_; }

 private:
  enum class Kind { Alpaca, Flan, Longform, Chat, Plain };
  Kind kind_ = Kind::Plain;
  std::string name_;
  std::function<std::string(std::span<const Message>, bool)> chat_;
};

}  // namespace snug::data
