// SPDX-License-Identifier: Apache-2.0
#include "plan/replay.h"

#include <deque>
#include <limits>
#include <span>
#include <unordered_set>

#include "core/memory/cuda_settings.h"

namespace snug::plan {
namespace {

// CUDA holds about this many launches that the device has not begun; then the host waits. An
// allocation stands for a launch, that of the kernel which writes to it.
constexpr int64_t kLaunchQueue = 1024;

// After so many steps of which none was like the one before, the last one stands for those to come.
constexpr int kMostSteps = 6;

template <class Allocator>
class Replay {
 public:
  explicit Replay(int64_t limit)
      : allocator_(limit, [this] { free_late_ones(std::numeric_limits<int64_t>::max()); }) {}

  // False if memory does not suffice. `round` tells repetitions of the same events apart.
  bool run(std::span<const MemoryEvent> events, uint64_t round = 0) {
    constexpr uint64_t kSerialsOfRound = uint64_t{1} << 48;
    for (const MemoryEvent& event : events) {
      if (event.empties) {
        allocator_.empty_cache();
        continue;
      }
      const uint64_t id = event.serial + round * kSerialsOfRound;
      if (event.bytes < 0) {
        free(id, event.late);
        continue;
      }
      free_late_ones(++launches_);
      if (!allocator_.allocate(id, event.bytes, event.stream)) return false;
    }
    return true;
  }

  const Allocator& allocator() const { return allocator_; }

 private:
  struct Late {
    int64_t at = 0;  // launches
    uint64_t id = 0;
  };

  void free(uint64_t id, bool late) {
    if (late)
      late_.push_back({launches_ + kLaunchQueue, id});
    else
      allocator_.free(id);
  }
  void free_late_ones(int64_t now) {
    for (; !late_.empty() && late_.front().at <= now; late_.pop_front())
      allocator_.free(late_.front().id);
  }

  Allocator allocator_;
  int64_t launches_ = 0;
  std::deque<Late> late_;
};

// What begins and ends within the step; not what is recorded in it, since later steps do that again
// without allocating.
std::vector<MemoryEvent> cycle_of(const MemoryEvents& events) {
  const std::span<const MemoryEvent> step =
      std::span(events.all).subspan(events.step_begin, events.step_end - events.step_begin);
  std::unordered_set<uint64_t> begun, whole;
  for (const MemoryEvent& event : step) {
    if (event.empties || event.stream == kStreamOfRecorded) continue;
    if (event.bytes >= 0)
      begun.insert(event.serial);
    else if (begun.contains(event.serial))
      whole.insert(event.serial);
  }
  std::vector<MemoryEvent> cycle;
  for (const MemoryEvent& event : step)
    if (whole.contains(event.serial)) cycle.push_back(event);
  return cycle;
}

// Steps until they are alike.
template <class Allocator>
Reserved replay_on(const MemoryEvents& events, const std::vector<MemoryEvent>& cycle,
                   int64_t limit) {
  Replay<Allocator> replay(limit);
  const Allocator& allocator = replay.allocator();
  Reserved result{.fits = replay.run(std::span(events.all).first(events.step_end))};
  for (uint64_t step = 1; result.fits && step < kMostSteps; ++step) {
    const DriverCalls before = allocator.driver_calls();
    result.fits = replay.run(cycle, step);
    const DriverCalls now = allocator.driver_calls() - before;
    const bool is_alike = now == DriverCalls() || (step > 1 && now == result.of_step);
    if (limit > 0) result.of_step = now;
    if (is_alike) break;
  }
  // A validation.
  result.fits = result.fits && replay.run(std::span(events.all).subspan(events.step_end));
  result.peak = allocator.peak_reserved();
  return result;
}

template <class Allocator>
Reserved replay_on(const MemoryEvents& events, int64_t limit) {
  const std::vector<MemoryEvent> cycle = cycle_of(events);
  const Reserved unlimited = replay_on<Allocator>(events, cycle, 0);
  if (limit == 0 || unlimited.peak <= limit) return unlimited;
  const Reserved limited = replay_on<Allocator>(events, cycle, limit);
  return limited.fits ? limited : Reserved{.peak = unlimited.peak, .fits = false};
}

}  // namespace

Segments own_segments() {
  const std::string settings =
      memory::allocator_settings(memory::allocator_settings_in_environment());
  return memory::segments_expand(settings) ? Segments::Expandable : Segments::Fixed;
}

Reserved replay(const MemoryEvents& events, int64_t limit, Segments segments) {
  return segments == Segments::Expandable ? replay_on<ExpandableAllocator>(events, limit)
                                          : replay_on<CachingAllocator>(events, limit);
}

}  // namespace snug::plan
