// Pieces of random tensors against a list of every element's number.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace snug::checkpoint {
namespace {

class RandomPieces {
 public:
  int64_t up_to(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes(static_cast<size_t>(1 + up_to(2)));
    for (int64_t& size : sizes) size = 1 + up_to(8);
    return sizes;
  }
  PieceOf piece() {
    PieceOf piece = PieceOf::whole(shape());
    for (Span& range : piece.box) {
      if (up_to(1) == 0) continue;
      range.begin = up_to(range.end - 1);
      range.end = range.begin + 1 + up_to(range.end - range.begin - 1);
    }
    piece.range.end = piece.box_elements();
    piece.range.begin = up_to(piece.range.end - 1);
    piece.range.end -= up_to(piece.range.end - piece.range.begin - 1);
    return piece;
  }

 private:
  std::mt19937 random_{5};
};

// Where each element of the piece lies in the whole tensor.
std::vector<int64_t> numbers_of(const PieceOf& piece) {
  std::vector<int64_t> in_box;
  for (int64_t at = 0; at < piece.whole_elements(); ++at) {
    bool inside = true;
    int64_t rest = at;
    for (size_t d = piece.box.size(); d-- > 0; rest /= piece.whole_shape[d]) {
      const int64_t here = rest % piece.whole_shape[d];
      inside &= here >= piece.box[d].begin && here < piece.box[d].end;
    }
    if (inside) in_box.push_back(at);
  }
  return {in_box.begin() + piece.range.begin, in_box.begin() + piece.range.end};
}

TEST(Piece, RunsCoverItInOrder) {
  RandomPieces random;
  for (int i = 0; i < 2000; ++i) {
    const PieceOf piece = random.piece();
    const std::vector<int64_t> expected = numbers_of(piece);
    std::vector<int64_t> found;
    while (std::ssize(found) < piece.num_elements()) {
      const auto run = run_from(piece, std::ssize(found));
      ASSERT_GT(run.count, 0);
      for (int64_t k = 0; k < run.count; ++k) found.push_back(run.in_whole + k);
    }
    ASSERT_EQ(found, expected) << "case " << i;
  }
}

TEST(Piece, KnowsWhatItHas) {
  RandomPieces random;
  for (int i = 0; i < 2000; ++i) {
    const PieceOf piece = random.piece();
    const std::vector<int64_t> numbers = numbers_of(piece);
    for (int64_t at = 0; at < piece.whole_elements(); ++at) {
      const auto run = run_at(piece, at);
      const auto expected = std::ranges::find(numbers, at);
      ASSERT_EQ(run.has_value(), expected != numbers.end()) << "case " << i << " element " << at;
      if (!run) continue;
      ASSERT_EQ(run->in_piece, expected - numbers.begin());
      ASSERT_EQ(run->in_whole, at);
    }
  }
}

TEST(Piece, IsShapedLikeItsBoxWhereItIsAllOfIt) {
  EXPECT_EQ(PieceOf::whole({4, 6}).shape(), (std::vector<int64_t>{4, 6}));
  PieceOf piece = PieceOf::slice({4, 6}, 1, {2, 4});
  EXPECT_EQ(piece.shape(), (std::vector<int64_t>{4, 2}));
  piece.range = {4, 8};
  EXPECT_EQ(piece.shape(), std::vector<int64_t>{4});
}

// A value for each block of the whole tensor, given to the piece's blocks.
TEST(Blocks, AreThoseOfTheWholeTensor) {
  RandomPieces random;
  int met = 0;
  for (int i = 0; i < 20000; ++i) {
    const PieceOf piece = random.piece();
    const int64_t block = 1 + random.up_to(3);
    const std::optional<PieceOf> blocks = blocks_of(piece, block);
    if (!blocks) continue;
    ++met;
    const std::vector<int64_t> elements = numbers_of(piece), numbers = numbers_of(*blocks);
    ASSERT_EQ(std::ssize(numbers), (piece.num_elements() + block - 1) / block) << "case " << i;
    for (size_t k = 0; k < elements.size(); ++k)
      ASSERT_EQ(elements[k] / block, numbers[k / static_cast<size_t>(block)]) << "case " << i;
    ASSERT_EQ(blocks->whole_elements(), (piece.whole_elements() + block - 1) / block);
  }
  EXPECT_GT(met, 3000);
}

TEST(Blocks, OfColumnsThatBreakThemAreNone) {
  PieceOf piece = PieceOf::whole({4, 512});
  piece.box[1] = {0, 256};
  piece.range = {0, 1024};
  EXPECT_TRUE(blocks_of(piece, 256));
  piece.box[1] = {0, 128};
  piece.range = {0, 512};
  EXPECT_FALSE(blocks_of(piece, 256));
}

TEST(TilingTest, FindsEveryElement) {
  // Columns in two boxes, the second cut into two ranges.
  PieceOf left = PieceOf::whole({5, 6}), right = left;
  left.box[1] = {0, 2};
  left.range = {0, 10};
  right.box[1] = {2, 6};
  right.range = {0, 7};
  PieceOf rest = right;
  rest.range = {7, 20};
  Tiling tiling;
  tiling.add(left, 0);
  tiling.add(rest, 2);
  EXPECT_FALSE(tiling.is_complete());
  EXPECT_FALSE(tiling.find(2));
  tiling.add(right, 1);
  EXPECT_TRUE(tiling.is_complete());
  const std::vector<PieceOf> pieces = {left, right, rest};
  for (int64_t at = 0; at < 30; ++at) {
    const auto found = tiling.find(at);
    ASSERT_TRUE(found) << at;
    const std::vector<int64_t> numbers = numbers_of(pieces[found->id]);
    for (int64_t k = 0; k < found->run.count; ++k)
      ASSERT_EQ(numbers[static_cast<size_t>(found->run.in_piece + k)], at + k);
  }
}

TEST(TilingTest, OverlappingBoxesAreNotComplete) {
  PieceOf left = PieceOf::whole({4}), right = left;
  left.box[0] = {0, 2};
  right.box[0] = {1, 3};
  left.range = right.range = {0, 2};
  Tiling tiling;
  tiling.add(left, 0);
  tiling.add(right, 1);
  EXPECT_FALSE(tiling.is_complete());
}

}  // namespace
}  // namespace snug::checkpoint
