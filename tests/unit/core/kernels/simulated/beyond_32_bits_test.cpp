// Arrays of more than 2^31 elements: only the last blocks run, on memory of which only the pages
// that they touch exist. They must find the last elements, and leave there what the CPU makes of
// these alone. (All of an array's first bytes stay zero: an index cut to 32 bits would find those.)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"
#include "core/kernels/cuda/optimizers/optimizers.h"
#include "unit/core/kernels/simulated/device_array.h"

namespace snug::kernels::simulated {
namespace {

using cpu::random_array;

constexpr Scalar kType = Scalar::BF16;
constexpr int64_t kDim = 8192,
                  kRows = (int64_t{1} << 31) / kDim + 3;  // rows alone would do with 32 bits
constexpr int64_t kLast = (kRows - 1) * kDim;

// A (kRows, kDim) array whose last row holds `row`.
class Huge {
 public:
  explicit Huge(const Array& row) : type_(row.type()), memory_(kRows * kDim * bytes()) {
    std::memcpy(last_row(), row.data(), static_cast<size_t>(row.size() * bytes()));
  }
  void* data() const { return memory_.data(); }
  void* last_row() const { return static_cast<char*>(memory_.data()) + kLast * bytes(); }
  Array row() const {
    Array result(type_, kDim);
    std::memcpy(result.data(), last_row(), static_cast<size_t>(kDim * bytes()));
    return result;
  }

