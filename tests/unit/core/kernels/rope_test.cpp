// The rotation and its inverse; the tables' frequencies are compared with Hugging Face's in
// oracle_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/rope.h"

#include "base/error.h"
#include "core/kernels/cpu/rope_tables.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace rope_test {

struct Case {
  int64_t tokens, heads, head_dim, rotary_dim, token_stride;
  RopePairs paired = RopePairs::Halves;
};

const Case kCases[] = {{0, 3, 64, 64, 192},
                       {1, 1, 2, 2, 2},
                       {3, 3, 64, 64, 200},
                       {5, 2, 10, 6, 20},
                       {70, 9, 64, 64, 576},
                       {4, 2, 36, 34, 72},
                       {3, 3, 64, 64, 200, RopePairs::Neighbours},
                       {5, 2, 10, 6, 20, RopePairs::Neighbours},
                       {4, 2, 36, 34, 72, RopePairs::Neighbours}};

std::vector<int32_t> positions_of(int64_t tokens) {
  std::vector<int32_t> positions;
  for (int64_t n = 0; n < tokens; ++n) positions.push_back(static_cast<int32_t>(n * 37 % 128));
  return positions;
}

std::vector<double> reference(const Array& x, const Case& c, const RopeTables& tables,
                              double direction) {
  std::vector<double> y = x.values();
  const std::vector<int32_t> positions = positions_of(c.tokens);
  const int64_t half = c.rotary_dim / 2;
  for (int64_t token = 0; token < c.tokens; ++token) {
    for (int64_t head = 0; head < c.heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const bool halves = c.paired == RopePairs::Halves;
        const int64_t start = token * c.token_stride + head * c.head_dim;
        const int64_t low = start + (halves ? i : 2 * i), high = low + (halves ? half : 1);
        const double cos = tables.cos[positions[token] * half + i];
        const double sin = direction * tables.sin[positions[token] * half + i];
        y[low] = x[low] * cos - x[high] * sin;
        y[high] = x[high] * cos + x[low] * sin;
      }
    }
  }
  return y;
}

Array applied(const Array& x, const Case& c, const RopeTables& tables, RopeDirection direction,
              int threads = 0) {
  Array y = x;
  const std::vector<int32_t> positions = positions_of(c.tokens);
  rope_apply({.type = x.type(),
              .tokens = c.tokens,
              .heads = c.heads,
              .head_dim = c.head_dim,
              .rotary_dim = c.rotary_dim,
              .paired = c.paired,
              .token_stride = c.token_stride,
              .x = y.data(),
              .positions = positions.data(),
              .cos = tables.cos.data(),
              .sin = tables.sin.data(),
              .max_positions = tables.max_positions,
              .direction = direction,
              .num_threads = threads});
  return y;
}

// Queries and keys in one call are what they are in two.
TEST(Rope, TurnsTwoTensorsAsEach) {
  on_every_isa([] {
    const Case q{20, 6, 10, 8, 67}, k{20, 2, 10, 8, 21};
    const RopeTables tables = build_rope_tables({}, 8, 128);
    const std::vector<int32_t> positions = positions_of(20);
    for (const Scalar type : kAllTypes) {
      Array x = random_array(type, q.tokens * q.token_stride, 1, 1.0, 1);
      Array y = random_array(type, k.tokens * k.token_stride, 2, 1.0, 1);
      const Array expected_x = applied(x, q, tables, RopeDirection::Inverse);
      const Array expected_y = applied(y, k, tables, RopeDirection::Inverse);
      rope_apply({.type = type,
                  .tokens = 20,
                  .heads = q.heads,
                  .head_dim = 10,
                  .rotary_dim = 8,
                  .token_stride = q.token_stride,
                  .x = x.data(),
                  .more_heads = k.heads,
                  .more_token_stride = k.token_stride,
                  .more_x = y.data(),
                  .positions = positions.data(),
                  .cos = tables.cos.data(),
                  .sin = tables.sin.data(),
                  .max_positions = tables.max_positions,
                  .direction = RopeDirection::Inverse});
      EXPECT_TRUE(x == expected_x && y == expected_y);
      EXPECT_TRUE(x.guards_intact() && y.guards_intact());
    }
  });
}

