// SPDX-License-Identifier: Apache-2.0
#include "text/template/chat_template.h"

#include "base/error.h"
#include "fuzz/fuzz.h"

// Changed templates, applied to a conversation.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<snug::tokenizer::Message> messages{
      {"system", "Be brief."},
      {"user", "Hello {{ 1 }}"},
      {"assistant", "Hi."},
      {.role = "user", .content = "And?", .more = R"({"name": "Ann", "parts": [1, {"a": null}]})"}};
  try {
    const snug::tokenizer::ChatTemplate written({reinterpret_cast<const char*>(data), size}, "it");
    written.apply(messages, true, R"([{"name": "f"}])",
                  {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  } catch (const snug::UserError&) {
  }
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_words(bytes, random);
}
