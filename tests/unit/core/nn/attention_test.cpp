// Attention as units call it: a generation's steps, one token at a time for several sequences, give
// what one pass over everything gives.
// SPDX-License-Identifier: Apache-2.0
#include "core/nn/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "core/memory/ledger.h"

namespace snug::nn {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 16, kTokens = 9, kSequences = 3;

at::Tensor numbers(int64_t tokens, int64_t heads) { return at::randn({tokens, heads, kDim}); }

Batch batch_of(int64_t begin, int64_t end) {
  Batch batch;
  batch.cu_seqlens = even_sequences(kSequences, end - begin, at::kCPU).cu_seqlens;
  batch.max_seqlen = end - begin;
  batch.positions = at::arange(begin, end, at::kInt).repeat({kSequences});
  return batch;
}

// Tokens begin .. end of each sequence of x (S·T, H, d): copies, since attention rotates in place.
at::Tensor tokens_of(const at::Tensor& x, int64_t begin, int64_t end) {
  const at::Tensor by_sequence = x.view({kSequences, kTokens, x.size(1), kDim});
  return by_sequence.slice(1, begin, end).reshape({-1, x.size(1), kDim}).clone();
}

class NnAttentionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
  void SetUp() override {
    at::manual_seed(5);
    rope_ = ops::make_rope_tables({}, kDim, kTokens, at::kCPU);
    options_ = {.scale = 0.25,
                .rope = &rope_,
                .bias_table = at::randn({8, kHeads}),
                .max_distance = 16,
                .dropout = 0.5,  // without a key nothing is dropped
                .site = "layer"};
  }

  ops::RopeTables rope_;
  AttentionOptions options_;
};

TEST_F(NnAttentionTest, StepsOfSeveralSequencesEqualOnePass) {
  const at::Tensor q = numbers(kSequences * kTokens, kHeads);
  const at::Tensor k = numbers(kSequences * kTokens, kKvHeads);
  const at::Tensor v = numbers(kSequences * kTokens, kKvHeads);
  const Pass pass;
  const auto attend = [&](int64_t begin, int64_t end, KvCache* cache) {
    Batch batch = batch_of(begin, end);
    batch.cache = cache;
    return causal_attention(tokens_of(q, begin, end), tokens_of(k, begin, end),
                            tokens_of(v, begin, end), 0, options_, batch, pass)
        .view({kSequences, end - begin, kHeads * kDim});
  };
  const at::Tensor whole = attend(0, kTokens, nullptr);
  KvCache cache(kTokens + 3, kSequences);
  constexpr int64_t kPrompt = 4;
  const at::Tensor first = attend(0, kPrompt, &cache);
  EXPECT_TRUE(at::allclose(first, whole.slice(1, 0, kPrompt), 1e-5, 1e-6));
  cache.advance(kPrompt);
  for (int64_t token = kPrompt; token < kTokens; ++token) {
    const at::Tensor next = attend(token, token + 1, &cache);
    EXPECT_TRUE(at::allclose(next, whole.slice(1, token, token + 1), 1e-5, 1e-6)) << token;
    cache.advance(1);
  }
  EXPECT_THROW(attend(0, 2, &cache), InternalError);
}

TEST_F(NnAttentionTest, EveryTokenSeesItsSource) {
  const at::Tensor q = numbers(kSequences * 2, kHeads);
  const at::Tensor k = numbers(kSequences * kTokens, kHeads);
  const at::Tensor v = numbers(kSequences * kTokens, kHeads);
  const AttentionOptions plain{.scale = 0.25, .bias_table = {}, .site = {}};
  const at::Tensor got = cross_attention(q, k, v, even_sequences(kSequences, 2, at::kCPU),
                                         even_sequences(kSequences, kTokens, at::kCPU), plain, {});
  const auto heads_first = [](const at::Tensor& x) {
    return x.view({kSequences, -1, kHeads, kDim}).transpose(1, 2);
  };
  const at::Tensor scores =
      at::matmul(heads_first(q), heads_first(k).transpose(2, 3)).mul(0.25).softmax(-1);
  const at::Tensor expected =
      at::matmul(scores, heads_first(v)).transpose(1, 2).reshape({kSequences * 2, kHeads * kDim});
  EXPECT_TRUE(at::allclose(got, expected, 1e-5, 1e-6));
}

// What is dropped follows from the pass's key and the layer's name, and from nothing else.
TEST_F(NnAttentionTest, DropoutIsTheLayersOwn) {
  const at::Tensor q = numbers(kSequences * kTokens, kHeads);
  const Packed sequences = even_sequences(kSequences, kTokens, at::kCPU);
  const auto attend = [&](std::optional<uint64_t> key, const std::string& site) {
    const AttentionOptions options{.scale = 0.25, .bias_table = {}, .dropout = 0.5, .site = site};
    return full_attention(q, q, q, sequences, options, {.dropout_key = key});
  };
  EXPECT_TRUE(at::equal(attend(1, "a"), attend(1, "a")));
  EXPECT_FALSE(at::equal(attend(1, "a"), attend(2, "a")));
  EXPECT_FALSE(at::equal(attend(1, "a"), attend(1, "b")));
  EXPECT_TRUE(at::equal(attend({}, "a"), attend({}, "b")));
}

