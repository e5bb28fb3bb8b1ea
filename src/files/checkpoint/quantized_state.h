// Converts an 8-bit optimizer state whose blocks in the checkpoint differ from this run's: if
// tensor parallelism splits rows inside a block of 256 elements, a rank's box has blocks of its
// own. Elements are decoded with the file's scales and encoded with new ones, to the nearest code,
// as every optimizer step does too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "files/checkpoint/piece.h"
#include "files/checkpoint/stored_tensors.h"

namespace snug::checkpoint {

// Suffix of the name of a state whose blocks are those of this box, not of the whole tensor:
// "@[0:8][128:256]".
std::string box_name(const PieceOf& piece);

class QuantizedState {
 public:
  // The state of the parameter's piece. None if the checkpoint does not have this state for the
  // whole parameter.
  static std::optional<QuantizedState> find(StoredTensors& files, const std::string& name,
                                            const PieceOf& piece);

  // Reads the piece's codes, and a scale for each of its blocks.
  void read(const PieceOf& piece, uint8_t* codes, float* scales);

 private:
  // A box of the tensor, or the whole tensor, with its blocks' scales.
  struct Blocks {
    PieceOf box;
    std::vector<float> scales;
  };

  QuantizedState(StoredTensors& files, const StoredTensor& codes, bool is_signed);
  bool add(const StoredTensor& scales, PieceOf box);
  bool covers_all() const;
  // Decodes the piece's elements in order.
  void decode(const PieceOf& piece, std::vector<uint8_t>& codes, std::vector<float>& values);

  StoredTensors& files_;
  const StoredTensor& codes_;
  const float* map_;  // 256 numbers
  std::vector<Blocks> blocks_;
};

}  // namespace snug::checkpoint
