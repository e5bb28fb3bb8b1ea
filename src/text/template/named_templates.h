// Templates of chats by name, for models that have none of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace snug::tokenizer {

// In alphabetical order.
std::vector<std::string_view> template_names();
// Its Jinja text; empty: there is none of that name. Turns are texts: what an answer thinks and the
// tools that it calls are not written.
std::string_view named_template(std::string_view name);

}  // namespace snug::tokenizer
