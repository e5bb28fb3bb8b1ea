// Mamba 2's scan with its gates, and the norm behind it, against transformers' functions for
// Granite 4 (tests/oracles/mamba_scan.py): outputs, last states and every gradient; the single
// step; what is kept; and on meta, where it has to ask for the same memory as on the test's device.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/device/work.h"
#include "core/ops/norm.h"
#include "core/ops/sequence/delta_gates.h"
#include "core/ops/sequence/delta_rule.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug::ops {
namespace mamba_scan_test {

using Json = nlohmann::json;

const Json& oracle() {
  static const Json data =
      Json::parse(std::ifstream(tests::source_dir() / "tests/data/kernels/mamba_scan.json"));
  return data;
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
    for (const char* key : {"q", "k"}) leaf(key, {n, hk, dk});
    leaf("v", {n, hv, dv}), leaf("dt", {n, hv});
    for (const char* key : {"a_log", "dt_bias", "skip"}) leaf(key, {hv});
    d_out = tensor_of(c["d_out"], {n, hv, dv});
    limits = {c["least"], c["most"]};
    context.cu_seqlens = Borders(at::tensor(starts, at::kInt).to(d_out.device()), starts);
    context.max_seqlen = *std::max_element(lengths.begin(), lengths.end());
    context.final_states = at::full({int64_t(lengths.size()), hv, dk, dv}, 7.0, d_out.options());
  }
  void leaf(const char* key, at::IntArrayRef sizes) {
    leaves[key] = tensor_of(json[key], sizes).set_requires_grad(true);
  }
  const at::Tensor& of(const char* key) const { return leaves.at(key); }
  std::pair<at::Tensor, at::Tensor> gates() const {
    return mamba_gates(of("dt"), of("a_log"), of("dt_bias"), limits);
  }
  at::Tensor run() const {
    const auto [g, step] = gates();
    return mamba_scan(of("q"), of("k"), of("v"), g, step, of("skip"), context);
  }

  const Json& json;
  std::string name;
  std::map<std::string, at::Tensor> leaves;
  at::Tensor d_out;
  StepLimits limits;
  DeltaRuleContext context;
};

void expect_close(const at::Tensor& got, const Json& numbers, const std::string& what) {
  const at::Tensor wanted = tensor_of(numbers, got.sizes());
  const double scale = wanted.abs().max().item<double>();
  EXPECT_LT((got - wanted).abs().max().item<double>(), 1e-5 * scale) << what;
}

class MambaScanTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

TEST_F(MambaScanTest, GivesTransformersNumbers) {
  for (const Json& json : oracle()["cases"]) {
    for (const int64_t chunk : {16, 64, 128}) {
      Case c(json);
      c.context.chunk = chunk;
      const at::Tensor out = c.run();
      out.backward(c.d_out);
      const std::string what = c.name + " in chunks of " + std::to_string(chunk) + ", ";
      expect_close(out.detach(), json["out"], what + "out");
      expect_close(c.context.final_states, json["states"], what + "states");
      for (const auto& [key, leaf] : c.leaves)
        expect_close(leaf.grad(), json["d_" + key], what + "d_" + key);
    }
  }
}

TEST_F(MambaScanTest, StepsGoOnFromTheStates) {
  const at::NoGradGuard no_grad;
  const Json& json = oracle()["cases"][0];
  const Case c(json);
  const int64_t n = c.of("q").size(0), first = n - 5;
  DeltaRuleContext context = c.context;
  context.cu_seqlens = Borders(at::tensor({0, int32_t(first)}, at::kInt).to(c.d_out.device()));
  context.max_seqlen = first;
  const auto [g, step] = c.gates();
  const auto rows = [&](const at::Tensor& x, int64_t begin, int64_t end) {
    return x.slice(0, begin, end);
  };
  std::vector<at::Tensor> outputs = {
      mamba_scan(rows(c.of("q"), 0, first), rows(c.of("k"), 0, first), rows(c.of("v"), 0, first),
                 rows(g, 0, first), rows(step, 0, first), c.of("skip"), context)};
  for (int64_t t = first; t < n; ++t)
    outputs.push_back(mamba_step(rows(c.of("q"), t, t + 1), rows(c.of("k"), t, t + 1),
                                 rows(c.of("v"), t, t + 1), rows(g, t, t + 1), rows(step, t, t + 1),
                                 c.of("skip"), context.final_states));
  expect_close(at::cat(outputs), json["out"], "outputs");
  expect_close(context.final_states, json["states"], "states");
}

