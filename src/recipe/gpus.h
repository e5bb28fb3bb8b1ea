// The table of GPUs, for device profiles, peak rates and the choices of --device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::recipe {

// Turing counts as Volta.
enum class Generation { Volta, Ampere, Ada, Hopper, Blackwell };

struct Gpu {
  std::string_view profile;    // its --device name; empty: no profile
  std::string_view cuda_name;  // whole words of the name that CUDA reports
  double memory_gib = 0;       // as the driver shows it
  // From data sheets: 16-bit matrix products with float32 sums on tensor cores, without sparsity;
  // and float32 products in full precision.
  double tflops_16bit = 0, tflops_32bit = 0;
  double gb_per_second = 0;       // of its memory
  double link_gb_per_second = 0;  // from and to the host, one way, as usually measured
  Generation generation = Generation::Ampere;
  // NVLink between the GPUs of a machine, one way, from data sheets; 0: PCIe, as to the host.
  double nvlink_gb_per_second = 0;
  // Each GPU's share of the network between machines, one way: as in DGX systems for GPUs with
  // NVLink, otherwise 25 Gbit/s.
  double network_gb_per_second = 3.125;

  // Compute capability 8.0 or later. Earlier GPUs have no bfloat16 on tensor cores either.
  bool flash_attention() const { return generation != Generation::Volta; }
  // TF32 products on tensor cores: half the 16-bit rate on every data sheet. GPUs before Ampere
  // have none.
  double tflops_tf32() const {
    return flash_attention() ? std::max(tflops_16bit / 2, tflops_32bit) : tflops_32bit;
  }
};

std::span<const Gpu> gpus();
// The first GPU whose name occurs in `name` as whole words (A100 is not A1000); nullptr: none.
const Gpu* gpu_by_cuda_name(std::string_view name);
// The names that --device accepts.
std::vector<std::string> gpu_profile_names();

}  // namespace snug::recipe
