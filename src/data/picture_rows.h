// A data set of pictures with captions, of which nothing is held but where things are. The pictures
// are encoded files' bytes, wherever they lie: files in a folder, columns of Arrow or Parquet.
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

// One encoded picture; the bytes live as long as `owner`.
struct PictureBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Of nothing but white space: as good as none.
inline bool is_blank(const std::string& caption) {
  return caption.find_first_not_of(" \t\r\n") == std::string::npos;
}

// All const methods may be called from several threads at once.
class PictureRows {
 public:
  virtual ~PictureRows() = default;
  virtual int64_t count() const = 0;
  // Captions of these rows, in ascending order; none where a row has no caption. Of several that is
  // the first that is not blank.
  virtual std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const = 0;
  // All captions of one row but blank ones, of which captions() gives the first.
  virtual std::vector<std::string> references(int64_t row) const {
    const std::optional<std::string> first = captions({&row, 1}).front();
    return first ? std::vector<std::string>{*first} : std::vector<std::string>();
  }
  // Whether rows may have captions at all.
  virtual bool has_captions() const { return true; }
  // Throws UserError where it cannot be read.
  virtual PictureBytes picture(int64_t row) const = 0;
  // The picture's path, or the name that the data set gives it; where(row) if it has none.
  virtual std::string file(int64_t row) const { return where(row); }
  // How messages name a row: "captions/metadata.jsonl:7 (cat.jpg)".
  virtual std::string where(int64_t row) const = 0;
};

}  // namespace snug::data
