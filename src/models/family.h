// From files to models: finds which family a checkpoint belongs to and builds its units.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "formats/gguf.h"
#include "formats/tensor_source.h"
#include "models/model.h"

namespace snug::models {

// A checkpoint opened for reading: its model (parameters not yet allocated) and its tensors.
struct Checkpoint {
  Layout layout = Layout::HuggingFace;
  std::filesystem::path path;
  std::unique_ptr<Model> model;
  std::unique_ptr<formats::TensorSource> tensors;
  // The same object as `tensors` when the layout is Gguf: its metadata holds the vocabulary.
  const formats::GgufFile* gguf = nullptr;
};

// `path`: a Hugging Face or LitGPT directory, or a GGUF file. Throws UserError.
Checkpoint open_checkpoint(const std::filesystem::path& path);

// A model from a config.json alone, for random initial weights.
std::unique_ptr<Model> model_from_config(const std::filesystem::path& config_json);

// A second model of the same shape, without weights.
std::unique_ptr<Model> model_like(const Model& model);
// The same with a head of its own, where the model's is its embedding.
std::unique_ptr<Model> model_with_own_head(const Model& model);

// The parameter's value from the checkpoint in `type`, in memory of its own; of a slice, only its
// elements are read.
at::Tensor read_parameter(const Checkpoint& checkpoint, const nn::Parameter& parameter,
                          at::ScalarType type);

// From our order of rows within a head (halves) to GGUF's (pairs): theirs[2j] = ours[j],
// theirs[2j + 1] = ours[d/2 + j]. For a contiguous (heads * d, …); see Placement::paired_heads.
at::Tensor join_pairs(const at::Tensor& value, int64_t heads);

// What load_weights will be asked for, in this order, by one call or several: it is fetched from
// the disk ahead. Warns of tensors that no parameter of the model reads.
void expect_weights(Checkpoint& checkpoint, const std::vector<nn::Parameter*>& parameters);

// Fills every allocated parameter from the checkpoint, one tensor at a time, converting to the
// parameter's type. Throws UserError naming a tensor that is missing or of another shape.
void load_weights(Checkpoint& checkpoint);
// The same for some of its model's parameters.
void load_weights(Checkpoint& checkpoint, const std::vector<nn::Parameter*>& parameters);

}  // namespace snug::models
