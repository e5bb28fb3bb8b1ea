// AdamW with 8-bit moments: the codes are the nearest ones, threads and instruction sets agree, a
// NaN stays where it is. Comparison with bitsandbytes: tests/unit/core/optim/oracle_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/optimizers.h"

#include "core/kernels/dynamic_map.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace adamw_8bit_test {

struct Arrays {
  Arrays(Scalar type, int64_t count, double spread = 0.1)
      : param(random_array(type, count, 1, 1.0, 1)),
        grad(random_array(type, count, 2, spread, 1)),
        first(static_cast<size_t>(count)),
        second(static_cast<size_t>(count)),
        first_absmax(static_cast<size_t>((count + 255) / 256)),
        second_absmax(first_absmax.size()) {}

  AdamW8bitTensor tensor() {
    return {.count = param.size(),
            .param = param.data(),
            .grad = grad.data(),
            .exp_avg = first.data(),
            .exp_avg_sq = second.data(),
            .exp_avg_absmax = first_absmax.data(),
            .exp_avg_sq_absmax = second_absmax.data(),
            .param_type = param.type(),
            .grad_type = grad.type()};
  }
  void step(const AdamWOptions& options) {
    const AdamW8bitTensor description = tensor();
    adamw_8bit_step({&description, 1}, options);
  }
  bool operator==(const Arrays& other) const {
    return param == other.param && first == other.first && second == other.second &&
           first_absmax == other.first_absmax && second_absmax == other.second_absmax;
  }

  Array param, grad;
  std::vector<uint8_t> first, second;
  std::vector<float> first_absmax, second_absmax;
};

// As near as the nearest value, but for the rounding of the arithmetic that finds it.
void expect_nearest(const DynamicMap& map, double x, uint8_t code) {
  double best = 2;
  for (const float value : map.values) best = std::min(best, std::abs(x - value));
  EXPECT_LE(std::abs(x - map.values[code]), best + 1e-6 * std::abs(x)) << x;
}

// Without decay the moments are the gradient and its square, in all magnitudes down to 1e-9.
TEST(AdamW8bit, CodesAreTheNearest) {
  on_every_isa([] {
    const int64_t count = 256 * 40 + 77;
    Arrays a(Scalar::F32, count);
    const std::vector<double> exponents = random_values(count, 3, 2.0);
    for (int64_t i = 0; i < count; ++i)
      a.grad.set(i, a.grad[i] * std::pow(10.0, -std::abs(exponents[i])));
    a.grad.set(5, 0.0);
    a.grad.set(6, -0.0);
    a.step({.beta1 = 0, .beta2 = 0, .step = 1});
    for (int64_t block = 0; block * 256 < count; ++block) {
      const int64_t begin = block * 256, end = std::min(count, begin + 256);
      double largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(a.grad[i]));
      ASSERT_EQ(a.first_absmax[block], static_cast<float>(largest));
      ASSERT_EQ(a.second_absmax[block], static_cast<float>(largest) * static_cast<float>(largest));
      for (int64_t i = begin; i < end; ++i) {
        const double x = a.grad[i] / largest;
        expect_nearest(signed_dynamic_map(), x, a.first[i]);
        expect_nearest(unsigned_dynamic_map(), x * x, a.second[i]);
      }
    }
    EXPECT_TRUE(a.param.guards_intact());
  });
}

TEST(AdamW8bit, ThreadsAndListsDoNotChangeABit) {
  on_every_isa([] {
    for (const bool stochastic : {false, true}) {
      std::vector<std::vector<Arrays>> results;
      for (const int threads : {1, 2, 3}) {
        std::vector<Arrays> arrays;
        for (const int64_t count : {5, 0, 70001, 33000}) arrays.emplace_back(Scalar::BF16, count);
        for (int64_t step = 1; step < 4; ++step) {
          const AdamWOptions options = {
              .step = step, .stochastic_rounding = stochastic, .num_threads = threads};
          std::vector<AdamW8bitTensor> list;
          for (Arrays& a : arrays) list.push_back(a.tensor());
          if (threads == 3) {
            for (const AdamW8bitTensor& tensor : list) adamw_8bit_step({&tensor, 1}, options);
          } else {
            adamw_8bit_step(list, options);
          }
        }
        results.push_back(arrays);
      }
      for (size_t k = 0; k < results[0].size(); ++k) {
        EXPECT_TRUE(results[0][k] == results[1][k]) << k;
        EXPECT_TRUE(results[0][k] == results[2][k]) << k;
      }
    }
  });
}

TEST(AdamW8bit, EveryTypeAgreesWithFloat32MomentsAtFirst) {
  on_every_isa([] {
    for (const Scalar type : kAllTypes) {
      Arrays a(type, 600), same(type, 600);
      Array first(Scalar::F32, 600), second(Scalar::F32, 600);
      const AdamWTensor plain = {.count = 600,
                                 .param = same.param.data(),
                                 .grad = same.grad.data(),
                                 .exp_avg = first.data(),
                                 .exp_avg_sq = second.data(),
                                 .param_type = type,
                                 .grad_type = type};
      const AdamWOptions options = {.lr = 0.01, .weight_decay = 0.1, .grad_scale = 0.5f};
      a.step(options);
      adamw_step({&plain, 1}, options);
      const std::vector<double> wanted = same.param.values();
      expect_near(a.param.values(), wanted, within(wanted, 1e-6, 1e-7), name_of(type));
    }
  });
}

TEST(AdamW8bit, BlocksOfZerosStayAndNotANumberStaysWhereItIs) {
  on_every_isa([] {
    Arrays a(Scalar::F32, 700), clean(Scalar::F32, 700);
    for (Arrays* arrays : {&a, &clean})
      for (int64_t i = 256; i < 512; ++i) arrays->grad.set(i, 0);
    a.grad.set(3, NAN);
    for (int64_t step = 1; step < 3; ++step) {
      a.step({.step = step});
      clean.step({.step = step});
    }
    EXPECT_EQ(a.first_absmax[1], 0);
    EXPECT_EQ(a.second_absmax[1], 0);
    for (int64_t i = 0; i < 700; ++i) {
      if (i == 3) {
        EXPECT_TRUE(std::isnan(a.param[i]));
      } else {
        EXPECT_EQ(a.param[i], clean.param[i]) << i;
      }
    }
  });
}

}  // namespace adamw_8bit_test
}  // namespace snug::kernels::cpu