// Documents of different lengths, packed: S (N, M), true where query i may look at key j. For
// documents of as many keys as queries, each token looks at up to `window` tokens up to itself
// (0: at all of them, the later ones included).
at::Tensor visible(const std::vector<int64_t>& queries, const std::vector<int64_t>& keys,
                   int64_t window) {
  std::vector<at::Tensor> blocks;
  for (size_t s = 0; s < queries.size(); ++s) {
    const at::Tensor ones = at::ones({queries[s], keys[s]});
    blocks.push_back(window > 0 ? ones.tril().triu(1 - window) : ones);
  }
  return at::block_diag(blocks) > 0;
}

Packed packed(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> borders{0};
  std::vector<at::Tensor> positions;
  for (const int64_t length : lengths) {
    borders.push_back(borders.back() + static_cast<int32_t>(length));
    positions.push_back(at::arange(length, at::kInt));
  }
  return {.cu_seqlens = at::tensor(borders, at::kInt),
          .max_seqlen = *std::max_element(lengths.begin(), lengths.end()),
          .positions = at::cat(positions)};
}

// libtorch's own attention of all tokens at once, under that mask: q (N, H, d), k and v (M, K, d).
at::Tensor by_libtorch(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& mask, double cap) {
  const auto heads = [](const at::Tensor& x) {
    return x.repeat_interleave(kHeads / x.size(1), 1).transpose(0, 1);
  };
  at::Tensor scores = at::matmul(heads(q), heads(k).transpose(1, 2)) * 0.25;
  if (cap > 0) scores = cap * at::tanh(scores / cap);
  const at::Tensor weights = scores.masked_fill(~mask, -INFINITY).softmax(-1);
  return at::matmul(weights, heads(v)).transpose(0, 1).reshape({q.size(0), kHeads * kDim});
}

TEST_F(NnAttentionTest, GradientsOfPackedDocumentsAreLibtorchs) {
  const std::vector<int64_t> lengths{5, 1, 8}, sources{3, 6, 2};
  struct Form {
    const char* name;
    bool causal;
    int64_t window;
    double cap;
    bool cross;
  };
  for (const Form& form : {Form{"causal", true, 0, 0, false}, Form{"window", true, 3, 0, false},
                           Form{"capped", true, 0, 1.5, false}, Form{"full", false, 0, 0, false},
                           Form{"cross", false, 0, 0, true}}) {
    SCOPED_TRACE(form.name);
    const auto& key_lengths = form.cross ? sources : lengths;
    const Packed queries = packed(lengths), keys = packed(key_lengths);
    std::vector<at::Tensor> ours, theirs;  // q, k, v
    for (int i = 0; i < 3; ++i) {
      const int64_t tokens = (i == 0 ? queries : keys).positions.size(0);
      ours.push_back(numbers(tokens, i == 0 ? kHeads : kKvHeads).set_requires_grad(true));
      theirs.push_back(ours.back().detach().clone().set_requires_grad(true));
    }
    const AttentionOptions options{.scale = 0.25,
                                   .sliding_window = form.window,
                                   .score_cap = form.cap,
                                   .bias_table = {},
                                   .site = {}};
    at::Tensor out;
    if (form.causal) {
      Batch batch;
      batch.cu_seqlens = queries.cu_seqlens;
      batch.max_seqlen = queries.max_seqlen;
      batch.positions = queries.positions;
      out = causal_attention(ours[0] * 1, ours[1] * 1, ours[2] * 1, 0, options, batch, {});
    } else if (form.cross) {
      out = cross_attention(ours[0] * 1, ours[1] * 1, ours[2] * 1, queries, keys, options, {});
    } else {
      out = full_attention(ours[0] * 1, ours[1] * 1, ours[2] * 1, queries, options, {});
    }
    const int64_t window = form.window > 0 ? form.window : form.causal ? 100 : 0;
    const at::Tensor expected = by_libtorch(theirs[0], theirs[1], theirs[2],
                                            visible(lengths, key_lengths, window), form.cap);
    const at::Tensor d_out = at::randn(expected.sizes());
    out.backward(d_out);
    expected.backward(d_out);
    EXPECT_TRUE(at::allclose(out, expected, 1e-4, 1e-5));
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(ours[i].grad(), theirs[i].grad(), 1e-4, 1e-5)) << "qkv"[i];
  }
}

}  // namespace
}  // namespace snug::nn
