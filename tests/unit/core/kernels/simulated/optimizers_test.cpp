// The CUDA optimizers have the bits of the CPU's; Adafactor, whose sums are in another order, is
// close to them.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers/optimizers.h"

#include <fmt/format.h>

#include <limits>
#include <memory>

#include "core/kernels/cuda/optimizers/tensor_list.cuh"
#include "unit/core/kernels/simulated/device_array.h"

namespace snug::kernels::simulated {
namespace {

using cpu::random_array;

// A tensor's arrays: weights, gradients, two states, master weights.
enum Part { kParam, kGrad, kFirst, kSecond, kMaster, kNumParts };

struct Shape {
  int64_t count;
  int shift;  // elements off the alignment
  Scalar param, grad, state;
  bool master;
};

// Equal types behind each other and not; more than a block's elements; not aligned.
std::vector<Shape> shapes() {
  using enum Scalar;
  return {{1, 0, F32, F32, F32, false},       {16389, 0, F32, F32, F32, false},
          {0, 0, F32, F32, F32, false},       {7, 1, F32, F32, F32, false},
          {261, 0, BF16, F32, F32, true},     {261, 0, BF16, BF16, BF16, false},
          {1030, 1, BF16, BF16, BF16, false}, {515, 0, F16, F16, F32, true},
          {19, 3, F16, F32, BF16, false}};
}

struct Arrays {
  std::vector<Array> host;
  std::vector<std::unique_ptr<DeviceArray>> device;
  Array& on(bool on_device, int part) { return on_device ? *device[part] : host[part]; }
};

Arrays arrays_of(const Shape& s, uint64_t seed) {
  const Scalar types[] = {s.param, s.grad, s.state, s.state, Scalar::F32};
  Arrays result;
  for (int part = 0; part < kNumParts; ++part) {
    Array array = random_array(types[part], s.count, seed * kNumParts + part, 1, s.shift);
    if (part == kSecond)
      for (int64_t i = 0; i < s.count; ++i) array.set(i, std::abs(array[i]));
    result.host.push_back(array);
    result.device.push_back(std::make_unique<DeviceArray>(array));
  }
  return result;
}

// step(shapes' arrays, on the device?) for both, with all of what options may be.
template <class Step>
void expect_same_bits(const Step& step) {
  for (const bool stochastic : {false, true}) {
    over_seeds([&] {
      std::vector<Arrays> all;
      for (const Shape& s : shapes()) all.push_back(arrays_of(s, all.size() + 1));
      step(all, false, stochastic);
      step(all, true, stochastic);
      for (size_t t = 0; t < all.size(); ++t)
        for (int part = 0; part < kNumParts; ++part)
          expect_equal(*all[t].device[part], all[t].host[part],
                       fmt::format("tensor {}, part {}", t, part));
    });
  }
}

template <class Tensor>
Tensor tensor_of(const Shape& s, Arrays& a, bool on_device, size_t number) {
  Tensor t;
  t.count = s.count;
  t.param = a.on(on_device, kParam).data();
  t.grad = a.on(on_device, kGrad).data();
  t.master = s.master ? a.on(on_device, kMaster).floats() : nullptr;
  t.param_type = s.param;
  t.grad_type = s.grad;
  t.tensor_id = number;
  return t;
}

template <class Tensor, class Fill>
std::vector<Tensor> tensors_of(std::vector<Arrays>& all, bool on_device, const Fill& fill) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < all.size(); ++i) {
    tensors.push_back(tensor_of<Tensor>(shapes()[i], all[i], on_device, i));
    tensors.back().state_type = shapes()[i].state;
    fill(tensors.back(), all[i]);
  }
  return tensors;
}

// A factor on the device times one of the host, as clipping has it.
constexpr float kHostScale = 0.5f, kDeviceScale = 0.75f;

TEST(SimulatedAdamW, HasTheCpusBits) {
  expect_same_bits([](std::vector<Arrays>& all, bool on_device, bool stochastic) {
    const auto tensors = tensors_of<AdamWTensor>(all, on_device, [&](AdamWTensor& t, Arrays& a) {
      t.exp_avg = a.on(on_device, kFirst).data();
      t.exp_avg_sq = a.on(on_device, kSecond).data();
    });
    AdamWOptions options{
        .step = 3, .grad_scale = kHostScale, .stochastic_rounding = stochastic, .seed = 5};
    if (on_device) {
      DeviceVector<float> scale({kDeviceScale});
      return cuda::adamw_step(tensors, options, scale.data(), kStream);
    }
    options.grad_scale *= kDeviceScale;
    cpu::adamw_step(tensors, options);
  });
}

