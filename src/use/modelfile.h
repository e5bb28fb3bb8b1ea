// The Modelfile from which `ollama create` makes a model: the GGUF files, how a conversation
// becomes a prompt, and where an answer ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "data/prompts.h"

namespace snug::use {

struct ModelfileOptions {
  std::vector<std::string> gguf;  // the files' names, in the Modelfile's folder
  std::string bos;                // the text of the token that the program that runs the model puts
                                  // in front itself; empty: none
  std::vector<std::string> stops;  // texts that end an answer
  std::string system;              // the message to begin with; empty: none
};

// Prompts are as `style` makes them. A chat template is taken apart into what stands around each
// role's messages; one that cannot be, since it looks at more than that, leaves TEMPLATE out, and a
// comment and a warning say so. What a template does to a message's own text (it may trim it, or
// drop earlier thoughts) is left out.
std::string modelfile(const data::PromptStyle& style, const ModelfileOptions& options);

}  // namespace snug::use
