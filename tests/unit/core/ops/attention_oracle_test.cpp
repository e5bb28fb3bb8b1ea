// Attention against torch's scaled_dot_product_attention, T5Attention's relative biases and
// gpt-oss's sinks (tests/oracles/attention.py), on the cpu kernel and as plain products; and on
// meta, where it has to ask for the same memory as on the cpu.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/kernels/cpu/linalg/attention/attention.h"
#include "core/memory/ledger.h"
#include "core/ops/attention/attention.h"
#include "core/ops/attention/library_attention.h"
#include "support/source_dir.h"

namespace snug::ops {
namespace {

using Json = nlohmann::json;

const Json& oracle() {
  static const Json data =
      Json::parse(std::ifstream(tests::source_dir() / "tests/data/kernels/attention.json"));
  return data;
}

at::Tensor tensor_of(const Json& numbers, at::IntArrayRef sizes) {
  return at::tensor(numbers.get<std::vector<float>>()).view(sizes);
}

at::Tensor borders_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return at::tensor(starts, at::kInt);
}

// One case of the oracle's, its gradients asked of autograd.
struct Case {
  explicit Case(const Json& c)
      : q(leaf(c["q"], c["heads"], c["dim"])),
        k(leaf(c["k"], c["kv_heads"], c["dim"])),
        v(leaf(c["v"], c["kv_heads"], c["dim"])),
        d_out(tensor_of(c["d_out"], q.sizes())) {
    const std::vector<int32_t> lengths = c["lengths"], key_lengths = c["key_lengths"];
    context.cu_seqlens = borders_of(lengths);
    context.max_seqlen = *std::max_element(lengths.begin(), lengths.end());
    context.scale = c["scale"];
    context.causal = c["causal"];
    if (!key_lengths.empty()) {
      context.kv_cu_seqlens = borders_of(key_lengths);
      context.max_kv_seqlen = *std::max_element(key_lengths.begin(), key_lengths.end());
    }
    if (const int64_t buckets = c["num_buckets"]; buckets > 0) {
      context.bias_table =
          tensor_of(c["table"], {buckets, c["heads"].get<int64_t>()}).set_requires_grad(true);
      context.max_distance = c["max_distance"];
    }
    if (!c["sinks"].empty())
      context.sinks = tensor_of(c["sinks"], {c["heads"].get<int64_t>()}).set_requires_grad(true);
  }

  static at::Tensor leaf(const Json& numbers, int64_t heads, int64_t dim) {
    return tensor_of(numbers, {-1, heads, dim}).set_requires_grad(true);
  }

