// The CUDA norms against the CPU's.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"
#include "unit/core/kernels/simulated/device_array.h"

namespace snug::kernels::simulated {
namespace {

using cpu::random_array;

struct Case {
  Scalar type, weight_type;
  int64_t rows, dim;
  bool option;  // residuals, and what else may be left out
};

template <class Body>
void over_cases(const Body& body) {
  for (const Scalar type : cpu::kAllTypes)
    for (const Scalar weight_type : {Scalar::F32, type})
      for (const int64_t rows : {0, 1, 3})
        for (const int64_t dim : {1, 33, 1030})
          for (const bool option : {false, true})
            over_seeds([&] { body(Case{type, weight_type, rows, dim, option}); });
  // More rows than a backward has blocks.
  over_seeds([&] { body(Case{Scalar::F32, Scalar::F32, 300, 200, true}); });
}

VectorGradient gradient(const Case& c, bool wanted, Array& array) {
  if (!wanted) return {};
  return {.data = array.data(), .type = c.weight_type, .accumulate = c.option};
}

TEST(SimulatedRmsNorm, IsTheCpus) {
  over_cases([](const Case& c) {
    const int64_t count = c.rows * c.dim;
    const auto form = c.dim == 33 ? NormForm::Gemma4 : c.option ? NormForm::Gemma : NormForm::Llama;
    const bool weighted = c.option || c.rows != 3;
    const Array x = random_array(c.type, count, 1), residual = random_array(c.type, count, 2);
    const Array weight = random_array(c.weight_type, c.dim, 3), dy = random_array(c.type, count, 4);
    const auto forward = [&](const Array& x, const Array& residual, Array& sum, const Array& weight,
                             Array& y, Array& rstd) {
      return RmsNormForward{.type = c.type,
                            .weight_type = c.weight_type,
                            .form = form,
                            .rows = c.rows,
                            .dim = c.dim,
                            .x = x.data(),
                            .residual = c.option ? residual.data() : nullptr,
                            .sum = c.option ? sum.data() : nullptr,
                            .weight = weighted ? weight.data() : nullptr,
                            .y = y.data(),
                            .rstd = rstd.floats()};
    };
    Array sum(c.type, count), y(c.type, count), rstd(Scalar::F32, c.rows);
    cpu::rms_norm_forward(forward(x, residual, sum, weight, y, rstd));
    DeviceArray dev_x(x), dev_residual(residual), dev_sum(c.type, count), dev_weight(weight);
    DeviceArray dev_y(c.type, count), dev_rstd(Scalar::F32, c.rows);
    cuda::rms_norm_forward(forward(dev_x, dev_residual, dev_sum, dev_weight, dev_y, dev_rstd),
                           kStream);
    expect_close(dev_y, y, "y");
    expect_close(dev_rstd, rstd, "rstd");
    if (c.option) expect_equal(dev_sum, sum, "sum");

    const Array before = random_array(c.weight_type, c.dim, 5);
    const auto backward = [&](const Array& dy, const Array& x, const Array& weight, Array& rstd,
                              const Array& residual, Array& dx, Array& dweight) {
      return RmsNormBackward{.type = c.type,
                             .weight_type = c.weight_type,
                             .form = form,
                             .rows = c.rows,
                             .dim = c.dim,
                             .dy = dy.data(),
                             .x = x.data(),
                             .weight = weighted ? weight.data() : nullptr,
                             .rstd = rstd.floats(),
                             .d_residual = c.option ? residual.data() : nullptr,
                             .dx = dx.data(),
                             .dweight = gradient(c, c.option || c.rows != 1, dweight)};
    };
    Array dx(c.type, count), dweight = before;
    cpu::rms_norm_backward(backward(dy, x, weight, rstd, residual, dx, dweight));
    DeviceArray dev_dy(dy), dev_rstd_in(rstd), dev_dweight(before);
    const auto args =
        backward(dev_dy, dev_x, dev_weight, dev_rstd_in, dev_residual, dev_dy, dev_dweight);
    Workspace workspace(cuda::rms_norm_backward_workspace_bytes(args));
    cuda::rms_norm_backward(args, workspace.data(), kStream);
    expect_close(dev_dy, dx, "dx");
    expect_close(dev_dweight, dweight, "dweight", 1e-4);
  });
}

TEST(SimulatedLayerNorm, IsTheCpus) {
  over_cases([](const Case& c) {
    const int64_t count = c.rows * c.dim;
    const Array x = random_array(c.type, count, 1), residual = random_array(c.type, count, 2);
    const Array weight = random_array(c.weight_type, c.dim, 3);
    const Array bias = random_array(c.weight_type, c.dim, 6), dy = random_array(c.type, count, 4);
    const auto forward = [&](const Array& x, const Array& residual, Array& sum, const Array& weight,
                             const Array& bias, Array& y, Array& mean, Array& rstd) {
      return LayerNormForward{.type = c.type,
                              .weight_type = c.weight_type,
                              .rows = c.rows,
                              .dim = c.dim,
                              .x = x.data(),
                              .residual = c.option ? residual.data() : nullptr,
                              .sum = c.option ? sum.data() : nullptr,
                              .weight = c.option ? weight.data() : nullptr,
                              .bias = c.option ? bias.data() : nullptr,
                              .y = y.data(),
                              .mean = mean.floats(),
                              .rstd = rstd.floats()};
    };
    Array sum(c.type, count), y(c.type, count), mean(Scalar::F32, c.rows),
        rstd(Scalar::F32, c.rows);
    cpu::layer_norm_forward(forward(x, residual, sum, weight, bias, y, mean, rstd));
    DeviceArray dev_x(x), dev_residual(residual), dev_sum(c.type, count), dev_weight(weight);
    DeviceArray dev_bias(bias), dev_y(c.type, count);
    DeviceArray dev_mean(Scalar::F32, c.rows), dev_rstd(Scalar::F32, c.rows);
    cuda::layer_norm_forward(
        forward(dev_x, dev_residual, dev_sum, dev_weight, dev_bias, dev_y, dev_mean, dev_rstd),
        kStream);
    if (c.dim > 1) expect_close(dev_y, y, "y", 2e-5);
    expect_close(dev_mean, mean, "mean");
    if (c.option) expect_equal(dev_sum, sum, "sum");

    const auto backward = [&](const Array& dy, const Array& x, const Array& weight, Array& mean,
                              Array& rstd, const Array& residual, Array& dx, Array& dweight,
                              Array& dbias) {
      return LayerNormBackward{.type = c.type,
                               .weight_type = c.weight_type,
                               .rows = c.rows,
                               .dim = c.dim,
                               .dy = dy.data(),
                               .x = x.data(),
                               .weight = c.option ? weight.data() : nullptr,
                               .mean = mean.floats(),
                               .rstd = rstd.floats(),
                               .d_residual = c.option ? residual.data() : nullptr,
                               .dx = dx.data(),
                               .dweight = gradient(c, c.option, dweight),
                               .dbias = gradient(c, c.option || c.rows != 1, dbias)};
    };
    const Array before = random_array(c.weight_type, c.dim, 5);
    Array ones(Scalar::F32, std::vector<double>(static_cast<size_t>(c.rows), 0.75));
    Array dx(c.type, count), dweight = before, dbias = before;
    cpu::layer_norm_backward(backward(dy, x, weight, mean, ones, residual, dx, dweight, dbias));
    DeviceArray dev_dy(dy), dev_mean_in(mean), dev_ones(ones);
    DeviceArray dev_dweight(before), dev_dbias(before);
    const auto args = backward(dev_dy, dev_x, dev_weight, dev_mean_in, dev_ones, dev_residual,
                               dev_dy, dev_dweight, dev_dbias);
    Workspace workspace(cuda::layer_norm_backward_workspace_bytes(args));
    cuda::layer_norm_backward(args, workspace.data(), kStream);
    expect_close(dev_dy, dx, "dx");
    expect_close(dev_dweight, dweight, "dweight", 1e-4);
    expect_close(dev_dbias, dbias, "dbias", 1e-4);
  });
}

TEST(SimulatedRmsNorm, OfTheWidestRowsSharesMostOfTheMemory) {
  const int64_t dim = 24576;
  DeviceArray dy(random_array(Scalar::BF16, dim, 1)), x(random_array(Scalar::BF16, dim, 2));
  DeviceArray weight(random_array(Scalar::BF16, dim, 3)), dx(Scalar::BF16, dim);
  DeviceArray rstd(random_array(Scalar::F32, 1, 4)), dweight(Scalar::F32, dim);
  RmsNormBackward args{.type = Scalar::BF16,
                       .weight_type = Scalar::BF16,
                       .rows = 1,
                       .dim = dim,
                       .dy = dy.data(),
                       .x = x.data(),
                       .weight = weight.data(),
                       .rstd = rstd.floats(),
                       .dx = dx.data(),
                       .dweight = {.data = dweight.floats()}};
  Workspace workspace(cuda::rms_norm_backward_workspace_bytes(args));
  cuda::rms_norm_backward(args, workspace.data(), kStream);
  Array expected_dx(Scalar::BF16, dim), expected(Scalar::F32, dim);
  args.dx = expected_dx.data();
  args.dweight.data = expected.floats();
  cpu::rms_norm_backward(args);
  expect_close(dx, expected_dx, "dx");
  expect_close(dweight, expected, "dweight");
}

}  // namespace
}  // namespace snug::kernels::simulated
