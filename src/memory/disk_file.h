// A file on disk in the place of memory: optimizer states that are read and written once a step, in
// order, need not be in memory in between. The file has no name in its folder, so that nothing is
// left of it whatever becomes of the program, and all its blocks are reserved when it is made, so
// that a full disk is an error then and no SIGBUS later. Its bytes have a ledger of their own: the
// pages that are in memory at some moment belong to the system's cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "memory/guards.h"

namespace snug::memory {

struct DiskMapping;

class DiskFile {
 public:
  // No file: allocations are counted only. What a plan has.
  DiskFile();
  // Room for `bytes` in `folder`, which reads as zeros. Throws UserError where that cannot be: no
  // such folder, no permission, too little space.
  DiskFile(const std::filesystem::path& folder, int64_t bytes);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // False where the folder's files are held in memory (tmpfs). Throws UserError where none can be
  // made.
  static bool is_on_disk(const std::filesystem::path& folder);

  // False where there is none, and allocations on meta are counted only.
  bool has_file() const { return mapping_ != nullptr; }

  // For the allocators. Space that has been given out does not come back; the file goes with the
  // last of its tensors, which may outlive this object.
  c10::DataPtr allocate(int64_t bytes);

  // What an allocation takes in the file.
  static int64_t padded(int64_t bytes);

 private:
  std::shared_ptr<DiskMapping> mapping_;
  int64_t used_ = 0;
};

// Allocations in its scope lie in the file. A null file changes nothing.
class DiskGuard {
 public:
  explicit DiskGuard(DiskFile* file) : saved_(current_tag.disk) {
    if (file != nullptr) current_tag.disk = file;
  }
  ~DiskGuard() { current_tag.disk = saved_; }
  DiskGuard(const DiskGuard&) = delete;
  DiskGuard& operator=(const DiskGuard&) = delete;

 private:
  DiskFile* saved_;
};

// Hints for a sweep; they do nothing for a tensor in memory. Starts reading one that is needed
// soon, and writing one that is not needed before the next step, whose pages then leave this
// program's resident set.
void read_ahead(const at::Tensor& tensor);
void write_behind(const at::Tensor& tensor);

Ledger& cpu_disk_ledger();
Ledger& meta_disk_ledger();
// Of the file that optimizer states for a device lie in.
Ledger& disk_ledger_of(c10::DeviceType device);

}  // namespace snug::memory
