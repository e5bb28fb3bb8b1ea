// A linear layer against at::linear, which libtorch differentiates, with the numbers that its
// stored weight stands for: every storage, type and form of input, with and without bias.
// SPDX-License-Identifier: Apache-2.0
#include "core/nn/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/memory/ledger.h"

namespace snug::nn {
namespace {

using kernels::QuantizedFormat;

constexpr int64_t kGiven = 19, kIn = 72, kOut = 40;

enum class Input { Plain, Activated, Gated };

struct LinearCase {
  std::optional<QuantizedFormat> stored;  // none: as it is
  at::ScalarType type;
  at::ScalarType weight_type;
};

class LinearTest : public ::testing::TestWithParam<LinearCase> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

at::Tensor made(uint64_t seed, at::IntArrayRef sizes, at::ScalarType type) {
  at::manual_seed(seed);
  return at::randn(sizes).to(type);
}

double roundoff(at::ScalarType type) {
  return type == at::kFloat ? 0x1p-24 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Tolerance is a share of the largest element: sums of `length` products are added up in float32;
// what goes in between and the result are rounded to `type`.
void expect_near(const std::string& what, const at::Tensor& got, const at::Tensor& want,
                 at::ScalarType type, int64_t length) {
  const at::Tensor wanted = want.detach().to(at::kDouble);
  const double tolerance =
      4 * roundoff(type) + 4 * roundoff(at::kFloat) * std::sqrt(static_cast<double>(length));
  const at::Tensor error = (got.detach().to(at::kDouble) - wanted).abs().max();
  EXPECT_LT(error.item<double>(), tolerance * wanted.abs().max().item<double>()) << what;
}

TEST_P(LinearTest, IsLibtorchs) {
  const LinearCase c = GetParam();
  for (const Bias bias : {Bias::None, Bias::Present})
    for (const Input form : {Input::Plain, Input::Activated, Input::Gated}) {
      SCOPED_TRACE(::testing::Message()
                   << "bias " << (bias == Bias::Present) << ", input " << static_cast<int>(form));
      Linear layer("layer", Role::Other, kIn, kOut, bias);
      std::vector<Parameter*> own;
      layer.list(own);
      ASSERT_EQ(own.size(), bias == Bias::Present ? 2U : 1U);
      if (c.stored) layer.weight().quantization = {.format = *c.stored, .source = c.weight_type};
      if (c.stored) layer.weight().trained = false;
      for (Parameter* p : own) {
        p->allocate(at::kCPU, c.weight_type);
        p->write(made(p == own[0] ? 1 : 2, p->shape, c.weight_type));
      }
      // Quantized weights are dequantized to the input's type.
      const at::Tensor numbers =
          c.stored ? ops::dequantize({own[0]->value, *c.stored, kOut, kIn}, c.type)
                   : own[0]->value.detach().to(c.type);
      const auto leaf = [](const at::Tensor& from) {
        return from.detach().to(at::kDouble).set_requires_grad(true);
      };
      const at::Tensor weight = leaf(numbers);
      const at::Tensor added = bias == Bias::Present ? leaf(own[1]->value) : at::Tensor();
      at::Tensor x = made(3, {kGiven, kIn}, c.type).set_requires_grad(true);
      at::Tensor up = made(4, {kGiven, kIn}, c.type).set_requires_grad(true);
      const at::Tensor x2 = leaf(x), up2 = leaf(up), d_out = made(5, {kGiven, kOut}, c.type);

      at::Tensor input = x2;
      if (form == Input::Activated) input = at::relu(x2);
      if (form == Input::Gated) input = at::silu(x2) * up2;
      // Twice: the second backward adds to the first one's gradients.
      at::Tensor y;
      const at::Tensor y2 = at::linear(input, weight, added);
      for (int pass = 0; pass < 2; ++pass) {
        // The backward writes over gate and up, so that these may not be leaves.
        y = form == Input::Plain ? layer.forward(x, {})
            : form == Input::Activated
                ? layer.forward_activated(x, ops::Activation::Relu, {})
                : layer.forward_gated(x * 1, up * 1, ops::Activation::Silu, {});
        y.backward(d_out);
        y2.backward(d_out.to(at::kDouble), /*retain_graph=*/true);
      }
      EXPECT_EQ(y.scalar_type(), c.type);
      expect_near("out", y, y2, c.type, kIn);
      expect_near("x", x.grad(), x2.grad(), c.type, kOut);
      if (form == Input::Gated) expect_near("up", up.grad(), up2.grad(), c.type, kOut);
      EXPECT_EQ(own[0]->value.grad().defined(), !c.stored);
      if (!c.stored) {
        EXPECT_EQ(own[0]->value.grad().scalar_type(), c.weight_type);
        expect_near("weight", own[0]->value.grad(), weight.grad(), c.type, kGiven);
      }
      if (bias == Bias::Present)
        expect_near("bias", own[1]->value.grad(), added.grad(), c.type, kGiven);
    }
}

std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> all{{{}, at::kFloat, at::kFloat},
                              {{}, at::kBFloat16, at::kBFloat16},
                              {{}, at::kHalf, at::kHalf},
                              {{}, at::kBFloat16, at::kFloat},  // mixed precision
                              {{}, at::kHalf, at::kFloat}};
  for (const auto format :
       {QuantizedFormat::Nf4, QuantizedFormat::Nf4DoubleQuant, QuantizedFormat::Fp4,
        QuantizedFormat::Fp4DoubleQuant, QuantizedFormat::Int8})
    for (const auto type : {at::kFloat, at::kBFloat16}) all.push_back({format, type, type});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, LinearTest, ::testing::ValuesIn(linear_cases()));

TEST_F(LinearTest, ATiedWeightIsAnothers) {
  Linear table("table", Role::Head, kIn, kOut, Bias::None);
  table.weight().allocate(at::kCPU, at::kFloat);
  table.weight().write(made(1, {kOut, kIn}, at::kFloat));
  Linear tied("tied", Role::Head, table.weight());
  std::vector<Parameter*> own;
  tied.list(own);
  EXPECT_TRUE(own.empty());
  const at::Tensor x = made(2, {kGiven, kIn}, at::kFloat);
  for (const Linear* layer : {&table, &tied})
    layer->forward(x, {}).backward(made(3, {kGiven, kOut}, at::kFloat));
  const at::Tensor once = made(3, {kGiven, kOut}, at::kFloat).t().mm(x);
  expect_near("weight", table.weight().value.grad(), once * 2, at::kFloat, kGiven);
}

// What is between forward and backward is the output alone: the input is the caller's.
TEST_F(LinearTest, KeepsNoCopyOfItsInput) {
  Linear layer("layer", Role::Other, kIn, kOut, Bias::None);
  layer.weight().allocate(at::kCPU, at::kFloat);
  layer.weight().write(made(1, {kOut, kIn}, at::kFloat));
  const at::Tensor x = made(2, {kGiven, kIn}, at::kFloat);
  const int64_t before = memory::cpu_ledger().allocated();
  const at::Tensor y = layer.forward(x, {});
  EXPECT_EQ(memory::cpu_ledger().allocated() - before, 4 * kGiven * kOut);
}

}  // namespace
}  // namespace snug::nn