TEST(SimulatedLion, HasTheCpusBits) {
  expect_same_bits([](std::vector<Arrays>& all, bool on_device, bool stochastic) {
    const auto tensors = tensors_of<ElementTensor<1>>(
        all, on_device,
        [&](ElementTensor<1>& t, Arrays& a) { t.states[0] = a.on(on_device, kFirst).data(); });
    const ElementOptions options{.weight_decay = 0.1,
                                 .step = 3,
                                 .grad_scale = kHostScale,
                                 .stochastic_rounding = stochastic,
                                 .seed = 5};
    on_device ? cuda::element_step<Lion>(tensors, options, nullptr, kStream)
              : cpu::element_step<Lion>(tensors, options);
  });
}

TEST(SimulatedSgd, HasTheCpusBits) {
  for (const bool first_step : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      expect_same_bits([&](std::vector<Arrays>& all, bool on_device, bool stochastic) {
        const auto tensors =
            tensors_of<ElementTensor<1>>(all, on_device, [&](ElementTensor<1>& t, Arrays& a) {
              t.states[0] = momentum != 0 ? a.on(on_device, kFirst).data() : nullptr;
            });
        const ElementOptions options{.momentum = momentum,
                                     .weight_decay = 0.1,
                                     .nesterov = momentum != 0,
                                     .first_step = first_step,
                                     .step = 3,
                                     .grad_scale = kHostScale,
                                     .stochastic_rounding = stochastic,
                                     .seed = 5};
        on_device ? cuda::element_step<Sgd>(tensors, options, nullptr, kStream)
                  : cpu::element_step<Sgd>(tensors, options);
      });
    }
  }
}

TEST(SimulatedAdamW8bit, HasTheCpusBits) {
  const auto codes_of = [](int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> codes(static_cast<size_t>(count));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    return codes;
  };
  for (const bool stochastic : {false, true}) {
    over_seeds([&] {
      for (const Shape& s : shapes()) {
        Arrays a = arrays_of(s, 3);
        auto first = codes_of(s.count, 1), second = codes_of(s.count, 2);
        const int64_t blocks = (s.count + kQuantizedBlock - 1) / kQuantizedBlock;
        Array first_peak(Scalar::F32, std::vector<double>(static_cast<size_t>(blocks), 0.3));
        Array second_peak(Scalar::F32, std::vector<double>(static_cast<size_t>(blocks), 0.2));
        DeviceVector<uint8_t> dev_first(first), dev_second(second);
        DeviceArray dev_first_peak(first_peak), dev_second_peak(second_peak);
        const auto tensor = [&](bool on_device) {
          auto t = tensor_of<AdamW8bitTensor>(s, a, on_device, 4);
          t.exp_avg = on_device ? dev_first.data() : first.data();
          t.exp_avg_sq = on_device ? dev_second.data() : second.data();
          t.exp_avg_absmax = (on_device ? dev_first_peak : first_peak).floats();
          t.exp_avg_sq_absmax = (on_device ? dev_second_peak : second_peak).floats();
          return t;
        };
        const AdamWOptions options{.step = 3, .stochastic_rounding = stochastic, .seed = 5};
        const AdamW8bitTensor host[] = {tensor(false)}, device[] = {tensor(true)};
        cpu::adamw_8bit_step(host, options);
        cuda::adamw_8bit_step(device, options, nullptr, kStream);
        for (const int part : {kParam, kMaster})
          expect_equal(*a.device[part], a.host[part],
                       fmt::format("{} elements, part {}", s.count, part));
        EXPECT_EQ(dev_first.values, first);
        EXPECT_EQ(dev_second.values, second);
        expect_equal(dev_first_peak, first_peak, "first peak");
        expect_equal(dev_second_peak, second_peak, "second peak");
      }
    });
  }
}

TEST(SimulatedOptimizers, LeaveAStepOutWhoseScaleIsNotFinite) {
  Arrays a = arrays_of(shapes()[1], 1);
  DeviceVector<float> scale({std::numeric_limits<float>::quiet_NaN()});
  auto t = tensor_of<AdamWTensor>(shapes()[1], a, true, 0);
  t.exp_avg = a.device[kFirst]->data();
  t.exp_avg_sq = a.device[kSecond]->data();
  cuda::adamw_step({&t, 1}, {}, scale.data(), kStream);
  auto lion = tensor_of<ElementTensor<1>>(shapes()[1], a, true, 0);
  lion.states[0] = a.device[kFirst]->data();
  cuda::element_step<Lion>({&lion, 1}, {}, scale.data(), kStream);
  auto eight = tensor_of<AdamW8bitTensor>(shapes()[1], a, true, 0);  // not even read: no states
  cuda::adamw_8bit_step({&eight, 1}, {}, scale.data(), kStream);
  for (const int part : {kParam, kFirst, kSecond}) EXPECT_TRUE(*a.device[part] == a.host[part]);
}

