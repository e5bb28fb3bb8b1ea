// A model's chat template: a Jinja template that formats a conversation as in the model's training.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {

class ChatTemplate {
 public:
  // Throws UserError, beginning with `where`, if the template does not parse.
  ChatTemplate(std::string_view source, std::string where);
  ~ChatTemplate();

  using Tokens = std::map<std::string, std::string>;  // bos_token, eos_token, …

  // `tools`: a JSON array, or empty. Calls that the template does not write are a UserError; other
  // keys and tools that it does not write are left out. As in transformers, keys that are null are
  // not there, and a thought is handed over under each name that templates know; a call's arguments
  // as the object or the JSON text that the template can write.
  std::string apply(std::span<const Message> messages, bool add_generation_prompt,
                    std::string_view tools, const Tokens& tokens) const;
  // The whole conversation, and whose words are where in it.
  RenderedChat render_chat(std::span<const Message> messages, std::string_view tools,
                           const Tokens& tokens) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace snug::tokenizer
