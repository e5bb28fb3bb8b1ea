// Named tensors in one or more memory-mapped files, whatever the format. Opening reads only the
// headers; a tensor's bytes are read on demand, and their pages can be released afterwards.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "files/checksums.h"
#include "files/weights/dtype.h"
#include "files/weights/packed/packed_values.h"
#include "files/weights/read_ahead.h"

namespace snug::files {

// A tensor's place in a file. Its creator has checked that every element is inside the file.
struct PlacedTensor {
  TensorInfo info;
  size_t file = 0;               // index into the source's files
  size_t offset = 0;             // bytes from the start of that file
  std::vector<int64_t> strides;  // in elements; empty when row-major without gaps
};

// A matrix whose values are in several tensors.
struct JoinedTensor {
  TensorInfo info;                 // dtype: to which values are rounded; nbytes becomes the parts'
  std::vector<std::string> parts;  // names of the tensors, that of the codes first
  std::shared_ptr<const PackedValues> values;
};

// Read-only. Thread-safe except join(), expect() and read_ahead().
class TensorSource {
 public:
  // `label`: the file or folder name for describe() and errors.
  TensorSource(std::string label, std::vector<MappedFile> files, std::vector<PlacedTensor> tensors,
               Compare compare = Compare::Yes);
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  const std::vector<TensorInfo>& tensors() const { return infos_; }
  const TensorInfo* find(std::string_view name) const;  // nullptr when absent

  // Elements [begin, begin + count) in row-major order, converted to `target`: F32, F16 or BF16
  // from any floating or integer type (round to nearest even), or the tensor's own type unchanged.
  // Large reads use several threads. Where the file's folder has checksums (files/checksums.h),
  // read() and raw() throw UserError for bytes that are not as they were written.
  void read(const TensorInfo& tensor, DType target, void* out, int64_t begin, int64_t count) const;
  void read(const TensorInfo& tensor, DType target, void* out) const;

  // Gives a matrix or vector of floating-point numbers more rows behind its own, each the mean of
  // those: the file stays as it is. Does nothing if it has as many. Throws UserError for a strided
  // tensor.
  void add_mean_rows(const TensorInfo& tensor, int64_t rows);

  // Puts each of these in the place of its parts, and takes the `dropped` ones out. Pointers to
  // infos that tensors() and find() gave before are no longer valid.
  void join(std::vector<JoinedTensor> joined, const std::set<std::string>& dropped);
  // A tensor for PackedValues, which must not outlive the source; throws UserError if it is
  // strided.
  PackedPart part(const TensorInfo& tensor) const;
  // What join() was given for it; null for a tensor of the file.
  const PackedValues* packed(const TensorInfo& tensor) const;

  // The bytes as stored; empty when the tensor is strided (a .pth may hold transposed views), has
  // more rows than its file, or is joined.
  std::span<const std::byte> raw(const TensorInfo& tensor) const;
  // The same of the rows in its file alone; of a joined tensor its codes.
  std::span<const std::byte> stored(const TensorInfo& tensor) const;
  // Throws UserError if the folder has checksums and the tensor's bytes are not as they were
  // written.
  void verify(const TensorInfo& tensor) const;
  // Releases the tensor's pages, so that they leave the resident set.
  void release(const TensorInfo& tensor) const;

  // expect: announces the order in which tensors will be read, each once. read_ahead: call before
  // reading one; starts to fetch those that follow. Without an order it does nothing.
  void expect(const std::vector<const TensorInfo*>& order);
  void read_ahead(const TensorInfo& tensor);

  // "model.safetensors (272 tensors, 256.60 MiB)"
  std::string describe() const;
  const std::string& label() const { return label_; }
  int64_t total_bytes() const;  // of all tensors as stored
  // The tensors with bytes in [begin, end) of the first file.
  std::vector<std::string> names_between(size_t begin, size_t end) const;

  // The source's members, to combine a folder's shards into one source.
  struct Parts {
    std::vector<MappedFile> files;
    std::vector<PlacedTensor> tensors;
  };
  static Parts take_apart(std::unique_ptr<TensorSource> source);

 private:
  struct MeanRow {
    int64_t stored_elements = 0, columns = 1;
    std::once_flag once;
    std::vector<float> values;  // found when they are first read
  };
  struct Extent {
    size_t file, begin, end;
  };
  struct Joined {
    std::shared_ptr<const PackedValues> values;
    std::vector<Extent> parts;
  };
  struct Placement {
    size_t file;
    size_t offset;
    std::vector<int64_t> strides;
    std::shared_ptr<MeanRow> mean = nullptr;         // of which rows behind the stored ones consist
    std::shared_ptr<const Joined> joined = nullptr;  // the rest is then its first part's
  };
  // Where the tensor's bytes are, holes included.
  std::vector<Extent> extents(const TensorInfo& tensor, const Placement& where) const;
  const Placement& placement(const TensorInfo& tensor) const;
  const std::byte* start(const Placement& where) const;
  void read_mean_rows(const TensorInfo& tensor, MeanRow& mean, DType target, std::byte* out,
                      int64_t begin, int64_t count) const;
  void check_size_and_header(size_t file) const;
  void check(const TensorInfo& tensor, const Extent& bytes) const;
  void index();
  void read_span(const TensorInfo& tensor, const Placement& where, DType target, std::byte* out,
                 int64_t begin, int64_t count) const;

  std::string label_;
  std::vector<MappedFile> files_;
  std::vector<std::unique_ptr<FileCheck>> checks_;  // by file; null without checksums
  std::vector<TensorInfo> infos_;
  std::vector<Placement> placements_;                      // same order as infos_
  std::unordered_map<std::string_view, size_t> index_of_;  // views into infos_
  std::unique_ptr<ReadAhead> ahead_;                       // null without expect()
};

// A Hugging Face folder (model.safetensors or pytorch_model.bin, whole or sharded by an index) or a
// LitGPT folder (lit_model.pth). Throws UserError with the names it looked for if nothing is found.
std::unique_ptr<TensorSource> open_model_directory(const std::filesystem::path& folder);

}  // namespace snug::files
