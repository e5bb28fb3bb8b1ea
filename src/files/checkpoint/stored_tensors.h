// Reads the tensors of a checkpoint folder as if they were whole, however many ranks wrote them.
// Only requested pieces are read. Also lists the tensors that this rank holds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "files/checkpoint/index.h"
#include "files/checkpoint/training_checkpoint.h"
#include "files/weights/tensor_source.h"

namespace snug::checkpoint {

struct StoredTensor {
  std::string name;
  files::DType dtype = files::DType::F32;
  std::vector<int64_t> whole_shape;
  Tiling tiling;  // ids are indices of files
};

class StoredTensors {
 public:
  // Throws UserError if a file is missing or its size differs from the index.
  explicit StoredTensors(const std::filesystem::path& folder);

  bool has(Contents contents) const { return !of(contents).empty(); }
  const StoredTensor* find(Contents contents, const std::string& name) const;
  // All tensors whose names have this prefix, in no particular order.
  std::vector<const StoredTensor*> beginning_with(Contents contents,
                                                  const std::string& prefix) const;

  // Reads the elements of `wanted` in order, converted to `target`. Throws UserError if the files
  // lack any.
  void read(const StoredTensor& tensor, const PieceOf& wanted, files::DType target, void* out);
  // Drops pages that were read from the resident set.
  void release(const StoredTensor& tensor);

  // The path to name in messages about these tensors.
  std::filesystem::path label(Contents contents) const;

 private:
  using ByName = std::unordered_map<std::string, StoredTensor>;
  const ByName& of(Contents contents) const { return tensors_[static_cast<size_t>(contents)]; }
  const files::TensorSource& open(size_t file);

  std::filesystem::path folder_;
  Index index_;
  std::vector<std::unique_ptr<files::TensorSource>> sources_;  // by file of the index
  ByName tensors_[std::size(kAllContents)];
};

// What is wrong with the folder's files; empty if nothing is. Tensors are judged by their files'
// names and sizes; the bytes are checked when they are read.
std::string fault_of(const std::filesystem::path& folder);

// One of this rank's tensors, with its place in the unsplit tensor.
struct HeldTensor {
  StoredPiece stored;  // its name in files and its piece
  at::Tensor tensor;
};

HeldTensor held_parameter(const TrainingTensors& tensors, const optim::NamedTensor& parameter,
                          Contents contents = Contents::Model);
HeldTensor held_state(const TrainingTensors& tensors, const optim::NamedTensor& state);

// All tensors, in the order of TrainingTensors.
std::vector<HeldTensor> all_held(const TrainingTensors& tensors);

}  // namespace snug::checkpoint