// The inputs of the scan; of the gates dt, whose step is one of those.
TEST_F(MambaScanTest, KeepsItsInputsAlone) {
  const Case c(oracle()["cases"][0]);
  Kept kept;
  {
    const KeptRecorder recorder(&kept);
    c.run();
  }
  ASSERT_EQ(kept.tensors.size(), 7U);
  EXPECT_EQ(kept.tensors[0].const_data_ptr(), c.of("dt").const_data_ptr());
  EXPECT_EQ(kept.tensors[1].const_data_ptr(), c.of("q").const_data_ptr());
  EXPECT_EQ(kept.tensors[6].const_data_ptr(), c.of("skip").const_data_ptr());
  EXPECT_TRUE(kept.recomputable.empty());
}

// Peak of a forward and a backward beyond what there was before.
int64_t peak_on(at::DeviceType device, const Case& c, at::ScalarType type) {
  Case there = c;
  for (auto& [key, leaf] : there.leaves) {
    const auto own = leaf.dim() == 1 ? at::kFloat : type;
    leaf = leaf.detach().to(own).to(device).clone().set_requires_grad(true);
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

TEST_F(MambaScanTest, MetaAsksForTheSameBytes) {
  for (const Json& json : oracle()["cases"]) {
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
TEST_F(MambaScanTest, WorkOfAGpuIsCounted) {
  const StandInGuard gpu(at::kCUDA);
  const auto zeros = [](at::IntArrayRef sizes, at::ScalarType type) {
    return at::zeros(sizes, at::TensorOptions(at::kMeta).dtype(type)).set_requires_grad(true);
  };
  const at::Tensor q = zeros({128, 1, 16}, at::kBFloat16), v = zeros({128, 2, 32}, at::kBFloat16);
  const at::Tensor g = zeros({128, 2}, at::kFloat), skip = zeros({2}, at::kFloat);
  std::vector<Work> done;
  {
    const WorkCounter counter([&](const Work& work) {
      if (work.name.starts_with("delta")) done.push_back(work);
    });
    const DeltaRuleContext context{
        .cu_seqlens = at::zeros({2}, at::TensorOptions(at::kMeta).dtype(at::kInt)),
        .max_seqlen = 128};
    const at::Tensor out = mamba_scan(q, q, v, g, g, skip, context);
    out.backward(at::empty_like(out));
  }
  ASSERT_EQ(done.size(), 2U);
  // Per token and value head: two products with a state, one of a chunk's keys, one of its values;
  // backward five, three and two.
  EXPECT_EQ(done[0].flops, 2.0 * 128 * 2 * (2 * 16 * 32 + 64 * (16 + 32)));
  EXPECT_EQ(done[1].flops, 2.0 * 128 * 2 * (5 * 16 * 32 + 64 * (3 * 16 + 2 * 32)));
}

TEST_F(MambaScanTest, NormOfAGatedRowIsTransformers) {
  const Json& json = oracle()["gated_norm"];
  const int64_t n = json["rows"], d = json["features"];
  const auto leaf = [&](const char* key, at::IntArrayRef sizes) {
    return tensor_of(json[key], sizes).set_requires_grad(true);
  };
  const at::Tensor gate = leaf("gate", {n, d}), x = leaf("x", {n, d}), weight = leaf("weight", {d});
  // The backward writes over what it was given.
  const at::Tensor own_gate = gate.clone(), own_x = x.clone();
  weight.mutable_grad() = at::zeros_like(weight);
  Kept kept;
  at::Tensor out;
  {
    const KeptRecorder recorder(&kept);
    out = gated_rms_norm(own_gate, own_x, weight, {.eps = json["eps"]});
  }
  ASSERT_EQ(kept.tensors.size(), 3U);
  ASSERT_EQ(kept.recomputable.size(), 1U);
  expect_close(out.detach(), json["out"], "out");
  const at::Tensor before = out.detach().clone();
  kept.recomputable[0].tensor.zero_();
  kept.recomputable[0].compute();
  EXPECT_TRUE(at::equal(out.detach(), before));
  out.backward(tensor_of(json["d_out"], {n, d}));
  expect_close(gate.grad(), json["d_gate"], "d_gate");
  expect_close(x.grad(), json["d_x"], "d_x");
  expect_close(weight.grad(), json["d_weight"], "d_weight");
}

}  // namespace mamba_scan_test
}  // namespace snug::ops
