// Causal attention of documents that have more keys than queries, whose last query is that of the
// last key: held to libtorch's scaled_dot_product_attention with a mask, in double.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/memory/ledger.h"
#include "core/ops/attention/attention.h"

namespace snug::ops {
namespace more_keys_attention_test {

struct Case {
  std::string name;
  std::vector<int32_t> queries, keys;  // borders of documents
  int64_t heads, kv_heads, dim, window;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Blocks of the kernels have 128 keys and 64 or about 192 rows.
const std::vector<Case> kCases = {
    {"OneQuery", {0, 1}, {0, 300}, 2, 2, 16, 0},
    {"AsMany", {0, 70}, {0, 70}, 4, 2, 16, 0},
    {"OneMore", {0, 129}, {0, 130}, 4, 2, 16, 0},
    {"ManyMore", {0, 200}, {0, 700}, 4, 4, 16, 0},
    {"FirstDocumentAlone", {0, 33, 40, 101}, {0, 420, 427, 488}, 6, 2, 8, 0},
    {"EachDocument", {0, 5, 5, 90}, {0, 133, 140, 500}, 4, 1, 24, 0},
    {"ShortWindow", {0, 200}, {0, 700}, 4, 2, 16, 9},
    {"WindowOverBlocks", {0, 210, 215}, {0, 640, 650}, 4, 2, 16, 200},
    {"WindowOfAll", {0, 50}, {0, 90}, 2, 2, 16, 1000},
};

int64_t longest(const std::vector<int32_t>& borders) {
  int64_t most = 0;
  for (size_t i = 1; i < borders.size(); ++i)
    most = std::max<int64_t>(most, borders[i] - borders[i - 1]);
  return most;
}

// (queries, keys): which of its document's keys each query sees.
at::Tensor mask_of(int64_t queries, int64_t keys, int64_t window) {
  at::Tensor mask = at::zeros({queries, keys}, at::kBool);
  auto sees = mask.accessor<bool, 2>();
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t back = i + keys - queries - j;
      sees[i][j] = back >= 0 && (window == 0 || back < window);
    }
  return mask;
}

at::Tensor expected(const Case& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  std::vector<at::Tensor> documents;
  for (size_t d = 0; d + 1 < c.queries.size(); ++d) {
    const int64_t queries = c.queries[d + 1] - c.queries[d], keys = c.keys[d + 1] - c.keys[d];
    if (queries == 0) continue;
    const auto by_head = [](const at::Tensor& x, int64_t begin, int64_t count) {
      return x.narrow(0, begin, count).transpose(0, 1).unsqueeze(0);
    };
    documents.push_back(at::scaled_dot_product_attention(
                            by_head(q, c.queries[d], queries), by_head(k, c.keys[d], keys),
                            by_head(v, c.keys[d], keys), mask_of(queries, keys, c.window),
                            /*dropout_p=*/0, /*is_causal=*/false, /*scale=*/0.4,
                            /*enable_gqa=*/true)
                            .squeeze(0)
                            .transpose(0, 1)
                            .reshape({queries, c.heads * c.dim}));
  }
  return at::cat(documents);
}

class MoreKeys : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_P(MoreKeys, AreSeenFromTheEnd) {
  const Case& c = GetParam();
  at::manual_seed(5);
  const auto trained = [&](int64_t rows, int64_t heads) {
    return at::randn({rows, heads, c.dim}).set_requires_grad(true);
  };
  const at::Tensor q = trained(c.queries.back(), c.heads);
  const at::Tensor k = trained(c.keys.back(), c.kv_heads), v = trained(c.keys.back(), c.kv_heads);
  const AttentionContext context{.cu_seqlens = at::tensor(c.queries, at::kInt),
                                 .max_seqlen = longest(c.queries),
                                 .scale = 0.4,
                                 .sliding_window = c.window,
                                 .kv_cu_seqlens = at::tensor(c.keys, at::kInt),
                                 .max_kv_seqlen = longest(c.keys)};
  const at::Tensor out = attention(q, k, v, context);
  const at::Tensor d_out = at::randn(out.sizes());
  out.backward(d_out);

  const auto in_double = [](const at::Tensor& x) {
    return x.detach().to(at::kDouble).set_requires_grad(true);
  };
  const at::Tensor q2 = in_double(q), k2 = in_double(k), v2 = in_double(v);
  const at::Tensor wanted = expected(c, q2, k2, v2);
  wanted.backward(d_out.to(at::kDouble));
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.detach().to(at::kDouble) - b.detach()).abs().max().item<double>();
  };
  // float32 sums of up to 700 products of numbers of size 1.
  EXPECT_LT(distance(out, wanted), 2e-5);
  EXPECT_LT(distance(q.grad(), q2.grad()), 1e-4);
  EXPECT_LT(distance(k.grad(), k2.grad()), 1e-4);
  EXPECT_LT(distance(v.grad(), v2.grad()), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Cases, MoreKeys, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace more_keys_attention_test
}  // namespace snug::ops
