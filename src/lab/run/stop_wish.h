// Ctrl-C ends the row that is under way and then the lab, whose done rows stay; a second one ends
// everything at once. A signal that was ignored when the lab began, as SIGHUP is under nohup, stays
// ignored.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>

namespace snug::lab {

// Listens to SIGINT, SIGTERM and SIGHUP for as long as it lives; then they do again what they did
// before. One at a time.
class StopWish {
 public:
  StopWish();
  ~StopWish();
  StopWish(const StopWish&) = delete;
  StopWish& operator=(const StopWish&) = delete;
  static bool wanted();

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace snug::lab
