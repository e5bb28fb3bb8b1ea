// Chunks of rows out of Arrow and Parquet files.
// SPDX-License-Identifier: Apache-2.0
#include "data/rows/arrow_rows.h"

#include <arrow/array/array_nested.h>
#include <arrow/extension_type.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>

#include "base/bytes.h"
#include "base/files.h"
#include "base/log.h"

namespace snug::data {
namespace {

void check(const arrow::Status& status, const std::string& name, const char* kind) {
  if (!status.ok()) throw UserError("{}: not a readable {} file: {}", name, kind, status.message());
}

// Which of the chunks that begin at `begins` holds a row.
size_t chunk_of(const std::vector<int64_t>& begins, int64_t row) {
  return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), row) - begins.begin() -
                             1);
}

// What a file's columns may take once they are decoded: a damaged or hostile one may say anything
// of their sizes, and a few bytes may stand for any number of equal values.
class FileMemory {
 public:
  explicit FileMemory(int64_t file_bytes)
      : limit_(kLeastLimit + kMostRatio * file_bytes), capped_(&counted_, limit_) {}
  arrow::MemoryPool* pool() { return &capped_; }
  int64_t limit() const { return limit_; }

 private:
  static constexpr int64_t kLeastLimit = int64_t{1} << 30;
  static constexpr int64_t kMostRatio = 100;

  int64_t limit_ = 0;
  arrow::ProxyMemoryPool counted_{arrow::default_memory_pool()};
  arrow::CappedMemoryPool capped_;
};

// A column, and the memory that its buffers are given back to.
struct Decoded {
  std::shared_ptr<FileMemory> memory;
  std::shared_ptr<arrow::Array> column;
};

// Record batches whose buffers are pages of the file, unless they are compressed.
class MappedRows : public ArrowRows {
 public:
  explicit MappedRows(const std::string& name) {
    const auto file = value_or_throw(
        arrow::io::MemoryMappedFile::Open(name, arrow::io::FileMode::READ), name, "Arrow");
    memory_ = std::make_shared<FileMemory>(value_or_throw(file->GetSize(), name, "Arrow"));
    options_.memory_pool = memory_->pool();
    const auto stream = arrow::ipc::RecordBatchStreamReader::Open(file, options_);
    if (stream.ok())
      read_stream(**stream, name);
    else
      read_file(file, name, stream.status());
  }
  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  int64_t count() const override { return count_; }
  Chunk at(int field, int64_t row) const override {
    const size_t chunk = chunk_of(begins_, row);
    const auto decoded =
        std::make_shared<Decoded>(Decoded{memory_, batches_[chunk]->column(field)});
    return {{decoded, decoded->column.get()}, row - begins_[chunk]};
  }

 private:
  void read_stream(arrow::ipc::RecordBatchStreamReader& reader, const std::string& name) {
    schema_ = reader.schema();
    while (const auto batch = value_or_throw(reader.Next(), name, "Arrow")) append(batch, name);
  }
  void read_file(const std::shared_ptr<arrow::io::MemoryMappedFile>& file, const std::string& name,
                 const arrow::Status& as_stream) {
    const auto opened = arrow::ipc::RecordBatchFileReader::Open(file, options_);
    if (!opened.ok()) check(as_stream, name, "Arrow");
    schema_ = (*opened)->schema();
    for (int i = 0; i < (*opened)->num_record_batches(); ++i)
      append(value_or_throw((*opened)->ReadRecordBatch(i), name, "Arrow"), name);
  }
  // Offsets and lengths in a damaged file may point anywhere; this looks at each once.
  void append(const std::shared_ptr<arrow::RecordBatch>& batch, const std::string& name) {
    check(batch->ValidateFull(), name, "Arrow");
    if (batch->num_rows() == 0) return;
    begins_.push_back(count_);
    batches_.push_back(batch);
    count_ += batch->num_rows();
  }

  std::shared_ptr<FileMemory> memory_;  // outlives what is read
  arrow::ipc::IpcReadOptions options_ = arrow::ipc::IpcReadOptions::Defaults();
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
  std::vector<int64_t> begins_;
  int64_t count_ = 0;
};

constexpr int64_t kCacheBytes = int64_t{1} << 30;

