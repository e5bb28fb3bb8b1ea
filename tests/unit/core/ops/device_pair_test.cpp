// Each operator on the test's device against the CPU: outputs and gradients, in float32 and
// bfloat16. On the cpu it holds the operators to themselves; ctest runs it with cuda too.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/ops/attention/attention.h"
#include "core/ops/dropout.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/linear/linear.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/norm.h"
#include "core/ops/pictures.h"
#include "core/ops/sequence/delta_gates.h"
#include "core/ops/sequence/delta_rule.h"
#include "core/ops/sequence/short_conv.h"
#include "support/test_device.h"

namespace snug::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

// Where and in which type an operator runs; makes its inputs, the same numbers for every place.
struct Place {
  at::Device device;
  at::ScalarType type;

  at::Tensor make(uint64_t seed, at::IntArrayRef sizes) const {
    at::manual_seed(seed);
    return at::randn(sizes, at::kFloat).to(type).to(device);
  }
  at::Tensor leaf(uint64_t seed, at::IntArrayRef sizes) const {
    return make(seed, sizes).set_requires_grad(true);
  }
  at::Tensor ints(const std::vector<int32_t>& values) const {
    return at::tensor(values, at::kInt).to(device);
  }
  // Runs the backward pass from `out`; -> out and the gradients.
  Tensors with_gradients(const at::Tensor& out, const Tensors& leaves) const {
    out.backward(make(99, out.sizes()).to(out.scalar_type()));
    Tensors all{out.detach()};
    for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
    return all;
  }
};

Tensors run_norm(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor w = p.leaf(2, {48});
  return p.with_gradients(rms_norm(x, w, {.eps = 1e-5}), {x, w});
}

Tensors run_add_norm(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor r = p.leaf(2, {37, 48});
  const at::Tensor w = p.leaf(3, {48});
  const auto [sum, y] = add_rms_norm(x, r, w, {.eps = 1e-5});
  return p.with_gradients(at::add(sum, y), {x, r, w});
}

Tensors run_layer_norm(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor w = p.leaf(2, {48});
  const at::Tensor b = p.leaf(3, {48});
  return p.with_gradients(layer_norm(x, w, b, 1e-5), {x, w, b});
}

Tensors run_add_layer_norm(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor r = p.leaf(2, {37, 48});
  const at::Tensor w = p.leaf(3, {48});
  const at::Tensor b = p.leaf(4, {48});
  const auto [sum, y] = add_layer_norm(x, r, w, b, 1e-5);
  return p.with_gradients(at::add(sum, y), {x, r, w, b});
}

// Packed documents of 30, 1 and 6 rows.
Tensors run_short_conv(const Place& p, kernels::ConvForm form, int64_t parts) {
  std::vector<int32_t> positions;
  for (const int length : {30, 1, 6})
    for (int i = 0; i < length; ++i) positions.push_back(i);
  const at::Tensor x = p.leaf(1, {37, parts * 24});
  const at::Tensor w = p.leaf(2, {24, 4}), b = p.leaf(3, {24});
  return p.with_gradients(short_conv(x, {form, w, b}, p.ints(positions)), {x, w, b});
}

Tensors run_gated_conv(const Place& p) { return run_short_conv(p, kernels::ConvForm::Gates, 3); }
Tensors run_silu_conv(const Place& p) { return run_short_conv(p, kernels::ConvForm::Silu, 1); }

Tensors run_activation(const Place& p, Activation activation) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor w = p.leaf(2, {24, 48});
  const at::Tensor b = p.leaf(3, {24});
  return p.with_gradients(ops::linear({.x = x, .activation = activation}, {.weight = w, .bias = b}),
                          {x, w, b});
}

Tensors run_image_patches(const Place& p) {
  at::manual_seed(1);
  const at::Tensor pixels = at::randint(256, {2, 12, 8, 3}, at::kByte).to(p.device);
  return {image_patches(
      pixels, {.patch_size = 4, .mean = {0.5F, 0.4F, 0.3F}, .std = {0.2F, 0.3F, 0.4F}}, p.type)};
}

Tensors run_replace_rows(const Place& p) {
  const at::Tensor hidden = p.leaf(1, {37, 48});
  const at::Tensor rows = p.leaf(2, {3, 48});
  return p.with_gradients(replace_rows(hidden, rows, p.ints({30, 0, 7})), {hidden, rows});
}

Tensors run_linear(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor w = p.leaf(2, {24, 48});
  const at::Tensor b = p.leaf(3, {24});
  return p.with_gradients(ops::linear(x, {.weight = w, .bias = b}), {x, w, b});
}

