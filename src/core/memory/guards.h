// Guard objects that tag the allocations in their scope. They nest; each restores the previous tag.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/memory/ledger.h"

namespace snug::memory {

class DiskFile;

// The current thread's tag for new allocations.
struct Tag {
  Category category = Category::Workspace;
  Phase phase = Phase::Setup;
  int32_t unit = 0;
  bool on_host = false;
  HostUse host_use = HostUse::Written;
  bool pinned = false;       // host allocations are pinned
  DiskFile* disk = nullptr;  // file for host allocations (disk_file.h); null: memory
  bool recorded = false;     // what is allocated is work's that is being recorded
};

inline thread_local Tag current_tag;

class CategoryGuard {
 public:
  explicit CategoryGuard(Category category) : saved_(current_tag.category) {
    current_tag.category = category;
  }
  ~CategoryGuard() { current_tag.category = saved_; }
  CategoryGuard(const CategoryGuard&) = delete;
  CategoryGuard& operator=(const CategoryGuard&) = delete;

 private:
  Category saved_;
};

class PhaseGuard {
 public:
  explicit PhaseGuard(Phase phase) : saved_(current_tag.phase) { current_tag.phase = phase; }
  ~PhaseGuard() { current_tag.phase = saved_; }
  PhaseGuard(const PhaseGuard&) = delete;
  PhaseGuard& operator=(const PhaseGuard&) = delete;

 private:
  Phase saved_;
};

class UnitGuard {
 public:
  explicit UnitGuard(int32_t unit) : saved_(current_tag.unit) { current_tag.unit = unit; }
  ~UnitGuard() { current_tag.unit = saved_; }
  UnitGuard(const UnitGuard&) = delete;
  UnitGuard& operator=(const UnitGuard&) = delete;

 private:
  int32_t saved_;
};

// Allocations in its scope belong to the host memory beside the device, and to its ledger.
class HostGuard {
 public:
  // With `on` false it changes nothing.
  explicit HostGuard(bool on = true, HostUse use = HostUse::Written)
      : saved_(current_tag.on_host), saved_use_(current_tag.host_use) {
    if (!on) return;
    current_tag.on_host = true;
    current_tag.host_use = use;
  }
  ~HostGuard() {
    current_tag.on_host = saved_;
    current_tag.host_use = saved_use_;
  }
  HostGuard(const HostGuard&) = delete;
  HostGuard& operator=(const HostGuard&) = delete;

 private:
  bool saved_;
  HostUse saved_use_;
};

// Host allocations in its scope are pinned. With `on` false it changes nothing.
class PinnedGuard {
 public:
  explicit PinnedGuard(bool on) : saved_(current_tag.pinned) { current_tag.pinned = saved_ || on; }
  ~PinnedGuard() { current_tag.pinned = saved_; }
  PinnedGuard(const PinnedGuard&) = delete;
  PinnedGuard& operator=(const PinnedGuard&) = delete;

 private:
  bool saved_;
};

}  // namespace snug::memory
