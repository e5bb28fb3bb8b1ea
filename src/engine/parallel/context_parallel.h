// Which of a micro-batch's tokens a rank has where a mesh has a context axis: chunks r and 2 C - 1
// - r of 2 C, as core/ops/attention/context_attention.h wants them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/dist/mesh.h"
#include "core/nn/objective.h"
#include "core/nn/unit.h"
#include "data/micro_batch.h"
#include "models/model.h"

namespace snug::engine {

// Throws UserError if the mesh has a context axis and the model does not support it.
void check_context(const models::Model& model, const dist::Mesh& mesh);

// This rank's tokens of a micro-batch, on the device; all of them without a context axis. Padding
// of the last chunk is a document of its own without targets. loss_tokens counts the
// whole micro-batch. `noise`: of all tokens (noise_of), or empty.
nn::Batch own_tokens(const data::MicroBatch& batch, at::Device device, const dist::Mesh& mesh,
                     std::vector<float> noise = {});

// How many ranks have an objective's sum of such a batch: where they share documents each has its
// rows' share of a sum over tokens, and the whole of one over documents.
int64_t ranks_with_sum(const nn::Objective& objective, const dist::Mesh& mesh);

// The row numbers that dropout uses for such a batch.
kernels::RowPlaces places_of(const nn::Batch& batch);

}  // namespace snug::engine
