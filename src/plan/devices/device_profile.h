// The memory and speed of a device, for planning without it: from a table of common devices, from a
// YAML file, or measured on this machine's CPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/devices/efficiency.h"
#include "plan/devices/network.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct DeviceProfile {
  std::string name;
  at::DeviceType kind = at::kCUDA;
  int64_t memory_bytes = 0;   // all of it
  int64_t context_bytes = 0;  // used by driver and libraries before the first tensor
  int64_t host_bytes = 0;     // the host's memory; 0: not known
  // If host_bytes is not known: what machines with this device usually have, 4 times its memory per
  // device and at least 64 GiB. Plans stay within it if they can, and warn if they cannot.
  int64_t host_bytes_per_device = 0;
  int64_t assumed_host_bytes = 0;  // of the whole machine (with_host); 0: none
  double flops_16bit = 0;          // per second, dense products with float32 sums
  double flops_32bit = 0;
  double flops_bf16 = 0;             // 0: as flops_16bit; differs on GPUs before Ampere
  double flops_tf32 = 0;             // 0: as flops_32bit; GPUs before Ampere and CPUs lack it
  double bytes_per_second = 0;       // of the device's memory
  double link_bytes_per_second = 0;  // between host and device, one direction
  double host_bytes_per_second = 0;  // of the host's memory
  // The disk for optimizer states and frozen weights: by default the sustained rates of an NVMe
  // drive on PCIe 4.0.
  double disk_read_bytes_per_second = 5e9, disk_write_bytes_per_second = 3e9;
  int64_t disk_bytes = 0;  // free there; 0: not known
  // Shares of these rates that products, fused attention and all that is bound by memory reach.
  double product_efficiency = efficiency_of(recipe::Generation::Ampere).products;
  double attention_efficiency = efficiency_of(recipe::Generation::Ampere).attention;
  double memory_efficiency = efficiency_of(recipe::Generation::Ampere).memory;
  // Between devices, per device and direction: within a machine and between machines.
  double intra_node_bytes_per_second = 0;
  double inter_node_bytes_per_second = 0;
  double intra_node_latency = 0;  // seconds a hop
  double inter_node_latency = 0;
  // Shares of these rates that collectives reach.
  double collective_efficiency = efficiency_of(Link::Pcie, recipe::Generation::Ampere);
  double network_efficiency = efficiency_of(Link::Network, recipe::Generation::Ampere);
  bool flash_attention = true;  // torch has fused attention for 16-bit types

  int64_t usable_bytes() const { return memory_bytes - context_bytes; }
  // `matmul_precision` as in a recipe; it affects float32 only.
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
// Adds what the recipe says about the machine: host_memory, and the disk of the folder for states
// and weights, which a search may have too (fit_disk). For Machine::Here, host memory defaults to
// this machine's and the disk is measured. For Machine::Elsewhere, host memory is assumed if
// neither recipe nor profile gives it.
DeviceProfile with_host(DeviceProfile device, const recipe::Recipe& recipe, Machine where);

// The share of one of several processes on a machine: each has a GPU of its own, but they share a
// CPU's rates and memory, and a disk's rates.
DeviceProfile share_of(const DeviceProfile& device, int64_t ranks_per_machine);
// The links of one of several devices on a machine.
Network network_of(const DeviceProfile& device, int64_t ranks_per_machine);

// `name` is one of profile_names() ("a100-80", "rtx-4090", …; case and separators do not matter),
// "cpu" for this machine, or the path of a YAML file with the members' names. If `budget_bytes` is
// not 0, it replaces the memory, driver and libraries included. Throws UserError that lists the
// choices.
DeviceProfile find_profile(const std::string& name, int64_t budget_bytes);
std::vector<std::string> profile_names();

// By the GPU's name in CUDA; an unknown one gets an A100's profile.
DeviceProfile profile_of_gpu(std::string_view cuda_name);

}  // namespace snug::plan
