// Parses a GGUF file's metadata and its tensors' offsets. Every count in the file is checked
// against the remaining bytes before memory is allocated for it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/byte_reader.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/placement.h"

namespace snug::files {
namespace {

constexpr uint32_t kMaxDimensions = 4;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxTexts = uint64_t{1} << 24;    // sixty times the largest vocabulary known
constexpr uint64_t kMaxNameBytes = 65535;            // the format's limit for keys
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;       // key length, type, one byte of value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, dimensions, type, offset

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(const std::filesystem::path& path)
      : file_(path), reader_(file_.bytes(), path.string()) {}

  std::unique_ptr<GgufFile> parse() {
    read_preamble();
    for (uint64_t i = 0; i < num_entries_; ++i) read_entry();
    read_tensors();
    const std::string label = reader_.label();
    order_in_file(label, tensors_);
    std::vector<MappedFile> files;
    files.push_back(std::move(file_));
    auto gguf =
        std::unique_ptr<GgufFile>(new GgufFile(label, std::move(files), std::move(tensors_)));
    gguf->metadata_ = std::move(metadata_);
    return gguf;
  }

 private:
  void read_preamble() {
    const std::string& label = reader_.label();
    if (reader_.text(4, "the magic number") != "GGUF")
      throw UserError("{}: this is not a GGUF file; those begin with the letters GGUF", label);
    const uint32_t version = reader_.u32("the version");
    if (version != 0 && (version & 0xFFFF) == 0)
      throw UserError(
          "{}: this GGUF file is big-endian, which is not supported; convert it to little-endian "
          "first",
          label);
    if (version != 2 && version != 3)
      throw UserError(
          "{}: GGUF version {} is not supported, only versions 2 and 3 are; convert the file with "
          "a current llama.cpp",
          label, version);
    num_tensors_ = reader_.u64("the number of tensors");
    num_entries_ = reader_.u64("the number of metadata entries");
    check_count(num_entries_, kMinEntryBytes, "metadata entries");
    check_count(num_tensors_, kMinTensorBytes, "tensors");
  }

  void check_count(uint64_t count, uint64_t min_bytes, const char* what) const {
    if (count > reader_.remaining() / min_bytes)
      throw UserError(
          "{}: {} {} are claimed at byte {}, but only {} bytes are left; the file is "
          "truncated or damaged, fetch it again",
          reader_.label(), count, what, reader_.position(), reader_.remaining());
  }

  std::string read_name(const char* what) {
    const uint64_t length = reader_.u64(what);
    if (length > kMaxNameBytes)
      throw UserError(
          "{}: {} before byte {} claims {} bytes, and at most {} are allowed; the file is "
          "damaged, fetch it again",
          reader_.label(), what, reader_.position(), length, kMaxNameBytes);
    const std::string_view name = reader_.text(length, what);
    if (find_invalid_utf8(name) != std::string_view::npos)
      throw UserError("{}: {} \"{}\" is not valid UTF-8; the file is damaged, fetch it again",
                      reader_.label(), what, printable(name));
    return std::string(name);
  }

  void read_entry() {
    std::string key = read_name("a metadata key");
    with_context(key_context(key), [&] {
      GgufValue value = read_value(read_type());
      if (!metadata_.emplace(key, std::move(value)).second)
        throw UserError("it occurs twice; the file is damaged, fetch it again");
    });
  }

  std::string key_context(const std::string& key) const {
    return fmt::format("{}: metadata key \"{}\"", reader_.label(), printable(key));
  }

  GgufType read_type() {
    const uint32_t type = reader_.u32("a metadata type");
    if (type > static_cast<uint32_t>(GgufType::F64))
      throw UserError("its type {} is unknown; the file is damaged, fetch it again", type);
    return static_cast<GgufType>(type);
  }

  GgufValue read_value(GgufType type) {
    GgufValue value;
    value.type = type;
    if (type == GgufType::Array) {
      read_array(value, 0);
    } else if (type == GgufType::Text) {
      value.bytes = reader_.take(reader_.u64("a text's length"), "a text");
    } else {
      value.bytes = reader_.take(scalar_bytes(type), "a value");
    }
    return value;
  }

