// A memory-mapped file for tensors: for optimizer states, which are read and written once per step,
// and for frozen weights, which are read in every pass, both in order. The file has no name in its
// folder, so nothing is left behind even if the program is killed. All its blocks are reserved when
// it is made, so a full disk is an error at the start and not a SIGBUS later. It has its own
// ledger: its pages in memory belong to the system's page cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "core/memory/guards.h"

namespace snug::memory {

struct DiskMapping;

// Who wants a file, for messages.
struct DiskUse {
  const char* option;   // has the value disk:FOLDER
  const char* content;  // "the optimizer states"
  const char* smaller;  // what else than another disk would help
  const char* without;  // how to do without a disk
};
extern const DiskUse kStatesOnDisk, kWeightsOnDisk;

class DiskFile {
 public:
  // Without a file, for plans: allocations are only counted.
  DiskFile();
  // A file of `bytes` zeros in `folder`. Throws UserError if the folder is missing, not writable or
  // too full.
  DiskFile(const DiskUse& use, const std::filesystem::path& folder, int64_t bytes);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // False if the folder is on a file system in memory (tmpfs). Throws UserError if no file can be
  // made there.
  static bool is_on_disk(const DiskUse& use, const std::filesystem::path& folder);

  // False for plans, where allocations on meta are only counted.
  bool has_file() const { return mapping_ != nullptr; }

  // For the allocators. Space is never reused. The file is deleted with the last of its tensors,
  // which may outlive this object.
  c10::DataPtr allocate(int64_t bytes);

  // The bytes that an allocation takes in the file.
  static int64_t padded(int64_t bytes);

 private:
  std::shared_ptr<DiskMapping> mapping_;
  int64_t used_ = 0;
};

// Places allocations in its scope in the file. A null file changes nothing.
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

// Whether the tensor is in such a file, real or planned.
bool is_in_file(const at::Tensor& tensor);

// Hints to the kernel; no effect on a tensor in memory. read_ahead starts to read a tensor needed
// soon; write_behind starts to write one not needed soon and drops its pages from this program's
// resident set.
void read_ahead(const at::Tensor& tensor);
void write_behind(const at::Tensor& tensor);

Ledger& cpu_disk_ledger();
Ledger& meta_disk_ledger();
// The ledger of the files for a device.
Ledger& disk_ledger_of(c10::DeviceType device);

}  // namespace snug::memory