  at::Tensor q, k, v, d_out;
  AttentionContext context;
};

// float32 sums of up to 30 products, relative to the largest element.
void expect_close(const at::Tensor& got, const Json& numbers, const std::string& what) {
  const at::Tensor expected = tensor_of(numbers, got.sizes());
  const double largest = expected.abs().max().item<double>();
  EXPECT_LT((got - expected).abs().max().item<double>(), 1e-6 * std::max(1.0, largest) * 4) << what;
}

class AttentionOracleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_F(AttentionOracleTest, BucketsAreT5s) {
  for (const Json& b : oracle()["buckets"]) {
    const kernels::cpu::BiasTable table{.num_buckets = b["num_buckets"],
                                        .max_distance = b["max_distance"],
                                        .both_directions = b["both_directions"]};
    size_t next = 0;
    int64_t expected = -1;
    for (int64_t distance = -400; distance <= 400; ++distance) {
      if (next < b["changes"].size() && b["changes"][next][0] == distance)
        expected = b["changes"][next++][1];
      ASSERT_EQ(kernels::cpu::relative_bucket(distance, table), expected)
          << distance << " of " << b.dump().substr(0, 80);
    }
  }
}

TEST_F(AttentionOracleTest, TheCpuKernelGivesTorchsNumbers) {
  for (const Json& json : oracle()["cases"]) {
    const std::string name = json["name"];
    const Case c(json);
    const at::Tensor out = attention(c.q, c.k, c.v, c.context);
    out.backward(c.d_out.view(out.sizes()));
    expect_close(out.detach(), json["out"], name + " out");
    expect_close(c.q.grad(), json["dq"], name + " dq");
    expect_close(c.k.grad(), json["dk"], name + " dk");
    expect_close(c.v.grad(), json["dv"], name + " dv");
    if (c.context.bias_table.defined())
      expect_close(c.context.bias_table.grad(), json["d_table"], name + " d_table");
    if (c.context.sinks.defined())
      expect_close(c.context.sinks.grad(), json["d_sinks"], name + " d_sinks");
  }
}

TEST_F(AttentionOracleTest, ProductsGiveTorchsNumbers) {
  const at::NoGradGuard no_grad;
  for (const Json& json : oracle()["cases"]) {
    const std::string name = json["name"];
    const Case c(json);
    const auto way = LibraryAttention::Products;
    const AttentionOutput out = library_attention_forward(way, c.q, c.k, c.v, c.context);
    const AttentionGradients d =
        library_attention_backward(way, c.d_out, c.q, c.k, c.v, out, c.context);
    expect_close(out.out, json["out"], name + " out");
    expect_close(d.dq, json["dq"], name + " dq");
    expect_close(d.dk, json["dk"], name + " dk");
    expect_close(d.dv, json["dv"], name + " dv");
    if (d.d_bias.defined()) expect_close(d.d_bias, json["d_table"], name + " d_table");
    if (c.context.sinks.defined())
      expect_close(sink_gradients(c.d_out, out, c.context), json["d_sinks"], name + " d_sinks");
  }
}

// A table in 16 bits gets its gradient in 16 bits; one that is not trained none.
TEST_F(AttentionOracleTest, TheTablesGradientHasItsType) {
  Case c(oracle()["cases"][3]);
  const at::Tensor table = c.context.bias_table;
  c.context.bias_table = table.detach().to(at::kBFloat16).set_requires_grad(true);
  attention(c.q, c.k, c.v, c.context).sum().backward();
  EXPECT_EQ(c.context.bias_table.grad().scalar_type(), at::kBFloat16);
  c.context.bias_table = table.detach().clone();
  attention(c.q, c.k, c.v, c.context).sum().backward();
  EXPECT_FALSE(c.context.bias_table.grad().defined());
}

// Peak of a forward and a backward beyond what there was before.
int64_t peak_on(at::DeviceType device, const Case& c, at::ScalarType type, double dropout) {
  const auto there = [&](const at::Tensor& x) {
    if (!x.defined()) return at::Tensor();
    if (!at::isFloatingType(x.scalar_type())) return x.to(device);
    return x.detach().to(type).to(device).clone().set_requires_grad(true);
  };
  const at::Tensor q = there(c.q), k = there(c.k), v = there(c.v);
  AttentionContext context = c.context;
  context.cu_seqlens = there(context.cu_seqlens);
  context.kv_cu_seqlens = there(context.kv_cu_seqlens);
  context.bias_table = there(context.bias_table);
  if (context.sinks.defined())
    context.sinks = context.sinks.detach().to(device).clone().set_requires_grad(true);
  context.dropout = dropout;
  const at::Tensor d_out = at::zeros({q.size(0), q.size(1) * q.size(2)}, q.options());
  memory::Ledger& ledger = memory::ledger_of(device);
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  attention(q, k, v, context).backward(d_out);
  return ledger.at_peak().allocated - before;
}

TEST_F(AttentionOracleTest, MetaAsksForTheSameBytes) {
  for (const Json& json : oracle()["cases"]) {
    const Case c(json);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const double dropout : {0.0, 0.1})
        EXPECT_EQ(peak_on(at::kMeta, c, type, dropout), peak_on(at::kCPU, c, type, dropout))
            << json["name"] << " " << type << " " << dropout;
  }
}

}  // namespace
}  // namespace snug::ops
