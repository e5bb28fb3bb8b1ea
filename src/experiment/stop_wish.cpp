// SPDX-License-Identifier: Apache-2.0
#include "experiment/stop_wish.h"

#include <csignal>
#include <initializer_list>

namespace snug::experiment {
namespace {

volatile std::sig_atomic_t is_wanted = 0;

// Rows die with this process: the kernel was told so.
void on_signal(int number) {
  if (is_wanted != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  is_wanted = 1;
}

}  // namespace

StopWish::StopWish() {
  is_wanted = 0;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, on_signal);
}

StopWish::~StopWish() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
}

bool StopWish::wanted() { return is_wanted != 0; }

}  // namespace snug::experiment
