// Operators of encoders and of models with layer norms against libtorch's own: outputs and
// gradients, what they keep, and that on meta they allocate what they do on the cpu.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/memory/ledger.h"
#include "core/ops/activation.h"
#include "core/ops/device/kept.h"
#include "core/ops/dropout.h"
#include "core/ops/linear/linear.h"
#include "core/ops/linear/trained_input.h"
#include "core/ops/norm.h"
#include "core/ops/pictures.h"
#include "support/test_device.h"

namespace snug::ops {
namespace layers_test {

constexpr int64_t kRows = 23, kIn = 40, kOut = 24;

at::Tensor numbers(uint64_t seed, at::IntArrayRef sizes) {
  at::manual_seed(seed);
  return at::randn(sizes);
}
at::Tensor leaf(uint64_t seed, at::IntArrayRef sizes) {
  return numbers(seed, sizes).set_requires_grad(true);
}

void expect_close(const char* what, const at::Tensor& got, const at::Tensor& wanted) {
  ASSERT_TRUE(got.defined() && got.sizes() == wanted.sizes()) << what;
  const double scale = wanted.abs().max().item<double>();
  EXPECT_LT((got - wanted).abs().max().item<double>(), 1e-5 * scale) << what;
}

class LayersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
};

TEST_F(LayersTest, LayerNormIsLibtorchs) {
  for (const bool affine : {true, false}) {
    const at::Tensor x = leaf(1, {kRows, kIn}), x2 = leaf(1, {kRows, kIn});
    at::Tensor w, b, w2, b2;
    if (affine) {
      w = leaf(2, {kIn}), b = leaf(3, {kIn});
      w2 = leaf(2, {kIn}), b2 = leaf(3, {kIn});
    }
    const at::Tensor dy = numbers(4, {kRows, kIn});
    const at::Tensor y = layer_norm(x, w, b, 1e-5);
    const at::Tensor y2 = at::layer_norm(x2, {kIn}, w2, b2, 1e-5);
    y.backward(dy);
    y2.backward(dy);
    expect_close("y", y.detach(), y2.detach());
    expect_close("x", x.grad(), x2.grad());
    if (!affine) continue;
    expect_close("weight", w.grad(), w2.grad());
    expect_close("bias", b.grad(), b2.grad());
  }
}

TEST_F(LayersTest, AddLayerNormIsTheSumAndItsNorm) {
  const at::Tensor x = leaf(1, {kRows, kIn}), x2 = leaf(1, {kRows, kIn});
  const at::Tensor r = leaf(2, {kRows, kIn}), r2 = leaf(2, {kRows, kIn});
  const at::Tensor w = leaf(3, {kIn}), b = leaf(4, {kIn}), w2 = leaf(3, {kIn}), b2 = leaf(4, {kIn});
  const at::Tensor d_sum = numbers(5, {kRows, kIn}), dy = numbers(6, {kRows, kIn});
  const auto [sum, y] = add_layer_norm(x, r, w, b, 1e-5);
  const at::Tensor sum2 = x2 + r2, y2 = at::layer_norm(sum2, {kIn}, w2, b2, 1e-5);
  at::sum(sum * d_sum + y * dy).backward();
  at::sum(sum2 * d_sum + y2 * dy).backward();
  expect_close("sum", sum.detach(), sum2.detach());
  expect_close("y", y.detach(), y2.detach());
  expect_close("x", x.grad(), x2.grad());
  expect_close("residual", r.grad(), r2.grad());
  expect_close("weight", w.grad(), w2.grad());
  expect_close("bias", b.grad(), b2.grad());
}

TEST_F(LayersTest, LayerNormsOutputCanBeComputedAgain) {
  const at::Tensor x = leaf(1, {kRows, kIn}), w = leaf(2, {kIn}), b = leaf(3, {kIn});
  Kept kept;
  at::Tensor y;
  {
    const KeptRecorder recorder(&kept);
    y = layer_norm(x, w, b, 1e-5);
  }
  ASSERT_EQ(kept.recomputable.size(), 1U);
  EXPECT_EQ(kept.tensors.size(), 3U);  // x, and two numbers a row
  EXPECT_EQ(kept.tensors[1].numel() + kept.tensors[2].numel(), 2 * kRows);
  const at::Tensor before = y.detach().clone();
  kept.recomputable[0].tensor.zero_();
  kept.recomputable[0].compute();
  EXPECT_TRUE(at::equal(y.detach(), before));
}

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::Relu:
      return at::relu(x);
    case Activation::Gelu:
      return at::gelu(x);
    case Activation::GeluTanh:
      return at::gelu(x, "tanh");
    case Activation::Silu:
      return at::silu(x);
    case Activation::ReluSquared:
      return at::square(at::relu(x));
    case Activation::Sigmoid:
      return at::sigmoid(x);
  }
  return x;
}

