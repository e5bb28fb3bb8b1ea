// The gated delta rule against transformers' functions for Qwen3-Next
// (tests/oracles/delta_rule.py): outputs, last states and every gradient; the single step; what is
// kept; and on meta, where it has to ask for the same memory as on the test's device.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/sequence/delta_rule.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/device/work.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug::ops {
namespace delta_rule_test {

using Json = nlohmann::json;

const Json& cases() {
  static const Json data =
      Json::parse(std::ifstream(tests::source_dir() / "tests/data/kernels/delta_rule.json"));
  return data["cases"];
}

at::Tensor tensor_of(const Json& numbers, at::IntArrayRef sizes) {
  return at::tensor(numbers.get<std::vector<float>>()).view(sizes).to(tests::test_device());
}

// One case of the oracle's.
struct Case {
  explicit Case(const Json& c) : json(c), name(c["name"]) {
    const std::vector<int32_t> lengths = c["lengths"];
    std::vector<int32_t> starts = {0};
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
    const int64_t n = starts.back(), hk = c["key_heads"], hv = c["value_heads"];
    const int64_t dk = c["key_dim"], dv = c["value_dim"];
    for (const char* key : {"q", "k"}) inputs.push_back(leaf(key, {n, hk, dk}));
    inputs.push_back(leaf("v", {n, hv, dv}));
    for (const char* key : {"g", "beta"}) inputs.push_back(leaf(key, {n, hv}));
    d_out = tensor_of(c["d_out"], {n, hv, dv});
    context.cu_seqlens = Borders(at::tensor(starts, at::kInt).to(d_out.device()), starts);
    context.max_seqlen = *std::max_element(lengths.begin(), lengths.end());
    context.final_states = at::full({int64_t(lengths.size()), hv, dk, dv}, 7.0, d_out.options());
  }
  at::Tensor leaf(const char* key, at::IntArrayRef sizes) const {
    return tensor_of(json[key], sizes).set_requires_grad(true);
  }
  at::Tensor run() const {
    return gated_delta_rule(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], context);
  }

  const Json& json;
  std::string name;
  std::vector<at::Tensor> inputs;  // q, k, v, g, beta
  at::Tensor d_out;
  DeltaRuleContext context;
};

void expect_close(const at::Tensor& got, const Json& numbers, const std::string& what) {
  const at::Tensor wanted = tensor_of(numbers, got.sizes());
  const double scale = wanted.abs().max().item<double>();
  EXPECT_LT((got - wanted).abs().max().item<double>(), 1e-5 * scale) << what;
}

class DeltaRuleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

TEST_F(DeltaRuleTest, GivesTransformersNumbers) {
  for (const Json& json : cases()) {
    for (const int64_t chunk : {16, 64, 128}) {
      Case c(json);
      c.context.chunk = chunk;
      const at::Tensor out = c.run();
      out.backward(c.d_out);
      const std::string what = c.name + " in chunks of " + std::to_string(chunk);
      expect_close(out.detach(), json["out"], what);
      expect_close(out.detach(), json["recurrent_out"], what);
      expect_close(c.context.final_states, json["states"], what + ", states");
      const char* gradients[] = {"dq", "dk", "dv", "dg", "dbeta"};
      for (size_t i = 0; i < 5; ++i)
        expect_close(c.inputs[i].grad(), json[gradients[i]], what + ", " + gradients[i]);
    }
  }
}

TEST_F(DeltaRuleTest, StepsGoOnFromTheStates) {
  const at::NoGradGuard no_grad;
  const Json& json = cases()[0];
  const Case c(json);
  const int64_t n = c.inputs[0].size(0), first = n - 5;
  DeltaRuleContext context = c.context;
  context.cu_seqlens = Borders(at::tensor({0, int32_t(first)}, at::kInt).to(c.d_out.device()));
  context.max_seqlen = first;
  const auto rows = [&](size_t input, int64_t begin, int64_t end) {
    return c.inputs[input].slice(0, begin, end);
  };
  std::vector<at::Tensor> outputs = {gated_delta_rule(rows(0, 0, first), rows(1, 0, first),
                                                      rows(2, 0, first), rows(3, 0, first),
                                                      rows(4, 0, first), context)};
  for (int64_t t = first; t < n; ++t)
    outputs.push_back(gated_delta_step(rows(0, t, t + 1), rows(1, t, t + 1), rows(2, t, t + 1),
                                       rows(3, t, t + 1), rows(4, t, t + 1), context.final_states));
  expect_close(at::cat(outputs), json["recurrent_out"], "outputs");
  expect_close(context.final_states, json["recurrent_states"], "states");
}

// As a model has them: q, k and v are parts of the rows of one product.
TEST_F(DeltaRuleTest, TakesPartsOfRows) {
  const Case c(cases()[1]);
  const at::Tensor out = c.run();
  out.backward(c.d_out);
  std::vector<at::Tensor> flat;
  for (size_t i = 0; i < 3; ++i) flat.push_back(c.inputs[i].detach().flatten(1));
  const at::Tensor together = at::cat(flat, 1).set_requires_grad(true);
  const std::vector<at::Tensor> parts =
      together.split_with_sizes({flat[0].size(1), flat[1].size(1), flat[2].size(1)}, 1);
  const at::Tensor same = gated_delta_rule(parts[0].unflatten(1, c.inputs[0].sizes().slice(1)),
                                           parts[1].unflatten(1, c.inputs[1].sizes().slice(1)),
                                           parts[2].unflatten(1, c.inputs[2].sizes().slice(1)),
                                           c.inputs[3], c.inputs[4], c.context);
  same.backward(c.d_out);
  EXPECT_TRUE(at::equal(same, out));
  flat.clear();
  for (size_t i = 0; i < 3; ++i) flat.push_back(c.inputs[i].grad().flatten(1));
  EXPECT_TRUE(at::equal(together.grad(), at::cat(flat, 1)));
}

