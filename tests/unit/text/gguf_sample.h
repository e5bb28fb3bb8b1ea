// SmolLM2's vocabulary cut to its first merges, as a GGUF file would hold it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>

#include "mixed_text.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {

inline std::vector<std::string> read_lines(const std::string& name) {
  std::ifstream file(data_path(name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

inline GgufVocabulary smollm_vocabulary() {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = "smollm";
  v.tokens = read_lines("smollm_first_tokens.txt");
  constexpr size_t kNumSpecial = 17;
  v.token_types.assign(v.tokens.size(), 1);
  std::fill_n(v.token_types.begin(), kNumSpecial, 3);
  v.merges = read_lines("smollm_merges.txt");
  for (std::string token : v.merges) {
    token.erase(token.find(' '), 1);
    v.tokens.push_back(token);
    v.token_types.push_back(1);
  }
  v.special = {.bos = 1, .eos = 2, .pad = 2, .unk = 0};
  v.add_space_prefix = false;
  v.chat_template =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' "
      "}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  return v;
}

}  // namespace snug::tokenizer::test
