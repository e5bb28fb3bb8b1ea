// Chunks of rows out of Arrow and Parquet files.
// SPDX-License-Identifier: Apache-2.0
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/table.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <mutex>

#include "base/bytes.h"
#include "base/log.h"
#include "data/rows/arrow_values.h"

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

// Record batches whose buffers are pages of the file.
class MappedRows : public ArrowRows {
 public:
  explicit MappedRows(const std::string& name) {
    const auto file = value_or_throw(
        arrow::io::MemoryMappedFile::Open(name, arrow::io::FileMode::READ), name, "Arrow");
    const auto stream = arrow::ipc::RecordBatchStreamReader::Open(file);
    if (stream.ok())
      read_stream(**stream, name);
    else
      read_file(file, name, stream.status());
  }
  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  int64_t count() const override { return count_; }
  Chunk at(int field, int64_t row) const override {
    const size_t chunk = chunk_of(begins_, row);
    return {batches_[chunk]->column(field), row - begins_[chunk]};
  }

 private:
  void read_stream(arrow::ipc::RecordBatchStreamReader& reader, const std::string& name) {
    schema_ = reader.schema();
    while (const auto batch = value_or_throw(reader.Next(), name, "Arrow")) append(batch, name);
  }
  void read_file(const std::shared_ptr<arrow::io::MemoryMappedFile>& file, const std::string& name,
                 const arrow::Status& as_stream) {
    const auto opened = arrow::ipc::RecordBatchFileReader::Open(file);
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
    reader_ = value_or_throw(parquet::arrow::OpenFile(file, arrow::default_memory_pool()), name_,
                             "Parquet");
    check(reader_->GetSchema(&schema_), name_, "Parquet");
    const auto metadata = reader_->parquet_reader()->metadata();
    int64_t largest = 0;
    for (int i = 0; i < metadata->num_row_groups(); ++i) {
      const auto group = metadata->RowGroup(i);
      begins_.push_back(count_);
      count_ += std::max<int64_t>(group->num_rows(), 0);
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
      const auto table =
          value_or_throw(reader_->ReadRowGroup(static_cast<int>(group), leaves), name_, "Parquet");
      const auto batch = value_or_throw(table->CombineChunksToBatch(), name_, "Parquet");
      check(batch->ValidateFull(), name_, "Parquet");
      return batch->column(0);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw UserError("{}: not a readable Parquet file: {}", name_, error.what());
    }
  }

  std::string name_;
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

}  // namespace snug::data
