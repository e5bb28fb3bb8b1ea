// Attention of documents that share their first rows: held to libtorch's
// scaled_dot_product_attention of each document written out, in double.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/memory/ledger.h"
#include "core/ops/attention/forked_attention.h"

namespace snug::ops {
namespace forked_attention_test {

// Of each sample the shared tokens, those of the first document, and those of the second, both
// without the shared ones.
struct Case {
  std::string name;
  std::vector<std::array<int64_t, 3>> samples;
  int64_t heads, kv_heads, dim, window;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const std::vector<Case> kCases = {
    {"OneToken", {{1, 1, 1}}, 2, 2, 16, 0},
    {"LongPrompt", {{300, 20, 33}}, 4, 2, 16, 0},
    {"LongAnswers", {{7, 150, 210}}, 4, 1, 24, 0},
    {"NothingShared", {{0, 30, 41}}, 2, 1, 16, 0},
    {"SeveralSamples", {{40, 5, 9}, {0, 12, 3}, {129, 1, 64}}, 6, 2, 8, 0},
    {"ShortWindow", {{60, 20, 30}, {11, 40, 5}}, 4, 2, 16, 9},
    {"WindowIntoPrompt", {{200, 90, 70}}, 2, 2, 16, 128},
};

struct Documents {
  std::vector<std::vector<int64_t>> rows;  // of each document's tokens
  AttentionContext context;
  Forks forks;
  int64_t num_rows = 0;
};

Documents documents_of(const Case& c) {
  Documents all;
  std::vector<int32_t> borders = {0}, keys = {0};
  std::vector<int32_t> positions;
  for (const auto& [shared, first, second] : c.samples) {
    const int64_t begin = all.num_rows;
    for (const bool is_second : {false, true}) {
      const int64_t own = is_second ? second : shared + first;
      const int64_t before = is_second ? shared : 0;
      std::vector<int64_t>& rows = all.rows.emplace_back();
      for (int64_t i = 0; i < before; ++i) rows.push_back(begin + i);
      for (int64_t i = 0; i < own; ++i) {
        rows.push_back(all.num_rows + i);
        positions.push_back(static_cast<int32_t>(before + i));
      }
      if (before > 0) all.forks.runs.push_back({begin, before, true});
      all.forks.runs.push_back({all.num_rows, own});
      all.num_rows += own;
      borders.push_back(static_cast<int32_t>(all.num_rows));
      keys.push_back(keys.back() + static_cast<int32_t>(before + own));
      all.context.max_seqlen = std::max(all.context.max_seqlen, own);
      all.forks.max_kv_seqlen = std::max(all.forks.max_kv_seqlen, before + own);
    }
  }
  all.forks.kv_cu_seqlens = {at::tensor(keys, at::kInt), keys};
  all.forks.num_keys = keys.back() + 5;  // another micro-batch may have more
  all.context.cu_seqlens = {at::tensor(borders, at::kInt), borders};
  all.context.positions = at::tensor(positions, at::kInt);
  all.context.scale = 0.4;
  all.context.sliding_window = c.window;
  return all;
}

// (tokens, tokens): which keys each query sees.
at::Tensor mask_of(int64_t tokens, int64_t window) {
  const at::Tensor back = at::arange(tokens).unsqueeze(1) - at::arange(tokens).unsqueeze(0);
  return window == 0 ? back.ge(0) : at::logical_and(back.ge(0), back.lt(window));
}

// Each row as its last document has it, which all that have it agree on.
at::Tensor expected(const Case& c, const Documents& all, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v) {
  std::vector<at::Tensor> outputs(static_cast<size_t>(all.num_rows));
  for (const std::vector<int64_t>& rows : all.rows) {
    const at::Tensor index = at::tensor(rows, at::kLong);
    const auto by_head = [&](const at::Tensor& x) {
      return x.index_select(0, index).transpose(0, 1).unsqueeze(0);
    };
    const at::Tensor out =
        at::scaled_dot_product_attention(by_head(q), by_head(k), by_head(v),
                                         mask_of(std::ssize(rows), c.window), /*dropout_p=*/0,
                                         /*is_causal=*/false, /*scale=*/0.4, /*enable_gqa=*/true)
            .squeeze(0)
            .transpose(0, 1)
            .reshape({std::ssize(rows), c.heads * c.dim});
    for (size_t i = 0; i < rows.size(); ++i)
      if (!outputs[static_cast<size_t>(rows[i])].defined())
        outputs[static_cast<size_t>(rows[i])] = out[static_cast<int64_t>(i)];
  }
  return at::stack(outputs);
}

class Forked : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_P(Forked, DocumentsAttendToTheirSharedBeginning) {
  const Case& c = GetParam();
  const Documents all = documents_of(c);
  at::manual_seed(5);
  const auto trained = [&](int64_t heads) {
    return at::randn({all.num_rows, heads, c.dim}).set_requires_grad(true);
  };
  const at::Tensor q = trained(c.heads), k = trained(c.kv_heads), v = trained(c.kv_heads);
  const at::Tensor out = forked_attention(q, k, v, all.context, all.forks);
  const at::Tensor d_out = at::randn(out.sizes());
  out.backward(d_out);

