// Counts what some code would allocate, by running it on meta beside whatever else runs there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/memory/ledger.h"

namespace snug::memory {

// While it lives, this thread's allocations on meta are in a ledger of their own, neither in a
// plan's nor in its budget. Its tensors must not outlive it.
class MetaCount {
 public:
  MetaCount();
  ~MetaCount();
  MetaCount(const MetaCount&) = delete;
  MetaCount& operator=(const MetaCount&) = delete;

  // The most bytes live at once from here on, beyond those that are live now.
  void begin();
  int64_t peak() const;

 private:
  Ledger ledger_{"meta count"};
  Ledger* saved_;
  int64_t base_ = 0;
};

}  // namespace snug::memory
