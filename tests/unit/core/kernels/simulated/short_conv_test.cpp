// The CUDA short convolution against the CPU's.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"
#include "unit/core/kernels/simulated/device_array.h"

namespace snug::kernels::simulated {
namespace {

using cpu::random_array;

struct ConvCase {
  ConvForm form;
  Scalar type, weight_type;
  int64_t rows, features, taps;
  bool option;  // a bias, gradients that are added to
};

// Documents of 1, 2, 3, … rows.
std::vector<int32_t> positions(int64_t rows) {
  std::vector<int32_t> all;
  for (int32_t length = 1; std::ssize(all) < rows; ++length)
    for (int32_t i = 0; i < length && std::ssize(all) < rows; ++i) all.push_back(i);
  return all;
}

void expect_the_cpus(const ConvCase& c) {
  const int64_t width = (c.form == ConvForm::Gates ? 3 : 1) * c.features;
  const int64_t count = c.rows * c.features, weights = c.features * c.taps;
  const Array x = random_array(c.type, c.rows * width, 1), dy = random_array(c.type, count, 4);
  const Array weight = random_array(c.weight_type, weights, 2);
  const Array bias = random_array(c.weight_type, c.features, 3);
  DeviceVector<int32_t> places(positions(c.rows));
  const auto forward = [&](const Array& x, const Array& weight, const Array& bias, Array& y) {
    return ShortConvForward{.form = c.form,
                            .type = c.type,
                            .weight_type = c.weight_type,
                            .rows = c.rows,
                            .features = c.features,
                            .taps = c.taps,
                            .x = x.data(),
                            .positions = places.data(),
                            .weight = weight.data(),
                            .bias = c.option ? bias.data() : nullptr,
                            .y = y.data()};
  };
  Array y(c.type, count);
  cpu::short_conv_forward(forward(x, weight, bias, y));
  DeviceArray dev_x(x), dev_weight(weight), dev_bias(bias), dev_y(c.type, count);
  cuda::short_conv_forward(forward(dev_x, dev_weight, dev_bias, dev_y), kStream);
  expect_close(dev_y, y, "y");

  const bool trains = c.option || c.rows != 1;
  const auto backward = [&](const ShortConvForward& of, const Array& dy, Array& dx, Array& dweight,
                            Array& dbias) {
    ShortConvBackward args{.forward = of, .dy = dy.data(), .dx = dx.data()};
    if (trains)
      args.dweight = {.data = dweight.data(), .type = c.weight_type, .accumulate = c.option};
    if (c.option) args.dbias = {.data = dbias.data(), .type = c.weight_type, .accumulate = true};
    return args;
  };
  const Array before = random_array(c.weight_type, weights, 5);
  const Array bias_before = random_array(c.weight_type, c.features, 6);
  Array dx(c.type, c.rows * width), dweight = before, dbias = bias_before;
  cpu::short_conv_backward(backward(forward(x, weight, bias, y), dy, dx, dweight, dbias));
  DeviceArray dev_dy(dy), dev_dx(c.type, c.rows * width), dev_dweight(before),
      dev_dbias(bias_before);
  Workspace workspace(cuda::short_conv_backward_workspace_bytes(
      c.features, (trains ? c.taps : 0) + (c.option ? 1 : 0)));
  cuda::short_conv_backward(
      backward(forward(dev_x, dev_weight, dev_bias, dev_y), dev_dy, dev_dx, dev_dweight, dev_dbias),
      workspace.data(), kStream);
  expect_close(dev_dx, dx, "dx");
  expect_close(dev_dweight, dweight, "dweight", 1e-4);
  expect_close(dev_dbias, dbias, "dbias", 1e-4);
}

TEST(SimulatedShortConv, IsTheCpus) {
  for (const ConvForm form : {ConvForm::Gates, ConvForm::Silu})
    for (const Scalar type : cpu::kAllTypes)
      for (const Scalar weight_type : {Scalar::F32, type})
        for (const int64_t rows : {0, 1, 11})
          for (const int64_t features : {1, 130})
            for (const bool option : {false, true})
              over_seeds([&] {
                expect_the_cpus({form, type, weight_type, rows, features, option ? 3 : 4, option});
              });
  // More rows than a backward has blocks, and all taps.
  for (const ConvForm form : {ConvForm::Gates, ConvForm::Silu})
    expect_the_cpus({form, Scalar::F32, Scalar::F32, 300, 33, kMostTaps, true});
}

}  // namespace
}  // namespace snug::kernels::simulated
