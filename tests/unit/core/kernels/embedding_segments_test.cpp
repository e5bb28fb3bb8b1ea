// The index arithmetic of the GPU's embedding backward, which runs on any processor: every token is
// in one segment, segments have scratch of their own, and what they add up to is the CPU's sum.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/embedding_segments.h"

#include <algorithm>
#include <numeric>

#include "core/kernels/cuda/scratch.h"
#include "core/kernels/embedding.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cuda {
namespace {

using cpu::Array;
using kernels::Scalar;

// Sorted ids with runs of these lengths, with gaps between the ids.
std::vector<int32_t> ids_with_runs(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> ids;
  int32_t id = 0;
  for (const int64_t length : lengths) ids.insert(ids.end(), length, id += 1 + id % 3);
  return ids;
}

std::vector<std::vector<int64_t>> kinds_of_runs() {
  std::vector<std::vector<int64_t>> kinds = {
      {1},    {63},           {64},         {65},       {127},          {128},
      {129},  {191},          {192},        {4000},     {1, 128, 1},    {63, 129, 64},
      {5000}, {1, 1, 1, 300}, {64, 64, 64}, {128, 128}, {127, 191, 255}};
  std::mt19937 random(3);
  for (int k = 0; k < 200; ++k) {
    std::vector<int64_t> lengths;
    for (int run = 0; run < 12; ++run) lengths.push_back(1 + random() % (run % 3 == 0 ? 400 : 5));
    kinds.push_back(lengths);
  }
  return kinds;
}

int64_t size_of(const std::vector<int32_t>& ids) { return static_cast<int64_t>(ids.size()); }

TEST(EmbeddingSegments, EveryTokenIsInOne) {
  for (const std::vector<int64_t>& lengths : kinds_of_runs()) {
    const std::vector<int32_t> ids = ids_with_runs(lengths);
    int64_t covered = 0;
    for (int64_t k = 0; k < size_of(ids); ++k) {
      const Segment s = segment_at(ids.data(), size_of(ids), k);
      if (s.begin == s.end) continue;
      ASSERT_EQ(s.begin, k);
      ASSERT_EQ(s.begin, covered) << "a gap or an overlap";
      ASSERT_EQ(ids[s.begin], ids[s.end - 1]);
      ASSERT_LT(s.end - s.begin, 2 * kSegment);
      covered = s.end;
    }
    ASSERT_EQ(covered, size_of(ids));
  }
}

TEST(EmbeddingSegments, ThoseOfARunHaveNeighbouringRowsThatNobodyElseHas) {
  for (const std::vector<int64_t>& lengths : kinds_of_runs()) {
    const std::vector<int32_t> ids = ids_with_runs(lengths);
    std::vector<int32_t> written(static_cast<size_t>(embedding_partial_rows(size_of(ids))), -1);
    for (int64_t k = 0; k < size_of(ids); ++k) {
      const Segment s = segment_at(ids.data(), size_of(ids), k);
      if (s.begin == s.end || s.alone) continue;
      ASSERT_LT(s.row, std::ssize(written));
      ASSERT_EQ(written[s.row], -1) << "two segments share a row";
      written[s.row] = ids[s.begin];
    }
    int64_t read = 0, runs = 0;
    for (int64_t row = 0; row < std::ssize(written); ++row) {
      const Partials p = partials_at(ids.data(), size_of(ids), row);
      for (int64_t j = 0; j < p.count; ++j) ASSERT_EQ(written[row + j], ids[p.position]);
      read += p.count;
      runs += p.count > 0;
    }
    ASSERT_EQ(read, std::ranges::count_if(written, [](int32_t id) { return id >= 0; }));
    ASSERT_EQ(runs, std::ranges::count_if(lengths, [](int64_t n) { return n >= 2 * kSegment; }));
  }
}

// What the two launches do, block by block, with a float for each feature.
std::vector<double> add_by_segments(const std::vector<int32_t>& ids, const Array& dy, int64_t dim,
                                    int64_t rows) {
  std::vector<int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t token) { return ids[token]; });
  std::vector<int32_t> sorted;
  for (const int32_t token : order) sorted.push_back(ids[token]);
  const int64_t tokens = size_of(ids);
  std::vector<double> grad(static_cast<size_t>(rows * dim));
  std::vector<float> partials(static_cast<size_t>(embedding_partial_rows(tokens) * dim), NAN);
  for (int64_t k = 0; k < tokens; ++k) {
    const Segment s = segment_at(sorted.data(), tokens, k);
    for (int64_t i = 0; s.begin < s.end && i < dim; ++i) {
      float sum = 0;
      for (int64_t t = s.begin; t < s.end; ++t) sum += static_cast<float>(dy[order[t] * dim + i]);
      if (s.alone)
        grad[sorted[s.begin] * dim + i] += sum;
      else
        partials[s.row * dim + i] = sum;
    }
  }
  for (int64_t row = 0; row < embedding_partial_rows(tokens); ++row) {
    const Partials p = partials_at(sorted.data(), tokens, row);
    for (int64_t i = 0; p.count > 0 && i < dim; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < p.count; ++j) sum += partials[(row + j) * dim + i];
      grad[sorted[p.position] * dim + i] += sum;
    }
  }
  return grad;
}