constexpr Activation kActivations[] = {Activation::Relu,        Activation::Gelu,
                                       Activation::GeluTanh,    Activation::Silu,
                                       Activation::ReluSquared, Activation::Sigmoid};

TEST_F(LayersTest, ActivationLinearKeepsOnlyItsInput) {
  for (const Activation activation : kActivations) {
    const at::Tensor x = leaf(1, {kRows, kIn}), x2 = leaf(1, {kRows, kIn});
    const at::Tensor w = leaf(2, {kOut, kIn}), w2 = leaf(2, {kOut, kIn});
    const at::Tensor b = leaf(3, {kOut}), b2 = leaf(3, {kOut});
    const at::Tensor dy = numbers(4, {kRows, kOut});
    Kept kept;
    at::Tensor y;
    {
      const KeptRecorder recorder(&kept);
      y = ops::linear({.x = x, .activation = activation}, {.weight = w, .bias = b});
    }
    ASSERT_EQ(kept.tensors.size(), 1U);
    EXPECT_EQ(kept.tensors[0].const_data_ptr(), x.const_data_ptr());
    const at::Tensor y2 = at::linear(activated(x2, activation), w2, b2);
    y.backward(dy);
    y2.backward(dy);
    expect_close("y", y.detach(), y2.detach());
    expect_close("x", x.grad(), x2.grad());
    expect_close("weight", w.grad(), w2.grad());
    expect_close("bias", b.grad(), b2.grad());
  }
}

TEST_F(LayersTest, GatedLinearOfEveryActivation) {
  for (const Activation activation : kActivations) {
    const at::Tensor g = leaf(1, {kRows, kIn}), g2 = leaf(1, {kRows, kIn});
    const at::Tensor u = leaf(2, {kRows, kIn}), u2 = leaf(2, {kRows, kIn});
    const at::Tensor w = leaf(3, {kOut, kIn}), w2 = leaf(3, {kOut, kIn});
    const at::Tensor dy = numbers(4, {kRows, kOut});
    // The backward writes over gate and up, so that these may not be leaves.
    const at::Tensor y = ops::linear(
        {.x = at::mul(g, 1), .up = at::mul(u, 1), .activation = activation}, {.weight = w});
    const at::Tensor y2 = at::linear(activated(g2, activation) * u2, w2);
    y.backward(dy);
    y2.backward(dy);
    expect_close("y", y.detach(), y2.detach());
    expect_close("gate", g.grad(), g2.grad());
    expect_close("up", u.grad(), u2.grad());
    expect_close("weight", w.grad(), w2.grad());
  }
}

TEST_F(LayersTest, ActivationLinearWithAdapterOverQuantizedWeight) {
  const at::Tensor x = leaf(1, {kRows, kIn}), x2 = leaf(1, {kRows, kIn});
  const at::Tensor dense = numbers(2, {kOut, kIn}), dy = numbers(3, {kRows, kOut});
  const auto adapter = [] { return LowRank{.a = leaf(4, {3, kIn}), .b = leaf(5, {kOut, 3})}; };
  const LowRank ours = adapter(), theirs = adapter();
  const StoredWeight quantized = quantize(dense, QuantizedFormat::Nf4);
  const at::Tensor y =
      ops::linear({.x = x, .activation = Activation::Gelu}, {.weight = quantized, .adapter = ours});
  const at::Tensor inner = at::gelu(x2);
  const at::Tensor y2 = inner.matmul(dequantize(quantized, at::kFloat).t()) +
                        inner.matmul(theirs.a.t()).matmul(theirs.b.t());
  y.backward(dy);
  y2.backward(dy);
  expect_close("y", y.detach(), y2.detach());
  expect_close("x", x.grad(), x2.grad());
  expect_close("A", ours.a.grad(), theirs.a.grad());
  expect_close("B", ours.b.grad(), theirs.b.grad());
}

