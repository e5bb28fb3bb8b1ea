// Gathering rows, and summing gradients back.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/embedding.h"

#include "base/error.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

std::vector<int32_t> ids_of(int64_t tokens, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t n = 0; n < tokens; ++n) {
    // One id takes a third of the tokens, as a frequent word does.
    ids.push_back(static_cast<int32_t>(n % 3 == 0 ? 2 % vocabulary : (n * n + 5 * n) % vocabulary));
  }
  return ids;
}

TEST(Embedding, ForwardCopiesRows) {
  for (const Scalar type : kAllTypes) {
    for (const int64_t dim : {1, 7, 100}) {
      for (const int64_t tokens : {0, 1, 3, 1024}) {
        const Array weight = random_array(type, 50 * dim, 1, 1.0, 1);
        const std::vector<int32_t> ids = ids_of(tokens, 50);
        Array out(type, tokens * dim, 1);
        embedding_forward({.type = type,
                           .tokens = tokens,
                           .vocabulary = 50,
                           .dim = dim,
                           .ids = ids.data(),
                           .weight = weight.data(),
                           .out = out.data()});
        for (int64_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], weight[ids[i / dim] * dim + i % dim]);
        }
        EXPECT_TRUE(out.guards_intact());
      }
    }
  }
}

TEST(Embedding, BackwardSumsWithOneRounding) {
  on_every_isa([] {
    for (const Scalar type : kAllTypes) {
      for (const Scalar grad_type : kAllTypes) {
        for (const int64_t dim : {1, 7, 100}) {
          const int64_t tokens = 200, vocabulary = 20;
          const std::vector<int32_t> ids = ids_of(tokens, vocabulary);
          const Array dy = random_array(type, tokens * dim, 2, 1.0, 1);
          Array grad = random_array(grad_type, vocabulary * dim, 3, 1.0, 1);
          std::vector<double> expected = grad.values();
          for (int64_t i = 0; i < dy.size(); ++i) expected[ids[i / dim] * dim + i % dim] += dy[i];
          embedding_backward({.type = type,
                              .grad_type = grad_type,
                              .tokens = tokens,
                              .vocabulary = vocabulary,
                              .dim = dim,
                              .ids = ids.data(),
                              .dy = dy.data(),
                              .grad = grad.data()});
          expect_near(grad.values(), expected,
                      within(expected, 1.01 * unit_roundoff(grad_type), 1e-4), name_of(grad_type));
          EXPECT_TRUE(grad.guards_intact());
        }
      }
    }
  });
}

TEST(Embedding, PaddingGetsNoGradient) {
  const std::vector<int32_t> ids = {1, 2, 1};
  const Array dy(Scalar::F32, {1, 2, 3});
  Array grad(Scalar::F32, 4);
  embedding_backward({.tokens = 3,
                      .vocabulary = 4,
                      .dim = 1,
                      .ids = ids.data(),
                      .padding_index = 2,
                      .dy = dy.data(),
                      .grad = grad.data()});
  EXPECT_EQ(grad.values(), (std::vector<double>{0, 4, 0, 0}));
}

TEST(Embedding, ThreadsDoNotChangeABit) {
  const int64_t tokens = 5000, vocabulary = 700, dim = 65;
  const std::vector<int32_t> ids = ids_of(tokens, vocabulary);
  const Array dy = random_array(Scalar::F32, tokens * dim, 2);
  std::vector<Array> results;
  for (const int threads : {1, 2, 3}) {
    Array grad(Scalar::F32, vocabulary * dim);
    embedding_backward({.tokens = tokens,
                        .vocabulary = vocabulary,
                        .dim = dim,
                        .ids = ids.data(),
                        .dy = dy.data(),
                        .grad = grad.data(),
                        .num_threads = threads});
    results.push_back(grad);
  }
  EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]);
}

TEST(Embedding, PartsOfATableAddUpToTheWhole) {
  const int64_t tokens = 200, vocabulary = 50, dim = 7;
  const std::vector<int32_t> ids = ids_of(tokens, vocabulary);
  const Array weight = random_array(Scalar::F32, vocabulary * dim, 1);
  const Array dy = random_array(Scalar::F32, tokens * dim, 2);
  Array whole_grad(Scalar::F32, vocabulary * dim);
  embedding_backward({.tokens = tokens,
                      .vocabulary = vocabulary,
                      .dim = dim,
                      .ids = ids.data(),
                      .dy = dy.data(),
                      .grad = whole_grad.data()});
  const std::vector<int64_t> begins = {0, 17, 17, vocabulary};
  for (size_t part = 0; part + 1 < begins.size(); ++part) {
    const int64_t first = begins[part], rows = begins[part + 1] - first;
    std::vector<double> own_rows, own_grad;
    for (int64_t i = first * dim; i < (first + rows) * dim; ++i) {
      own_rows.push_back(weight[i]);
      own_grad.push_back(whole_grad[i]);
    }
    const Array own(Scalar::F32, own_rows);
    Array out = random_array(Scalar::F32, tokens * dim, 4, 1.0, 1);
    embedding_forward({.tokens = tokens,
                       .vocabulary = rows,
                       .first = first,
                       .whole_vocabulary = vocabulary,
                       .dim = dim,
                       .ids = ids.data(),
                       .weight = own.data(),
                       .out = out.data()});
    for (int64_t i = 0; i < out.size(); ++i) {
      const int64_t row = ids[i / dim] - first;
      ASSERT_EQ(out[i], row >= 0 && row < rows ? own[row * dim + i % dim] : 0.0);
    }
    Array grad(Scalar::F32, rows * dim, 1);
    embedding_backward({.tokens = tokens,
                        .vocabulary = rows,
                        .first = first,
                        .whole_vocabulary = vocabulary,
                        .dim = dim,
                        .ids = ids.data(),
                        .dy = dy.data(),
                        .grad = grad.data()});
    EXPECT_EQ(grad.values(), own_grad);
    EXPECT_TRUE(out.guards_intact() && grad.guards_intact());
  }
}

TEST(Embedding, IdOutsideTheTableIsRefused) {
  const Array weight(Scalar::F32, 4);
  Array out(Scalar::F32, 1);
  for (const int32_t id : {-1, 4}) {
    EXPECT_THROW(embedding_forward({.tokens = 1,
                                    .vocabulary = 4,
                                    .dim = 1,
                                    .ids = &id,
                                    .weight = weight.data(),
                                    .out = out.data()}),
                 InternalError);
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
