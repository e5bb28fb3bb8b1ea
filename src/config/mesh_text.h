// How a recipe lays its devices out: "dp=2,fsdp=4,tp=2", the number of devices along each axis.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace snug::config {

struct MeshSizes {
  int64_t pipeline = 1;   // pp: the layers are dealt out, a stage a device
  int64_t replicate = 1;  // dp: whole copies
  int64_t shard = 1;      // fsdp: copies that are cut into parts
  int64_t context = 1;    // cp: each sequence is cut
  int64_t tensor = 1;     // tp: each matrix is cut

  int64_t num_ranks() const { return pipeline * replicate * shard * context * tensor; }
  // Devices that see samples of their own.
  int64_t num_data_ranks() const { return replicate * shard; }
  bool operator==(const MeshSizes&) const = default;
};

// Reads `text` into `sizes`; axes that are left out are 1. Returns the fault as a sentence, or
// empty. At most 2^20 devices.
std::string read_mesh(std::string_view text, MeshSizes& sizes);
// "dp=2,fsdp=4": the axes above 1, in the order of the struct; empty for a single device.
std::string mesh_text(const MeshSizes& sizes);

}  // namespace snug::config
