// What a device has and can do, for planning without it: a table of common ones, a YAML file of
// one's own, or this machine's CPU, measured.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/network.h"

namespace snug::plan {

struct DeviceProfile {
  std::string name;
  at::DeviceType kind = at::kCUDA;
  int64_t memory_bytes = 0;   // all there is
  int64_t context_bytes = 0;  // taken by driver and libraries before the first tensor
  int64_t host_bytes = 0;     // of memory beside it; 0: not known
  double flops_16bit = 0;     // per second, dense products with float32 sums
  double flops_32bit = 0;
  double bytes_per_second = 0;       // of the device's memory
  double link_bytes_per_second = 0;  // between host and device, one direction
  double host_bytes_per_second = 0;  // of the host's memory
  double product_efficiency = 0.6;   // share of the peak that products reach
  // Between devices, of one of them, one direction: those of the same machine and those of others.
  double intra_node_bytes_per_second = 0;
  double inter_node_bytes_per_second = 0;
  double intra_node_latency = 0;  // seconds a hop
  double inter_node_latency = 0;
  double collective_efficiency = 0.8;  // share of these rates that collectives reach
  bool flash_attention = true;         // torch has fused attention for 16-bit types here

  int64_t usable_bytes() const { return memory_bytes - context_bytes; }
  double flops(at::ScalarType compute) const {
    return compute == at::kFloat ? flops_32bit : flops_16bit;
  }
};

// What one of so many processes on a machine has of it: a GPU each; a cpu's rates and memory are
// shared.
DeviceProfile share_of(const DeviceProfile& device, int64_t ranks_per_machine);
// The links of a device that is one of so many on its machine.
Network network_of(const DeviceProfile& device, int64_t ranks_per_machine);

// "a100-80", "rtx-4090", …: names as in profile_names(), case and separators do not matter; "cpu":
// this machine; or the path of a YAML file with the members' names. Of `budget_bytes` of memory,
// driver and libraries included, where that is not 0. Throws UserError that lists the choices.
DeviceProfile find_profile(const std::string& name, int64_t budget_bytes);
std::vector<std::string> profile_names();

// Of a GPU by the name that CUDA gives; one that nobody knows is taken for an A100.
DeviceProfile profile_of_gpu(std::string_view cuda_name);

}  // namespace snug::plan
