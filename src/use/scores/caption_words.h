// Splits a caption into words for scores: in lower case, without punctuation, with "it's" as two
// words as in the Penn Treebank. COCO's scores are published with Stanford's PTBTokenizer; for
// captions this gives the same words. Differences: text in angle brackets, "yes!no" without spaces
// (two words here), "rock'n'roll" and "y'all" (one word here), and currency signs other than $.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace snug::scores {

std::vector<std::string> caption_words(std::string_view caption);

}  // namespace snug::scores
