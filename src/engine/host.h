// The machine of a run: its device and that device's properties, threads and memory limits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "recipe/recipe.h"
#include "recipe/tables/choices.h"

namespace snug::engine {

// `accelerator` is auto, cpu or cuda; auto takes a GPU if this build has CUDA and one is visible.
// Initializes the device: afterwards it holds the memory that its libraries keep for themselves.
// Throws UserError for cuda without a GPU. Call after memory::install_allocators().
at::Device open_device(const recipe::Word<recipe::Accelerator>& accelerator,
                       bool own_stream = false);

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

// Highest resident set of this process so far, in bytes.
int64_t peak_resident_bytes();

// Bytes of a GPU's memory, once CUDA's libraries are loaded.
struct GpuMemory {
  int64_t free = 0;      // not in use by any program
  int64_t reserved = 0;  // held by our allocator, for the libraries' workspaces
  int64_t driver = 0;    // used by the driver for this program
};

struct MemoryLimits {
  int64_t budget_bytes = 0;    // for tensors: the user's budget less the driver's share; 0: none
  int64_t reserved_bytes = 0;  // the most that our allocator may reserve; 0: not limited
};
// The limits of a run on a GPU for the option `memory_budget` ("16GB" or empty).
MemoryLimits limits_of(const std::string& memory_budget, const GpuMemory& gpu);

struct Host {
  at::Device device = at::kCPU;  // where the run computes
  int64_t budget_bytes = 0;      // of that device's memory, less the driver's share; 0: none
  int64_t library_bytes = 0;     // cuBLAS's workspace on the device
  int64_t reserved_limit = 0;    // the most that our allocator may reserve on a GPU; 0 for a cpu
  int64_t library_reserved = 0;  // what it has reserved there for the libraries
};

// Sets the number of threads of this process. 0: OMP_NUM_THREADS, or else one per core.
void use_threads(int64_t wanted);

// Installs the allocators, sets the threads, and chooses the device and its budget. Call before the
// first tensor. `memory_budget` is "2GiB" or empty; num_threads as above; `own_stream`: on a
// GPU, as engine::needs_own_stream().
Host prepare_host(const std::string& memory_budget, int64_t num_threads,
                  const recipe::Word<recipe::Accelerator>& accelerator, bool own_stream = false);

// Checks the folders on disk that a recipe names, fit_disk too, before a model is read. Throws
// UserError if no file can be made there; warns if its file system is in memory.
void check_offload_folder(const recipe::Recipe& recipe);

}  // namespace snug::engine
