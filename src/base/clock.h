// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace snug {

// Seconds of a clock that nobody sets, from an arbitrary beginning: for durations.
inline double monotonic_seconds() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Seconds since 1970, which other programs and people can compare.
inline double unix_seconds() {
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

}  // namespace snug
