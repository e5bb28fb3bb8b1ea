// The embedding on the device; arguments in kernels/cpu/embedding.h. Ids lie in device memory and
// are trusted to be inside the table. (The forward of a whole table is libtorch's index_select.)
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/embedding.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void embedding_forward(const cpu::EmbeddingForward& args, cudaStream_t stream);

// 256-byte aligned scratch for the sorted ids and for sums of ids that occur often.
int64_t embedding_backward_workspace_bytes(const cpu::EmbeddingBackward& args);
void embedding_backward(const cpu::EmbeddingBackward& args, void* workspace, cudaStream_t stream);

}  // namespace snug::kernels::cuda