TEST(Rope, TurnsPairsBothWays) {
  on_every_isa([] {
    for (const Case& c : kCases) {
      const RopeTables tables = build_rope_tables({}, c.rotary_dim, 128);
      for (const Scalar type : kAllTypes) {
        const Array x = random_array(type, c.tokens * c.token_stride, 1, 1.0, 1);
        for (const RopeDirection direction : {RopeDirection::Forward, RopeDirection::Inverse}) {
          const Array y = applied(x, c, tables, direction);
          const auto expected =
              reference(x, c, tables, direction == RopeDirection::Forward ? 1 : -1);
          expect_near(y.values(), expected, within(expected, 1.01 * unit_roundoff(type), 4e-7),
                      name_of(type));
          EXPECT_TRUE(y.guards_intact());
        }
      }
    }
  });
}

TEST(Rope, InverseUndoesForwardAndThreadsDoNotMatter) {
  const Case c = {500, 3, 64, 64, 192};
  const RopeTables tables = build_rope_tables({}, 64, 128);
  const Array x = random_array(Scalar::F32, c.tokens * c.token_stride, 1);
  const Array y = applied(x, c, tables, RopeDirection::Forward, 1);
  EXPECT_TRUE(y == applied(x, c, tables, RopeDirection::Forward, 2));
  EXPECT_FALSE(y == x);
  const Array back = applied(y, c, tables, RopeDirection::Inverse);
  expect_near(
      back.values(), x.values(), [](int64_t) { return 1e-6; }, "there and back");
}

TEST(Rope, PositionOutsideTheTableIsRefused) {
  const RopeTables tables = build_rope_tables({}, 2, 4);
  Array x(Scalar::F32, 2);
  for (const int32_t position : {-1, 4}) {
    EXPECT_THROW(rope_apply({.tokens = 1,
                             .heads = 1,
                             .head_dim = 2,
                             .x = x.data(),
                             .positions = &position,
                             .cos = tables.cos.data(),
                             .sin = tables.sin.data(),
                             .max_positions = 4}),
                 InternalError);
  }
}

// Angles of the whole head's frequencies, and none behind the first ones.
TEST(RopeTables, OnlyAProportionTurns) {
  const RopeTables whole = build_rope_tables({}, 16, 4);
  const RopeTables part =
      build_rope_tables({.type = RopeType::Proportional, .proportion = 0.25}, 16, 4);
  for (size_t i = 0; i < whole.cos.size(); ++i) {
    EXPECT_EQ(part.cos[i], i % 8 < 2 ? whole.cos[i] : 1.0f) << i;
    EXPECT_EQ(part.sin[i], i % 8 < 2 ? whole.sin[i] : 0.0f) << i;
  }
}

TEST(RopeTables, RefusesWhatCannotBeComputed) {
  EXPECT_THROW(build_rope_tables({}, 7, 4), UserError);
  EXPECT_THROW(build_rope_tables({.base = 0}, 8, 4), UserError);
  EXPECT_THROW(build_rope_tables({.type = RopeType::Linear, .factor = 0}, 8, 4), UserError);
  EXPECT_THROW(build_rope_tables({.type = RopeType::Yarn, .factor = 2}, 8, 4), UserError);
  for (const double proportion : {0.0, 1.5})
    EXPECT_THROW(
        build_rope_tables({.type = RopeType::Proportional, .proportion = proportion}, 8, 4),
        UserError);
  EXPECT_THROW(build_rope_tables({.type = RopeType::Llama3,
                                  .factor = 2,
                                  .low_freq_factor = 4,
                                  .high_freq_factor = 4,
                                  .original_max_position = 8},
                                 8, 4),
               UserError);
  EXPECT_THROW(
      build_rope_tables(
          {.type = RopeType::LongRope, .original_max_position = 8, .short_factor = {1, 2, 3}}, 8,
          4),
      UserError);
}

}  // namespace rope_test
}  // namespace snug::kernels::cpu