// Row groups read when a row of theirs is asked for.
class ParquetRows : public ArrowRows {
 public:
  ParquetRows(std::string name, std::shared_ptr<GroupCache> cache)
      : name_(std::move(name)), cache_(std::move(cache)) {
    const auto file = value_or_throw(arrow::io::ReadableFile::Open(name_), name_, "Parquet");
    const int64_t file_bytes = value_or_throw(file->GetSize(), name_, "Parquet");
    memory_ = std::make_shared<FileMemory>(file_bytes);
    reader_ = value_or_throw(parquet::arrow::OpenFile(file, memory_->pool()), name_, "Parquet");
    check(reader_->GetSchema(&schema_), name_, "Parquet");
    const auto metadata = reader_->parquet_reader()->metadata();
    int64_t largest = 0;
    for (int i = 0; i < metadata->num_row_groups(); ++i) {
      const auto group = metadata->RowGroup(i);
      begins_.push_back(count_);
      if (group->num_rows() < 0 || group->num_rows() > kMostRowsPerByte * file_bytes - count_)
        throw UserError(
            "{}: not a readable Parquet file: row group {} says it holds {} rows, in a file of {}",
            name_, i, group->num_rows(), format_bytes(file_bytes));
      count_ += group->num_rows();
      largest = std::max(largest, group->total_byte_size());
    }
    if (largest > kLargeGroup)
      warn(
          "{}: row groups of up to {}, which are read whole; write it with row_group_size=100 to "
          "use less memory and time",
          name_, format_bytes(largest));
  }
  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  int64_t count() const override { return count_; }
  Chunk at(int field, int64_t row) const override {
    const size_t group = chunk_of(begins_, row);
    const GroupCache::Key key{.file = this, .group = group, .field = field};
    std::shared_ptr<arrow::Array> column = cache_->find(key);
    if (!column) {
      const std::lock_guard lock(mutex_);  // the reader is one thread's at a time
      column = cache_->find(key);          // somebody else has read it meanwhile
      if (!column) cache_->put(key, column = read(field, group));
    }
    const int64_t at = row - begins_[group];
    if (at >= column->length())
      throw UserError("{}: row group {} holds fewer rows than it says", name_, group);
    return {column, at};
  }

 private:
  static constexpr int64_t kLargeGroup = int64_t{1} << 29;
  static constexpr int64_t kMostRowsPerByte = 1000;

  std::shared_ptr<arrow::Array> read(int field, size_t group) const {
    try {
      std::vector<int> leaves;
      std::vector<const parquet::arrow::SchemaField*> open = {
          &reader_->manifest().schema_fields[static_cast<size_t>(field)]};
      while (!open.empty()) {
        const parquet::arrow::SchemaField* next = open.back();
        open.pop_back();
        if (next->is_leaf()) leaves.push_back(next->column_index);
        for (const auto& child : next->children) open.push_back(&child);
      }
      std::sort(leaves.begin(), leaves.end());
      const auto table = reader_->ReadRowGroup(static_cast<int>(group), leaves);
      const arrow::Result<std::shared_ptr<arrow::RecordBatch>> batch =
          table.ok() ? (*table)->CombineChunksToBatch(memory_->pool()) : table.status();
      if (batch.status().IsOutOfMemory())
        throw UserError(
            "{}: row group {} takes more than the {} that a file of this size may take; "
            "write it as .jsonl if it is not damaged",
            name_, group, format_bytes(memory_->limit()));
      check(batch.status(), name_, "Parquet");
      check((*batch)->ValidateFull(), name_, "Parquet");
      const auto decoded = std::make_shared<Decoded>(Decoded{memory_, (*batch)->column(0)});
      return {decoded, decoded->column.get()};
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw UserError("{}: not a readable Parquet file: {}", name_, error.what());
    }
  }

  std::string name_;
  std::shared_ptr<FileMemory> memory_;  // outlives what is read
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<int64_t> begins_;
  int64_t count_ = 0;
  std::shared_ptr<GroupCache> cache_;
  mutable std::mutex mutex_;
};

}  // namespace

std::shared_ptr<arrow::Array> GroupCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(kept_, key, &Kept::key);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front().column;
}

