// Reads little-endian fields from a mapped file, with bounds checks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace snug::files {

static_assert(std::endian::native == std::endian::little, "weight files are read in place");

// Text from a file made safe for messages: control characters and invalid bytes escaped, long text
// cut.
std::string printable(std::string_view text, size_t max_bytes = 120);

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs `work` and prefixes "context: " to the text of a UserError that it throws.
template <class Work>
auto with_context(std::string_view context, Work&& work) {
  try {
    return work();
  } catch (const UserError& error) {
    throw UserError("{}: {}", context, error.what());
  }
}

class ByteReader {
 public:
  // `label` names the file in errors.
  ByteReader(std::span<const std::byte> bytes, std::string label, size_t position = 0)
      : bytes_(bytes), label_(std::move(label)), position_(position) {}

  template <class T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  uint8_t u8(const char* what) { return number<uint8_t>(what); }
  uint16_t u16(const char* what) { return number<uint16_t>(what); }
  uint32_t u32(const char* what) { return number<uint32_t>(what); }
  uint64_t u64(const char* what) { return number<uint64_t>(what); }

  std::span<const std::byte> take(uint64_t count, const char* what);
  std::string_view text(uint64_t count, const char* what);
  std::string_view line(const char* what);  // up to the next '\n', which is skipped

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  const std::string& label() const { return label_; }

 private:
  std::span<const std::byte> bytes_;
  std::string label_;
  size_t position_;
};

}  // namespace snug::files
