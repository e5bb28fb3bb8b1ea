// A tokenizer of one id a byte, the same as in tests/oracles/data.py, and a folder that goes away.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "data/prompts.h"
#include "data/rows/rows.h"
#include "support/temp_folder.h"
#include "text/template/chat_template.h"

namespace snug::data {

inline constexpr int32_t kBos = 1, kEos = 2, kFirstByte = 3;

inline TextEncoder byte_encoder(bool add_bos) {
  TextEncoder encoder;
  encoder.bos = kBos;
  encoder.eos = kEos;
  encoder.add_bos = add_bos;
  encoder.encode = [](std::string_view text) {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) + kFirstByte);
    return ids;
  };
  return encoder;
}

// With a chat template.
inline TextEncoder chat_encoder(const std::string& source) {
  TextEncoder encoder = byte_encoder(true);
  const auto chat = std::make_shared<const tokenizer::ChatTemplate>(source, "test");
  encoder.chat = [chat](std::span<const Message> turns, bool open, std::string_view tools) {
    return chat->apply(turns, open, tools, {});
  };
  encoder.whole_chat = [chat](std::span<const Message> turns, std::string_view tools) {
    return chat->render_chat(turns, tools, {});
  };
  return encoder;
}

// <role>content/role> for each turn: a template whose turns can be told apart by eye.
inline constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}/{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
inline TextEncoder chat_encoder() { return chat_encoder(kTurns); }

class Folder : public test::TempFolder {
 public:
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const std::filesystem::path path = *this / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
};

inline std::filesystem::path data_file(const std::string& name) {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/data" / name;
}

// The message of the UserError that `action` must throw.
template <class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError was thrown";
  return "";
}

}  // namespace snug::data

#define EXPECT_CONTAINS(text, part)                                                      \
  do {                                                                                   \
    const std::string held = (text);                                                     \
    EXPECT_NE(held.find(part), std::string::npos) << '"' << held << "\" lacks " << part; \
  } while (false)