TEST_F(LayersTest, NamesOfActivationsAreThoseOfConfigs) {
  EXPECT_EQ(activation_of("gelu_new", ""), Activation::GeluTanh);
  EXPECT_EQ(activation_of("gelu", ""), Activation::Gelu);
  EXPECT_EQ(activation_of("relu", ""), Activation::Relu);
  EXPECT_EQ(activation_of("swish", ""), Activation::Silu);
  try {
    activation_of("mish", "config.json: \"activation_function\"");
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("config.json: \"activation_function\""),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("gelu_new"), std::string::npos);
  }
}

TEST_F(LayersTest, DropoutDropsTheSameInBothDirectionsAndKeepsNothing) {
  const at::Tensor x = at::ones({200, 100}).set_requires_grad(true);
  Kept kept;
  at::Tensor y;
  {
    const KeptRecorder recorder(&kept);
    y = ops::dropout(x, 0.25, 7);
  }
  EXPECT_TRUE(kept.tensors.empty());
  y.backward(at::ones_like(y));
  EXPECT_TRUE(at::equal(y.detach(), x.grad()));
  EXPECT_TRUE(at::equal(y.detach(), ops::dropout(x.detach(), 0.25, 7)));
  EXPECT_FALSE(at::equal(y.detach(), ops::dropout(x.detach(), 0.25, 8)));
  const double share = (y == 0).to(at::kFloat).mean().item<double>();
  EXPECT_NEAR(share, 0.25, 5 * std::sqrt(0.25 * 0.75 / 20000));
  EXPECT_FLOAT_EQ(y.max().item<float>(), 1 / 0.75F);
  EXPECT_EQ(ops::dropout(x, 0, 7).const_data_ptr(), x.const_data_ptr());
}

TEST_F(LayersTest, ReplacedRowsTakeTheGradient) {
  const at::Tensor hidden = leaf(1, {9, 5}), rows = leaf(2, {3, 5});
  const at::Tensor index = at::tensor({7, 0, 3}, at::kInt), d_out = numbers(3, {9, 5});
  const at::Tensor out = replace_rows(hidden, rows, index);
  out.backward(d_out);
  const at::Tensor wide = index.to(at::kLong);
  EXPECT_TRUE(at::equal(out.detach(), hidden.detach().index_copy(0, wide, rows.detach())));
  EXPECT_TRUE(at::equal(rows.grad(), d_out.index_select(0, wide)));
  EXPECT_TRUE(at::equal(hidden.grad(), d_out.index_fill(0, wide, 0)));
}

TEST_F(LayersTest, PatchesTimesAFilterAreAConvolution) {
  at::manual_seed(1);
  const at::Tensor pixels = at::randint(256, {2, 12, 8, 3}, at::kByte);
  const PatchOptions options{
      .patch_size = 4, .mean = {0.48F, 0.45F, 0.4F}, .std = {0.26F, 0.27F, 0.28F}};
  const at::Tensor filter = numbers(2, {6, 3, 4, 4});
  const at::Tensor got =
      image_patches(pixels, options, at::kFloat).matmul(filter.view({6, -1}).t());
  const at::Tensor mean = at::tensor({0.48F, 0.45F, 0.4F}), std = at::tensor({0.26F, 0.27F, 0.28F});
  const at::Tensor image = ((pixels.to(at::kFloat) / 255 - mean) / std).permute({0, 3, 1, 2});
  const at::Tensor wanted = at::conv2d(image, filter, {}, 4).flatten(2).transpose(1, 2);
  expect_close("features", got, wanted.reshape({12, 6}));
}

