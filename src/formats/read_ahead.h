// Has the kernel fetch tensors of mapped files before they are read. Left alone it reads ahead of
// page faults, a window at a time that somebody waits for, and not at all where a model takes its
// tensors in another order than the file has them; then neither the disk nor the processor is busy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

namespace snug::formats {

class ReadAhead {
 public:
  // As many bytes as a disk reads while a large tensor is converted. They are in the page cache
  // only: no process has them in its resident set.
  static constexpr size_t kAheadBytes = size_t{256} << 20;

  // The mapped bytes of tensors in the order in which they will be read.
  explicit ReadAhead(std::vector<std::span<const std::byte>> order);

  // To be called before the bytes that begin here are read. Those that follow in the order are
  // fetched, without waiting for them; bytes that are in no order fetch nothing.
  void before_reading(const std::byte* begin);

  // How many of the order were asked for so far, for tests.
  size_t num_fetched() const { return fetched_; }

 private:
  std::vector<std::span<const std::byte>> order_;
  std::vector<size_t> before_;                             // bytes in the order before each
  std::unordered_map<const std::byte*, size_t> place_of_;  // where in the order
  size_t next_ = 0, fetched_ = 0;
};

}  // namespace snug::formats
