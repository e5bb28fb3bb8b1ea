// SPDX-License-Identifier: Apache-2.0
#include "files/checksums.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"

namespace snug::files {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMostThreads = 16;
constexpr const char* kAbout =
    "XXH3 checksums (64 bits) of each MiB of the files in this folder; snug verify compares them";

size_t num_chunks(size_t bytes) { return (bytes + kChecksumChunk - 1) / kChecksumChunk; }

std::span<const std::byte> chunk_of(std::span<const std::byte> file, size_t chunk) {
  const size_t begin = chunk * kChecksumChunk;
  return file.subspan(begin, std::min(kChecksumChunk, file.size() - begin));
}

uint64_t hash_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// Calls work(first … last - 1) on several threads.
template <class Work>
void for_each_chunk(size_t first, size_t last, const Work& work) {
  std::atomic<size_t> next{first};
  const auto run = [&] {
    for (size_t i = next++; i < last; i = next++) work(i);
  };
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (size_t t = 1; t < std::min({cores, kMostThreads, last - first}); ++t)
    helpers.emplace_back(run);
  run();
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

// Throws std::invalid_argument, as Json throws its own for other faults of a text.
uint64_t from_hex(const std::string& text) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (text.size() != 16 || error != std::errc{} || end != text.data() + text.size())
    throw std::invalid_argument("a checksum has 16 hexadecimal digits");
  return hash;
}

Json to_json(const FolderChecksums& checksums) {
  Json json = Json::object();
  for (const auto& [name, file] : checksums) {
    Json chunks = Json::array();
    for (const uint64_t hash : file.chunks) chunks.push_back(hex(hash));
    json[name] = {{"bytes", file.bytes}, {"xxh3", std::move(chunks)}};
  }
  return json;
}

FolderChecksums from_json(const Json& json) {
  FolderChecksums checksums;
  for (const auto& [name, entry] : json.items()) {
    FileChecksums& file = checksums[name];
    file.bytes = entry.at("bytes").get<size_t>();
    for (const Json& hash : entry.at("xxh3")) file.chunks.push_back(from_hex(hash));
    if (file.chunks.size() != num_chunks(file.bytes) || fs::path(name).filename() != name)
      throw std::invalid_argument("a file's entry contradicts itself");
  }
  return checksums;
}

void write_to(const fs::path& folder, const FolderChecksums& checksums) {
  const Json files = to_json(checksums);
  const std::string text = files.dump();
  const Json json{{"about", kAbout},
                  {"files", files},
                  {"this_file", hex(hash_of(std::as_bytes(std::span(text))))}};
  write_file_atomically(folder / kChecksumsName, json.dump(1) + "\n");
}

bool is_weights(const fs::path& file) {
  const std::string suffix = file.extension().string();
  return suffix == ".safetensors" || suffix == ".pth" || suffix == ".bin" || suffix == ".gguf";
}

// What is wrong with a file of the folder; empty: nothing.
std::string fault_of(const fs::path& file, const FileChecksums& checksums, bool compares_bytes) {
  if (!fs::exists(file)) return fmt::format("{} is missing", file.filename().string());
  const MappedFile mapped(file);
  if (mapped.bytes().size() != checksums.bytes)
    return fmt::format("{} has {} bytes instead of {}", file.filename().string(),
                       mapped.bytes().size(), checksums.bytes);
  if (compares_bytes && FileCheck(checksums).find_damage(mapped.bytes(), 0, checksums.bytes))
    return fmt::format("{} is damaged", file.filename().string());
  return "";
}

}  // namespace

FileChecksums checksums_of(const fs::path& file) {
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  FileChecksums checksums{bytes.size(), std::vector<uint64_t>(num_chunks(bytes.size()))};
  for_each_chunk(0, checksums.chunks.size(), [&](size_t i) {
    checksums.chunks[i] = hash_of(chunk_of(bytes, i));
    mapped.release(i * kChecksumChunk, chunk_of(bytes, i).size());
  });
  return checksums;
}

