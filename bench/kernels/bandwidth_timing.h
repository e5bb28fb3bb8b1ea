// Timing for operators that memory bounds: what must be read and written over the best time of some
// rounds, in each of which all of them take their turn, since a machine's speed drifts more than
// they differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/cpu/elementwise.h"

namespace snug::bench {

struct Entry {
  std::string name;
  double bytes;
  std::function<void()> run;
  double best_seconds = 1e30;

  double rate() const { return bytes / best_seconds; }
};

// Pages are touched by the threads that will use them, in a value that is no special case.
class Memory {
 public:
  Memory(kernels::Scalar type, int64_t count, float value, int threads = 0)
      : data_(std::aligned_alloc(kPage, whole_pages(count * kernels::scalar_bytes(type)))) {
    kernels::cpu::fill(data_.get(), type, value, count, threads);
  }
  void* get() { return data_.get(); }
  float* floats() { return static_cast<float*>(data_.get()); }
  uint8_t* bytes() { return static_cast<uint8_t*>(data_.get()); }

 private:
  static constexpr size_t kPage = 1 << 21;
  static size_t whole_pages(int64_t bytes) {
    return (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
  }
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  std::unique_ptr<void, Free> data_;
};

// Uses this thread's processor time if it is the only one, so that other programs disturb less.
inline double seconds_now(int threads) {
  if (threads == 1) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

inline void run_rounds(std::vector<Entry>& entries, int rounds, int threads) {
  for (int round = 0; round < rounds; ++round) {
    for (Entry& entry : entries) {
      const double start = seconds_now(threads);
      entry.run();
      entry.best_seconds = std::min(entry.best_seconds, seconds_now(threads) - start);
    }
  }
}

}  // namespace snug::bench
