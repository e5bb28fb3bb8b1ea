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

#include "plan/devices/network.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct DeviceProfile {
  std::string name;
  at::DeviceType kind = at::kCUDA;
  int64_t memory_bytes = 0;   // all there is
  int64_t context_bytes = 0;  // taken by driver and libraries before the first tensor
  int64_t host_bytes = 0;     // of memory beside it; 0: not known
  // Where that is not known: what machines with this device usually have, 4 times its memory for
  // each device and 64 GiB at least. Plans keep to it where they can, and warn where they cannot.
  int64_t host_bytes_per_device = 0;
  int64_t assumed_host_bytes = 0;  // of the whole machine (with_host); 0: nothing is assumed
  double flops_16bit = 0;          // per second, dense products with float32 sums
  double flops_32bit = 0;
  double flops_bf16 = 0;             // 0: as flops_16bit; GPUs before Ampere have none of their own
  double flops_tf32 = 0;             // 0: as flops_32bit; GPUs before Ampere and CPUs have none
  double bytes_per_second = 0;       // of the device's memory
  double link_bytes_per_second = 0;  // between host and device, one direction
  double host_bytes_per_second = 0;  // of the host's memory
  // Of the disk that optimizer states may go to: an NVMe drive on PCIe 4.0, written to for long.
  double disk_read_bytes_per_second = 5e9, disk_write_bytes_per_second = 3e9;
  int64_t disk_bytes = 0;           // free there; 0: not known
  double product_efficiency = 0.6;  // share of the peak that products reach
  // Between devices, of one of them, one direction: those of the same machine and those of others.
  double intra_node_bytes_per_second = 0;
  double inter_node_bytes_per_second = 0;
  double intra_node_latency = 0;  // seconds a hop
  double inter_node_latency = 0;
  double collective_efficiency = 0.8;  // share of these rates that collectives reach
  bool flash_attention = true;         // torch has fused attention for 16-bit types here

  int64_t usable_bytes() const { return memory_bytes - context_bytes; }
  // `matmul_precision` as in a recipe; it counts for float32.
  double flops(at::ScalarType compute,
               const recipe::Word<recipe::MatmulPrecision>& matmul_precision) const {
    if (compute == at::kFloat)
      return matmul_precision != recipe::MatmulPrecision::Highest && flops_tf32 > 0 ? flops_tf32
                                                                                    : flops_32bit;
    return compute == at::kBFloat16 && flops_bf16 > 0 ? flops_bf16 : flops_16bit;
  }
};

// Whether the machine that is planned for is the one that plans.
enum class Machine { Here, Elsewhere };
// With what a recipe says of the machine beside the device: host_memory, and the folder for
// optimizer states of optimizer_offload, or of fit_disk where that is asked for. Here the host has
// this machine's memory without a word on it, and the folder's disk is measured. Elsewhere it is
// assumed, where neither recipe nor profile says.
DeviceProfile with_host(DeviceProfile device, const recipe::Recipe& recipe, Machine where);

// What one of so many processes on a machine has of it: a GPU each; a cpu's rates and memory, and
// any disk's rates, are shared.
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