  void read_array(GgufValue& value, int depth) {
    value.element = read_type();
    value.count = reader_.u64("an array's length");
    const size_t begin = reader_.position();
    if (value.element == GgufType::Text) {
      check_count(value.count, 8, "texts");
      num_texts_ += value.count;
      if (num_texts_ > kMaxTexts)
        throw UserError("its {} texts are more than the {} allowed in one file", value.count,
                        kMaxTexts);
      value.texts.reserve(value.count);
      for (uint64_t i = 0; i < value.count; ++i)
        value.texts.emplace_back(reader_.text(reader_.u64("a text's length"), "a text"));
    } else if (value.element == GgufType::Array) {
      skip_arrays(value.count, depth + 1);
    } else {
      const uint64_t size = scalar_bytes(value.element);
      check_count(value.count, size, "values");
      reader_.take(value.count * size, "an array");
    }
    value.bytes = file_.bytes().subspan(begin, reader_.position() - begin);
  }

  // No known model has arrays of arrays; they are skipped and kept as bytes.
  void skip_arrays(uint64_t count, int depth) {
    if (depth > kMaxArrayDepth)
      throw UserError("arrays are nested more than {} deep; the file is damaged", kMaxArrayDepth);
    check_count(count, 4 + 8, "arrays");
    for (uint64_t i = 0; i < count; ++i) {
      GgufValue inner;
      read_array(inner, depth);
    }
  }

  void read_tensors() {
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      std::string name = read_name("a tensor name");
      const std::string context =
          fmt::format("{}: tensor \"{}\"", reader_.label(), printable(name));
      with_context(context, [&] { read_tensor(std::move(name)); });
    }
    const size_t alignment = read_alignment();
    const size_t end = reader_.position();
    const size_t data_begin = end + (alignment - end % alignment) % alignment;
    for (PlacedTensor& tensor : tensors_) place(tensor, data_begin, alignment);
  }

  void read_tensor(std::string name) {
    const uint32_t dimensions = reader_.u32("the number of dimensions");
    if (dimensions > kMaxDimensions)
      throw UserError("{} dimensions are more than the {} that GGUF has; the file is damaged",
                      dimensions, kMaxDimensions);
    std::vector<int64_t> shape(dimensions);
    for (uint32_t i = 0; i < dimensions; ++i) {
      const uint64_t size = reader_.u64("a dimension");
      if (size > INT64_MAX) throw UserError("dimension {} is negative or beyond 63 bits", size);
      shape[dimensions - 1 - i] = static_cast<int64_t>(size);
    }
    const DType type = dtype_of_ggml(reader_.u32("the type"));
    PlacedTensor tensor;
    tensor.info = make_tensor_info(std::move(name), type, std::move(shape));
    tensor.offset = reader_.u64("the offset");  // within the data; place() makes it one of the file
    tensors_.push_back(std::move(tensor));
  }

  size_t read_alignment() const {
    const auto found = metadata_.find("general.alignment");
    if (found == metadata_.end()) return kGgufAlignment;
    const GgufValue& value = found->second;
    uint32_t alignment = 0;
    if (value.type == GgufType::U32) std::memcpy(&alignment, value.bytes.data(), sizeof(alignment));
    if (!std::has_single_bit(alignment))
      throw UserError("{}: general.alignment = {} is not a power of two; the file is damaged",
                      reader_.label(), GgufFile::show(value));
    return alignment;
  }

  void place(PlacedTensor& tensor, size_t data_begin, size_t alignment) const {
    const size_t file_bytes = file_.bytes().size();
    const size_t data_bytes = file_bytes - std::min(data_begin, file_bytes);
    const auto size = static_cast<size_t>(tensor.info.nbytes);
    if (size > data_bytes || tensor.offset > data_bytes - size)
      throw UserError(
          "{}: tensor \"{}\" takes {} bytes from {} on, but there are {} bytes of data; "
          "the file is truncated or damaged, fetch it again",
          reader_.label(), printable(tensor.info.name), size, tensor.offset, data_bytes);
    if (tensor.offset % alignment != 0)
      throw UserError(
          "{}: tensor \"{}\" begins at {}, which is not a multiple of the alignment {}; the "
          "file is damaged, fetch it again",
          reader_.label(), printable(tensor.info.name), tensor.offset, alignment);
    tensor.offset += data_begin;
  }

  MappedFile file_;
  ByteReader reader_;
  uint64_t num_tensors_ = 0;
  uint64_t num_entries_ = 0;
  uint64_t num_texts_ = 0;
  GgufFile::Metadata metadata_;
  std::vector<PlacedTensor> tensors_;
};

std::unique_ptr<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto file = GgufParser(path).parse();
  const int64_t parts = file->integer("split.count", 1);
  if (parts > 1)
    throw UserError(
        "{}: this is part {} of {} of a split GGUF file; join the parts with llama-gguf-split "
        "--merge "
        "and open the result",
        path.string(), static_cast<uint64_t>(file->integer("split.no", 0)) + 1, parts);
  return file;
}

}  // namespace snug::files
