// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/piece.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "files/weights/dtype.h"

namespace snug::checkpoint {
namespace {

int64_t round_up_quotient(int64_t count, int64_t divisor) {
  return (count + divisor - 1) / divisor;
}

bool is_cut(const PieceOf& piece, size_t dim) {
  return piece.box[dim].length() != piece.whole_shape[dim];
}

// The last dimension of which the box has only a part; none if the box is the whole tensor.
std::optional<size_t> last_cut(const PieceOf& piece) {
  for (size_t d = piece.box.size(); d-- > 0;)
    if (is_cut(piece, d)) return d;
  return std::nullopt;
}

// The length of the box's runs that are contiguous in the whole tensor.
int64_t row_elements(const PieceOf& piece) {
  int64_t count = 1;
  for (size_t d = piece.box.size(); d-- > 0;) {
    count *= piece.box[d].length();
    if (is_cut(piece, d)) break;
  }
  return count;
}

bool overlap(const PieceOf& a, const PieceOf& b) {
  for (size_t d = 0; d < a.box.size(); ++d)
    if (a.box[d].end <= b.box[d].begin || b.box[d].end <= a.box[d].begin) return false;
  return true;
}

}  // namespace

PieceOf PieceOf::whole(std::vector<int64_t> shape) {
  const int64_t count = files::count_elements(shape);
  return flat(std::move(shape), 0, count);
}

PieceOf PieceOf::flat(std::vector<int64_t> shape, int64_t begin, int64_t end) {
  PieceOf piece{.whole_shape = std::move(shape), .range = {begin, end}};
  for (const int64_t size : piece.whole_shape) piece.box.push_back({0, size});
  return piece;
}

PieceOf PieceOf::slice(std::vector<int64_t> shape, size_t dim, Span range) {
  PieceOf piece = whole(std::move(shape));
  piece.box[dim] = range;
  piece.range.end = piece.box_elements();
  return piece;
}

int64_t PieceOf::box_elements() const {
  int64_t count = 1;
  for (const Span& range : box) count *= range.length();
  return count;
}

int64_t PieceOf::whole_elements() const { return files::count_elements(whole_shape); }

std::vector<int64_t> PieceOf::shape() const {
  if (num_elements() != box_elements()) return {num_elements()};
  std::vector<int64_t> lengths;
  for (const Span& range : box) lengths.push_back(range.length());
  return lengths;
}

Run run_from(const PieceOf& piece, int64_t in_piece) {
  const int64_t in_box = piece.range.begin + in_piece;
  int64_t rest = in_box, stride = 1, in_whole = 0;
  for (size_t d = piece.box.size(); d-- > 0;) {
    const int64_t length = piece.box[d].length();
    in_whole += (piece.box[d].begin + rest % length) * stride;
    rest /= length;
    stride *= piece.whole_shape[d];
  }
  const int64_t row = row_elements(piece);
  return {in_piece, in_whole, std::min(row - in_box % row, piece.range.end - in_box)};
}

std::optional<Run> run_at(const PieceOf& piece, int64_t in_whole) {
  int64_t rest = in_whole, stride = 1, in_box = 0;
  for (size_t d = piece.box.size(); d-- > 0;) {
    const int64_t at = rest % piece.whole_shape[d];
    if (at < piece.box[d].begin || at >= piece.box[d].end) return std::nullopt;
    in_box += (at - piece.box[d].begin) * stride;
    rest /= piece.whole_shape[d];
    stride *= piece.box[d].length();
  }
  if (in_box < piece.range.begin || in_box >= piece.range.end) return std::nullopt;
  return run_from(piece, in_box - piece.range.begin);
}

std::optional<PieceOf> blocks_of(const PieceOf& piece, int64_t block) {
  const auto blocks = [block](int64_t elements) { return round_up_quotient(elements, block); };
  const Span in_blocks{piece.range.begin / block, blocks(piece.range.end)};
  if (piece.range.begin % block != 0 ||
      (piece.range.end % block != 0 && piece.range.end != piece.box_elements()))
    return std::nullopt;
  const size_t cut = last_cut(piece).value_or(0);
  int64_t inner = 1;
  for (size_t d = cut + 1; d < piece.box.size(); ++d) inner *= piece.whole_shape[d];
  // Keeps the dimensions before the split one; merges the others into one dimension of blocks.
  PieceOf result{.range = in_blocks};
  for (size_t d = 0; d < cut; ++d) {
    result.whole_shape.push_back(piece.whole_shape[d]);
    result.box.push_back(piece.box[d]);
  }
  const int64_t row = (piece.whole_shape.empty() ? 1 : piece.whole_shape[cut]) * inner;
  const Span range = piece.box.empty() ? Span{0, 1} : piece.box[cut];
  const Span elements{range.begin * inner, range.end * inner};
  const bool ends_with_block = elements.end % block == 0 || (cut == 0 && elements.end == row);
  if (elements.begin % block != 0 || !ends_with_block || (cut > 0 && row % block != 0))
    return std::nullopt;
  result.whole_shape.push_back(blocks(row));
  result.box.push_back({elements.begin / block, blocks(elements.end)});
  return result;
}

void Tiling::add(const PieceOf& piece, size_t id) {
  if (piece.num_elements() == 0) return;
  auto box = std::ranges::find_if(boxes_, [&](const Box& b) { return b.all.box == piece.box; });
  if (box == boxes_.end()) {
    boxes_.push_back({.all = piece});
    box = boxes_.end() - 1;
    box->all.range = {0, piece.box_elements()};
  }
  ElementRange& range = box->ranges[piece.range.begin];
  if (range.span.end < piece.range.end) range = {piece.range, id};
}

std::optional<Tiling::Found> Tiling::find(int64_t in_whole) const {
  for (const Box& box : boxes_) {
    std::optional<Run> run = run_at(box.all, in_whole);
    if (!run) continue;
    const auto after = box.ranges.upper_bound(run->in_piece);
    if (after == box.ranges.begin()) continue;
    const auto& [span, id] = std::prev(after)->second;
    if (run->in_piece >= span.end) continue;
    run->count = std::min(run->count, span.end - run->in_piece);
    run->in_piece -= span.begin;
    return Found{id, *run};
  }
  return std::nullopt;
}

bool Tiling::is_complete() const {
  int64_t covered = 0, wanted = 0;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    wanted = boxes_[i].all.whole_elements();
    for (size_t j = 0; j < i; ++j)
      if (overlap(boxes_[i].all, boxes_[j].all)) return false;
    int64_t next = 0;
    for (const auto& [begin, range] : boxes_[i].ranges) {
      if (begin > next) return false;
      next = std::max(next, range.span.end);
    }
    covered += next;
  }
  return covered == wanted;
}

}  // namespace snug::checkpoint