  const auto in_double = [](const at::Tensor& x) {
    return x.detach().to(at::kDouble).set_requires_grad(true);
  };
  const at::Tensor q2 = in_double(q), k2 = in_double(k), v2 = in_double(v);
  const at::Tensor wanted = expected(c, all, q2, k2, v2);
  wanted.backward(d_out.to(at::kDouble));
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.detach().to(at::kDouble) - b.detach()).abs().max().item<double>();
  };
  EXPECT_LT(distance(out, wanted), 2e-5);
  EXPECT_LT(distance(q.grad(), q2.grad()), 1e-4);
  EXPECT_LT(distance(k.grad(), k2.grad()), 1e-4);
  EXPECT_LT(distance(v.grad(), v2.grad()), 1e-4);
}

// Rotary embeddings, sinks and 16-bit numbers as in the same documents written out.
TEST_P(Forked, IsAttentionOfDocumentsWrittenOut) {
  const Case& c = GetParam();
  Documents all = documents_of(c);
  std::vector<int64_t> rows;
  for (const std::vector<int64_t>& own : all.rows) rows.insert(rows.end(), own.begin(), own.end());
  const at::Tensor index = at::tensor(rows, at::kLong);
  AttentionContext apart = all.context;
  apart.cu_seqlens = all.forks.kv_cu_seqlens;
  apart.max_seqlen = all.forks.max_kv_seqlen;
  apart.positions = all.context.positions.index_select(0, index);
  const RopeTables rope = make_rope_tables({}, c.dim, all.forks.max_kv_seqlen, at::kCPU);
  apart.rope = all.context.rope = rope;
  at::manual_seed(6);
  const at::Tensor sinks = at::randn({c.heads}).set_requires_grad(true);
  const at::Tensor other_sinks = sinks.detach().clone().set_requires_grad(true);
  all.context.sinks = sinks;
  apart.sinks = other_sinks;
  const auto leaf = [&](int64_t heads) {
    return at::randn({all.num_rows, heads, c.dim}).to(at::kBFloat16).set_requires_grad(true);
  };
  const at::Tensor q = leaf(c.heads), k = leaf(c.kv_heads), v = leaf(c.kv_heads);
  const auto written_out = [&](const at::Tensor& x) {
    return x.detach().index_select(0, index).set_requires_grad(true);
  };
  const at::Tensor q2 = written_out(q), k2 = written_out(k), v2 = written_out(v);
  // Both rotate what they are given.
  const auto own = [](const at::Tensor& x) { return x.clone(); };
  const at::Tensor out = forked_attention(own(q), own(k), own(v), all.context, all.forks);
  const at::Tensor wanted = attention(own(q2), own(k2), own(v2), apart);
  // Only the first time a row is written out it has a gradient: it stands once.
  const at::Tensor d_out = at::randn(out.sizes()).to(at::kBFloat16);
  at::Tensor d_wanted = at::zeros(wanted.sizes(), wanted.options());
  std::vector<bool> seen(static_cast<size_t>(all.num_rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i], at = static_cast<int64_t>(i);
    if (seen[static_cast<size_t>(row)]) continue;
    seen[static_cast<size_t>(row)] = true;
    d_wanted[at].copy_(d_out[row]);
    EXPECT_TRUE(at::equal(out[row], wanted[at])) << "row " << row;
  }
  out.backward(d_out);
  wanted.backward(d_wanted);
  const auto summed = [&](const at::Tensor& like, const at::Tensor& gradient) {
    return at::zeros(like.sizes(), at::kFloat).index_add(0, index, gradient.to(at::kFloat));
  };
  for (const auto& [a, b] : {std::pair(q, q2), std::pair(k, k2), std::pair(v, v2)}) {
    const at::Tensor expected = summed(a, b.grad());
    // Two gradients of 8 significant bits are added.
    EXPECT_TRUE(at::allclose(a.grad().to(at::kFloat), expected, 0.02, 0.02));
  }
  EXPECT_TRUE(at::allclose(sinks.grad(), other_sinks.grad(), 1e-3, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Cases, Forked, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace forked_attention_test
}  // namespace snug::ops
