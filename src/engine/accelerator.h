// The run's device and its properties.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

#include "recipe/tables/choices.h"

namespace snug::engine {

// `accelerator` is auto, cpu or cuda; auto takes a GPU if this build has CUDA and one is visible.
// Initializes the device: afterwards it holds the memory that its libraries keep for themselves.
// Throws UserError for cuda without a GPU. Call after memory::install_allocators().
at::Device open_device(const recipe::Word<recipe::Accelerator>& accelerator);

// Sets the precision of float32 products on a GPU to the recipe's matmul_precision. Products on a
// CPU stay exact: libtorch's own setting of that name would let them round to bfloat16.
void choose_matmul_precision(at::Device device,
                             const recipe::Word<recipe::MatmulPrecision>& precision);

// The CUDA_VISIBLE_DEVICES with which process `local_rank` of a machine sees one GPU of its own;
// `visible` is the present value (empty: all GPUs).
std::string visible_gpu(int local_rank, const std::string& visible);

// "NVIDIA H100 80GB HBM3, 79.11 GiB" or "AMD EPYC, 2 threads, avx2".
std::string device_name(at::Device device);

// Free memory of a GPU at this moment; 0 for a cpu.
int64_t free_bytes(at::Device device);

// GPU memory that the driver keeps for this program and no ledger counts; 0 for a cpu.
int64_t driver_bytes(at::Device device);

// Peak FLOP/s of matrix products in `compute`; 0 if unknown. For a GPU call
// choose_matmul_precision() first.
double peak_flops_per_second(at::Device device, at::ScalarType compute);

// The same from data sheets, by a GPU's name as CUDA reports it; 0 if it is not in the table.
double gpu_peak_flops_per_second(std::string_view name, at::ScalarType compute);

}  // namespace snug::engine
