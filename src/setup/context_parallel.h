// Which of a micro-batch's tokens a rank has where a mesh has a context axis: chunks r and 2 C - 1
// - r of 2 C, as ops/context_attention.h wants them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/micro_batch.h"
#include "dist/mesh.h"
#include "models/model.h"
#include "nn/unit.h"

namespace snug::setup {

// Throws UserError where the mesh has a context axis and the model's tokens cannot be shared.
void check_context(const models::Model& model, const dist::Mesh& mesh);

// This rank's part of a micro-batch, on the device: the whole of it where nobody shares it. Tokens
// that fill up the last chunk are a document by themselves, with targets of `ignore_index`.
// loss_tokens stays the whole's.
nn::Batch own_tokens(const data::MicroBatch& batch, at::Device device, const dist::Mesh& mesh,
                     int64_t ignore_index);

// What dropout numbers the rows of such a batch as.
kernels::cpu::RowPlaces places_of(const nn::Batch& batch);

}  // namespace snug::setup
