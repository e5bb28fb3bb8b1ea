// torch.save has written two layouts: since 1.6 a zip (<name>/data.pkl, <name>/data/<key>), before
// that five pickles in a row followed by the storages.
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/byte_reader.h"
#include "files/weights/pth/pickle.h"
#include "files/weights/pth/pth.h"
#include "files/weights/pth/zip.h"
#include "files/weights/tensor_source.h"

namespace snug::files {
namespace {

// The byte range of a storage in the file.
struct StorageRange {
  size_t offset = 0;
  size_t bytes = 0;
};
using Storages = std::map<std::string, StorageRange, std::less<>>;  // by key

using Kind = PickleValue::Kind;

constexpr int kMaxNesting = 4;

bool holds_tensors(const Pickle& pickle, const PickleValue& dict) {
  for (size_t i = 1; i < dict.items.size(); i += 2)
    if (pickle[dict.items[i]].kind == Kind::Tensor) return true;
  return false;
}

const PickleValue* member(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue &name = pickle[dict.items[i]], &value = pickle[dict.items[i + 1]];
    if (name.kind == Kind::Text && name.text == key && value.kind == Kind::Dict) return &value;
  }
  return nullptr;
}

std::string show_keys(const Pickle& pickle, const PickleValue& dict) {
  constexpr size_t kShown = 8;
  std::string shown;
  for (size_t i = 0; i < dict.items.size() && i < 2 * kShown; i += 2)
    shown += fmt::format("{}\"{}\"", i > 0 ? ", " : "", printable(pickle[dict.items[i]].text, 40));
  return shown.empty() ? "nothing" : shown;
}

const PickleValue& find_state_dict(const Pickle& pickle, const std::string& label) {
  const PickleValue* dict = &pickle[pickle.root];
  for (int depth = 0; depth < kMaxNesting && dict->kind == Kind::Dict; ++depth) {
    if (holds_tensors(pickle, *dict)) return *dict;
    const PickleValue* inner = nullptr;
    for (const char* key : {"model", "state_dict", "model_state_dict", "module"})
      if (inner == nullptr) inner = member(pickle, *dict, key);
    if (inner == nullptr) break;
    dict = inner;
  }
  throw UserError(
      "{}: no state dict found: it must be a dictionary of tensors, at the top or under \"model\", "
      "\"state_dict\", \"model_state_dict\" or \"module\", and the file has {}",
      label, show_keys(pickle, *dict));
}

std::vector<int64_t> integers(const Pickle& pickle, PickleId tuple) {
  std::vector<int64_t> values;
  for (const PickleId id : pickle[tuple].items) {
    if (pickle[id].kind != Kind::Integer || pickle[id].integer < 0)
      throw UserError("its shape or strides are not all whole numbers; the file is damaged");
    values.push_back(pickle[id].integer);
  }
  return values;
}

bool is_row_major(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

// The number of storage elements up to and including the tensor's last element; empty on overflow.
std::optional<int64_t> reach(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                             int64_t offset) {
  int64_t last = offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &step) ||
        __builtin_add_overflow(last, step, &last))
      return {};
  }
  if (last == INT64_MAX) return {};
  return last + 1;
}

PlacedTensor place(const Pickle& pickle, const PickleValue& tensor, std::string name,
                   const Storages& storages) {
  const PickleValue& storage = pickle[tensor.items[0]];
  const std::string key = storage.items.empty()
                              ? std::string(storage.text)
                              : std::to_string(pickle[storage.items.front()].integer);
  const auto found = storages.find(key);
  if (found == storages.end())
    throw UserError("its storage \"{}\" is not in the file; the file is damaged, fetch it again",
                    printable(key, 40));
  PlacedTensor placed;
  placed.strides = integers(pickle, tensor.items[2]);
  placed.info = make_tensor_info(std::move(name), tensor.dtype, integers(pickle, tensor.items[1]));
  const std::vector<int64_t>& shape = placed.info.shape;
  const int64_t width = layout(tensor.dtype).block_bytes;
  if (shape.size() != placed.strides.size() || tensor.integer < 0)
    throw UserError("it has {} sizes, {} strides and offset {}; the file is damaged", shape.size(),
                    placed.strides.size(), tensor.integer);
  const int64_t elements = static_cast<int64_t>(found->second.bytes) / width;
  if (storage.integer > elements)
    throw UserError("its storage claims {} elements and has {}; the file is damaged or truncated",
                    storage.integer, elements);
  const int64_t count = placed.info.num_elements();
  if (count > 0) {
    const auto end = reach(shape, placed.strides, tensor.integer);
    if (!end || *end > storage.integer || count > storage.integer)
      throw UserError(
          "shape {} with strides {} and offset {} exceeds the {} elements of its storage; the "
          "file is damaged",
          show_shape(shape), show_shape(placed.strides), tensor.integer, storage.integer);
    placed.offset = found->second.offset + static_cast<size_t>(tensor.integer * width);
  }
  if (count == 0 || is_row_major(shape, placed.strides)) placed.strides.clear();
  return placed;
}