std::string to_text(const FolderChecksums& checksums) { return to_json(checksums).dump(); }
FolderChecksums from_text(const std::string& text) { return from_json(Json::parse(text)); }

void write_checksums(const fs::path& folder, const FolderChecksums& known) {
  FolderChecksums checksums;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == kChecksumsName) continue;
    const auto found = known.find(name);
    checksums[name] = found == known.end() ? checksums_of(entry.path()) : found->second;
  }
  write_to(folder, checksums);
}

int64_t checksums_bytes(int64_t bytes, int64_t num_files) {
  constexpr int64_t kFrame = 170, kOfFile = 80, kOfChunk = 25;
  return kFrame + kOfFile * num_files +
         kOfChunk * (bytes / static_cast<int64_t>(kChecksumChunk) + num_files);
}

std::optional<FolderChecksums> read_checksums(const fs::path& folder) {
  const fs::path path = folder / kChecksumsName;
  if (!fs::exists(path)) return std::nullopt;
  try {
    const Json json = Json::parse(read_file(path, size_t{1} << 28));
    const std::string text = json.at("files").dump();
    if (from_hex(json.at("this_file")) == hash_of(std::as_bytes(std::span(text))))
      return from_json(json.at("files"));
  } catch (const UserError&) {
    throw;
  } catch (const std::exception&) {  // not JSON, or not ours: damaged as well
  }
  throw UserError(
      "{} is damaged itself; restore it from a copy, or delete it if the files beside it are good",
      path.string());
}

std::string fault_of_files(const fs::path& folder, Weights weights) {
  const auto checksums = read_checksums(folder);
  if (!checksums) return "";
  for (const auto& [name, file] : *checksums) {
    const bool compares_bytes = weights == Weights::ByBytes || !is_weights(name);
    if (std::string fault = fault_of(folder / name, file, compares_bytes); !fault.empty())
      return fault;
  }
  return "";
}

FileCheck::FileCheck(FileChecksums checksums)
    : checksums_(std::move(checksums)),
      checked_(std::make_unique<std::atomic<bool>[]>(checksums_.chunks.size())) {}

bool FileCheck::is_whole(std::span<const std::byte> file, size_t chunk) {
  if (checked_[chunk].load(std::memory_order_relaxed)) return true;
  const bool whole = hash_of(chunk_of(file, chunk)) == checksums_.chunks[chunk];
  checked_[chunk].store(whole, std::memory_order_relaxed);
  return whole;
}

std::optional<FileCheck::Range> FileCheck::find_damage(std::span<const std::byte> file,
                                                       size_t begin, size_t end) {
  SNUG_CHECK(file.size() == checksums_.bytes && end <= file.size(), "a file of another size");
  if (begin >= end) return std::nullopt;
  std::atomic<size_t> damaged{checksums_.chunks.size()};
  for_each_chunk(begin / kChecksumChunk, num_chunks(end), [&](size_t i) {
    if (is_whole(file, i)) return;
    for (size_t first = damaged; i < first && !damaged.compare_exchange_weak(first, i);) {
    }
  });
  if (damaged == checksums_.chunks.size()) return std::nullopt;
  const size_t at = damaged * kChecksumChunk;
  return Range{at, at + chunk_of(file, damaged).size()};
}

std::vector<FileCheck::Range> FileCheck::all_damage(std::span<const std::byte> file) {
  std::vector<Range> ranges;
  for (size_t begin = 0; begin < file.size();) {
    const auto range = find_damage(file, begin, file.size());
    if (!range) break;
    ranges.push_back(*range);
    begin = range->end;
  }
  return ranges;
}

std::unique_ptr<FileCheck> find_check(const fs::path& file) {
  const auto checksums = read_checksums(file.has_parent_path() ? file.parent_path() : ".");
  if (!checksums) return nullptr;
  const auto found = checksums->find(file.filename().string());
  return found == checksums->end() ? nullptr : std::make_unique<FileCheck>(found->second);
}

}  // namespace snug::files
