// What is known of GPUs: the one table that device profiles, peak rates and the choices of --device
// come from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::recipe {

struct Gpu {
  std::string_view profile;    // as --device takes it; empty: known by its CUDA name only
  std::string_view cuda_name;  // as whole words in the name that CUDA gives
  double memory_gib = 0;       // as the driver shows it
  // Data sheets, TFLOP/s: products of 16-bit numbers with float32 sums on tensor cores, without
  // sparsity; float32 products with all of their bits.
  double tflops_16bit = 0, tflops_32bit = 0;
  double gb_per_second = 0;       // of its memory
  double link_gb_per_second = 0;  // from and to the host, one way, as usually measured
  // Compute capability 8.0 or later; those before have no tensor cores for bfloat16 either.
  bool flash_attention = true;
  // NVLink to the GPUs of the same machine, one way, data sheets; 0: PCIe, as to the host.
  double nvlink_gb_per_second = 0;
  // A GPU's share of the network between machines, one way, in clusters that are sold with it:
  // DGX's for those with NVLink, otherwise 25 Gbit/s.
  double network_gb_per_second = 3.125;

  // Float32 products whose factors lose 13 bits, on tensor cores: half of what 16 bits get, by
  // every data sheet. Those before Ampere cannot.
  double tflops_tf32() const {
    return flash_attention ? std::max(tflops_16bit / 2, tflops_32bit) : tflops_32bit;
  }
};

std::span<const Gpu> gpus();
// The first whose name CUDA's contains as whole words (an A100 is no A1000); null: none.
const Gpu* gpu_by_cuda_name(std::string_view name);
// Names of those that have a profile.
std::vector<std::string> gpu_profile_names();

}  // namespace snug::recipe