// Mixed precision: a float32 weight, whose gradient is added to.
Tensors run_mixed_linear(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const at::Tensor w = Place{p.device, at::kFloat}.leaf(2, {24, 48});
  p.with_gradients(ops::linear(x, {.weight = w}), {x, w});
  return p.with_gradients(ops::linear(x, {.weight = w}), {x, w});
}

Tensors run_swiglu(const Place& p) {
  // Its backward writes over gate and up, so that these may not be leaves.
  const at::Tensor g = p.leaf(1, {37, 48});
  const at::Tensor u = p.leaf(2, {37, 48});
  const at::Tensor w = p.leaf(3, {24, 48});
  return p.with_gradients(
      ops::linear({.x = at::mul(g, 1), .up = at::mul(u, 1), .activation = Activation::Silu},
                  {.weight = w}),
      {g, u, w});
}

LowRank adapter(const Place& p, int64_t in, int64_t out) {
  return {.a = p.leaf(11, {4, in}),
          .b = p.leaf(12, {out, 4}),
          .scaling = 0.5,
          .dropout = 0.25,
          .dropout_key = 77};
}

Tensors run_lora(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  const LowRank lora = adapter(p, 48, 24);
  return p.with_gradients(ops::linear(x, {.weight = p.make(2, {24, 48}), .adapter = lora}),
                          {x, lora.a, lora.b});
}

Tensors run_dora(const Place& p) {
  const at::Tensor x = p.leaf(1, {37, 48});
  LowRank dora = adapter(p, 48, 24);
  dora.magnitude = p.leaf(13, {24});
  return p.with_gradients(
      ops::linear(x, {.weight = p.make(2, {24, 48}), .bias = p.make(3, {24}), .adapter = dora}),
      {x, dora.a, dora.b, dora.magnitude});
}

Tensors run_quantized_swiglu(const Place& p) {
  const at::Tensor g = p.leaf(1, {37, 64});
  const at::Tensor u = p.leaf(2, {37, 64});
  const LowRank lora = adapter(p, 64, 24);
  return p.with_gradients(
      ops::linear({.x = at::mul(g, 1), .up = at::mul(u, 1), .activation = Activation::Silu},
                  {.weight = quantize(p.make(3, {24, 64}), QuantizedFormat::Nf4), .adapter = lora}),
      {g, u, lora.a, lora.b});
}

Tensors run_lora_head(const Place& p) {
  const at::Tensor x = p.leaf(1, {6, 16});
  const LowRank lora = adapter(p, 16, 50);
  const at::Tensor loss = linear_cross_entropy(x, {.weight = p.make(2, {50, 16}), .adapter = lora},
                                               p.ints({3, -100, 49, 0, 7, 3}), {.scale = 0.2});
  loss.backward(at::ones_like(loss));
  return {loss.detach(), x.grad(), lora.a.grad(), lora.b.grad()};
}

Tensors run_embedding(const Place& p) {
  const at::Tensor w = p.leaf(1, {20, 48});
  return p.with_gradients(embedding(p.ints({3, 19, 3, 0, 7, 3}), w, p.type), {w});
}

// An id that occurs so often that a GPU adds it up in parts.
Tensors run_embedding_of_padding(const Place& p) {
  const at::Tensor w = p.leaf(1, {20, 48});
  std::vector<int32_t> ids(700, 4);
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] = static_cast<int32_t>(i * i % 20);
  return p.with_gradients(embedding(p.ints(ids), w, p.type), {w});
}

// Rows of an odd width, from the second one on: at no address that four elements could be moved at.
Tensors run_odd_dropout(const Place& p) {
  const at::Tensor x = p.leaf(1, {38, 47});
  return p.with_gradients(ops::dropout(x.slice(0, 1), 0.25, 7), {x});
}

Tensors run_noise(const Place& p) {
  const at::Tensor x = p.make(1, {37, 47});
  std::vector<float> sizes(40);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = 0.1F * static_cast<float>(i % 7);
  const at::Tensor noise = at::tensor(sizes).to(x.device());
  ops::add_noise(x, noise, 0.5, 7, /*first_row=*/3);
  return {x};
}

Tensors run_cross_entropy(const Place& p) {
  const at::Tensor x = p.leaf(1, {6, 16});
  const at::Tensor w = p.leaf(2, {50, 16});
  const at::Tensor loss =
      linear_cross_entropy(x, {.weight = w}, p.ints({3, -100, 49, 0, 7, 3}), {.scale = 0.2});
  loss.backward(at::ones_like(loss));
  return {loss.detach(), x.grad(), w.grad()};
}