// More tensors than one launch describes.
TEST(SimulatedOptimizers, TakeAsManyTensorsAsThereAre) {
  const int most = cuda::TensorList<TensorView>::kCapacity;
  std::vector<TensorView> tensors;
  DeviceArray values(random_array(Scalar::F32, 2 * most + 7, 1));
  for (int64_t i = 0; i < values.size(); ++i)
    tensors.push_back({1, values.floats() + i, Scalar::F32});
  Workspace workspace(cuda::sum_of_squares_workspace_bytes(tensors));
  DeviceVector<double> sum({0});
  cuda::sum_of_squares(tensors, sum.data(), workspace.data(), kStream);
  EXPECT_NEAR(sum.values[0], cpu::sum_of_squares(tensors).value, 1e-9);
}

TEST(SimulatedGlobalNorm, IsTheCpus) {
  over_seeds([&] {
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    std::vector<TensorView> tensors;
    for (const int64_t count : {5, 0, 16384, 40001})
      for (const Scalar type : cpu::kAllTypes) {
        arrays.push_back(std::make_unique<DeviceArray>(random_array(type, count, 1)));
        tensors.push_back({count, arrays.back()->data(), type});
      }
    Workspace workspace(cuda::sum_of_squares_workspace_bytes(tensors));
    DeviceVector<double> sum({0});
    cuda::sum_of_squares(tensors, sum.data(), workspace.data(), kStream);
    const double expected = cpu::sum_of_squares(tensors).value;
    EXPECT_NEAR(sum.values[0], expected, 1e-9 * expected);
    DeviceVector<float> factor({0});
    cuda::clip_factor(sum.data(), 0.5, 1.0, factor.data(), kStream);
    EXPECT_FLOAT_EQ(factor.values[0], 0.5 / (0.5 * std::sqrt(expected) + 1e-6));
    cuda::clip_factor(sum.data(), 0.5, 0, factor.data(), kStream);
    EXPECT_FLOAT_EQ(factor.values[0], 0.5);
    sum.values[0] = INFINITY;
    cuda::clip_factor(sum.data(), 0.5, 1.0, factor.data(), kStream);
    EXPECT_TRUE(std::isnan(factor.values[0]));
  });
  DeviceVector<double> sum({3}, false);
  cuda::sum_of_squares({}, sum.data(), nullptr, kStream);
  EXPECT_EQ(sum.values[0], 0);
}

TEST(SimulatedAdafactor, IsTheCpus) {
  struct Matrix {
    int64_t rows, cols;
    bool is_vector;
  };
  for (const Matrix m :
       {Matrix{1, 1, true}, {1, 700, true}, {1, 9, false}, {70, 300, false}, {300, 5, false}}) {
    for (const Shape& s : {Shape{0, 0, Scalar::F32, Scalar::F32, Scalar::F32, false},
                           Shape{0, 0, Scalar::BF16, Scalar::F16, Scalar::F32, true},
                           Shape{0, 0, Scalar::F16, Scalar::BF16, Scalar::F32, false}}) {
      over_seeds([&] {
        Shape shape = s;
        shape.count = m.rows * m.cols;
        Arrays a = arrays_of(shape, 1);
        const Array row_var(Scalar::F32, std::vector<double>(static_cast<size_t>(m.rows), 0.7));
        const Array col_var(Scalar::F32, std::vector<double>(static_cast<size_t>(m.cols), 0.6));
        Array host_row = row_var, host_col = col_var;
        DeviceArray dev_row(row_var), dev_col(col_var);
        const auto tensor = [&](bool on_device) {
          auto t = tensor_of<AdafactorTensor>(shape, a, on_device, 4);
          t.rows = m.rows;
          t.cols = m.cols;
          t.row_var = m.is_vector ? nullptr : (on_device ? dev_row : host_row).floats();
          t.col_var = (on_device ? dev_col : host_col).floats();
          return t;
        };
        const AdafactorOptions options{.weight_decay = 0.1, .step = 3, .grad_scale = 0.5f};
        std::vector<char> host_workspace(
            static_cast<size_t>(adafactor_workspace_bytes(m.rows, m.cols)));
        cpu::adafactor_step(tensor(false), options, host_workspace.data());
        Workspace workspace(adafactor_device_sums_bytes(m.rows) +
                            adafactor_workspace_bytes(m.rows, m.cols));
        cuda::adafactor_step(tensor(true), options, workspace.data(), kStream);
        for (const int part : {kParam, kMaster})
          expect_close(*a.device[part], a.host[part], fmt::format("part {}", part));
        expect_close(dev_row, host_row, "row means");
        expect_close(dev_col, host_col, "column means");
      });
    }
  }
}

}  // namespace
}  // namespace snug::kernels::simulated
