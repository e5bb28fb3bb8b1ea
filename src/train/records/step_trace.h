// The profile of one step (--profile true), as a Chrome trace: what each unit's forward and
// backward, copies, disk and collectives took, and the ledgers' bytes by category meanwhile. The
// times are the host's: on a GPU a span ends when its work is queued.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <vector>

#include "base/trace.h"
#include "core/memory/ledger.h"

namespace snug::train {

// Records from its construction to write(), or until it is destroyed.
class StepTrace {
 public:
  StepTrace(memory::Ledger& device, memory::Ledger& host);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // `rank` becomes the trace's process id.
  void write(const std::filesystem::path& file, int rank);

 private:
  struct Bytes {
    double at = 0;  // monotonic_seconds()
    memory::ByCategory live{};
  };
  struct Watched {
    memory::Ledger& ledger;
    const char* name;
    std::vector<Bytes> course;
  };
  void watch(Watched& watched);
  std::vector<trace::Span> stop();

  std::array<Watched, 2> watched_;
};

}  // namespace snug::train
