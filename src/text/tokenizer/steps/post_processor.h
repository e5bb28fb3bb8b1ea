// The tokens that a tokenizer.json's "post_processor" adds around a single text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "text/tokenizer/engine.h"

namespace snug::tokenizer {

Frame read_post_processor(const Node& node, int depth = 0);

}  // namespace snug::tokenizer
