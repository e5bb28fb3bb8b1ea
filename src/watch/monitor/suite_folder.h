// What a lab leaves in its folder while it goes through a suite: which rows are done, which one
// runs, and whether the lab is still at work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "watch/monitor/look.h"

namespace snug::monitor {

struct SuiteFolder {
  SuiteLook look;             // whether it is over is for who knows of its processes too
  std::filesystem::path run;  // of the row that wrote last; empty: none has begun
  double changed = 0;         // seconds since the epoch: the newest of all that is there
};

// Rows come and go while it reads. Never throws.
SuiteFolder read_suite(const std::filesystem::path& folder);

// A lab holds a lock on its folder for as long as it lives. The lock is not seen where the folder
// is another machine's and its file system keeps locks to itself: then false says nothing.
bool lab_is_at_work(const std::filesystem::path& folder);

}  // namespace snug::monitor
