// The piece of a whole tensor that a rank holds: a box (a range of each dimension), from tensor
// parallelism, and a contiguous range of the box's elements, from ZeRO and FSDP. Elements are
// counted from 0 in row-major order, in the whole tensor and in the piece.
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
  std::vector<Span> box;  // by dimension
  Span range;             // of the box's elements

  static PieceOf whole(std::vector<int64_t> shape);
  // Elements [begin, end) of the whole tensor.
  static PieceOf flat(std::vector<int64_t> shape, int64_t begin, int64_t end);
  // A range of one dimension, whole in the others.
  static PieceOf slice(std::vector<int64_t> shape, size_t dim, Span range);

  int64_t num_elements() const { return range.length(); }
  int64_t box_elements() const;
  int64_t whole_elements() const;
  // The box's shape if the piece is the whole box, else (num_elements()).
  std::vector<int64_t> shape() const;
  bool operator==(const PieceOf&) const = default;
};

// Elements that are contiguous in both the piece and the whole tensor.
struct Run {
  int64_t in_piece = 0;
  int64_t in_whole = 0;
  int64_t count = 0;
};

// The longest run that begins at this element of the piece.
Run run_from(const PieceOf& piece, int64_t in_piece);
// The longest run that begins at this element of the whole tensor; none if the piece does not have
// it.
std::optional<Run> run_at(const PieceOf& piece, int64_t in_whole);

// For a state with one value per `block` elements: the piece of the whole tensor's state that
// belongs to this piece. None if the blocks differ, because a box's rows do not begin and end at
// block boundaries.
std::optional<PieceOf> blocks_of(const PieceOf& piece, int64_t block);

// The pieces of one tensor; finds the piece that has an element.
class Tiling {
 public:
  // Adds a piece with this id.
  void add(const PieceOf& piece, size_t id);

  struct Found {
    size_t id = 0;
    Run run;
  };
  std::optional<Found> find(int64_t in_whole) const;

  // Whether every element of the tensor is in a piece.
  bool is_complete() const;

 private:
  struct ElementRange {
    Span span;
    size_t id;
  };
  struct Box {
    PieceOf all;
    std::map<int64_t, ElementRange> ranges;  // by first element
  };
  std::vector<Box> boxes_;
};

}  // namespace snug::checkpoint
