// SPDX-License-Identifier: Apache-2.0
#include "data/prompts/prompt_style.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"

namespace snug::data {
namespace {

// Verbatim from the formats, since models were trained on them.
constexpr std::string_view kPreamble =
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n";
constexpr std::string_view kPreambleWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. "
    "Write a response that appropriately completes the request.\n\n";

std::string sections(std::string_view preamble, const Row& row, bool with_input) {
  std::string text(preamble);
  text.append("### Instruction:\n").append(row.instruction);
  if (with_input) text.append("\n\n### Input:\n").append(row.input);
  return text.append("\n\n### Response:\n");
}

std::string joined(const Row& row, std::string_view separator) {
  if (row.input.empty()) return row.instruction;
  return std::string(row.instruction).append(separator).append(row.input);
}

}  // namespace

std::vector<std::string> PromptStyle::names() {
  return {"alpaca", "flan", "longform", "chat", "plain"};
}

PromptStyle PromptStyle::make(std::string_view name, const TextEncoder& encoder) {
  PromptStyle style;
  style.name_ = name == "default" || name == "none" ? "plain" : name;
  if (style.name_ == "alpaca") {
    style.kind_ = Kind::Alpaca;
  } else if (style.name_ == "flan") {
    style.kind_ = Kind::Flan;
  } else if (style.name_ == "longform") {
    style.kind_ = Kind::Longform;
  } else if (style.name_ == "plain") {
    style.kind_ = Kind::Plain;
  } else if (style.name_ == "chat") {
    style.kind_ = Kind::Chat;
    if (!encoder.chat)
      throw UserError(
          "prompt_style = chat, but the model's tokenizer has no chat template; use alpaca or "
          "plain");
    style.chat_ = encoder.chat;
  } else {
    const std::string near = nearest_name(name, names());
    throw UserError(
        "prompt_style = {} is unknown{}; choose one of {} (chat is the model's own template)", name,
        near.empty() ? "" : "; did you mean " + near + "?", fmt::join(names(), ", "));
  }
  return style;
}

std::string PromptStyle::prompt(const Row& row) const {
  switch (kind_) {
    case Kind::Alpaca:
      return row.input.empty() ? sections(kPreamble, row, false)
                               : sections(kPreambleWithInput, row, true);
    case Kind::Flan:
      return sections(kPreamble, row, false);
    case Kind::Longform:
      return sections(kPreambleWithInput, row, false);
    case Kind::Chat:
      return render(std::vector<Message>{{"user", joined(row, "\n\n")}}, true);
    case Kind::Plain:
      break;
  }
  return joined(row, "\n");
}

std::string PromptStyle::render(std::span<const Message> turns, bool add_generation_prompt) const {
  SNUG_CHECK(chat_, "style {} has no chat template", name_);
  return chat_(turns, add_generation_prompt);
}

}  // namespace snug::data
