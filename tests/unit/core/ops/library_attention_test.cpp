// The plain products that serve cuda tensors where flash attention does not, held to the CPU
// kernel; and on meta, which has to ask for the memory that they take.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/library_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>

#include "core/memory/ledger.h"

namespace snug::ops {
namespace library_attention_test {

struct Case {
  std::string name;
  std::vector<int32_t> cu_seqlens;
  int64_t heads, kv_heads, dim, sliding_window;
  bool causal = true;
  std::vector<int32_t> kv_cu_seqlens = {};
  int64_t buckets = 0;
  double dropout = 0;
  double score_cap = 0;
  bool sinks = false;
  bool even = false;  // made to be: several documents in a block
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// 600 tokens make three blocks of rows.
const std::vector<Case> kCases = {
    {"OneDocument", {0, 37}, 4, 4, 8, 0},
    {"SharedKeyHeads", {0, 5, 6, 40}, 6, 2, 16, 0},
    {"SeveralBlocks", {0, 600, 640}, 2, 1, 8, 0},
    {"Window", {0, 20, 51}, 4, 2, 8, 7},
    {"WindowOverBlocks", {0, 600}, 2, 2, 8, 33},
    {"Full", {0, 300, 340}, 2, 2, 8, 0, false},
    {"FullWindow", {0, 300}, 2, 2, 8, 20, false},
    {"OtherKeys", {0, 30, 300}, 4, 2, 8, 0, false, {0, 400, 417}},
    {"MoreKeys", {0, 30, 300}, 4, 2, 8, 0, true, {0, 131, 700}},
    {"MoreKeysWindow", {0, 300}, 2, 2, 8, 33, true, {0, 500}},
    {"MoreKeysDropout", {0, 300}, 4, 2, 8, 0, true, {0, 417}, 0, 0.2},
    {"Biases", {0, 300}, 4, 2, 8, 0, true, {}, 32},
    {"BothWays", {0, 20, 330}, 2, 2, 8, 0, false, {}, 32},
    {"Capped", {0, 20, 330}, 4, 2, 8, 33, true, {}, 0, 0, 1.5},
    {"Dropout", {0, 300}, 4, 2, 8, 0, true, {}, 0, 0.2},
    {"Sinks", {0, 1, 600}, 6, 2, 8, 33, true, {}, 0, 0, 0, true},
    {"SinksAndAll", {0, 300}, 4, 2, 8, 0, true, {0, 417}, 0, 0.2, 2, true},
    {"Even", {0, 20, 40, 60}, 4, 2, 8, 0, false, {}, 0, 0.2, 0, false, true},
    {"EvenOfManyBlocks",
     {0, 100, 200, 300, 400, 500},
     4,
     2,
     8,
     0,
     false,
     {0, 30, 60, 90, 120, 150},
     8,
     0.2,
     0,
     false,
     true},
    {"EvenCausal", {0, 20, 40, 60}, 4, 2, 8, 0, true, {}, 0, 0.2, 0, true, true},
    {"All", {0, 300}, 4, 2, 8, 0, false, {0, 200}, 8, 0.2},
    // Short ones, which are filled up: several blocks of two, of four, of sixteen.
    {"Filled", {0, 100, 101, 165, 165, 290, 300}, 4, 2, 8, 0, true, {}, 32, 0.2},
    {"FilledOtherKeys",
     {0, 1, 31, 60, 62, 70},
     4,
     2,
     8,
     0,
     false,
     {0, 50, 52, 90, 154, 155},
     8,
     0.2},
    {"FilledManyTimes",
     {0, 1, 3, 4, 9, 10, 26, 27, 28, 29, 30, 31, 47, 48, 49, 50, 51, 52, 53, 54},
     2,
     1,
     8,
     0,
     false,
     {},
     0,
     0,
     1.5,
     true}};

struct Inputs {
  at::Tensor q, k, v, d_out;
  AttentionContext context;
};

int64_t longest(const std::vector<int32_t>& borders) {
  int64_t most = 0;
  for (size_t i = 1; i < borders.size(); ++i)
    most = std::max<int64_t>(most, borders[i] - borders[i - 1]);
  return most;
}

Inputs make_inputs(const Case& c, at::DeviceType device) {
  at::manual_seed(3);
  const int64_t n = c.cu_seqlens.back();
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  const auto make = [&](int64_t rows, int64_t heads) {
    return at::randn({rows, heads, c.dim}, floats).to(device);
  };
  const int64_t m = c.kv_cu_seqlens.empty() ? n : c.kv_cu_seqlens.back();
  Inputs in{make(n, c.heads), make(m, c.kv_heads), make(m, c.kv_heads), make(n, c.heads), {}};
  const auto borders = [&](const std::vector<int32_t>& values) {
    const at::Tensor there = at::tensor(values, at::kInt).to(device);
    return c.even ? Borders::even(there, values[1]) : Borders(there);
  };
  in.context.cu_seqlens = borders(c.cu_seqlens);
  in.context.max_seqlen = longest(c.cu_seqlens);
  in.context.causal = c.causal;
  if (!c.kv_cu_seqlens.empty()) {
    in.context.kv_cu_seqlens = borders(c.kv_cu_seqlens);
    in.context.max_kv_seqlen = longest(c.kv_cu_seqlens);
  }
  if (c.buckets > 0) in.context.bias_table = at::randn({c.buckets, c.heads}, floats).to(device);
  if (c.sinks) in.context.sinks = at::randn({c.heads}, floats).to(device);
  in.context.dropout = c.dropout;
  in.context.dropout_key = 0xfedcba9876543210;
  in.context.scale = 0.3;
  in.context.score_cap = c.score_cap;
  in.context.sliding_window = c.sliding_window;
  return in;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class LibraryAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_P(LibraryAttentionTest, ProductsEqualTheCpuKernel) {
  Inputs in = make_inputs(GetParam(), at::kCPU);
  at::Tensor& table = in.context.bias_table;
  at::Tensor& sinks = in.context.sinks;
  if (table.defined()) table.set_requires_grad(true);
  if (sinks.defined()) sinks.set_requires_grad(true);
  const at::Tensor q = in.q.clone().set_requires_grad(true);
  const at::Tensor k = in.k.clone().set_requires_grad(true);
  const at::Tensor v = in.v.clone().set_requires_grad(true);
  const at::Tensor expected = attention(q, k, v, in.context);
  expected.backward(in.d_out.view(expected.sizes()));

  const at::NoGradGuard no_grad;
  const AttentionOutput got =
      library_attention_forward(LibraryAttention::Products, in.q, in.k, in.v, in.context);
  const AttentionGradients gradients = library_attention_backward(
      LibraryAttention::Products, in.d_out, in.q, in.k, in.v, got, in.context);
  // float32 sums of up to 600 products of numbers of size 1.
  EXPECT_LT(distance(got.out, expected.detach()), 2e-5);
  EXPECT_LT(distance(gradients.dq, q.grad()), 1e-4);
  EXPECT_LT(distance(gradients.dk, k.grad()), 1e-4);
  EXPECT_LT(distance(gradients.dv, v.grad()), 1e-4);
  if (sinks.defined()) {
    EXPECT_LT(distance(sink_gradients(in.d_out, got, in.context), sinks.grad()), 1e-4);
  }
  // Sums of 100000 and more.
  if (table.defined()) {
    EXPECT_LT(distance(gradients.d_bias, table.grad()), 3e-4);
  }
}

TEST_P(LibraryAttentionTest, DecodingEqualsTheCpuKernel) {
  const Case& c = GetParam();
  if (!c.causal) GTEST_SKIP() << "generations are causal";
  Inputs in = make_inputs(c, at::kCPU);
  in.context.dropout = 0;
  const at::Tensor q = in.q.slice(0, 0, 2);
  const at::Tensor k = at::stack({in.k, in.v});
  const at::Tensor v = at::stack({in.v, in.k});
  const int64_t length = c.cu_seqlens.back() - 1;  // the cache has room behind what counts
  const at::Tensor expected = decode_attention(q, k, v, length, in.context);
  const at::Tensor got = library_decode_attention(q, k, v, length, in.context);
  EXPECT_LT(distance(got.view(expected.sizes()), expected), 2e-5);
}

TEST_P(LibraryAttentionTest, ProductsAskForTheSameOnMeta) {
  const bool fills = GetParam().name.starts_with("Filled");
  if (GetParam().cu_seqlens.size() > 2 && !GetParam().even && !fills)
    GTEST_SKIP() << "on meta the longest document stands for all";
  const auto peak_on = [&](at::DeviceType device) {
    const Inputs in = make_inputs(GetParam(), device);
    memory::Ledger& ledger = memory::ledger_of(device);
    const int64_t before = ledger.allocated();
    ledger.reset_peak();
    const AttentionOutput out =
        library_attention_forward(LibraryAttention::Products, in.q, in.k, in.v, in.context);
    library_attention_backward(LibraryAttention::Products, in.d_out, in.q, in.k, in.v, out,
                               in.context);
    if (in.context.sinks.defined()) sink_gradients(in.d_out, out, in.context);
    return ledger.at_peak().allocated - before;
  };
  // Besides these, libtorch's own products and sums may take a little on the cpu.
  const auto planned = static_cast<double>(peak_on(at::kMeta));
  EXPECT_NEAR(planned, static_cast<double>(peak_on(at::kCPU)), planned / 100);
}

INSTANTIATE_TEST_SUITE_P(Cases, LibraryAttentionTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// What a plan for the longest documents has to be enough for.
TEST(LibraryAttentionTest, ShorterDocumentsTakeNoMore) {
  memory::install_allocators();
  for (const bool causal : {false, true})
    for (const int documents : {1, 2, 3, 20}) {
      int64_t before = 0;
      for (const int length : {1, 15, 16, 17, 32, 33, 64, 65, 100, 128, 129, 200, 256, 257, 400}) {
        std::vector<int32_t> borders{0};
        for (int i = 1; i <= documents; ++i) borders.push_back(i * length);
        const Inputs in = make_inputs({"", borders, 4, 2, 8, 0, causal, {}, 8}, at::kMeta);
        memory::Ledger& ledger = memory::ledger_of(at::kMeta);
        const int64_t start = ledger.allocated();
        ledger.reset_peak();
        const AttentionOutput out =
            library_attention_forward(LibraryAttention::Products, in.q, in.k, in.v, in.context);
        library_attention_backward(LibraryAttention::Products, in.d_out, in.q, in.k, in.v, out,
                                   in.context);
        const int64_t peak = ledger.at_peak().allocated - start;
        EXPECT_GE(peak, before) << documents << " documents of " << length;
        before = peak;
      }
    }
}

// A micro-batch without pictures, which libtorch's kernels refuse.
TEST(LibraryAttentionTest, OfNoRowsIsNothing) {
  const at::Tensor none = at::empty({0, 4, 8});
  AttentionContext context;
  context.cu_seqlens = at::zeros({1}, at::kInt);
  for (const LibraryAttention way : {LibraryAttention::Flash, LibraryAttention::Products}) {
    const AttentionOutput out = library_attention_forward(way, none, none, none, context);
    EXPECT_EQ(out.out.sizes(), (at::IntArrayRef{0, 32}));
    const AttentionGradients gradients =
        library_attention_backward(way, none, none, none, none, out, context);
    EXPECT_EQ(gradients.dq.sizes(), none.sizes());
    EXPECT_EQ(gradients.dv.sizes(), none.sizes());
  }
}

}  // namespace library_attention_test
}  // namespace snug::ops
