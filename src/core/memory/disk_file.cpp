// SPDX-License-Identifier: Apache-2.0
#include "core/memory/disk_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/trace.h"
#include "core/memory/allocators.h"

namespace snug::memory {

struct DiskMapping {
  int file = -1;
  std::byte* data = nullptr;
  int64_t bytes = 0;

  DiskMapping() = default;
  DiskMapping(const DiskMapping&) = delete;
  DiskMapping& operator=(const DiskMapping&) = delete;
  ~DiskMapping() {
    if (data != nullptr) ::munmap(data, static_cast<size_t>(bytes));
    if (file >= 0) ::close(file);
  }
};

namespace {

namespace fs = std::filesystem;

// The alignment that our other allocators give, which kernels rely on.
constexpr int64_t kFileAlignment = 64;
// A read-ahead call reads at most the device's window; this is its usual size.
constexpr int64_t kWindowBytes = int64_t{128} << 10;

std::string reason_of(int error) { return std::generic_category().message(error); }

int64_t free_bytes(int file) {
  struct statvfs info {};
  if (::fstatvfs(file, &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

int open_nameless(const DiskUse& use, const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw UserError("{} = disk:{}: there is no such folder; make it first", use.option,
                    folder.string());
  const int file = open_nameless_file(folder);
  const int error = errno;
  if (file < 0)
    throw UserError(
        "{} = disk:{}: no file can be made there ({}); name a folder on a local disk that you may "
        "write to",
        use.option, folder.string(), reason_of(error));
  return file;
}

[[noreturn]] void refuse_space(const DiskUse& use, const fs::path& folder, int64_t bytes,
                               int64_t free) {
  throw UserError(
      "{} = disk:{}: {} need {} on that disk, and {} are free; name a folder on another disk, or "
      "{}",
      use.option, folder.string(), use.content, format_bytes(bytes), format_bytes(free),
      use.smaller);
}

void reserve(const DiskUse& use, int file, const fs::path& folder, int64_t bytes) {
  const int64_t free = free_bytes(file);
  if (bytes > free) refuse_space(use, folder, bytes, free);
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file, 0, bytes);
  if (error == ENOSPC) refuse_space(use, folder, bytes, free_bytes(file));
  if (error != 0)
    throw UserError("{} = disk:{}: {} cannot be reserved there: {}", use.option, folder.string(),
                    format_bytes(bytes), reason_of(error));
}

// The context of a DataPtr; keeps the mapping alive.
struct Block {
  Allocation* record = nullptr;
  std::shared_ptr<DiskMapping> mapping;

  int64_t offset() const { return static_cast<std::byte*>(record->data) - mapping->data; }
};

std::string unit_if_traced(const Block& block) {
  return trace::is_on() ? unit_name(block.record->unit) : std::string();
}

const Block* block_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& pointer = tensor.storage().data_ptr();
  return pointer.get_deleter() == &delete_disk_allocation
             ? static_cast<const Block*>(pointer.get_context())
             : nullptr;
}

}  // namespace

const DiskUse kStatesOnDisk{.option = "optimizer_offload",
                            .content = "the optimizer states",
                            .smaller = "choose an optimizer with smaller states",
                            .without = "use --optimizer_offload cpu"};
const DiskUse kWeightsOnDisk{.option = "weight_offload",
                             .content = "the frozen weights",
                             .smaller = "store them in fewer bits (--quantize bnb.nf4)",
                             .without = "leave it out"};

DiskFile::DiskFile() = default;
DiskFile::~DiskFile() = default;

bool DiskFile::is_on_disk(const DiskUse& use, const fs::path& folder) {
  DiskMapping mapping;
  mapping.file = open_nameless(use, folder);
  struct statfs info {};
  if (::fstatfs(mapping.file, &info) != 0) return true;
  return info.f_type != TMPFS_MAGIC && info.f_type != RAMFS_MAGIC;
}

DiskFile::DiskFile(const DiskUse& use, const fs::path& folder, int64_t bytes)
    : mapping_(std::make_shared<DiskMapping>()) {
  mapping_->file = open_nameless(use, folder);
  if (bytes == 0) return;
  reserve(use, mapping_->file, folder, bytes);
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                      mapping_->file, 0);
  const int error = errno;
  if (data == MAP_FAILED)
    throw UserError("{} = disk:{}: a file of {} cannot be mapped: {}", use.option, folder.string(),
                    format_bytes(bytes), reason_of(error));
  mapping_->data = static_cast<std::byte*>(data);
  mapping_->bytes = bytes;
}

int64_t DiskFile::padded(int64_t bytes) {
  return (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
}

c10::DataPtr DiskFile::allocate(int64_t bytes) {
  SNUG_CHECK(mapping_ != nullptr && used_ + padded(bytes) <= mapping_->bytes,
             "{} beyond the bytes reserved in the file", format_bytes(bytes));
  Ledger& ledger = cpu_disk_ledger();
  ledger.admit(padded(bytes));
  std::byte* data = mapping_->data + used_;
  auto* block = new Block{ledger.add(data, padded(bytes)), mapping_};
  used_ += padded(bytes);
  return {data, block, &delete_disk_allocation, c10::Device(c10::kCPU)};
}

void delete_disk_allocation(void* block) {
  const std::unique_ptr<Block> owned(static_cast<Block*>(block));
  if (owned != nullptr) owned->record->ledger->remove(owned->record);
}

Allocation* disk_allocation_in(void* block) {
  return block == nullptr ? nullptr : static_cast<Block*>(block)->record;
}

bool is_in_file(const at::Tensor& tensor) {
  const Allocation* allocation = find_allocation(tensor);
  return allocation != nullptr && allocation->ledger == &disk_ledger_of(tensor.device().type());
}

void read_ahead(const at::Tensor& tensor) {
  const Block* block = block_of(tensor);
  if (block == nullptr) return;
  const trace::Timed timed(trace::Track::Disk, "read ahead", unit_if_traced(*block));
  const int64_t begin = block->offset(), end = begin + block->record->bytes;
  for (int64_t at = begin; at < end; at += kWindowBytes)
    ::posix_fadvise(block->mapping->file, at, std::min(kWindowBytes, end - at),
                    POSIX_FADV_WILLNEED);
}

// Other tensors on the first and last page lose nothing: their pages come back from the page cache.
void write_behind(const at::Tensor& tensor) {
  const Block* block = block_of(tensor);
  if (block == nullptr) return;
  const trace::Timed timed(trace::Track::Disk, "write", unit_if_traced(*block));
  static const auto kPage = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  const int64_t begin = block->offset() / kPage * kPage;
  const int64_t bytes = block->offset() + block->record->bytes - begin;
  ::sync_file_range(block->mapping->file, begin, bytes, SYNC_FILE_RANGE_WRITE);
  ::madvise(block->mapping->data + begin, static_cast<size_t>(bytes), MADV_DONTNEED);
}

Ledger& cpu_disk_ledger() {
  static Ledger* ledger = new Ledger("disk");  // never destroyed: tensors may outlive statics
  return *ledger;
}

Ledger& disk_ledger_of(c10::DeviceType device) {
  return device == c10::kMeta ? meta_disk_ledger() : cpu_disk_ledger();
}

}  // namespace snug::memory
