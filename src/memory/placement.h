// Host memory beside a device's: what techniques move there, and how a tensor's memory comes and
// goes while the tensor stays.
//
// On cpu the "device" and the host are the same memory in two ledgers, so that every offloading
// technique can be run, and measured against a budget, on any machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "memory/ledger.h"

namespace snug::memory {

// A new tensor in the host memory beside `device`, content undefined: on meta a planned one, beside
// cuda pinned, from a pool of this use, so that the GPU copies from and to it without the host.
at::Tensor empty_on_host(at::IntArrayRef sizes, at::ScalarType type, at::Device device,
                         Category category, HostUse use);
// Whether the tensor lies there.
bool is_on_host(const at::Tensor& tensor);

// Frees the tensor's memory but keeps the tensor, with its gradient and every alias of its storage.
// Nobody may read it before refill().
void vacate(const at::Tensor& tensor);
// New memory of the same size, content undefined.
void refill(const at::Tensor& tensor, Category category);
bool is_vacant(const at::Tensor& tensor);

}  // namespace snug::memory
