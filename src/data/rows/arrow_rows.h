// Values of Arrow columns, and data files as chunks of rows. Included only by sources that are
// built with Arrow.
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
#include "data/pictures/picture_rows.h"

namespace snug::data {

template <class T>
T value_or_throw(arrow::Result<T> result, const std::string& name, const char* kind) {
  if (result.ok()) return std::move(result).ValueUnsafe();
  throw UserError("{}: not a readable {} file: {}", name, kind, result.status().message());
}

// Any value as the JSON that pyarrow's to_pylist() would be: bytes as text, decimals, dates and
// times as they are printed, the pairs of a map as a list of lists.
nlohmann::ordered_json json_at(const arrow::Array& array, int64_t i);

// A caption: text, or the first of a list of texts; none for null.
bool is_caption_type(const arrow::DataType& type);
std::optional<std::string> caption_at(const arrow::Array& array, int64_t i);
// All captions of a row.
std::vector<std::string> captions_at(const arrow::Array& array, int64_t i);

// A picture: encoded bytes, a struct of bytes and path (Hugging Face's Image), or a file's path
// relative to `folder`.
bool is_picture_type(const arrow::DataType& type);
// The path stored beside a picture's bytes; empty: none.
std::string picture_path_at(const arrow::Array& array, int64_t i);
PictureBytes picture_at(const std::shared_ptr<arrow::Array>& array, int64_t i,
                        const std::filesystem::path& folder);

// The rows of one data file, read by chunk (record batch or row group).
class ArrowRows {
 public:
  struct Chunk {
    std::shared_ptr<arrow::Array> column;
    int64_t row = 0;  // of `column`
  };
  virtual ~ArrowRows() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  virtual int64_t count() const = 0;
  // The chunk that contains this row. Thread-safe.
  virtual Chunk at(int field, int64_t row) const = 0;
};

// A cache of recently read row groups' columns, shared by all files of a data set: up to a
// gigabyte, and always the latest one.
class GroupCache {
 public:
  struct Key {
    const void* file = nullptr;
    size_t group = 0;
    int field = 0;
    bool operator==(const Key&) const = default;
  };
  // Null if it is not in the cache.
  std::shared_ptr<arrow::Array> find(const Key& key);
  void put(const Key& key, std::shared_ptr<arrow::Array> column);

 private:
  struct Kept {
    Key key;
    std::shared_ptr<arrow::Array> column;
    int64_t bytes = 0;
  };
  std::mutex mutex_;
  std::list<Kept> kept_;  // most recent first
  int64_t bytes_ = 0;
};

// Opens memory-mapped Arrow (stream or file format), or Parquet, read by row group through `cache`.
// Throws UserError for a damaged file.
std::unique_ptr<ArrowRows> open_arrow_rows(const std::filesystem::path& path,
                                           std::shared_ptr<GroupCache> cache);

}  // namespace snug::data
