// A caption as the words that its scores count: in lower case, without punctuation, with "it's" as
// two words, as the Penn Treebank has it. COCO's scores were published with words cut by
// Stanford's PTBTokenizer; for the text of captions this gives the same. What differs: text in
// angle brackets, "yes!no" without spaces (two words here), "rock'n'roll" and "y'all" (one word
// here), and signs of currencies other than $.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace snug::scores {

std::vector<std::string> caption_words(std::string_view caption);

}  // namespace snug::scores