// Finds the state dict in a pickle's values and checks each tensor against its storage. Throws
// UserError, beginning with `label`.
std::vector<PlacedTensor> place_state_dict(const Pickle& pickle, const Storages& storages,
                                           const std::string& label) {
  const PickleValue& dict = find_state_dict(pickle, label);
  std::vector<PlacedTensor> tensors;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue &key = pickle[dict.items[i]], &value = pickle[dict.items[i + 1]];
    if (value.kind != Kind::Tensor) continue;
    if (key.kind != Kind::Text || find_invalid_utf8(key.text) != std::string_view::npos)
      throw UserError("{}: a tensor's name \"{}\" is not a valid text; the file is damaged", label,
                      printable(key.text));
    tensors.push_back(
        with_context(fmt::format("{}: tensor \"{}\"", label, printable(key.text)),
                     [&] { return place(pickle, value, std::string(key.text), storages); }));
  }
  return tensors;
}

constexpr std::string_view kPickleName = "/data.pkl";

// "archive" for "archive/data.pkl".
std::string find_prefix(const ZipDirectory& directory, const std::string& label) {
  std::string prefix;
  for (const auto& [name, _] : directory) {
    if (!name.ends_with(kPickleName)) continue;
    if (!prefix.empty())
      throw UserError("{}: there are two data.pkl inside it; the file is damaged", label);
    prefix = name.substr(0, name.size() - kPickleName.size());
  }
  if (prefix.empty())
    throw UserError(
        "{}: there is no data.pkl inside this zip, so torch.save did not write it; give a .pth or "
        ".bin file of PyTorch",
        label);
  return prefix;
}

void refuse_big_endian(std::span<const std::byte> file, const ZipDirectory& directory,
                       const std::string& prefix, const std::string& label) {
  const auto found = directory.find(prefix + "/byteorder");
  if (found == directory.end()) return;
  const auto order = as_text(file.subspan(found->second.offset, found->second.size));
  if (order != "little")
    throw UserError("{}: its byte order is \"{}\", and only \"little\" is supported", label,
                    printable(order, 20));
}

std::vector<PlacedTensor> place_zip(std::span<const std::byte> file, const std::string& label) {
  const ZipDirectory directory = read_zip_directory(file, label);
  const std::string prefix = find_prefix(directory, label);
  refuse_big_endian(file, directory, prefix, label);
  Storages storages;
  const std::string data = prefix + "/data/";
  for (const auto& [name, entry] : directory)
    if (name.starts_with(data)) storages[name.substr(data.size())] = {entry.offset, entry.size};
  const ZipEntry& entry = directory.at(prefix + std::string(kPickleName));
  ByteReader reader(file.first(entry.offset + entry.size), label, entry.offset);
  return place_state_dict(read_pickle(reader), storages, label);
}

// The older layout begins with this number as a pickled ten-byte integer.
constexpr std::string_view kLegacyMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

void read_legacy_preamble(ByteReader& reader) {
  const Pickle magic = read_pickle(reader);
  if (magic[magic.root].text != kLegacyMagic)
    throw UserError("{}: this is not a file of torch.save", reader.label());
  const Pickle version = read_pickle(reader);
  if (version[version.root].kind != Kind::Integer || version[version.root].integer != 1001)
    throw UserError("{}: unknown version of torch.save's format", reader.label());
  read_pickle(reader);  // sizes of C types on the machine that wrote it
}

Storages read_legacy_storages(ByteReader& reader, const Pickle& object) {
  std::map<std::string_view, DType> types;
  for (const PickleValue& value : object.values)
    if (value.kind == Kind::Storage) types[value.text] = value.dtype;
  const Pickle keys = read_pickle(reader);
  Storages storages;
  for (const PickleId id : keys[keys.root].items) {
    const std::string_view key = keys[id].text;
    const auto type = types.find(key);
    const uint64_t elements = reader.u64("a storage's length");
    if (type == types.end() || elements > reader.remaining())
      throw UserError(
          "{}: storage \"{}\" with {} elements does not fit the file; it is truncated or "
          "damaged, fetch it again",
          reader.label(), printable(key, 40), elements);
    const size_t offset = reader.position();
    const size_t bytes = elements * static_cast<size_t>(layout(type->second).block_bytes);
    reader.take(bytes, "a storage");
    storages[std::string(key)] = {offset, bytes};
  }
  return storages;
}

std::vector<PlacedTensor> place_legacy(std::span<const std::byte> file, const std::string& label) {
  ByteReader reader(file, label);
  read_legacy_preamble(reader);
  const Pickle object = read_pickle(reader);
  const Storages storages = read_legacy_storages(reader, object);
  return place_state_dict(object, storages, label);
}

}  // namespace

std::unique_ptr<TensorSource> open_pth(const std::filesystem::path& path) {
  MappedFile file(path);
  const std::string label = path.string();
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < 2 || (!looks_like_zip(bytes) && bytes[0] != std::byte{0x80}))
    throw UserError("{}: this is not a file of torch.save, which is a zip or begins with a pickle",
                    label);
  auto tensors = looks_like_zip(bytes) ? place_zip(bytes, label) : place_legacy(bytes, label);
  std::vector<MappedFile> files;
  files.push_back(std::move(file));
  return std::make_unique<TensorSource>(label, std::move(files), std::move(tensors));
}

}  // namespace snug::files
