// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "formats/safetensors.h"

namespace snug::formats {
namespace {

using Json = nlohmann::json;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// Widest elements first: then every tensor starts at a multiple of its element.
std::vector<size_t> layout_order(const std::vector<TensorInfo>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return layout(tensors[a].dtype).block_bytes > layout(tensors[b].dtype).block_bytes;
  });
  return order;
}

// Tensors in order, cut where a shard would pass the limit. One tensor may be larger than it.
std::vector<std::vector<TensorInfo>> cut_into_shards(const std::vector<TensorInfo>& tensors,
                                                     int64_t max_shard_bytes) {
  std::vector<std::vector<TensorInfo>> shards(1);
  int64_t filled = 0;
  for (const TensorInfo& tensor : tensors) {
    if (!shards.back().empty() && tensor.nbytes > max_shard_bytes - filled) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += tensor.nbytes;
  }
  return shards;
}

void write_file(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                const TensorBytes& bytes, const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(path, tensors, metadata);
  for (const TensorInfo& tensor : tensors) writer.write(tensor.name, bytes(tensor));
  writer.finish();
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const size_t i : layout_order(tensors)) {
    const TensorInfo& tensor = tensors[i];
    SNUG_CHECK(!is_quantized(tensor.dtype), "\"{}\": safetensors has no type {}", tensor.name,
               name(tensor.dtype));
    slots_.declare(tensor, offset);
    const auto size = static_cast<uint64_t>(tensor.nbytes);
    header[tensor.name] = {{"dtype", name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  file_.append(std::as_bytes(std::span(&length, 1)));
  file_.append(text);
  slots_.begin_at(file_.size());
  file_.reserve(file_.size() + offset);
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  slots_.write(file_, name, bytes);
}

void SafetensorsWriter::finish() {
  slots_.check_complete();
  file_.finish();
}

std::vector<std::filesystem::path> write_sharded(
    const std::filesystem::path& folder, const std::vector<TensorInfo>& tensors,
    int64_t max_shard_bytes, const TensorBytes& bytes,
    const std::map<std::string, std::string>& metadata) {
  const auto shards = cut_into_shards(tensors, max_shard_bytes);
  if (shards.size() == 1) {
    write_file(folder / kSingleName, tensors, bytes, metadata);
    std::filesystem::remove(folder / kIndexName);
    return {folder / kSingleName};
  }
  // From here until the new index, an interrupted run must not leave an index over mixed shards.
  std::filesystem::remove(folder / kIndexName);
  std::vector<std::filesystem::path> written;
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_file(folder / file, shards[i], bytes, metadata);
    written.push_back(folder / file);
    for (const TensorInfo& tensor : shards[i]) {
      index["weight_map"][tensor.name] = file;
      total += tensor.nbytes;
    }
  }
  index["metadata"]["total_size"] = total;
  write_file_atomically(folder / kIndexName, index.dump(2) + "\n");
  std::filesystem::remove(folder / kSingleName);
  written.push_back(folder / kIndexName);
  return written;
}

}  // namespace snug::formats
