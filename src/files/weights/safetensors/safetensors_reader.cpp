// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "files/weights/byte_reader.h"
#include "files/weights/placement.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::files {
namespace {

// Parses the JSON header of a safetensors file event by event, so that a hostile header costs
// little memory and duplicate keys are found.
struct SafetensorsEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;  // begin and end within the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

using Json = nlohmann::json;

class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& label) : label_(label) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override { refuse("number " + text); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool number_integer(number_integer_t value) override {
    refuse(fmt::format("negative number {}", value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (numbers_ == nullptr || !in_array_) refuse(fmt::format("number {}", value));
    if (value > INT64_MAX) refuse(fmt::format("number {}, which 63 bits cannot hold,", value));
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::Metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (place_ == Place::Tensor && key_ == "dtype" && !entry().dtype) {
      entry().dtype = std::move(value);
    } else {
      refuse(fmt::format("text \"{}\"", printable(value)));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::Outside) {
      place_ = Place::Top;
    } else if (place_ == Place::Top && key_ == "__metadata__") {
      place_ = Place::Metadata;
    } else if (place_ == Place::Top) {
      header_.entries.push_back({key_, {}, {}, {}});
      place_ = Place::Tensor;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    place_ = place_ == Place::Top ? Place::Outside : Place::Top;
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_array(std::size_t) override {
    numbers_ = nullptr;
    if (place_ == Place::Tensor && !in_array_) {
      if (key_ == "shape" && !entry().shape) numbers_ = &entry().shape.emplace();
      if (key_ == "data_offsets" && !entry().offsets) numbers_ = &entry().offsets.emplace();
    }
    if (numbers_ == nullptr) refuse("an array");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw UserError(
        "{}: the header is not valid JSON at byte {} ({}); the file is damaged, fetch it "
        "again",
        label_, position + 8, printable(error.what(), 300));
  }

 private:
  enum class Place { Outside, Top, Metadata, Tensor };

  SafetensorsEntry& entry() { return header_.entries.back(); }

  [[noreturn]] void refuse(const std::string& what) const {
    const std::string tensor =
        place_ == Place::Tensor
            ? fmt::format(" of tensor \"{}\"", printable(header_.entries.back().name))
            : "";
    throw UserError(
        "{}: the header has {} at \"{}\"{}, where the format does not allow it; the file is "
        "damaged, fetch it again",
        label_, what, printable(key_), tensor);
  }

  const std::string& label_;
  SafetensorsHeader header_;
  Place place_ = Place::Outside;
  std::string key_;
  std::vector<int64_t>* numbers_ = nullptr;
  bool in_array_ = false;
};

// Throws UserError, beginning with `label`, for an invalid header.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& label) {
  HeaderHandler handler(label);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

DType parse_dtype(const std::string& text) {
  constexpr std::array kPlain = {
      DType::F64, DType::F32, DType::F16,  DType::BF16,   DType::I64,    DType::I32,   DType::I16,
      DType::I8,  DType::U8,  DType::Bool, DType::F8E4M3, DType::F8E5M2, DType::F8E8M0};
  for (const DType type : kPlain)
    if (text == name(type)) return type;
  throw UserError(
      "its type {} is not supported; supported are F64, F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0, "
      "I64, "
      "I32, "
      "I16, I8, U8 and BOOL. Convert the tensor to one of them first",
      printable(text, 20));
}

// The header's bytes and the offset of the data.
struct Sections {
  std::string_view header;
  size_t data_begin;
};

Sections find_sections(const MappedFile& file, const std::string& label) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  if (text.starts_with("version https://git-lfs"))
    throw UserError(
        "{}: this is a pointer of Git LFS in place of the file; fetch it with git lfs pull, or "
        "with "
        "snug download",
        label);
  ByteReader reader(file.bytes(), label);
  const uint64_t length = reader.u64("the header length");
  if (length > kMaxHeaderBytes)
    throw UserError(
        "{}: its header claims {} bytes, and the format allows at most {}; this is not a "
        "safetensors "
        "file, or a damaged one",
        label, length, kMaxHeaderBytes);
  const std::string_view header = reader.text(length, "the header");
  return {header, reader.position()};
}

PlacedTensor place(SafetensorsEntry& entry, size_t data_begin, size_t file_bytes) {
  if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2)
    throw UserError("it lacks dtype, shape or a pair of data_offsets; the file is damaged");
  PlacedTensor tensor;
  tensor.info = make_tensor_info(entry.name, parse_dtype(*entry.dtype), std::move(*entry.shape));
  const int64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  const size_t data_bytes = file_bytes - data_begin;
  if (begin > end || static_cast<uint64_t>(end) > data_bytes)
    throw UserError(
        "its data_offsets [{}, {}] are outside the {} bytes of data; the file is truncated or "
        "damaged, fetch it again",
        begin, end, data_bytes);
  if (end - begin != tensor.info.nbytes)
    throw UserError("its data_offsets span {} bytes, but {} of {} takes {}; the file is damaged",
                    end - begin, show_shape(tensor.info.shape), name(tensor.info.dtype),
                    tensor.info.nbytes);
  tensor.offset = data_begin + static_cast<size_t>(begin);
  return tensor;
}

// The format requires every byte of the data to belong to a tensor, so that nothing can be hidden.
void refuse_holes(const std::string& label, const std::vector<PlacedTensor>& tensors, size_t begin,
                  size_t end) {
  for (const size_t i : order_in_file(label, tensors)) {
    if (tensors[i].offset != begin) break;
    begin += static_cast<size_t>(tensors[i].info.nbytes);
  }
  if (begin != end)
    throw UserError(
        "{}: the bytes from {} on belong to no tensor; the file is damaged, fetch it again", label,
        begin);
}

std::unique_ptr<TensorSource> open_file(const std::filesystem::path& path, Compare compare) {
  MappedFile file(path);
  const std::string label = path.string();
  const Sections sections = find_sections(file, label);
  SafetensorsHeader header = parse_safetensors_header(sections.header, label);
  std::vector<PlacedTensor> tensors;
  for (SafetensorsEntry& entry : header.entries)
    tensors.push_back(
        with_context(fmt::format("{}: tensor \"{}\"", label, printable(entry.name)),
                     [&] { return place(entry, sections.data_begin, file.bytes().size()); }));
  refuse_holes(label, tensors, sections.data_begin, file.bytes().size());
  std::vector<MappedFile> files;
  files.push_back(std::move(file));
  return std::make_unique<TensorSource>(label, std::move(files), std::move(tensors), compare);
}

}  // namespace

std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path) {
  return open_file(path, Compare::Yes);
}
std::unique_ptr<TensorSource> open_damaged_safetensors(const std::filesystem::path& path) {
  return open_file(path, Compare::No);
}

std::map<std::string, std::string> read_safetensors_metadata(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string label = path.string();
  return parse_safetensors_header(find_sections(file, label).header, label).metadata;
}

}  // namespace snug::files
