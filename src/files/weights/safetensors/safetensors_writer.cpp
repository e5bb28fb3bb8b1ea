// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::files {
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

// Splits the tensors, in order, into shards of at most the limit, or of a single larger tensor.
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

struct Header {
  std::string text;                                  // padded
  std::vector<std::pair<size_t, uint64_t>> offsets;  // tensor, offset in the data
  uint64_t data_bytes = 0;
};

Header header_of(const std::vector<TensorInfo>& tensors,
                 const std::map<std::string, std::string>& metadata) {
  Header header;
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const size_t i : layout_order(tensors)) {
    const TensorInfo& tensor = tensors[i];
    SNUG_CHECK(!is_quantized(tensor.dtype), "\"{}\": safetensors has no type {}", tensor.name,
               name(tensor.dtype));
    const uint64_t begin = header.data_bytes;
    header.offsets.emplace_back(i, begin);
    header.data_bytes += static_cast<uint64_t>(tensor.nbytes);
    json[tensor.name] = {{"dtype", name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {begin, header.data_bytes}}};
  }
  header.text = json.dump();
  header.text.resize((header.text.size() + 7) / 8 * 8, ' ');
  return header;
}

std::string shard_name(size_t shard, size_t num_shards) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_shards);
}

std::string index_text(const std::vector<std::vector<TensorInfo>>& shards) {
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i)
    for (const TensorInfo& tensor : shards[i]) {
      index["weight_map"][tensor.name] = shard_name(i, shards.size());
      total += tensor.nbytes;
    }
  index["metadata"]["total_size"] = total;
  return index.dump(2) + "\n";
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
  const Header header = header_of(tensors, metadata);
  for (const auto& [i, begin] : header.offsets) slots_.declare(tensors[i], begin);
  const uint64_t length = header.text.size();
  file_.append(std::as_bytes(std::span(&length, 1)));
  file_.append(header.text);
  slots_.begin_at(file_.size());
  file_.reserve(file_.size() + header.data_bytes);
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
  // Until the new index is written, an interrupted run must not leave an index that mixes old and
  // new shards.
  std::filesystem::remove(folder / kIndexName);
  std::vector<std::filesystem::path> written;
  for (size_t i = 0; i < shards.size(); ++i) {
    written.push_back(folder / shard_name(i, shards.size()));
    write_file(written.back(), shards[i], bytes, metadata);
  }
  write_file_atomically(folder / kIndexName, index_text(shards));
  std::filesystem::remove(folder / kSingleName);
  written.push_back(folder / kIndexName);
  return written;
}

int64_t safetensors_bytes(const std::vector<TensorInfo>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  const Header header = header_of(tensors, metadata);
  return static_cast<int64_t>(sizeof(uint64_t) + header.text.size() + header.data_bytes);
}

int64_t sharded_bytes(const std::vector<TensorInfo>& tensors, int64_t max_shard_bytes,
                      const std::map<std::string, std::string>& metadata) {
  const auto shards = cut_into_shards(tensors, max_shard_bytes);
  int64_t total = shards.size() == 1 ? 0 : std::ssize(index_text(shards));
  for (const auto& shard : shards) total += safetensors_bytes(shard, metadata);
  return total;
}

}  // namespace snug::files
