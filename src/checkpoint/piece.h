// Which part of a whole tensor a rank holds: what tensor parallelism left it, a range of each
// dimension, and of that box, laid out row by row, a contiguous stretch, which is what ZeRO and
// FSDP cut. Elements are counted from 0 in row-major order, of the whole tensor and of the piece.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace snug::checkpoint {

struct Span {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

struct PieceOf {
  std::vector<int64_t> whole_shape;
  std::vector<Span> box;  // of each dimension
  Span stretch;           // of the box's elements

  static PieceOf whole(std::vector<int64_t> shape);
  // Elements [begin, end) of the whole tensor.
  static PieceOf flat(std::vector<int64_t> shape, int64_t begin, int64_t end);
  // All of a range of one dimension.
  static PieceOf slice(std::vector<int64_t> shape, size_t dim, Span range);

  int64_t num_elements() const { return stretch.length(); }
  int64_t box_elements() const;
  int64_t whole_elements() const;
  // The box's where all of it is held, else (num_elements()).
  std::vector<int64_t> shape() const;
  bool operator==(const PieceOf&) const = default;
};

// Elements that lie side by side in the piece and in the whole tensor.
struct Run {
  int64_t in_piece = 0;
  int64_t in_whole = 0;
  int64_t count = 0;
};

// The run that begins at this element of the piece, as long as can be.
Run run_from(const PieceOf& piece, int64_t in_piece);
// The run that begins at this element of the whole tensor; none where the piece has it not.
std::optional<Run> run_at(const PieceOf& piece, int64_t in_whole);

// Where a state with one value for each block of `block` elements of a piece lies among those of
// the whole tensor. None where the whole tensor's blocks are others: a box's rows do not begin and
// end with them.
std::optional<PieceOf> blocks_of(const PieceOf& piece, int64_t block);

// Pieces of one tensor, and which of them has an element.
class Tiling {
 public:
  // Called `id` from here on.
  void add(const PieceOf& piece, size_t id);

  struct Found {
    size_t id = 0;
    Run run;
  };
  std::optional<Found> find(int64_t in_whole) const;

  // Whether every element of the tensor is in a piece.
  bool is_complete() const;

 private:
  struct Stretch {
    Span span;
    size_t id;
  };
  struct Box {
    PieceOf all;
    std::map<int64_t, Stretch> stretches;  // by where they begin
  };
  std::vector<Box> boxes_;
};

}  // namespace snug::checkpoint
