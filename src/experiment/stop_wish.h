// Ctrl-C ends the row that is under way and then the lab, whose done rows stay; a second one ends
// everything at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug::experiment {

// Listens to SIGINT, SIGTERM and SIGHUP for as long as it lives.
class StopWish {
 public:
  StopWish();
  ~StopWish();
  StopWish(const StopWish&) = delete;
  StopWish& operator=(const StopWish&) = delete;
  static bool wanted();
};

}  // namespace snug::experiment
