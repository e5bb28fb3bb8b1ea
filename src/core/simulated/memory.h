// The device's memory: a stretch of addresses of which parts are mapped, as CUDA's driver does it.
// The host may touch it only while the device works, so that a wrong access of the host's is a
// crash with a line that says so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/simulated/streams.h"

namespace snug::simulated {

int64_t free_memory();

// Addresses for later; null where there are none left. `alignment`: at least a page.
void* reserve_addresses(int64_t bytes, int64_t alignment);
// Takes bytes of the capacity, or says that there are too few.
bool take_memory(int64_t bytes);
void give_memory(int64_t bytes);
// Between the two those addresses have memory.
void map_memory(void* start, int64_t bytes);
void unmap_memory(void* start, int64_t bytes);

bool is_device_memory(const void* address);

// Mapped memory may be touched, and not.
void open_memory();
void close_memory();

// Host memory that copies read and write while the program goes on.
void pin(const void* start, int64_t bytes);
bool unpin(const void* start);
bool is_pinned(const void* address);

// The work copies from or to that pinned memory. Until the host has waited for it, whether it is
// done or not, the host may not touch what is written, change what is read, nor unpin either: that
// is a crash with a line that says so. (Pages are what is protected.)
void hold_pinned(const void* start, int64_t bytes, bool writes, const Work& work);
// What the host has waited for is its own again.
void release_pinned(const Epochs& known);
void release_all_pinned();

// Lets the device's thread touch that memory, pinned or not.
class OpenPinned {
 public:
  OpenPinned(const void* start, int64_t bytes);
  ~OpenPinned();
  OpenPinned(const OpenPinned&) = delete;
  OpenPinned& operator=(const OpenPinned&) = delete;

 private:
  const char* start_;
  int64_t bytes_;
};

}  // namespace snug::simulated
