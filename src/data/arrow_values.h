// Values of Arrow's columns, and the chunks of rows that data files hold. For the sources that know
// Arrow alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/picture_rows.h"

namespace snug::data {

template <class T>
T value_or_throw(arrow::Result<T> result, const std::string& name, const char* kind) {
  if (result.ok()) return std::move(result).ValueUnsafe();
  throw UserError("{}: not a readable {} file: {}", name, kind, result.status().message());
}

// Text, lists and structs as they are; anything else as a number, which is refused wherever text is
// wanted.
nlohmann::json json_at(const arrow::Array& array, int64_t i);

// Text, or the first of a list of texts; none for null.
bool is_caption_type(const arrow::DataType& type);
std::optional<std::string> caption_at(const arrow::Array& array, int64_t i);
// All of them.
std::vector<std::string> captions_at(const arrow::Array& array, int64_t i);

// Encoded bytes, a struct of bytes and path (Hugging Face's Image), or the path of a file, relative
// to `folder`.
bool is_picture_type(const arrow::DataType& type);
// The path beside a picture's bytes; "": none.
std::string picture_path_at(const arrow::Array& array, int64_t i);
PictureBytes picture_at(const std::shared_ptr<arrow::Array>& array, int64_t i,
                        const std::filesystem::path& folder);

// Rows of one data file, a chunk (a record batch or row group) at a time.
class ArrowRows {
 public:
  struct Chunk {
    std::shared_ptr<arrow::Array> column;
    int64_t row = 0;  // of `column`
  };
  virtual ~ArrowRows() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  virtual int64_t count() const = 0;
  // The chunk that holds this row. From several threads at once.
  virtual Chunk at(int field, int64_t row) const = 0;
};

// Columns of row groups that were read lately, of all files of a data set together: a gigabyte of
// them, and always the latest one.
class GroupCache {
 public:
  struct Key {
    const void* file = nullptr;
    size_t group = 0;
    int field = 0;
    bool operator==(const Key&) const = default;
  };
  // Null: it is not there.
  std::shared_ptr<arrow::Array> find(const Key& key);
  void put(const Key& key, std::shared_ptr<arrow::Array> column);

 private:
  struct Kept {
    Key key;
    std::shared_ptr<arrow::Array> column;
    int64_t bytes = 0;
  };
  std::mutex mutex_;
  std::list<Kept> kept_;  // latest first
  int64_t bytes_ = 0;
};

// Memory-mapped Arrow (stream or file format), or Parquet read by row groups, of which `cache`
// keeps some. Throws UserError for what is damaged.
std::unique_ptr<ArrowRows> open_arrow_rows(const std::filesystem::path& path,
                                           std::shared_ptr<GroupCache> cache);

}  // namespace snug::data