TEST_F(LayersTest, ATrainedInputsGradientGoesIntoItsBuffer) {
  const at::Tensor p = leaf(1, {3, 5}), factor = numbers(2, {3, 5});
  EXPECT_EQ(trained_input(p, at::kFloat).const_data_ptr(), p.const_data_ptr());
  at::sum(trained_input(p, at::kFloat) * factor).backward();
  EXPECT_TRUE(at::equal(p.grad(), factor));
  at::sum(trained_input(p, at::kFloat) * factor).backward();
  EXPECT_TRUE(at::equal(p.grad(), factor * 2));
  const at::Tensor half = trained_input(p, at::kBFloat16);
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  at::sum(half * factor.to(at::kBFloat16)).backward();
  EXPECT_TRUE(at::equal(p.grad(), factor * 2 + factor.to(at::kBFloat16).to(at::kFloat)));
}

// A run on one device: `run` gets a tensor that makes others beside it.
struct Case {
  std::string name;
  std::function<void(const at::TensorOptions&)> run;
};

std::vector<Case> cases() {
  const auto trained = [](at::IntArrayRef sizes, const at::TensorOptions& options) {
    return at::zeros(sizes, options).set_requires_grad(true);
  };
  const auto backward = [](const at::Tensor& y) { y.backward(at::zeros_like(y)); };
  return {
      {"layer_norm",
       [=](const at::TensorOptions& o) {
         backward(layer_norm(trained({kRows, kIn}, o), trained({kIn}, o), trained({kIn}, o), 1e-5));
       }},
      {"add_layer_norm",
       [=](const at::TensorOptions& o) {
         const auto [sum, y] = add_layer_norm(trained({kRows, kIn}, o), trained({kRows, kIn}, o),
                                              at::zeros({kIn}, o), trained({kIn}, o), 1e-5);
         backward(at::add(sum, y));
       }},
      {"activation_linear",
       [=](const at::TensorOptions& o) {
         backward(ops::linear(
             {.x = at::add(trained({kRows, kIn}, o), 1), .activation = Activation::Gelu},
             {.weight = trained({kOut, kIn}, o), .bias = trained({kOut}, o)}));
       }},
      {"gated_linear",
       [=](const at::TensorOptions& o) {
         const at::Tensor x = trained({kRows, kIn}, o);
         backward(ops::linear(
             {.x = at::add(x, 1), .up = at::add(x, 2), .activation = Activation::GeluTanh},
             {.weight = trained({kOut, kIn}, o)}));
       }},
      {"dropout",
       [=](const at::TensorOptions& o) {
         backward(ops::dropout(trained({kRows, kIn}, o), 0.5, 1));
       }},
      {"replace_rows",
       [=](const at::TensorOptions& o) {
         const at::Tensor index = at::arange(3, at::kInt).to(o.device());
         backward(replace_rows(trained({kRows, kIn}, o), trained({3, kIn}, o), index));
       }},
      {"image_patches",
       [=](const at::TensorOptions& o) {
         image_patches(at::zeros({2, 8, 8, 3}, o.dtype(at::kByte)),
                       {.patch_size = 4, .mean = {}, .std = {1, 1, 1}}, o.dtype().toScalarType());
       }},
      {"trained_input",
       [=](const at::TensorOptions& o) {
         backward(
             trained_input(trained({kRows, kIn}, o.dtype(at::kFloat)), o.dtype().toScalarType()));
       }},
  };
}

TEST_F(LayersTest, OnMetaTheSameIsAllocated) {
  const auto peak_of = [](const Case& c, memory::Ledger& ledger, const at::TensorOptions& options) {
    const int64_t before = ledger.allocated();
    ledger.reset_peak();
    c.run(options);
    EXPECT_EQ(ledger.allocated(), before) << c.name;
    return ledger.at_peak().allocated - before;
  };
  for (const Case& c : cases())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::TensorOptions options = at::TensorOptions().dtype(type);
      const int64_t on_cpu = peak_of(c, memory::cpu_ledger(), options.device(at::kCPU));
      EXPECT_GT(on_cpu, 0);
      EXPECT_EQ(peak_of(c, memory::meta_ledger(), options.device(at::kMeta)), on_cpu) << c.name;
    }
}

}  // namespace layers_test
}  // namespace snug::ops
