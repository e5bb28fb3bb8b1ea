// The course of memory over one optimizer step: for each stretch in which one unit runs one phase,
// what was live when it needed most.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/memory/ledger.h"

namespace snug::plan {

struct Moment {
  memory::Phase phase = memory::Phase::Setup;
  std::string unit;
  int64_t allocated = 0;
  memory::ByCategory by_category{};
};

// Watches a ledger while it lives.
class TimelineRecorder {
 public:
  explicit TimelineRecorder(memory::Ledger& ledger);
  ~TimelineRecorder();
  TimelineRecorder(const TimelineRecorder&) = delete;
  TimelineRecorder& operator=(const TimelineRecorder&) = delete;

  // Every allocation and free, in order: what an allocator would be asked for.
  struct Event {
    uint64_t serial = 0;
    int64_t bytes = 0;  // negative: freed
  };
  const std::vector<Event>& events() const { return events_; }
  std::vector<Moment> moments() const;
  // Bytes allocated so far in forward and backward: what operators have written.
  int64_t bytes_written() const { return bytes_written_; }

 private:
  struct Stretch {
    memory::Phase phase;
    int32_t unit;
    int64_t allocated;
    memory::ByCategory live;
  };

  memory::Ledger& ledger_;
  std::vector<Event> events_;
  std::vector<Stretch> stretches_;
  int64_t bytes_written_ = 0;
};

}  // namespace snug::plan
