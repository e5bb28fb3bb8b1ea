// A state in 8 bits that a checkpoint has in other blocks than this run forms: where tensor
// parallelism cuts rows in the middle of a block of 256 elements, blocks are those of a rank's box
// alone. Elements are decoded with the scales of the file's blocks and encoded with those of new
// ones, to the nearest code, which is what every step of the optimizer does to them as well.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/piece.h"
#include "checkpoint/stored_tensors.h"

namespace snug::checkpoint {

// After the name of a state whose blocks are not the whole tensor's: those of this box alone,
// "@[0:8][128:256]".
std::string box_name(const PieceOf& piece);

class QuantizedState {
 public:
  // Of the parameter's piece. None where the checkpoint has no such state of the whole parameter.
  static std::optional<QuantizedState> find(StoredTensors& files, const std::string& name,
                                            const PieceOf& piece);

  // The piece's codes, and a scale for each of its blocks.
  void read(const PieceOf& piece, uint8_t* codes, float* scales);

 private:
  // A box of the tensor, or all of it, with the scales of its blocks.
  struct Blocks {
    PieceOf box;
    std::vector<float> scales;
  };

  QuantizedState(StoredTensors& files, const StoredTensor& codes, bool is_signed);
  bool add(const StoredTensor& scales, PieceOf box);
  bool covers_all() const;
  // Decoded elements of the piece, one after another.
  void decode(const PieceOf& piece, std::vector<uint8_t>& codes, std::vector<float>& values);

  StoredTensors& files_;
  const StoredTensor& codes_;
  const float* map_;  // 256 numbers
  std::vector<Blocks> blocks_;
};

}  // namespace snug::checkpoint
