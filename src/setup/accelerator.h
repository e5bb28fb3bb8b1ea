// Which device a run is on, and what is known of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

namespace snug::setup {

// `accelerator` is auto, cpu or cuda; auto takes a GPU where this build has CUDA and one is
// visible. Makes the device ready: after this it holds what its libraries keep for themselves.
// Throws UserError for cuda where there is none. Call after memory::install_allocators().
at::Device open_device(std::string_view accelerator);

// Float32 products of a GPU as the recipe's matmul_precision says. A CPU's are not touched:
// libtorch's own setting of that name would let them round to bfloat16.
void choose_matmul_precision(at::Device device, std::string_view precision);

// Of several processes of a machine each is to see one GPU: CUDA_VISIBLE_DEVICES for the one
// numbered `local_rank`, given what it is now (empty: all GPUs).
std::string visible_gpu(int local_rank, const std::string& visible);

// "NVIDIA H100 80GB HBM3, 79.11 GiB" or "AMD EPYC, 2 threads, avx2".
std::string device_name(at::Device device);

// What nobody has of a GPU's memory at this moment; 0 for a cpu.
int64_t free_bytes(at::Device device);

// What a GPU's driver keeps of it for this program, which no ledger sees; 0 for a cpu.
int64_t driver_bytes(at::Device device);

// What products of `compute` could reach at best, in FLOP/s; 0 where it is not known. Of a GPU
// after choose_matmul_precision().
double peak_flops_per_second(at::Device device, at::ScalarType compute);

// The same by a GPU's name as CUDA gives it, from data sheets; 0 for one that is not in the table.
double gpu_peak_flops_per_second(std::string_view name, at::ScalarType compute);

}  // namespace snug::setup
