// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "files/weights/byte_reader.h"
#include "files/weights/placement.h"
#include "files/weights/safetensors/safetensors.h"
#include "files/weights/safetensors/safetensors_header.h"

namespace snug::files {
namespace {

// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

DType parse_dtype(const std::string& text) {
  constexpr std::array kPlain = {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64,
                                 DType::I32, DType::I16, DType::I8,  DType::U8,   DType::Bool};
  for (const DType type : kPlain)
    if (text == name(type)) return type;
  throw UserError(
      "its type {} is not supported; supported are F64, F32, F16, BF16, I64, I32, I16, I8, U8 and "
      "BOOL. Convert the tensor to one of them first",
      printable(text, 20));
}

// The header's bytes and the offset of the data.
struct Sections {
  std::string_view header;
  size_t data_begin;
};

Sections find_sections(const MappedFile& file, const std::string& label) {
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

}  // namespace

std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path) {
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
  return std::make_unique<TensorSource>(label, std::move(files), std::move(tensors));
}

std::map<std::string, std::string> read_safetensors_metadata(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string label = path.string();
  return parse_safetensors_header(find_sections(file, label).header, label).metadata;
}

}  // namespace snug::files
