// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/rows/row_from_json.h"

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
    style.whole_chat_ = encoder.whole_chat;
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
      return render(std::vector<Message>{question(row)}, true);
    case Kind::Plain:
      break;
  }
  return joined(row, "\n");
}

Message PromptStyle::question(const Row& row) { return {"user", joined(row, "\n\n")}; }

std::string PromptStyle::render(std::span<const Message> turns, bool add_generation_prompt,
                                std::string_view tools) const {
  SNUG_CHECK(chat_, "style {} has no chat template", name_);
  return chat_(turns, add_generation_prompt, tools);
}

tokenizer::RenderedChat PromptStyle::render_chat(std::span<const Message> turns,
                                                 std::string_view tools) const {
  SNUG_CHECK(whole_chat_, "style {} has no chat template", name_);
  return whole_chat_(turns, tools);
}

std::vector<int32_t> TextEncoder::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids = encode(text);
  if (add_bos && bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

std::vector<int32_t> TextEncoder::with_eos(std::vector<int32_t> ids) const {
  if (eos >= 0 && (ids.empty() || ids.back() != eos)) ids.push_back(eos);
  return ids;
}

TextEncoder make_encoder(const tokenizer::Tokenizer& tokenizer) {
  const tokenizer::SpecialTokens& special = tokenizer.special();
  TextEncoder encoder;
  encoder.bos = special.bos;
  encoder.eos = special.eos;
  encoder.pad = special.pad;
  encoder.add_bos = special.add_bos;
  encoder.encode = [&tokenizer](std::string_view text) { return tokenizer.encode(text, false); };
  if (tokenizer.has_chat_template()) {
    encoder.chat = [&tokenizer](std::span<const tokenizer::Message> turns, bool open,
                                std::string_view tools) {
      return tokenizer.apply_chat_template(turns, open, tools);
    };
    encoder.whole_chat = [&tokenizer](std::span<const tokenizer::Message> turns,
                                      std::string_view tools) {
      return tokenizer.render_chat(turns, tools);
    };
  }
  encoder.is_special = [&tokenizer](int32_t id) { return tokenizer.is_special(id); };
  encoder.text_of = [&tokenizer](int32_t id) { return tokenizer.decode({&id, 1}, false); };
  return encoder;
}

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr const char* kName = "prompt_style.json";
constexpr size_t kMaxBytes = size_t{1} << 20;

struct LitgptClass {
  const char *name, *style;
};
constexpr LitgptClass kClasses[] = {{"litgpt.prompts.Alpaca", "alpaca"},
                                    {"litgpt.prompts.FLAN", "flan"},
                                    {"litgpt.prompts.Longform", "longform"},
                                    {"litgpt.prompts.Default", "plain"}};

std::string style_in(const json& record) {
  if (const auto style = record.find("prompt_style"); style != record.end() && style->is_string())
    return *style;
  const auto path = record.find("class_path");
  if (path == record.end() || !path->is_string()) return "";
  for (const LitgptClass& known : kClasses)
    if (*path == known.name) return known.style;
  return *path;
}

}  // namespace

std::optional<PromptRecord> read_prompt_record(const fs::path& folder) {
  const fs::path file = folder / kName;
  if (std::error_code ignored; !fs::is_regular_file(file, ignored)) return std::nullopt;
  // A disk that fails now is no reason to go on without what the file says.
  const json read = json::parse(read_file(file, kMaxBytes), nullptr, false);
  PromptRecord record;
  if (read.is_object()) record.style = style_in(read);
  if (std::ranges::count(PromptStyle::names(), record.style) == 0) {
    warn("{} is ignored: it names no known prompt style; choose one with --prompt_style",
         file.string());
    return std::nullopt;
  }
  if (const auto mask = read.find("mask_prompt"); mask != read.end() && mask->is_boolean())
    record.mask_prompt = mask->get<bool>();
  if (const auto system = read.find("system"); system != read.end() && system->is_string())
    record.system = system->get<std::string>();
  return record;
}

void write_prompt_record(const fs::path& folder, const PromptRecord& record) {
  json written{{"prompt_style", record.style}};
  if (record.mask_prompt) written["mask_prompt"] = *record.mask_prompt;
  if (!record.system.empty()) written["system"] = record.system;
  for (const LitgptClass& known : kClasses)
    if (record.style == known.style) written["class_path"] = known.name;
  write_file_atomically(folder / kName, written.dump(2) + "\n");
}

void copy_prompt_record(const fs::path& from, const fs::path& to) {
  if (const auto record = read_prompt_record(from)) write_prompt_record(to, *record);
}

}  // namespace snug::data