// To the bit where an id occurs less than twice a segment's length; elsewhere to the rounding of a
// sum of n numbers in another order, n * epsilon * the sum of their magnitudes.
TEST(EmbeddingSegments, AddUpToTheCpusSum) {
  const int64_t tokens = 6000, vocabulary = 90, dim = 3;
  std::mt19937 random(5);
  std::vector<int32_t> ids;
  for (int64_t n = 0; n < tokens; ++n)
    ids.push_back(static_cast<int32_t>(random() % 3 ? random() % vocabulary : 7));
  const Array dy = cpu::random_array(Scalar::F32, tokens * dim, 2);
  Array expected(Scalar::F32, vocabulary * dim);
  cpu::embedding_backward({.tokens = tokens,
                           .vocabulary = vocabulary,
                           .dim = dim,
                           .ids = ids.data(),
                           .dy = dy.data(),
                           .grad = expected.data()});
  const std::vector<double> got = add_by_segments(ids, dy, dim, vocabulary);
  int64_t same = 0;
  for (int64_t id = 0; id < vocabulary; ++id) {
    const auto n = std::ranges::count(ids, static_cast<int32_t>(id));
    for (int64_t i = 0; i < dim; ++i) {
      double magnitudes = 0;
      for (int64_t t = 0; t < tokens; ++t)
        if (ids[t] == id) magnitudes += std::abs(dy[t * dim + i]);
      const double allowed = n < 2 * kSegment ? 0 : static_cast<double>(n) * 0x1p-24 * magnitudes;
      EXPECT_NEAR(got[id * dim + i], expected[id * dim + i], allowed) << id << ", " << n;
    }
    same += n > 1 && n < 2 * kSegment;
  }
  EXPECT_GT(same, 10) << "ids that occur a few times";
}

// Sums of segments lie where the sort has been, behind three arrays of a number a token.
TEST(EmbeddingSegments, ScratchHasRoomForTheirSums) {
  for (const int64_t tokens : {1, 64, 65, 8192, 100000}) {
    for (const int64_t dim : {1, 64, 4096, 8192}) {
      const int64_t room = embedding_scratch_bytes(tokens, dim) - 3 * aligned_scratch(4 * tokens);
      EXPECT_GE(room, embedding_partial_rows(tokens) * dim * 4) << tokens << " x " << dim;
      EXPECT_GE(room, sort_scratch_bytes(tokens)) << tokens << " x " << dim;
    }
  }
}

}  // namespace
}  // namespace snug::kernels::cuda