 private:
  int64_t bytes() const { return scalar_bytes(type_); }
  Scalar type_;
  HugeBuffer memory_;
};

struct BeyondThirtyTwoBits : testing::Test {
  BeyondThirtyTwoBits() { settings() = {.last_blocks = 1}; }
  ~BeyondThirtyTwoBits() override { settings() = {}; }
  const Array row = random_array(kType, kDim, 1), other = random_array(kType, kDim, 2);
  const Array zero{kType, kDim};
};

TEST_F(BeyondThirtyTwoBits, Norms) {
  const Array weight = random_array(kType, kDim, 3);
  DeviceArray dev_weight(weight);
  const Huge x(row), y(zero);
  HugeBuffer rstd(kRows * 4), mean(kRows * 4);
  Array expected(kType, kDim);
  cuda::rms_norm_forward({.type = kType,
                          .weight_type = kType,
                          .rows = kRows,
                          .dim = kDim,
                          .x = x.data(),
                          .weight = dev_weight.data(),
                          .y = y.data(),
                          .rstd = static_cast<float*>(rstd.data())},
                         kStream);
  cpu::rms_norm_forward({.type = kType,
                         .weight_type = kType,
                         .rows = 1,
                         .dim = kDim,
                         .x = row.data(),
                         .weight = weight.data(),
                         .y = expected.data()});
  expect_close(y.row(), expected, "rms_norm");
  cuda::layer_norm_forward({.type = kType,
                            .weight_type = kType,
                            .rows = kRows,
                            .dim = kDim,
                            .x = x.data(),
                            .weight = dev_weight.data(),
                            .y = y.data(),
                            .mean = static_cast<float*>(mean.data()),
                            .rstd = static_cast<float*>(rstd.data())},
                           kStream);
  cpu::layer_norm_forward({.type = kType,
                           .weight_type = kType,
                           .rows = 1,
                           .dim = kDim,
                           .x = row.data(),
                           .weight = weight.data(),
                           .y = expected.data()});
  expect_close(y.row(), expected, "layer_norm");
}

TEST_F(BeyondThirtyTwoBits, ActivationsAndDropout) {
  const Huge x(row), up(other), y(zero);
  Array expected(kType, kDim);
  cuda::gated_forward({.type = kType,
                       .rows = kRows,
                       .features = kDim,
                       .gate = x.data(),
                       .up = up.data(),
                       .y = y.data()},
                      kStream);
  cpu::gated_forward({.type = kType,
                      .rows = 1,
                      .features = kDim,
                      .gate = row.data(),
                      .up = other.data(),
                      .y = expected.data()});
  // A block has 1024 columns.
  const auto last_of = [](const Array& a, int64_t count) {
    const auto values = a.values();
    return std::vector<double>(values.end() - count, values.end());
  };
  const auto expect_last = [&](int64_t count, const char* what) {
    const auto wanted = last_of(expected, count);
    cpu::expect_near(last_of(y.row(), count), wanted, cpu::within(wanted, 0x1p-7, 1e-5), what);
  };
  expect_last(1024, "gated");
  cuda::activation_forward({Activation::Silu, kType, kRows * kDim, x.data(), y.data()}, kStream);
  cpu::activation_forward({Activation::Silu, kType, kDim, row.data(), expected.data()});
  expect_last(1024, "activation");
  Dropout args{.type = kType,
               .count = kRows * kDim,
               .x = x.data(),
               .out = y.data(),
               .probability = 0.5,
               .key = 7};
  cuda::dropout(args, kStream);
  args.count = kDim;
  args.x = row.data();
  args.out = expected.data();
  args.first_index = kLast;
  cpu::dropout(args);
  expect_last(1024, "dropout");
}

TEST_F(BeyondThirtyTwoBits, CrossEntropy) {
  const Array logits = random_array(Scalar::F32, kDim, 4);
  const Huge all(logits);
  std::vector<int32_t> targets(static_cast<size_t>(kRows), 3);
  targets.back() = 17;
  DeviceVector<int32_t> dev_targets(targets);
  HugeBuffer workspace(kRows * 8), totals(16);
  cuda::cross_entropy({.rows = kRows,
                       .vocabulary = kDim,
                       .logits = static_cast<float*>(all.data()),
                       .targets = dev_targets.data()},
                      static_cast<cuda::CrossEntropyTotals*>(totals.data()), workspace.data(),
                      kStream);
  Array expected = logits;
  cpu::cross_entropy(
      {.rows = 1, .vocabulary = kDim, .logits = expected.floats(), .targets = &targets.back()});
  expect_close(all.row(), expected, "gradient", 1e-6);
}

TEST_F(BeyondThirtyTwoBits, EmbeddingRows) {
  const Huge table(row);
  DeviceVector<int32_t> ids({static_cast<int32_t>(kRows - 1)});
  DeviceArray out(kType, kDim);
  cuda::embedding_forward({.type = kType,
                           .tokens = 1,
                           .vocabulary = kRows,
                           .dim = kDim,
                           .ids = ids.data(),
                           .weight = table.data(),
                           .out = out.data()},
                          kStream);
  expect_equal(out, row, "row");
  DeviceArray dy(other);
  const EmbeddingBackward args{.type = kType,
                               .grad_type = kType,
                               .tokens = 1,
                               .vocabulary = kRows,
                               .dim = kDim,
                               .ids = ids.data(),
                               .dy = dy.data(),
                               .grad = table.data()};
  Workspace workspace(cuda::embedding_backward_workspace_bytes(args));
  cuda::embedding_backward(args, workspace.data(), kStream);
  const Array sum = table.row();
  for (int64_t i = 0; i < kDim; ++i) ASSERT_EQ(sum[i], cpu::rounded(row[i] + other[i], kType));
}

TEST_F(BeyondThirtyTwoBits, Rope) {
  const Huge x(row);
  const int64_t head_dim = 128, half = 64;
  std::vector<int32_t> positions(static_cast<size_t>(kRows), 0);
  positions.back() = 9;
  DeviceVector<int32_t> dev_positions(positions);
  DeviceArray cos(random_array(Scalar::F32, 10 * half, 5)),
      sin(random_array(Scalar::F32, 10 * half, 6));
  RopeApply args{.type = kType,
                 .tokens = kRows,
                 .heads = kDim / head_dim,
                 .head_dim = head_dim,
                 .x = x.data(),
                 .positions = dev_positions.data(),
                 .cos = cos.floats(),
                 .sin = sin.floats(),
                 .max_positions = 10};
  cuda::rope_apply(args, kStream);
  Array expected = row;
  args.tokens = 1;
  args.x = expected.data();
  args.positions = &positions.back();
  cpu::rope_apply(args);
  const Array got = x.row();
  for (int64_t i = kDim - 512; i < kDim; ++i)
    ASSERT_NEAR(got[i], expected[i], 0.02) << i;  // 256 pairs
}

TEST_F(BeyondThirtyTwoBits, Optimizers) {
  // The last block of 16384 elements.
  const Huge param(row), grad(other);
  Array expected = row;
  HugeBuffer momentum(kRows * kDim * 2);
  ElementTensor<1> tensor{.count = kRows * kDim,
                          .param = param.data(),
                          .grad = grad.data(),
                          .states = {momentum.data()},
                          .param_type = kType,
                          .grad_type = kType,
                          .state_type = kType};
  const ElementOptions options{.lr = 0.1, .momentum = 0.9};
  cuda::element_step<Sgd>({&tensor, 1}, options, nullptr, kStream);
  std::vector<uint16_t> zeros(static_cast<size_t>(kDim));
  ElementTensor<1> last{.count = kDim,
                        .param = expected.data(),
                        .grad = other.data(),
                        .states = {zeros.data()},
                        .param_type = kType,
                        .grad_type = kType,
                        .state_type = kType};
  cpu::element_step<Sgd>({&last, 1}, options);
  expect_equal(param.row(), expected, "weights");

  HugeBuffer first(kRows * kDim * 2), second(kRows * kDim * 2);
  const Huge weights(row);
  AdamWTensor adamw{.count = kRows * kDim,
                    .param = weights.data(),
                    .grad = grad.data(),
                    .exp_avg = first.data(),
                    .exp_avg_sq = second.data(),
                    .param_type = kType,
                    .grad_type = kType,
                    .state_type = kType};
  cuda::adamw_step({&adamw, 1}, {}, nullptr, kStream);
  expected = row;
  std::vector<uint16_t> more_zeros(static_cast<size_t>(kDim));
  zeros.assign(zeros.size(), 0);
  AdamWTensor last_adamw{.count = kDim,
                         .param = expected.data(),
                         .grad = other.data(),
                         .exp_avg = zeros.data(),
                         .exp_avg_sq = more_zeros.data(),
                         .param_type = kType,
                         .grad_type = kType,
                         .state_type = kType};
  cpu::adamw_step({&last_adamw, 1}, {});
  expect_equal(weights.row(), expected, "AdamW's weights");
}

TEST_F(BeyondThirtyTwoBits, Dequantize) {
  const auto format = QuantizedFormat::Int8;
  HugeBuffer bytes(quantized_bytes(format, kRows, kDim));
  const QuantizedLayout layout = quantized_layout(format, kRows, kDim);
  auto* codes = static_cast<uint8_t*>(bytes.data());
  codes[kRows * kDim - 5] = 100;
  reinterpret_cast<float*>(codes + layout.scales)[kRows - 1] = 2;
  HugeBuffer out(kRows * kDim * 4);
  cuda::dequantize({.format = format,
                    .rows = kRows,
                    .cols = kDim,
                    .bytes = codes,
                    .begin = 0,
                    .count = kRows * kDim,
                    .out = out.data(),
                    .type = Scalar::F32},
                   kStream);
  EXPECT_EQ(static_cast<float*>(out.data())[kRows * kDim - 5], 100 * 2.f * kInt8Step);
}

}  // namespace
}  // namespace snug::kernels::simulated
