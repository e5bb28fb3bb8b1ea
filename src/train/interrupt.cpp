// SPDX-License-Identifier: Apache-2.0
#include "train/interrupt.h"

#include <csignal>

namespace snug::train {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void on_signal(int signal_number) {
  stop_requested = 1;
  std::signal(signal_number, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  stop_requested = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::requested() { return stop_requested != 0; }

}  // namespace snug::train
