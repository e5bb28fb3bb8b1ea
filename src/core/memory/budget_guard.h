// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/memory/ledger.h"

namespace snug::memory {

// In its scope a device's ledger has this budget, whoever allocates there; 0: none.
class BudgetGuard {
 public:
  BudgetGuard(Ledger& ledger, int64_t bytes) : ledger_(ledger), saved_(ledger.budget()) {
    ledger.set_budget(bytes);
  }
  ~BudgetGuard() { ledger_.set_budget(saved_); }
  BudgetGuard(const BudgetGuard&) = delete;
  BudgetGuard& operator=(const BudgetGuard&) = delete;

 private:
  Ledger& ledger_;
  int64_t saved_;
};

}  // namespace snug::memory
