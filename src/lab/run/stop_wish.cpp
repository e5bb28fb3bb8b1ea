// SPDX-License-Identifier: Apache-2.0
#include "lab/run/stop_wish.h"

namespace snug::lab {
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
  struct sigaction wish {};
  wish.sa_handler = on_signal;
  wish.sa_flags = SA_RESTART;
  sigemptyset(&wish.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &wish, nullptr);
  }
}

StopWish::~StopWish() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopWish::wanted() { return is_wanted != 0; }

}  // namespace snug::lab
