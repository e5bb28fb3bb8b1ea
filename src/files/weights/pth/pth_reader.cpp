// torch.save has written two layouts: since 1.6 a zip (<name>/data.pkl, <name>/data/<key>), before
// that five pickles in a row followed by the storages.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "files/weights/byte_reader.h"
#include "files/weights/pth/pickle.h"
#include "files/weights/pth/pth.h"
#include "files/weights/pth/pth_state_dict.h"
#include "files/weights/pth/zip.h"

namespace snug::files {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kPickleName = "/data.pkl";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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
