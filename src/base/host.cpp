// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <unistd.h>

#include <array>

namespace snug {

// Longer names are cut, with or without a zero at the end: the last one stays.
std::string host_name() {
  std::array<char, 256> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "?";
}

}  // namespace snug
