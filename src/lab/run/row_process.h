// One run of this program in a process group of its own, its output kept in a file, and an answer
// to how it ended. Whoever is left of it when it ends is ended too, ranks in groups of their own
// among them; and it is ended by the kernel should this process be killed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace snug::lab {

struct ProcessEnd {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;
  bool interrupted = false;  // the person asked for it
  bool killed_by_kernel_for_memory = false;
  int survivors = 0;  // processes that it started and that outlived it; they were ended
  double seconds = 0;
  std::string last_words;    // the end of standard error, without the live line's redraws
  std::string output_fault;  // why the output could not be kept whole; empty: it is there
};

struct ProcessWish {
  std::vector<std::string> words;  // after the program's name
  // Standard output and error go there, 64 MiB of them at most; with `text`, only the errors.
  // Empty: not kept.
  std::filesystem::path output;
  double timeout_seconds = 0;         // 0: none; then SIGTERM, and SIGKILL five seconds later
  double tick_seconds = 0.5;          // between two calls of `tick`
  std::function<void()> tick;         // while it runs
  std::function<bool()> stop_wanted;  // looked at in between: the person's Ctrl-C
};

// Returns when the process and all that it started are gone; `text` gets its standard output. May
// be called by several threads at once. Throws UserError where `output` cannot be made; a program
// that cannot be started is an end with exit code 127.
ProcessEnd run_process(const ProcessWish& wish, std::string* text = nullptr);

// This program's path, for a child to be it again; $SNUG_LAB_PROGRAM in tests.
std::filesystem::path this_program();

}  // namespace snug::lab
