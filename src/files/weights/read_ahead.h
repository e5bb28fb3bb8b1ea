// Asks the kernel to read tensors of mapped files ahead. On its own the kernel reads one small
// window per page fault, which the reader waits for, and does not read ahead if tensors are read in
// another order than they have in the file; disk and processor are then idle in turn.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

namespace snug::files {

class ReadAhead {
 public:
  // About what a disk reads while a large tensor is converted. These bytes are only in the page
  // cache, not in the resident set.
  static constexpr size_t kAheadBytes = size_t{256} << 20;

  // `order`: the mapped bytes of tensors in the order of reading.
  explicit ReadAhead(std::vector<std::span<const std::byte>> order);

  // Call before reading the bytes that begin here. Starts to fetch those that follow in the order,
  // without waiting; does nothing for bytes outside the order.
  void before_reading(const std::byte* begin);

  // Entries of the order requested so far, for tests.
  size_t num_fetched() const { return fetched_; }

 private:
  std::vector<std::span<const std::byte>> order_;
  std::vector<size_t> before_;                             // bytes before each entry of the order
  std::unordered_map<const std::byte*, size_t> place_of_;  // index in the order
  size_t next_ = 0, fetched_ = 0;
};

}  // namespace snug::files
