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

  // `tools`: a JSON array, or empty. `tokens`: bos_token, eos_token, … for the template. Calls that
  // the template does not write are a UserError; other keys and tools that it does not write, a
  // warning.
  std::string apply(std::span<const Message> messages, bool add_generation_prompt,
                    std::string_view tools, const std::map<std::string, std::string>& tokens) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace snug::tokenizer
