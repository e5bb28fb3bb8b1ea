// Ctrl-C asks a run to stop after the step in flight, so that nothing is lost; a second one kills.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug::train {

// Listens to SIGINT and SIGTERM for as long as it lives.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool requested();
};

}  // namespace snug::train
