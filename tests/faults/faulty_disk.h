// What the preloaded library and the test share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace snug::tests {

struct State {
  std::atomic<int64_t> calls;
  char where[500];  // the call that failed, and on what
};

}  // namespace snug::tests