Tensors attend(const Place& p, int64_t heads, int64_t kv_heads, int64_t sliding_window,
               int64_t dim = 16) {
  const at::Tensor q = p.leaf(1, {40, heads, dim});
  const at::Tensor k = p.leaf(2, {40, kv_heads, dim});
  const at::Tensor v = p.leaf(3, {40, kv_heads, dim});
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < 40; ++i) positions.push_back(i < 30 ? i : i - 30);
  const at::Tensor out = attention(q, k, v,
                                   {.cu_seqlens = p.ints({0, 30, 40}),
                                    .max_seqlen = 30,
                                    .positions = p.ints(positions),
                                    .rope = make_rope_tables({}, dim, 64, p.device),
                                    .scale = 0.25,
                                    .sliding_window = sliding_window});
  return p.with_gradients(out, {q, k, v});
}

// In 16 bits flash attention on cuda, whose output is brought to what it is with sinks.
Tensors attend_with_sinks(const Place& p) {
  const at::Tensor q = p.leaf(1, {40, 6, 16});
  const at::Tensor k = p.leaf(2, {40, 2, 16});
  const at::Tensor v = p.leaf(3, k.sizes());
  const at::Tensor sinks = p.make(4, {6}).to(at::kFloat).set_requires_grad(true);
  const at::Tensor out = attention(q, k, v,
                                   {.cu_seqlens = p.ints({0, 30, 40}),
                                    .max_seqlen = 30,
                                    .scale = 0.25,
                                    .sliding_window = 9,
                                    .sinks = sinks});
  return p.with_gradients(out, {q, k, v, sinks});
}

// 40 tokens attend to the 50 of another sequence, or with biases to their own.
Tensors attend_freely(const Place& p, bool other_keys, bool causal, double dropout) {
  const at::Tensor q = p.leaf(1, {40, 4, 16});
  const at::Tensor k = p.leaf(2, {other_keys ? 50 : 40, 2, 16});
  const at::Tensor v = p.leaf(3, k.sizes());
  const at::Tensor table = p.leaf(4, {8, 4});
  AttentionContext context;
  context.cu_seqlens = p.ints({0, 30, 40});
  context.max_seqlen = 30;
  context.scale = 0.25;
  context.causal = causal;
  context.dropout = dropout;
  context.dropout_key = 5;
  if (other_keys) {
    context.kv_cu_seqlens = p.ints({0, 7, 50});
    context.max_kv_seqlen = 43;
    return p.with_gradients(attention(q, k, v, context), {q, k, v});
  }
  context.bias_table = table;
  context.max_distance = 20;
  return p.with_gradients(attention(q, k, v, context), {q, k, v, table});
}

// Documents of one, two and no whole chunks of tokens.
Tensors run_delta_rule(const Place& p) {
  const at::Tensor q = p.leaf(1, {150, 2, 16}), k = p.leaf(2, {150, 2, 16});
  const at::Tensor v = p.leaf(3, {150, 4, 24});
  const Place wide{p.device, at::kFloat};
  const at::Tensor g = wide.leaf(4, {150, 4}), beta = wide.leaf(5, {150, 4});
  DeltaRuleContext context{.cu_seqlens = p.ints({0, 20, 20, 84, 150}), .max_seqlen = 66};
  context.final_states = at::empty({4, 4, 16, 24}, g.options());
  const at::Tensor out = gated_delta_rule(q, k, v, at::neg(at::abs(g)), at::sigmoid(beta), context);
  Tensors results = p.with_gradients(out, {q, k, v, g, beta});
  results.push_back(context.final_states);
  return results;
}

// The same of Mamba 2, with many heads of a group.
Tensors run_mamba_scan(const Place& p) {
  const at::Tensor q = p.leaf(1, {150, 1, 16}), k = p.leaf(2, {150, 1, 16});
  const at::Tensor v = p.leaf(3, {150, 6, 24}), dt = p.leaf(4, {150, 6});
  const Place wide{p.device, at::kFloat};
  const at::Tensor a_log = wide.leaf(5, {6}), dt_bias = wide.leaf(6, {6}), skip = wide.leaf(7, {6});
  const DeltaRuleContext context{.cu_seqlens = p.ints({0, 20, 20, 84, 150}), .max_seqlen = 66};
  const auto [g, step] = mamba_gates(dt, a_log, dt_bias, {0.1, 2});
  return p.with_gradients(mamba_scan(q, k, v, g, step, skip, context),
                          {q, k, v, dt, a_log, dt_bias, skip});
}

Tensors step_delta_rule(const Place& p) {
  const at::NoGradGuard no_grad;
  const Place wide{p.device, at::kFloat};
  const at::Tensor states = wide.make(1, {3, 4, 16, 24}).clone();
  const at::Tensor out = gated_delta_step(
      p.make(2, {3, 2, 16}), p.make(3, {3, 2, 16}), p.make(4, {3, 4, 24}),
      at::neg(at::abs(wide.make(5, {3, 4}))), at::sigmoid(wide.make(6, {3, 4})), states);
  return {out, states};
}

