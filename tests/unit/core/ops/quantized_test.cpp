// Products with quantized weights as tensors: against the product with the dequantized weight on
// the test's device, and the same bytes on meta as there.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/stored_weight.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "support/test_device.h"

namespace snug::ops {
namespace {

constexpr QuantizedFormat kFormats[] = {QuantizedFormat::Nf4, QuantizedFormat::Nf4DoubleQuant,
                                        QuantizedFormat::Fp4, QuantizedFormat::Fp4DoubleQuant,
                                        QuantizedFormat::Int8};

class Quantized : public testing::Test {
 protected:
  void SetUp() override {
    tests::prepare_test_device();
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

at::Tensor made(uint64_t seed, at::IntArrayRef sizes, at::ScalarType type) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kFloat).to(type).to(tests::test_device());
}

double unit_roundoff(at::ScalarType type) {
  return type == at::kFloat ? 0x1p-24 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Rounding in a sum of k products grows like sqrt(k) about the product of the norms. cuda
// multiplies chunks of rows, each sum of which is rounded to the output's type.
void expect_close(const at::Tensor& got, const at::Tensor& a, const at::Tensor& b, double alpha,
                  const at::Tensor& added) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const at::Tensor want = at::mm(x, y) * alpha + added;
  const at::Tensor norms = at::outer(x.norm(2, 1), y.norm(2, 0));
  const double k = static_cast<double>(a.size(1));
  const at::Tensor tolerance = norms * (0x1p-24 * (std::sqrt(k) + 4)) +
                               want.abs() * (2 * unit_roundoff(got.scalar_type())) + 1e-6;
  const at::Tensor excess = ((got.to(at::kDouble) - want).abs() / tolerance).max();
  EXPECT_LE(excess.item<double>(), 1.0);
}

TEST_F(Quantized, ProductsAreThoseWithItsNumbers) {
  for (const QuantizedFormat format : kFormats) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const StoredWeight weight = quantize(made(1, {200, 192}, type), format);
      const at::Tensor numbers = dequantize(weight, type);
      for (const int64_t tokens : {1, 5, 40}) {
        const at::Tensor x = made(2, {tokens, 192}, type), d_out = made(3, {tokens, 200}, type);
        const at::Tensor out = made(4, {tokens, 200}, type), d_x = made(5, {tokens, 192}, type);
        const at::Tensor out_before = out.to(at::kDouble), d_x_before = d_x.to(at::kDouble);
        product_into(out, x, weight, Into::Accumulate, 0.5F);
        expect_close(out, x, numbers.t(), 0.5, out_before);
        product_into(out, x, weight, Into::Overwrite);
        expect_close(out, x, numbers.t(), 1, at::zeros_like(out_before));
        input_gradient_into(d_x, d_out, weight, Into::Accumulate, 0.5F);
        expect_close(d_x, d_out, numbers, 0.5, d_x_before);
        input_gradient_into(d_x, d_out, weight, Into::Overwrite);
        expect_close(d_x, d_out, numbers, 1, at::zeros_like(d_x_before));
      }
    }
  }
}

TEST_F(Quantized, RowsAreThoseOfTheWhole) {
  for (const QuantizedFormat format : kFormats) {
    const StoredWeight weight = quantize(made(1, {50, 37}, at::kFloat), format);
    const at::Tensor all = dequantize(weight, at::kBFloat16);
    EXPECT_TRUE(at::equal(dequantize_rows(weight, at::kBFloat16, 7, 11), all.narrow(0, 7, 11)));
    EXPECT_ANY_THROW(dequantize_rows(weight, at::kBFloat16, 45, 6));
    const at::Tensor error = (all.to(at::kFloat) - made(1, {50, 37}, at::kFloat)).abs().max();
    EXPECT_LT(error.item<float>(), format == QuantizedFormat::Int8 ? 0.04F : 0.7F);
  }
}

TEST_F(Quantized, RefusesBytesOfAnotherSize) {
  StoredWeight weight = quantize(made(1, {8, 64}, at::kFloat), QuantizedFormat::Nf4);
  weight.rows = 9;
  EXPECT_ANY_THROW(dequantize(weight, at::kFloat));
}

// Peak bytes above those at the start.
int64_t peak_of(memory::Ledger& ledger, const std::function<void()>& work) {
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  work();
  return ledger.at_peak().allocated - before;
}

TEST_F(Quantized, MetaAllocatesWhatTheDeviceDoes) {
  const StandInGuard guard(tests::test_device().type());
  for (const QuantizedFormat format : kFormats) {
    for (const int64_t tokens : {1, 5, 300}) {
      int64_t peaks[2];
      for (const bool on_meta : {false, true}) {
        const auto on = [&](const at::Tensor& t) { return on_meta ? t.to(at::kMeta) : t; };
        const at::Tensor dense = on(made(1, {640, 192}, at::kBFloat16));
        const at::Tensor x = on(made(2, {tokens, 192}, at::kBFloat16));
        const at::Tensor d_out = on(made(3, {tokens, 640}, at::kBFloat16));
        // What cuda quantizes on the host is not the device's to count.
        StoredWeight weight = quantize(dense, format);
        peaks[on_meta] = peak_of(on_meta ? memory::meta_ledger() : tests::test_ledger(), [&] {
          const at::Tensor out = at::empty({tokens, 640}, x.options());
          const at::Tensor d_x = at::empty_like(x);
          product_into(out, x, weight, Into::Overwrite);
          input_gradient_into(d_x, d_out, weight, Into::Overwrite);
          dequantize(weight, at::kBFloat16);
        });
      }
      EXPECT_EQ(peaks[0], peaks[1]) << kernels::traits(format).name << " " << tokens;
    }
  }
}

}  // namespace
}  // namespace snug::ops