void GroupCache::put(const Key& key, std::shared_ptr<arrow::Array> column) {
  const std::lock_guard lock(mutex_);
  const int64_t bytes = arrow::util::TotalBufferSize(*column);
  kept_.push_front({key, std::move(column), bytes});
  bytes_ += bytes;
  while (bytes_ > kCacheBytes && kept_.size() > 1) {
    bytes_ -= kept_.back().bytes;
    kept_.pop_back();
  }
}

std::unique_ptr<ArrowRows> open_arrow_rows(const std::filesystem::path& path,
                                           std::shared_ptr<GroupCache> cache) {
  const std::string name = path.string();
  try {
    if (path.extension() == ".parquet")
      return std::make_unique<ParquetRows>(name, std::move(cache));
    return std::make_unique<MappedRows>(name);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw UserError("{}: not a readable data file: {}", name, error.what());
  }
}

namespace {

using json = nlohmann::ordered_json;

template <class ListArray>
json list_at(const ListArray& array, int64_t i) {
  json list = json::array();
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    list.push_back(json_at(*array.values(), k));
  return list;
}

// Pairs of a key and its value, as Python has them.
json map_at(const arrow::MapArray& array, int64_t i) {
  json list = json::array();
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    list.push_back(json::array({json_at(*array.keys(), k), json_at(*array.items(), k)}));
  return list;
}

// Times without a fraction of a second that is zero, as Python prints them.
std::string without_zeros(std::string time) {
  const size_t dot = time.find('.');
  if (dot == std::string::npos) return time;
  const size_t end = time.find_first_not_of('0', dot + 1);
  if (end == std::string::npos || !std::isdigit(static_cast<unsigned char>(time[end])))
    time.erase(dot, std::min(end, time.size()) - dot);
  return time;
}

json struct_at(const arrow::StructArray& array, int64_t i) {
  json object = json::object();
  for (int k = 0; k < array.num_fields(); ++k)
    object[array.struct_type()->field(k)->name()] = json_at(*array.field(k), i);
  return object;
}

template <class ListArray>
std::optional<std::string> first_of(const ListArray& array, int64_t i) {
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    if (auto text = caption_at(*array.values(), k)) return text;
  return std::nullopt;
}

template <class ListArray>
std::vector<std::string> all_of(const ListArray& array, int64_t i) {
  std::vector<std::string> texts;
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    if (auto text = caption_at(*array.values(), k)) texts.push_back(std::move(*text));
  return texts;
}

bool is_bytes(arrow::Type::type type) {
  return type == arrow::Type::BINARY || type == arrow::Type::LARGE_BINARY;
}

bool is_text(arrow::Type::type type) {
  return type == arrow::Type::STRING || type == arrow::Type::LARGE_STRING;
}

std::optional<std::string_view> view_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  switch (array.type_id()) {
    case arrow::Type::BINARY:
    case arrow::Type::STRING:
      return static_cast<const arrow::BinaryArray&>(array).GetView(i);
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_STRING:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
    default:
      return std::nullopt;
  }
}

// A column's part that holds bytes and the part that holds paths, whichever are there.
struct PictureParts {
  std::optional<std::string_view> bytes, path;
};

PictureParts parts_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return {};
  if (array.type_id() != arrow::Type::STRUCT)
    return is_bytes(array.type_id()) ? PictureParts{view_at(array, i), {}}
                                     : PictureParts{{}, view_at(array, i)};
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  PictureParts parts;
  if (const auto bytes = fields.GetFieldByName("bytes")) parts.bytes = view_at(*bytes, i);
  if (const auto path = fields.GetFieldByName("path")) parts.path = view_at(*path, i);
  return parts;
}

}  // namespace

