// SPDX-License-Identifier: Apache-2.0
#include "files/weights/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/uninterrupted.h"

namespace snug::files {

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path), temporary_(path) {
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  descriptor_ = uninterrupted(
      [&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail("create");
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void OutputFile::fail(const char* what) const {
  throw UserError("cannot {} {}: {}", what, path_.string(), std::strerror(errno));
}

void OutputFile::reserve(uint64_t size) {
  const auto bytes = static_cast<off_t>(size);
  if (uninterrupted([&] { return ::ftruncate(descriptor_, bytes); }) != 0)
    fail("reserve the space for");
  if (size == 0) return;
  // Some file systems cannot reserve blocks; there a full disk is noticed only while writing.
  if (uninterrupted([&] { return ::fallocate(descriptor_, 0, 0, bytes); }) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    fail("reserve the space for");
}

void OutputFile::append(std::span<const std::byte> bytes) {
  write_at(size_, bytes);
  size_ += bytes.size();
}

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted([&] {
      return ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    });
    if (written < 0) fail("write");
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::finish() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail("write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("write");
  ::close(descriptor_);
  descriptor_ = -1;
  const std::filesystem::path folder = path_.parent_path();
  sync_path(folder.empty() ? "." : folder);
}

void TensorSlots::declare(const TensorInfo& tensor, uint64_t offset) {
  SNUG_CHECK(tensor.nbytes == bytes_for(tensor.dtype, tensor.num_elements()),
             "\"{}\" declares {} bytes", tensor.name, tensor.nbytes);
  const Slot slot{offset, static_cast<uint64_t>(tensor.nbytes)};
  SNUG_CHECK(slots_.emplace(tensor.name, slot).second, "\"{}\" is declared twice", tensor.name);
}

void TensorSlots::write(OutputFile& file, std::string_view name, std::span<const std::byte> bytes) {
  const auto found = slots_.find(name);
  SNUG_CHECK(found != slots_.end(), "\"{}\" was not declared", name);
  Slot& slot = found->second;
  SNUG_CHECK(bytes.size() <= slot.size - slot.written, "\"{}\" is more than its {} bytes", name,
             slot.size);
  file.write_at(data_begin_ + slot.offset + slot.written, bytes);
  slot.written += bytes.size();
}

void TensorSlots::check_complete() const {
  for (const auto& [name, slot] : slots_)
    SNUG_CHECK(slot.written == slot.size, "\"{}\" has {} of its {} bytes", name, slot.written,
               slot.size);
}

}  // namespace snug::files
