// Ledgers of one thread's own for what it allocates on meta: to count what some code would take
// beside whatever else runs there, and to plan on several threads at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

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

struct MetaLedgers;

// While it lives, meta_ledger(), meta_host_ledger() and meta_disk_ledger() are this thread's own,
// so that threads plan side by side. What it allocates meanwhile must not outlive it.
class OwnMetaLedgers {
 public:
  OwnMetaLedgers();
  ~OwnMetaLedgers();
  OwnMetaLedgers(const OwnMetaLedgers&) = delete;
  OwnMetaLedgers& operator=(const OwnMetaLedgers&) = delete;

 private:
  std::unique_ptr<MetaLedgers> own_;
  MetaLedgers* saved_;
};

}  // namespace snug::memory
