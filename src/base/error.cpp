// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cstring>

namespace snug {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  const char* source = std::strstr(file, "src/");
  throw InternalError(fmt::format("{}:{}: check failed: {}{}{}", source ? source : file, line,
                                  condition, message.empty() ? "" : ": ", message));
}

}  // namespace snug
