// SPDX-License-Identifier: Apache-2.0
#include "train/interrupt.h"

#include <csignal>
#include <ctime>

namespace snug::train {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
timespec first_request{};

// One wish may arrive twice at once: from srun, and from the process that watches over this one.
constexpr double kSameWishSeconds = 1;

void on_signal(int signal_number) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (stop_requested == 0) {
    first_request = now;
    stop_requested = 1;
    return;
  }
  const double since = static_cast<double>(now.tv_sec - first_request.tv_sec) +
                       1e-9 * static_cast<double>(now.tv_nsec - first_request.tv_nsec);
  if (since < kSameWishSeconds) return;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
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
