// A mixture of experts against its layers applied to each expert's tokens by themselves; and that
// neither its memory nor its plan depends on the routes.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "core/ops/linear/linear.h"
#include "support/test_device.h"

namespace snug::ops {
namespace experts_test {

constexpr int64_t kHidden = 64, kFeatures = 24, kExperts = 5, kChosen = 2;

struct Kind {
  const char* name;
  at::ScalarType type = at::kFloat;  // of x
  bool quantized = false;
  bool trained = true;  // the weights
  bool adapters = false;
  bool magnitude = false;  // of one expert
  bool fused = false;      // gate and up are one layer; with biases and a clamped gate, as gpt-oss
  bool spread = false;     // the first and the last expert are another rank's
};

constexpr Kind kKinds[] = {
    {.name = "plain"},
    {.name = "mixed", .type = at::kBFloat16},
    {.name = "adapters", .trained = false, .adapters = true},
    {.name = "quantized",
     .type = at::kBFloat16,
     .quantized = true,
     .trained = false,
     .adapters = true,
     .magnitude = true},
    {.name = "frozen", .trained = false},
    {.name = "fused", .fused = true},
    {.name = "fused_adapters",
     .type = at::kBFloat16,
     .quantized = true,
     .trained = false,
     .adapters = true,
     .fused = true},
    {.name = "spread", .spread = true},
    {.name = "spread_adapters",
     .type = at::kBFloat16,
     .quantized = true,
     .trained = false,
     .adapters = true,
     .magnitude = true,
     .spread = true},
    {.name = "spread_fused", .trained = false, .adapters = true, .fused = true, .spread = true},
};

at::Tensor leaf(at::IntArrayRef sizes, bool trained) {
  return (at::randn(sizes) * 0.2).to(tests::test_device()).set_requires_grad(trained);
}

Projection layer(const Kind& kind, int64_t in, int64_t out, uint64_t number) {
  Projection result{.weight = leaf({out, in}, kind.trained)};
  if (kind.quantized) result.weight = quantize(result.weight.data, QuantizedFormat::Nf4);
  if (kind.fused) result.bias = leaf({out}, kind.trained);
  if (!kind.adapters) return result;
  // One has another rank.
  const int64_t rank = number == 4 ? 5 : 3;
  result.adapter = LowRank{.a = leaf({rank, in}, true),
                           .b = leaf({out, rank}, true),
                           .scaling = 0.5,
                           .dropout = 0.3,
                           .dropout_key = number};
  if (kind.magnitude && number < 3) result.adapter->magnitude = leaf({out}, true);
  return result;
}

std::vector<Expert> experts_of(const Kind& kind) {
  at::manual_seed(3);
  std::vector<Expert> experts;
  for (uint64_t e = 0; e < kExperts; ++e) {
    Expert expert{.gate = layer(kind, kHidden, (kind.fused ? 2 : 1) * kFeatures, 3 * e)};
    if (!kind.fused) expert.up = layer(kind, kHidden, kFeatures, 3 * e + 1);
    expert.down = layer(kind, kFeatures, kHidden, 3 * e + 2);
    experts.push_back(std::move(expert));
  }
  if (!kind.spread) return experts;
  return {experts.begin() + 1, experts.end() - 1};
}

SortedRoutes sorted(const Kind& kind, const at::Tensor& chosen) {
  const std::vector<int64_t> on_host = read_experts(chosen);
  if (!kind.spread) return sort_by_expert(chosen, on_host, 0, kExperts);
  SortedRoutes routes = sort_by_expert(chosen, on_host, 1, kExperts - 2);
  routes.others_last = true;
  return routes;
}

Gate gate_of(const Kind& kind) {
  if (!kind.fused) return Activation::Silu;
  return {Activation::Silu, {.limit = 0.5, .alpha = 1.7}};
}

std::vector<const Projection*> layers_of(const Expert& e) {
  if (!e.up) return {&e.gate, &e.down};
  return {&e.gate, &*e.up, &e.down};
}

std::vector<at::Tensor> trained_of(const std::vector<Expert>& experts) {
  std::vector<at::Tensor> all;
  for (const Expert& e : experts)
    for (const Projection* p : layers_of(e))
      for (const at::Tensor& tensor : p->trained()) all.push_back(tensor);
  return all;
}

// (T, 2): each token's experts.
using Routing = std::function<std::vector<int64_t>(int64_t token)>;
const std::vector<std::pair<const char*, Routing>> kRoutings = {
    {"evenly",
     [](int64_t t) {
       return std::vector{t % kExperts, (t + 1) % kExperts};
     }},
    {"all to the first",
     [](int64_t) {
       return std::vector<int64_t>{0, 1};
     }},
    {"all to the last",
     [](int64_t) {
       return std::vector<int64_t>{kExperts - 1, kExperts - 2};
     }},
    // Expert 4 gets 288 of 300 tokens: its gradient is summed at once, in more scratch than 300's.
    {"few to one",
     [](int64_t t) {
       return std::vector<int64_t>{t < 12 ? 2 : 4, 3};
     }},
};

at::Tensor chosen(int64_t tokens, const Routing& routing) {
  std::vector<int64_t> all;
  for (int64_t t = 0; t < tokens; ++t)
    for (const int64_t expert : routing(t)) all.push_back(expert);
  return at::tensor(all).view({tokens, kChosen}).to(tests::test_device());
}

struct Input {
  at::Tensor x, weights, d_out;
};

Input input(int64_t tokens, at::ScalarType type) {
  at::manual_seed(8);
  const auto on = at::TensorOptions().dtype(type).device(tests::test_device());
  return {at::randn({tokens, kHidden}).to(on).set_requires_grad(true),
          at::rand({tokens, kChosen}).to(on).set_requires_grad(true),
          at::randn({tokens, kHidden}).to(on)};
}

class Experts : public ::testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

void expect_near(const std::string& what, const at::Tensor& actual, const at::Tensor& expected,
                 double tolerance) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  const double scale = expected.abs().max().item<double>();
  EXPECT_LE((actual - expected).abs().max().item<double>(), tolerance * scale) << what;
}

// One expert, by layers and libtorch's operators.
at::Tensor one(const at::Tensor& x, const Expert& expert, const Gate& gate) {
  if (expert.up)
    return linear(
        {.x = linear(x, expert.gate), .up = linear(x, *expert.up), .activation = Activation::Silu},
        expert.down);
  const std::vector<at::Tensor> parts = linear(x, expert.gate).chunk(2, 1);
  const at::Tensor g = parts[0].clamp_max(gate.clamp.limit);
  const at::Tensor u = parts[1].clamp(-gate.clamp.limit, gate.clamp.limit);
  return linear(g * at::sigmoid(g * gate.clamp.alpha) * (u + 1), expert.down);
}

// Each expert's layers on its own tokens, whose sum libtorch differentiates.
at::Tensor one_by_one(const Input& in, const SortedRoutes& routes,
                      const std::vector<Expert>& experts, const Gate& gate) {
  at::Tensor sum = at::zeros_like(in.x);
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = routes.begins[e], count = routes.begins[e + 1] - begin;
    if (count == 0) continue;
    const at::Tensor tokens = routes.tokens.narrow(0, begin, count);
    const at::Tensor x = in.x.index_select(0, tokens);
    const at::Tensor weights =
        in.weights.reshape({-1, 1}).index_select(0, routes.places.narrow(0, begin, count));
    const at::Tensor y = one(x, experts[e], gate);
    sum = sum.index_add(0, tokens, y * weights);
  }
  return sum;
}

