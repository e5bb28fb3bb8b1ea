// A data set of pictures with captions. Only an index is held in memory; encoded pictures are read
// on demand, from files in a folder or columns of Arrow or Parquet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace snug::data {

// One encoded picture; its bytes are valid as long as `owner` lives.
struct PictureBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Only white space, which counts as no caption.
inline bool is_blank(const std::string& caption) {
  return caption.find_first_not_of(" \t\r\n") == std::string::npos;
}

// All const methods are thread-safe.
class PictureRows {
 public:
  virtual ~PictureRows() = default;
  virtual int64_t count() const = 0;
  // Captions of these rows, which must be in ascending order; none for a row without one. If a row
  // has several, the first that is not blank.
  virtual std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const = 0;
  // All captions of one row that are not blank; captions() returns the first.
  virtual std::vector<std::string> references(int64_t row) const {
    const std::optional<std::string> first = captions({&row, 1}).front();
    return first ? std::vector<std::string>{*first} : std::vector<std::string>();
  }
  // Whether rows may have captions at all.
  virtual bool has_captions() const { return true; }
  // Throws UserError if it cannot be read.
  virtual PictureBytes picture(int64_t row) const = 0;
  // The picture's path or its name in the data set; where(row) if it has none.
  virtual std::string file(int64_t row) const { return where(row); }
  // The row's name in messages: "captions/metadata.jsonl:7 (cat.jpg)".
  virtual std::string where(int64_t row) const = 0;
};

}  // namespace snug::data
