// Host memory for offloading, and freeing and reallocating a tensor's memory while the tensor
// stays.
//
// On cpu, device and host are the same memory with two ledgers, so that every offloading technique
// runs, and can be measured against a budget, on any machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/memory/ledger.h"

namespace snug::memory {

// A new tensor in host memory for `device`, content undefined. For cuda it is pinned, from the pool
// for `use`, so that copies are asynchronous; for meta it is only counted.
at::Tensor empty_on_host(at::IntArrayRef sizes, at::ScalarType type, at::Device device,
                         Category category, HostUse use);
// Whether the tensor is in host memory in this sense.
bool is_on_host(const at::Tensor& tensor);

// Frees the tensor's memory but keeps the tensor, its gradient and every alias of its storage. It
// must not be read before refill().
void vacate(const at::Tensor& tensor);
// Allocates memory of the same size again, content undefined.
void refill(const at::Tensor& tensor, Category category);
bool is_vacant(const at::Tensor& tensor);

}  // namespace snug::memory