// With 2500 tokens an expert computes some at a time.
TEST_P(Experts, AreTheirLayersOnTheirTokens) {
  const Kind& kind = GetParam();
  // Sums of a few thousand 16-bit roundings, where one side adds up in float32 and the other does
  // not.
  const double tolerance = kind.type == at::kFloat ? 1e-5 : 3e-2;
  for (const int64_t tokens : {40, 2500})
    for (const auto& [name, routing] : kRoutings) {
      SCOPED_TRACE(std::string(name) + ", tokens " + std::to_string(tokens));
      const SortedRoutes routes = sorted(kind, chosen(tokens, routing));
      const Input ours = input(tokens, kind.type), theirs = input(tokens, kind.type);
      const std::vector<Expert> our_experts = experts_of(kind), their_experts = experts_of(kind);
      const at::Tensor out = expert_mlps(ours.x, ours.weights, routes, our_experts, gate_of(kind));
      const at::Tensor expected = one_by_one(theirs, routes, their_experts, gate_of(kind));
      expect_near("out", out.detach(), expected.detach(), tolerance);
      out.backward(ours.d_out);
      expected.backward(theirs.d_out);
      expect_near("x", ours.x.grad(), theirs.x.grad(), tolerance);
      expect_near("weights", ours.weights.grad(), theirs.weights.grad(), tolerance);
      const std::vector<at::Tensor> our_trained = trained_of(our_experts),
                                    their_trained = trained_of(their_experts);
      for (size_t i = 0; i < our_trained.size(); ++i) {
        const at::Tensor gradient = their_trained[i].grad();
        expect_near("parameter " + std::to_string(i), our_trained[i].grad(),
                    gradient.defined() ? gradient : at::zeros_like(their_trained[i]), tolerance);
      }
    }
}

