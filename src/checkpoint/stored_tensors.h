// The tensors of a checkpoint's folder, as if they lay there whole, however many ranks wrote it.
// What is opened and read is what is asked for: a rank reads its own pieces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/index.h"
#include "formats/tensor_source.h"

namespace snug::checkpoint {

struct StoredTensor {
  std::string name;
  formats::DType dtype = formats::DType::F32;
  std::vector<int64_t> whole_shape;
  Tiling tiling;  // ids are numbers of files
};

class StoredTensors {
 public:
  // Throws UserError where a file is missing or of another size than the index says.
  explicit StoredTensors(const std::filesystem::path& folder);

  bool has(Contents contents) const { return !of(contents).empty(); }
  const StoredTensor* find(Contents contents, const std::string& name) const;
  // All whose names begin so, in no order.
  std::vector<const StoredTensor*> beginning_with(Contents contents,
                                                  const std::string& prefix) const;

  // The elements of `wanted`, one after another, converted to `target`. Throws UserError where the
  // files have them not.
  void read(const StoredTensor& tensor, const PieceOf& wanted, formats::DType target, void* out);
  // Pages that were read leave the resident set.
  void release(const StoredTensor& tensor);

  // What to call the place of these tensors in a message.
  std::filesystem::path label(Contents contents) const;

 private:
  using ByName = std::unordered_map<std::string, StoredTensor>;
  const ByName& of(Contents contents) const { return tensors_[static_cast<size_t>(contents)]; }
  const formats::TensorSource& open(size_t file);

  std::filesystem::path folder_;
  Index index_;
  std::vector<std::unique_ptr<formats::TensorSource>> sources_;  // of the index's files
  ByName tensors_[std::size(kAllContents)];
};

// What is wrong with the folder's files, as far as their names and sizes tell; empty where nothing.
std::string fault_of(const std::filesystem::path& folder);

}  // namespace snug::checkpoint
