// PyTorch's torch.save files (.pth, .bin, .pt): a zip with one pickle and one file per storage, or
// the older single stream. The pickle is never executed: a small parser accepts the few names that
// tensors need and refuses all others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "files/weights/safetensors/safetensors.h"
#include "files/weights/tensor_source.h"

namespace snug::files {

// A state dict, at the top or under "model", "state_dict" or "model_state_dict". Transposed, offset
// and shared storages are read in place; entries that are not tensors are skipped.
std::unique_ptr<TensorSource> open_pth(const std::filesystem::path& path);

// What torch.load(path, weights_only=True) reads as an OrderedDict of tensors, LitGPT's
// lit_model.pth included.
void write_pth(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
               const TensorBytes& bytes);

}  // namespace snug::files