TEST_F(DeltaRuleTest, KeepsItsInputsAlone) {
  const Case c(cases()[0]);
  Kept kept;
  {
    const KeptRecorder recorder(&kept);
    c.run();
  }
  ASSERT_EQ(kept.tensors.size(), 5U);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(kept.tensors[i].const_data_ptr(), c.inputs[i].const_data_ptr());
  EXPECT_TRUE(kept.recomputable.empty());
}

TEST_F(DeltaRuleTest, HalvesAreNearTheirFloats) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Case c(cases()[1]);
    for (size_t i = 0; i < 3; ++i)
      c.inputs[i] = c.inputs[i].detach().to(type).set_requires_grad(true);
    Case wide(cases()[1]);
    for (size_t i = 0; i < 3; ++i)
      wide.inputs[i] = c.inputs[i].detach().to(at::kFloat).set_requires_grad(true);
    c.d_out = c.d_out.to(type);
    wide.d_out = c.d_out.to(at::kFloat);
    const at::Tensor out = c.run(), expected = wide.run();
    out.backward(c.d_out);
    expected.backward(wide.d_out);
    // The same numbers, rounded once.
    EXPECT_TRUE(at::equal(out, expected.to(type)));
    for (size_t i = 0; i < 5; ++i)
      EXPECT_TRUE(
          at::equal(c.inputs[i].grad(), wide.inputs[i].grad().to(c.inputs[i].scalar_type())))
          << i;
  }
}

// Peak of a forward and a backward beyond what there was before.
int64_t peak_on(at::DeviceType device, const Case& c, at::ScalarType type) {
  Case there = c;
  for (at::Tensor& input : there.inputs) {
    const bool gate = input.dim() == 2;
    input = input.detach().to(gate ? at::kFloat : type).to(device).clone().set_requires_grad(true);
  }
  there.context.cu_seqlens = c.context.cu_seqlens.with(c.context.cu_seqlens.to(device));
  there.context.final_states.reset();
  there.d_out = c.d_out.to(type).to(device);
  memory::Ledger& ledger = memory::ledger_of(device);
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  there.run().backward(there.d_out);
  return ledger.at_peak().allocated - before;
}

TEST_F(DeltaRuleTest, MetaAsksForTheSameBytes) {
  for (const Json& json : cases()) {
    const Case c(json);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const int64_t there = peak_on(tests::test_device().type(), c, type);
      EXPECT_GT(there, 0);
      const StandInGuard planned(tests::test_device().type());
      EXPECT_EQ(peak_on(at::kMeta, c, type), there) << c.name << " " << type;
    }
  }
}

// What a plan counts for a GPU, of whole chunks.
TEST_F(DeltaRuleTest, WorkOfAGpuIsCounted) {
  const StandInGuard gpu(at::kCUDA);
  const auto zeros = [](at::IntArrayRef sizes, at::ScalarType type) {
    return at::zeros(sizes, at::TensorOptions(at::kMeta).dtype(type)).set_requires_grad(true);
  };
  const at::Tensor q = zeros({128, 1, 16}, at::kBFloat16), v = zeros({128, 2, 32}, at::kBFloat16);
  const at::Tensor g = zeros({128, 2}, at::kFloat);
  std::vector<Work> done;
  {
    const WorkCounter counter([&](const Work& work) {
      if (work.name.starts_with("delta")) done.push_back(work);
    });
    const DeltaRuleContext context{
        .cu_seqlens = at::zeros({2}, at::TensorOptions(at::kMeta).dtype(at::kInt)),
        .max_seqlen = 128};
    const at::Tensor out = gated_delta_rule(q, q, v, g, g, context);
    out.backward(at::empty_like(out));
    gated_delta_step(q.detach(), q.detach(), v.detach(), g.detach(), g.detach(),
                     zeros({128, 2, 16, 32}, at::kFloat).detach());
  }
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].name, "delta_rule_forward");
  EXPECT_EQ(done[0].launches, 2);
  // Per token and value head: three products with a state, two of a chunk's keys, two of its
  // values.
  EXPECT_EQ(done[0].flops, 2.0 * 128 * 2 * (3 * 16 * 32 + 64 * (2 * 16 + 2 * 32)));
  EXPECT_EQ(done[1].name, "delta_rule_backward");
  EXPECT_EQ(done[1].launches, 4);
  // Two states a chunk and head, two float32 values a token and head, and what is smaller.
  const double states = 2.0 * 2 * 2 * 16 * 32 * 4, values = 2.0 * 128 * 2 * 32 * 4;
  EXPECT_GT(done[1].bytes_written, states + values);
  EXPECT_EQ(done[2].launches, 1);
  EXPECT_EQ(done[2].bytes_written, 128.0 * 2 * (16 * 32 * 4 + 32 * 2));
}

TEST_F(DeltaRuleTest, LongerDocumentsNeverTakeLess) {
  Case c(cases()[0]);
  const int64_t short_ones = peak_on(at::kMeta, c, at::kFloat);
  c.context.max_seqlen *= 2;
  EXPECT_GT(peak_on(at::kMeta, c, at::kFloat), short_ones);
}

}  // namespace delta_rule_test
}  // namespace snug::ops
