// The whole screen of a terminal, for as long as this lives: the alternate screen, no cursor, keys
// one by one. What was there before comes back however the program ends, a crash included; Ctrl-Z
// gives the screen back until the program goes on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace snug::monitor {

class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void draw(const std::vector<std::string>& lines);

  enum class Event { Time, Key, Resized, Quit };
  // Waits so long at most. Quit: Ctrl-C, another signal to end, or the terminal is gone. A key is
  // in `key`.
  Event wait(double seconds, char& key);

 private:
  bool has_keys_ = false;
};

}  // namespace snug::monitor
