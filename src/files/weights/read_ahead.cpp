// SPDX-License-Identifier: Apache-2.0
#include "files/weights/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace snug::files {
namespace {

// The kernel reads at most its read-ahead window per request; this is the default size.
constexpr size_t kRequestBytes = size_t{128} << 10;

void fetch(std::span<const std::byte> bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* at = const_cast<std::byte*>(bytes.data());
  const std::byte* end = at + bytes.size();
  at -= reinterpret_cast<size_t>(at) % page;
  for (; at < end; at += kRequestBytes)
    // Only a hint: if refused, bytes are read on page faults.
    if (::madvise(at, std::min(kRequestBytes, static_cast<size_t>(end - at)), MADV_WILLNEED) != 0)
      return;
}

}  // namespace

ReadAhead::ReadAhead(std::vector<std::span<const std::byte>> order) : order_(std::move(order)) {
  size_t bytes = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    before_.push_back(bytes);
    bytes += order_[i].size();
    place_of_.emplace(order_[i].data(), i);
  }
}

void ReadAhead::before_reading(const std::byte* begin) {
  const auto found = place_of_.find(begin);
  if (found == place_of_.end()) return;
  const size_t place = found->second;
  // After a repeated read or a jump.
  if (next_ < place) next_ = place;
  const size_t until = before_[place] + order_[place].size() + kAheadBytes;
  for (; next_ < order_.size() && before_[next_] < until; ++next_, ++fetched_) fetch(order_[next_]);
}

}  // namespace snug::files
