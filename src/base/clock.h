// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace snug {

// Seconds of a monotonic clock, from an arbitrary start, for durations.
inline double monotonic_seconds() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Seconds since 1970, comparable between programs.
inline double unix_seconds() {
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

}  // namespace snug
