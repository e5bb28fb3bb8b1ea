// A linear layer with an adapter against the same layer written out in at:: operations, which
// libtorch differentiates: dropout, scaling and DoRA's magnitude, over dense and quantized weights.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/projection.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/ops/linear/linear.h"
#include "support/test_device.h"

namespace snug::ops {
namespace projection_test {

constexpr int64_t kRows = 23, kIn = 40, kOut = 24, kRank = 3;

at::Tensor leaf(uint64_t seed, at::IntArrayRef sizes) {
  at::manual_seed(seed);
  return at::randn(sizes).set_requires_grad(true);
}

LowRank adapter(double dropout, bool magnitude) {
  LowRank result{.a = leaf(1, {kRank, kIn}),
                 .b = leaf(2, {kOut, kRank}),
                 .scaling = 0.7,
                 .dropout = dropout,
                 .dropout_key = 5};
  if (magnitude) result.magnitude = leaf(3, {kOut});
  return result;
}

// What dropout makes of ones: with A the identity and no weight, the layer shows it.
at::Tensor mask_of(const LowRank& like) {
  const LowRank identity{.a = at::eye(kIn),
                         .b = at::eye(kIn),
                         .dropout = like.dropout,
                         .dropout_key = like.dropout_key};
  return linear(at::ones({kRows, kIn}), {.weight = at::zeros({kIn, kIn}), .adapter = identity});
}

struct Case {
  double dropout;
  bool magnitude;
  bool quantized;
};

class ProjectionTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
};

TEST_P(ProjectionTest, IsTheLayerWrittenOut) {
  const Case c = GetParam();
  const LowRank ours = adapter(c.dropout, c.magnitude), theirs = adapter(c.dropout, c.magnitude);
  const at::Tensor dense = leaf(4, {kOut, kIn}).detach(), bias = leaf(5, {kOut}).detach();
  Projection projection{.weight = dense, .bias = bias, .adapter = ours};
  if (c.quantized) projection.weight = quantize(dense, QuantizedFormat::Nf4DoubleQuant);
  const at::Tensor weight = dequantize(projection.weight, at::kFloat);
  const at::Tensor x = leaf(6, {kRows, kIn}), x2 = leaf(6, {kRows, kIn});
  const at::Tensor d_out = leaf(7, {kRows, kOut}).detach();

  at::Tensor z =
      x2.matmul(weight.t()) + 0.7 * (x2 * mask_of(ours)).matmul(theirs.a.t()).matmul(theirs.b.t());
  if (c.magnitude) {
    const at::Tensor norms = (weight + 0.7 * theirs.b.matmul(theirs.a)).norm(2, {1}).detach();
    z = z * (theirs.magnitude / norms);
  }
  const at::Tensor expected = z + bias;
  expected.backward(d_out);
  const at::Tensor out = linear(x, projection);
  out.backward(d_out);

  const auto close = [](const char* what, const at::Tensor& actual, const at::Tensor& wanted) {
    const double scale = wanted.abs().max().item<double>();
    EXPECT_LT((actual - wanted).abs().max().item<double>(), 1e-5 * scale) << what;
  };
  close("out", out.detach(), expected.detach());
  close("x", x.grad(), x2.grad());
  close("A", ours.a.grad(), theirs.a.grad());
  close("B", ours.b.grad(), theirs.b.grad());
  if (c.magnitude) close("magnitude", ours.magnitude.grad(), theirs.magnitude.grad());
}

INSTANTIATE_TEST_SUITE_P(Cases, ProjectionTest,
                         ::testing::Values(Case{0, false, false}, Case{0.3, false, false},
                                           Case{0, true, false}, Case{0.3, true, false},
                                           Case{0.3, false, true}, Case{0, true, true}));

}  // namespace projection_test
}  // namespace snug::ops
