// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <optional>

#include "fuzz/change.h"

namespace snug::fuzz {
namespace {

// A number in the header.
struct Field {
  size_t at = 0, bytes = 0;
};

struct Entry {
  size_t begin = 0, end = 0;  // a key with its value, or a tensor's description
};

constexpr size_t kNumTensors = 8, kNumKeys = 16, kHeader = 24;

// Where the numbers of a GGUF header are, as far as it can be followed.
class Header {
 public:
  explicit Header(const Bytes& bytes) : bytes_(bytes) {
    if (bytes.size() < kHeader || std::memcmp(bytes.data(), "GGUF", 4) != 0) return;
    fields = {{4, 4}, {kNumTensors, 8}, {kNumKeys, 8}};
    at_ = kHeader;
    const uint64_t num_tensors = number(kNumTensors, 8), num_keys = number(kNumKeys, 8);
    for (uint64_t i = 0; i < num_keys && whole_; ++i) follow(keys, &Header::key);
    for (uint64_t i = 0; i < num_tensors && whole_; ++i) follow(tensors, &Header::tensor);
  }

  std::vector<Field> fields;
  std::vector<Entry> keys, tensors;

 private:
  uint64_t number(size_t at, size_t width) const {
    uint64_t value = 0;
    std::memcpy(&value, &bytes_[at], width);
    return value;
  }

  uint64_t take(size_t width) {
    if (width > bytes_.size() - at_) whole_ = false;
    if (!whole_) return 0;
    fields.push_back({at_, width});
    at_ += width;
    return number(at_ - width, width);
  }

  void skip(uint64_t count) {
    if (count > bytes_.size() - at_)
      whole_ = false;
    else
      at_ += count;
  }

  void text() { skip(take(8)); }

  void value(uint64_t type, int depth) {
    constexpr uint8_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    constexpr uint64_t kText = 8, kArray = 9;
    if (type >= std::size(kWidths) || depth > 2) {
      whole_ = false;
    } else if (type == kText) {
      text();
    } else if (type == kArray) {
      const uint64_t inner = take(4), count = take(8);
      if (inner == kText || inner == kArray)
        for (uint64_t i = 0; i < count && whole_; ++i) value(inner, depth + 1);
      else if (inner < std::size(kWidths) && count <= bytes_.size())
        skip(count * kWidths[inner]);
      else
        whole_ = false;
    } else {
      take(kWidths[type]);
    }
  }

  void key() {
    text();
    value(take(4), 0);
  }

  void tensor() {
    text();
    const uint64_t dims = take(4);
    for (uint64_t i = 0; i < dims && whole_; ++i) take(8);
    take(4);  // type
    take(8);  // offset
  }

  void follow(std::vector<Entry>& entries, void (Header::*one)()) {
    const size_t begin = at_;
    (this->*one)();
    if (whole_) entries.push_back({begin, at_});
  }

  const Bytes& bytes_;
  size_t at_ = 0;
  bool whole_ = true;
};

void add_to(Bytes& bytes, size_t at, int64_t difference) {
  uint64_t value = 0;
  std::memcpy(&value, &bytes[at], sizeof value);
  value += static_cast<uint64_t>(difference);
  std::memcpy(&bytes[at], &value, sizeof value);
}

void change_number(Bytes& bytes, Field field, Random& random) {
  uint64_t value = 0;
  std::memcpy(&value, &bytes[field.at], field.bytes);
  const uint64_t others[] = {value + 1,
                             value - 1,
                             value ^ 1,
                             value * 2,
                             random() % 64,
                             UINT64_MAX,
                             INT64_MAX,
                             0,
                             uint64_t{1} << random() % 64};
  value = others[random() % std::size(others)];
  std::memcpy(&bytes[field.at], &value, field.bytes);
}

}  // namespace

bool change_gguf(Bytes& bytes, Random& random) {
  const Header header(bytes);
  if (header.fields.empty()) return false;
  const bool tensor = random() % 2 == 0;
  const std::vector<Entry>& entries = tensor ? header.tensors : header.keys;
  const uint64_t kind = random() % 4;
  if (kind < 2 || entries.empty()) {
    change_number(bytes, header.fields[random() % header.fields.size()], random);
    return true;
  }
  const Entry entry = entries[random() % entries.size()];
  const auto at = [&](size_t index) { return bytes.begin() + static_cast<std::ptrdiff_t>(index); };
  const Bytes copy(at(entry.begin), at(entry.end));
  add_to(bytes, tensor ? kNumTensors : kNumKeys, kind == 2 ? -1 : 1);
  if (kind == 2)
    bytes.erase(at(entry.begin), at(entry.end));
  else
    bytes.insert(at(entries[random() % entries.size()].begin), copy.begin(), copy.end());
  return true;
}

}  // namespace snug::fuzz
