// Where longrope's angles stand for each row: tests/parity compares the numbers themselves.
// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/rope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "core/nn/kv_cache.h"

namespace snug::models::decoder {
namespace {

constexpr int64_t kOriginal = 4;

constexpr int64_t kDim = 4;

kernels::cpu::RopeScaling scaling() {
  return {.type = kernels::cpu::RopeType::LongRope,
          .original_max_position = kOriginal,
          .short_factor = {1, 1},
          .long_factor = {2, 3}};
}

nn::Batch batch_of(const std::vector<int>& lengths) {
  std::vector<int> positions, borders = {0};
  nn::Batch batch;
  for (const int length : lengths) {
    for (int i = 0; i < length; ++i) positions.push_back(i);
    borders.push_back(static_cast<int>(positions.size()));
    batch.max_seqlen = std::max<int64_t>(batch.max_seqlen, length);
  }
  batch.positions = at::tensor(positions, at::kInt);
  batch.cu_seqlens = at::tensor(borders, at::kInt);
  return batch;
}

std::vector<int> values(const at::Tensor& places) {
  EXPECT_EQ(places.scalar_type(), at::kInt);
  return {places.const_data_ptr<int>(), places.const_data_ptr<int>() + places.numel()};
}

TEST(Longrope, LongRowsStandBehindTheShortFactors) {
  Rope rope;
  rope.prepare(scaling(), {.dim = kDim}, 6, at::kCPU);
  EXPECT_EQ(rope.tables().cos.sizes(), (std::vector<int64_t>{kOriginal + 6, 2}));
  EXPECT_EQ(values(rope.places(batch_of({4, 5, 1}))),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 0}));
  EXPECT_EQ(values(rope.places(batch_of({4, 3}))), (std::vector<int>{0, 1, 2, 3, 0, 1, 2}));
  rope.prepare(scaling(), {.dim = kDim}, kOriginal, at::kCPU);
  EXPECT_EQ(rope.tables().cos.size(0), kOriginal) << "no row can be longer";
}

// Keys that are kept and queries that come later turn by the same factors.
TEST(Longrope, AGenerationTakesThoseOfTheLongestThatItMayComeTo) {
  Rope rope;
  rope.prepare(scaling(), {.dim = kDim}, 6, at::kCPU);
  for (const int64_t capacity : {int64_t{kOriginal}, int64_t{6}}) {
    nn::KvCache cache(capacity);
    const int behind = capacity > kOriginal ? static_cast<int>(kOriginal) : 0;
    nn::Batch prompt = batch_of({3});
    prompt.cache = &cache;
    EXPECT_EQ(values(rope.places(prompt)), (std::vector<int>{behind, behind + 1, behind + 2}));
    cache.advance(3);
    nn::Batch next = batch_of({1});
    next.cache = &cache;
    next.positions.fill_(3);
    EXPECT_EQ(values(rope.places(next)), std::vector<int>{behind + 3});
  }
}

// Ranks do not know where the rows of their share end, unless there is only one row.
TEST(Longrope, RowsThatRanksShareAreOneOrRefused) {
  Rope rope;
  rope.prepare(scaling(), {.dim = kDim}, 6, at::kCPU);
  nn::Batch batch = batch_of({5});
  batch.context.emplace().num_tokens = 5;
  EXPECT_EQ(values(rope.places(batch)), (std::vector<int>{4, 5, 6, 7, 8}));
  batch.context->num_tokens = 7;
  EXPECT_THROW(rope.places(batch), UserError);
  batch.max_seqlen = kOriginal;
  EXPECT_EQ(values(rope.places(batch)), (std::vector<int>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace snug::models::decoder
