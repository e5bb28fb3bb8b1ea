// Spans of time, recorded while one step of a run is profiled (train/records/step_trace.h) and from
// any thread. At other times a span costs one read of an atomic.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace snug::trace {

// Who was busy. The spans of one track and thread nest; collectives run beside each other.
enum class Track : uint8_t { Computation, Copies, Disk, Collectives };

struct Span {
  Track track = Track::Computation;
  std::string what;  // "forward", "all-gather" …
  std::string unit;  // may be empty
  double begin = 0;  // monotonic_seconds()
  double end = 0;
};

// From here on spans are recorded, until stop() returns those that began and ended in between.
void start();
std::vector<Span> stop();
bool is_on();

void add(Span span);

// The same clock's time as a span has it.
inline double seconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// A profiler's ranges (NVTX), begun and ended with every Timed, whether spans are recorded or not.
// They nest by thread.
struct Ranges {
  void (*begin)(const char* name) = nullptr;
  void (*end)() = nullptr;
};
// Call before the program starts threads.
void set_ranges(Ranges ranges);

// A span from its construction to its destruction.
class Timed {
 public:
  Timed(Track track, std::string_view what, std::string_view unit = {});
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Span span_;  // begin = 0: not recorded
  bool has_range_ = false;
};

}  // namespace snug::trace
