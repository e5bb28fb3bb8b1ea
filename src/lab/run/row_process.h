// Runs this program as a child in a process group of its own, keeps its output in a file, and
// reports how it ended. Processes that outlive the child are killed too, even ranks in groups of
// their own; if this process is killed, the kernel kills the child.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
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
  bool interrupted = false;  // by the user
  bool killed_by_kernel_for_memory = false;
  int survivors = 0;  // processes that outlived the child and were killed
  double seconds = 0;
  std::string last_words;    // the end of standard error, without the live line's redraws
  std::string output_fault;  // why the output is incomplete; empty if it is not
};

struct ProcessWish {
  std::vector<std::string> words;  // after the program's name
  // The file for standard output and error (with `text` only for errors), at most 64 MiB. Empty:
  // not kept.
  std::filesystem::path output;
  double timeout_seconds = 0;         // 0: none; then SIGTERM, and SIGKILL five seconds later
  double tick_seconds = 0.5;          // between two calls of `tick`
  std::function<void()> tick;         // called while the child runs
  std::function<bool()> stop_wanted;  // polled: the user's Ctrl-C
};

// Returns when the child and all processes it started are gone; `text` gets its standard output.
// Thread-safe. Throws UserError if `output` cannot be made; a program that cannot be started ends
// with exit code 127.
ProcessEnd run_process(const ProcessWish& wish, std::string* text = nullptr);

// The path of this program, or $SNUG_LAB_PROGRAM in tests.
std::filesystem::path this_program();

// Ctrl-C ends the running row and then the lab, whose finished rows stay; a second one ends
// everything at once. A signal that was ignored when the lab started, as SIGHUP is under nohup,
// stays ignored. Handles SIGINT, SIGTERM and SIGHUP while it lives, then restores their handlers;
// only one may exist at a time.
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