json json_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return nullptr;
  const auto scalar = [&] { return value_or_throw(array.GetScalar(i), "a column", "Arrow"); };
  const auto value = [i](const auto& typed) { return json(typed.Value(i)); };
  switch (array.type_id()) {
    case arrow::Type::NA:
      return nullptr;
    case arrow::Type::BOOL:
      return value(static_cast<const arrow::BooleanArray&>(array));
    case arrow::Type::INT8:
      return value(static_cast<const arrow::Int8Array&>(array));
    case arrow::Type::INT16:
      return value(static_cast<const arrow::Int16Array&>(array));
    case arrow::Type::INT32:
      return value(static_cast<const arrow::Int32Array&>(array));
    case arrow::Type::INT64:
      return value(static_cast<const arrow::Int64Array&>(array));
    case arrow::Type::UINT8:
      return value(static_cast<const arrow::UInt8Array&>(array));
    case arrow::Type::UINT16:
      return value(static_cast<const arrow::UInt16Array&>(array));
    case arrow::Type::UINT32:
      return value(static_cast<const arrow::UInt32Array&>(array));
    case arrow::Type::UINT64:
      return value(static_cast<const arrow::UInt64Array&>(array));
    case arrow::Type::FLOAT:
      return value(static_cast<const arrow::FloatArray&>(array));
    case arrow::Type::DOUBLE:
      return value(static_cast<const arrow::DoubleArray&>(array));
    case arrow::Type::HALF_FLOAT:
      return std::strtod(scalar()->ToString().c_str(), nullptr);
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
      return *view_at(array, i);
    case arrow::Type::STRING_VIEW:
      return static_cast<const arrow::StringViewArray&>(array).GetView(i);
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY: {
      const auto buffer = std::static_pointer_cast<arrow::BaseBinaryScalar>(scalar())->value;
      return buffer->ToString();
    }
    case arrow::Type::LIST:
      return list_at(static_cast<const arrow::ListArray&>(array), i);
    case arrow::Type::LARGE_LIST:
      return list_at(static_cast<const arrow::LargeListArray&>(array), i);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_at(static_cast<const arrow::FixedSizeListArray&>(array), i);
    case arrow::Type::MAP:
      return map_at(static_cast<const arrow::MapArray&>(array), i);
    case arrow::Type::STRUCT:
      return struct_at(static_cast<const arrow::StructArray&>(array), i);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return json_at(*coded.dictionary(), coded.GetValueIndex(i));
    }
    case arrow::Type::EXTENSION:
      return json_at(*static_cast<const arrow::ExtensionArray&>(array).storage(), i);
    case arrow::Type::TIMESTAMP:
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
      return without_zeros(scalar()->ToString());
    default:  // decimals, dates and the like as they are printed
      return scalar()->ToString();
  }
}

bool is_caption_type(const arrow::DataType& type) {
  if (is_text(type.id())) return true;
  if (type.id() == arrow::Type::DICTIONARY)
    return is_text(static_cast<const arrow::DictionaryType&>(type).value_type()->id());
  return (type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST) &&
         is_text(type.field(0)->type()->id());
}

std::optional<std::string> caption_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  if (array.type_id() == arrow::Type::LIST)
    return first_of(static_cast<const arrow::ListArray&>(array), i);
  if (array.type_id() == arrow::Type::LARGE_LIST)
    return first_of(static_cast<const arrow::LargeListArray&>(array), i);
  if (array.type_id() == arrow::Type::DICTIONARY) {
    const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
    return caption_at(*coded.dictionary(), coded.GetValueIndex(i));
  }
  const auto text = view_at(array, i);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

std::vector<std::string> captions_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return {};
  if (array.type_id() == arrow::Type::LIST)
    return all_of(static_cast<const arrow::ListArray&>(array), i);
  if (array.type_id() == arrow::Type::LARGE_LIST)
    return all_of(static_cast<const arrow::LargeListArray&>(array), i);
  std::optional<std::string> only = caption_at(array, i);
  return only ? std::vector<std::string>{std::move(*only)} : std::vector<std::string>();
}

bool is_picture_type(const arrow::DataType& type) {
  if (is_bytes(type.id())) return true;
  if (type.id() != arrow::Type::STRUCT) return false;
  const auto& fields = static_cast<const arrow::StructType&>(type);
  const auto bytes = fields.GetFieldByName("bytes");
  return bytes != nullptr && is_bytes(bytes->type()->id()) &&
         fields.GetFieldByName("path") != nullptr;
}

std::string picture_path_at(const arrow::Array& array, int64_t i) {
  return std::string(parts_at(array, i).path.value_or(""));
}

PictureBytes picture_at(const std::shared_ptr<arrow::Array>& array, int64_t i,
                        const std::filesystem::path& folder) {
  const PictureParts parts = parts_at(*array, i);
  if (parts.bytes) return {std::as_bytes(std::span(*parts.bytes)), array};
  if (!parts.path) throw UserError("there is no picture");
  const auto file = std::make_shared<MappedFile>(folder / *parts.path);
  return {file->bytes(), file};
}

}  // namespace snug::data