struct Bytes {
  int64_t kept = 0, forward_peak = 0, backward_peak = 0;
  bool operator==(const Bytes&) const = default;
};

Bytes bytes_of(memory::Ledger& ledger, const Input& in, const SortedRoutes& routes,
               const std::vector<Expert>& experts, const Gate& gate) {
  Bytes bytes;
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  const at::Tensor out = expert_mlps(in.x, in.weights, routes, experts, gate);
  bytes.kept = ledger.allocated() - before;
  bytes.forward_peak = ledger.at_peak().allocated - before;
  ledger.reset_peak();
  out.backward(in.d_out);
  bytes.backward_peak = ledger.at_peak().allocated - before;
  return bytes;
}

at::Tensor meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta))
      .set_requires_grad(tensor.requires_grad());
}

Projection meta(const Projection& layer) {
  Projection twin = layer;
  twin.weight.data = meta(layer.weight.data);
  twin.bias = meta(layer.bias);
  if (layer.adapter) {
    twin.adapter->a = meta(layer.adapter->a);
    twin.adapter->b = meta(layer.adapter->b);
    twin.adapter->magnitude = meta(layer.adapter->magnitude);
  }
  return twin;
}

// Few tokens need more scratch than many do here and there.
TEST_P(Experts, TakeTheSameMemoryHoweverTokensAreRouted) {
  const Kind& kind = GetParam();
  const StandInGuard stand_in(tests::test_device().type());
  for (const int64_t tokens : {1, 7, 300, 1500}) {
    SCOPED_TRACE(tokens);
    std::vector<Expert> twins;
    for (const Expert& e : experts_of(kind))
      twins.push_back(
          {meta(e.gate), e.up ? std::optional(meta(*e.up)) : std::nullopt, meta(e.down)});
    const Input in = input(tokens, kind.type);
    const at::Tensor unknown =
        at::empty({tokens, kChosen}, at::TensorOptions().dtype(at::kLong).device(at::kMeta));
    const Bytes planned =
        bytes_of(memory::meta_ledger(), {meta(in.x), meta(in.weights), meta(in.d_out)},
                 sorted(kind, unknown), twins, gate_of(kind));
    for (const auto& [name, routing] : kRoutings) {
      const Bytes measured =
          bytes_of(tests::test_ledger(), input(tokens, kind.type),
                   sorted(kind, chosen(tokens, routing)), experts_of(kind), gate_of(kind));
      EXPECT_EQ(measured.kept, planned.kept) << name;
      EXPECT_EQ(measured.forward_peak, planned.forward_peak) << name;
      EXPECT_EQ(measured.backward_peak, planned.backward_peak) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Experts, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

TEST(Routing, IsReadByTheHostOnce) {
  memory::install_allocators();
  const StandInGuard gpu(at::kCUDA);
  const int64_t before = num_host_waits();
  read_experts(at::empty({9, 2}, at::TensorOptions().dtype(at::kLong).device(at::kMeta)));
  EXPECT_EQ(num_host_waits() - before, 1);
}

TEST(Routing, SortsByExpertAndThenByToken) {
  memory::install_allocators();
  const std::vector<int64_t> chosen{2, 0, 0, 3, 2, 3};
  const at::Tensor experts = at::tensor(chosen).view({3, 2});
  const SortedRoutes sorted = sort_by_expert(experts, chosen, 0, 5);
  EXPECT_EQ(sorted.begins, (std::vector<int64_t>{0, 2, 2, 4, 6, 6}));
  EXPECT_TRUE(at::equal(sorted.tokens, at::tensor(std::vector<int>{0, 1, 0, 2, 1, 2})));
  EXPECT_TRUE(at::equal(sorted.places, at::tensor(std::vector<int>{1, 2, 0, 4, 3, 5})));
  EXPECT_TRUE(at::equal(sorted.positions, at::tensor(std::vector<int>{2, 0, 1, 4, 3, 5})));
}

TEST(Routing, PutsRoutesOfOtherRanksLast) {
  memory::install_allocators();
  const std::vector<int64_t> chosen{2, 0, -1, -1, 3, 2};
  const at::Tensor experts = at::tensor(chosen).view({3, 2});
  const SortedRoutes sorted = sort_by_expert(experts, chosen, 2, 2);
  EXPECT_EQ(sorted.begins, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_TRUE(at::equal(sorted.tokens, at::tensor(std::vector<int>{0, 2, 2, 0, 1, 1})));
  EXPECT_TRUE(at::equal(sorted.places, at::tensor(std::vector<int>{0, 5, 4, 1, 2, 3})));
}

}  // namespace experts_test
}  // namespace snug::ops
