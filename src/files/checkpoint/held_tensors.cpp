// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/held_tensors.h"

#include "base/error.h"
#include "core/kernels/cpu/optimizers/adamw_8bit.h"
#include "files/checkpoint/quantized_state.h"
#include "files/checkpoint/tensor_bytes.h"

namespace snug::checkpoint {
namespace {

// A state's name is its parameter's name, a dot and a suffix.
std::string parameter_of(const std::string& state) { return state.substr(0, state.rfind('.')); }

StoredPiece blocks_of_state(const std::string& name, const PieceOf& parameter) {
  constexpr int64_t kBlock = kernels::cpu::kQuantizedBlock;
  StoredPiece stored{.contents = Contents::Optimizer, .name = name};
  if (const std::optional<PieceOf> blocks = blocks_of(parameter, kBlock)) {
    stored.piece = *blocks;
    return stored;
  }
  PieceOf alone = PieceOf::whole({parameter.box_elements()});
  alone.stretch = parameter.stretch;
  const std::optional<PieceOf> blocks = blocks_of(alone, kBlock);
  SNUG_CHECK(blocks, "{}: elements {} to {} of a parameter do not consist of whole blocks", name,
             parameter.stretch.begin, parameter.stretch.end);
  stored.name += box_name(parameter);
  stored.piece = *blocks;
  return stored;
}

}  // namespace

HeldTensor held_parameter(const TrainingTensors& tensors, const optim::NamedTensor& parameter,
                          Contents contents) {
  const std::string& name = parameter.name;
  const at::Tensor& tensor = parameter.tensor;
  StoredPiece stored{.contents = contents, .name = name, .dtype = dtype_of(tensor)};
  const auto piece = tensors.pieces.find(name);
  stored.piece =
      piece == tensors.pieces.end() ? PieceOf::whole(tensor.sizes().vec()) : piece->second;
  // If only the states are sharded, weights such as late weights are whole on every rank.
  if (tensor.numel() == stored.piece.box_elements())
    stored.piece.stretch = {0, stored.piece.box_elements()};
  SNUG_CHECK(tensor.numel() == stored.piece.num_elements(),
             "{} has {} elements, but its piece has {}", name, tensor.numel(),
             stored.piece.num_elements());
  return {std::move(stored), tensor};
}

HeldTensor held_state(const TrainingTensors& tensors, const optim::NamedTensor& state) {
  const std::string& name = state.name;
  const at::Tensor& tensor = state.tensor;
  StoredPiece stored{.contents = Contents::Optimizer, .name = name};
  const auto piece = tensors.pieces.find(parameter_of(name));
  if (piece == tensors.pieces.end())
    stored.piece = PieceOf::whole(tensor.sizes().vec());
  else if (name.ends_with(optim::kBlockStateSuffix))
    stored = blocks_of_state(name, piece->second);
  else
    stored.piece = piece->second;
  stored.dtype = dtype_of(tensor);
  SNUG_CHECK(tensor.numel() == stored.piece.num_elements(),
             "{} has {} elements, which does not match a piece of {}", name, tensor.numel(),
             stored.piece.num_elements());
  return {std::move(stored), tensor};
}

std::vector<HeldTensor> all_held(const TrainingTensors& tensors) {
  std::vector<HeldTensor> all;
  for (const auto& parameter : tensors.parameters)
    all.push_back(held_parameter(tensors, parameter));
  for (const auto& state : tensors.optimizer_states) all.push_back(held_state(tensors, state));
  for (const auto& late : tensors.late_weights)
    all.push_back(held_parameter(tensors, late, Contents::LateWeights));
  return all;
}

}  // namespace snug::checkpoint