Tensors run_sum_of_squares(const Place& p) {
  const double sum = sum_of_squares({p.make(1, {5000}), p.make(2, {37, 48})});
  return {at::full({1}, sum, at::kDouble)};
}

struct Operator {
  std::string name;
  std::function<Tensors(const Place&)> run;
};
void PrintTo(const Operator& o, std::ostream* out) { *out << o.name; }

const std::vector<Operator> kOperators = {
    {"RmsNorm", run_norm},
    {"AddRmsNorm", run_add_norm},
    {"LayerNorm", run_layer_norm},
    {"GatedConv", run_gated_conv},
    {"SiluConv", run_silu_conv},
    {"AddLayerNorm", run_add_layer_norm},
    {"ReluLinear", [](const Place& p) { return run_activation(p, Activation::Relu); }},
    {"GeluLinear", [](const Place& p) { return run_activation(p, Activation::Gelu); }},
    {"GeluTanhLinear", [](const Place& p) { return run_activation(p, Activation::GeluTanh); }},
    {"ImagePatches", run_image_patches},
    {"ReplaceRows", run_replace_rows},
    {"Linear", run_linear},
    {"MixedLinear", run_mixed_linear},
    {"SwigluLinear", run_swiglu},
    {"LoraLinear", run_lora},
    {"DoraLinear", run_dora},
    {"QuantizedSwigluLinear", run_quantized_swiglu},
    {"LoraCrossEntropy", run_lora_head},
    {"Embedding", run_embedding},
    {"EmbeddingOfPadding", run_embedding_of_padding},
    {"OddDropout", run_odd_dropout},
    {"Noise", run_noise},
    {"LinearCrossEntropy", run_cross_entropy},
    {"Attention", [](const Place& p) { return attend(p, 4, 4, 0); }},
    {"SharedHeadsAttention", [](const Place& p) { return attend(p, 6, 2, 0); }},
    {"OneKeyHeadAttention", [](const Place& p) { return attend(p, 4, 1, 0); }},
    {"WindowAttention", [](const Place& p) { return attend(p, 4, 2, 7); }},
    {"SinkAttention", attend_with_sinks},
    {"OddHeadsAttention", [](const Place& p) { return attend(p, 4, 2, 0, 20); }},
    {"OtherKeysAttention", [](const Place& p) { return attend_freely(p, true, false, 0); }},
    {"DroppedAttention", [](const Place& p) { return attend_freely(p, true, false, 0.2); }},
    {"BiasedAttention", [](const Place& p) { return attend_freely(p, false, true, 0); }},
    {"BothWaysAttention", [](const Place& p) { return attend_freely(p, false, false, 0); }},
    {"DeltaRule", run_delta_rule},
    {"MambaScan", run_mamba_scan},
    {"DeltaRuleStep", step_delta_rule},
    {"SumOfSquares", run_sum_of_squares}};

class DevicePairTest : public ::testing::TestWithParam<Operator> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }

  // Sums of up to 5000 terms in another order; each value rounded once to the type.
  static void expect_equal(at::ScalarType type, double tolerance) {
    const Tensors expected = GetParam().run({at::kCPU, type});
    const Tensors got = GetParam().run({tests::test_device(), type});
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].sizes(), got[i].sizes()) << "tensor " << i;
      const at::Tensor e = expected[i].to(at::kDouble);
      const at::Tensor difference = (got[i].cpu().to(at::kDouble) - e).abs();
      EXPECT_LE(difference.max().item<double>(), tolerance * e.abs().max().item<double>())
          << "tensor " << i << " (0: the output, then the gradients)";
    }
  }
};

TEST_P(DevicePairTest, Float32) { expect_equal(at::kFloat, 1e-5); }
TEST_P(DevicePairTest, BFloat16) { expect_equal(at::kBFloat16, 2.0 / 128); }

// A backward needs tensors whose memory an engine refills meanwhile: libtorch must not count that.
TEST(Changes, AreUnknownToAutograd) {
  if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  const at::Tensor here = at::ones({4}, at::TensorOptions().device(tests::test_device()));
  const at::Tensor there = at::ones({4});
  const uint32_t before = here._version();
  ops::copy(here, here.clone());
  ops::copy(here, there);
  ops::copy(here, there.to(at::kBFloat16));
  ops::accumulate(here, there.to(here.device()), 2);
  ops::fill(here, 3);
  EXPECT_EQ(here._version(), before);
  EXPECT_EQ(here.sum().item<float>(), 12);
}

INSTANTIATE_TEST_SUITE_P(Operators, DevicePairTest, ::testing::ValuesIn(kOperators),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace snug::ops
