// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/clock.h"

namespace snug::trace {
namespace {

// Threads of collectives outlive every recording, so this is never destroyed.
struct Recording {
  std::atomic<bool> on = false;
  std::mutex mutex;
  double begin = 0;
  std::vector<Span> spans;
};

Ranges ranges;

Recording& recording() {
  static auto* all = new Recording;
  return *all;
}

}  // namespace

bool is_on() { return recording().on.load(std::memory_order_acquire); }

void start() {
  Recording& all = recording();
  const std::lock_guard lock(all.mutex);
  all.spans.clear();
  all.begin = monotonic_seconds();
  all.on.store(true, std::memory_order_release);
}

std::vector<Span> stop() {
  Recording& all = recording();
  const std::lock_guard lock(all.mutex);
  all.on.store(false, std::memory_order_release);
  return std::exchange(all.spans, {});
}

void add(Span span) {
  Recording& all = recording();
  const std::lock_guard lock(all.mutex);
  if (is_on() && span.begin >= all.begin) all.spans.push_back(std::move(span));
}

void set_ranges(Ranges to) { ranges = to; }

Timed::Timed(Track track, std::string_view what, std::string_view unit) {
  if (ranges.begin != nullptr) {
    const std::string name = std::string(what) + (unit.empty() ? "" : " ") + std::string(unit);
    ranges.begin(name.c_str());
    has_range_ = true;
  }
  if (!is_on()) return;
  span_ = {.track = track,
           .what = std::string(what),
           .unit = std::string(unit),
           .begin = monotonic_seconds()};
}

Timed::~Timed() {
  if (has_range_) ranges.end();
  if (span_.begin == 0) return;
  span_.end = monotonic_seconds();
  add(std::move(span_));
}

}  // namespace snug::trace
