// safetensors: an 8-byte header length, a JSON header, then the tensors' bytes without gaps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/weights/output_file.h"
#include "files/weights/tensor_source.h"

namespace snug::files {

std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path);
// The same for a file that is known to be damaged: without a look at its checksums.
std::unique_ptr<TensorSource> open_damaged_safetensors(const std::filesystem::path& path);

// The optional "__metadata__" of a file, e.g. {"format": "pt"}.
std::map<std::string, std::string> read_safetensors_metadata(const std::filesystem::path& path);

// Streams tensors into a temporary file beside `path`; finish() makes it `path`. The header is
// written first from the declared list. Wider types come first in the file, so that every tensor is
// aligned to its element size, which other readers rely on; write() may be called in any order.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // A tensor may be written in consecutive chunks. Throws InternalError beyond its declared size.
  void write(std::string_view name, std::span<const std::byte> bytes);
  void finish();  // throws InternalError if a tensor is incomplete

 private:
  OutputFile file_;
  TensorSlots slots_;
};

// The whole bytes of a tensor, valid until the next call.
using TensorBytes = std::function<std::span<const std::byte>(const TensorInfo&)>;

// Writes Hugging Face's layout into an existing folder: model.safetensors if all fits in
// `max_shard_bytes`, else model-00001-of-0000N.safetensors … and model.safetensors.index.json. An
// older model.safetensors or index of the other layout is removed, since loaders might prefer it.
// Returns the files written.
std::vector<std::filesystem::path> write_sharded(
    const std::filesystem::path& folder, const std::vector<TensorInfo>& tensors,
    int64_t max_shard_bytes, const TensorBytes& bytes,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The file size that SafetensorsWriter, or write_sharded(), produces.
int64_t safetensors_bytes(const std::vector<TensorInfo>& tensors,
                          const std::map<std::string, std::string>& metadata = {});
int64_t sharded_bytes(const std::vector<TensorInfo>& tensors, int64_t max_shard_bytes,
                      const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace snug::files
