// AdamW, SGD and Lion in every combination of types against double, stochastic rounding by its
// mean. Comparison with torch's own optimizers: oracle_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/optimizers.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace optimizer_test {

struct Types {
  Scalar param, grad, state;
  bool master;
};

std::vector<Types> all_types() {
  std::vector<Types> result;
  for (const Scalar param : kAllTypes) {
    for (const Scalar grad : kAllTypes) {
      for (const Scalar state : {Scalar::F32, Scalar::BF16}) {
        for (const bool master : {false, true}) result.push_back({param, grad, state, master});
      }
    }
  }
  return result;
}

std::string describe(const Types& t) {
  return std::string(name_of(t.param)) + " " + name_of(t.grad) + " " + name_of(t.state) +
         (t.master ? " with master" : "");
}

struct Arrays {
  Arrays(const Types& t, int64_t count)
      : types(t),
        param(random_array(t.param, count, 1, 1.0, 1)),
        grad(random_array(t.grad, count, 2, 0.1)),
        first(random_array(t.state, count, 3, 0.1, 1)),
        second(t.state, count, 1),
        master(random_array(Scalar::F32, t.master ? count : 0, 5)) {
    const std::vector<double> values = random_values(count, 4, 0.1);
    for (int64_t i = 0; i < count; ++i) second.set(i, values[i] * values[i]);
  }
  double weight(int64_t i) const { return types.master ? master[i] : param[i]; }
  bool guards_intact() const {
    return param.guards_intact() && first.guards_intact() && second.guards_intact() &&
           master.guards_intact();
  }
  Types types;
  Array param, grad, first, second, master;
};

AdamWTensor adamw_tensor(Arrays& a) {
  return {.count = a.param.size(),
          .param = a.param.data(),
          .grad = a.grad.data(),
          .exp_avg = a.first.data(),
          .exp_avg_sq = a.second.data(),
          .master = a.types.master ? a.master.floats() : nullptr,
          .param_type = a.types.param,
          .grad_type = a.types.grad,
          .state_type = a.types.state};
}

ElementTensor<1> sgd_tensor(Arrays& a) {
  return {.count = a.param.size(),
          .param = a.param.data(),
          .grad = a.grad.data(),
          .states = {a.first.data()},
          .master = a.types.master ? a.master.floats() : nullptr,
          .param_type = a.types.param,
          .grad_type = a.types.grad,
          .state_type = a.types.state};
}

ElementTensor<1> lion_tensor(Arrays& a) {
  return {.count = a.param.size(),
          .param = a.param.data(),
          .grad = a.grad.data(),
          .states = {a.first.data()},
          .master = a.types.master ? a.master.floats() : nullptr,
          .param_type = a.types.param,
          .grad_type = a.types.grad,
          .state_type = a.types.state};
}

const AdamWOptions kAdamW = {.lr = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .step = 3,
                             .grad_scale = 0.5f};

TEST(AdamW, EveryCombinationOfTypes) {
  on_every_isa([] {
    for (const Types& types : all_types()) {
      for (const int64_t count : {0, 1, 7, 100}) {
        Arrays a(types, count);
        const Arrays before = a;
        const AdamWTensor tensor = adamw_tensor(a);
        adamw_step({&tensor, 1}, kAdamW);
        std::vector<double> weights, first, second, got;
        for (int64_t i = 0; i < count; ++i) {
          const double g = 0.5 * before.grad[i];
          first.push_back(0.9 * before.first[i] + 0.1 * g);
          second.push_back(0.95 * before.second[i] + 0.05 * g * g);
          const double denominator = std::sqrt(second[i]) / std::sqrt(1 - std::pow(0.95, 3)) + 1e-8;
          weights.push_back(before.weight(i) * (1 - 0.01 * 0.1) -
                            0.01 / (1 - std::pow(0.9, 3)) * first[i] / denominator);
          got.push_back(a.weight(i));
          if (types.master) {
            ASSERT_EQ(a.param[i], rounded(a.master[i], types.param)) << describe(types);
          }
        }
        const double kept = types.master ? 0x1p-24 : unit_roundoff(types.param);
        const double state = 1.01 * unit_roundoff(types.state);
        expect_near(got, weights, within(weights, 1.01 * kept, 4e-7), describe(types));
        expect_near(a.first.values(), first, within(first, state, 2e-8), describe(types));
        expect_near(a.second.values(), second, within(second, state + 3e-7, 1e-12),
                    describe(types));
        EXPECT_TRUE(a.guards_intact()) << describe(types);
      }
    }
  });
}

TEST(Sgd, EveryCombinationOfTypes) {
  on_every_isa([] {
    for (const Types& types : all_types()) {
      for (const bool first_step : {false, true}) {
        Arrays a(types, 100);
        const Arrays before = a;
        const ElementTensor<1> tensor = sgd_tensor(a);
        element_step<Sgd>({&tensor, 1}, {.lr = 0.1,
                                         .momentum = 0.9,
                                         .dampening = 0.3,
                                         .weight_decay = 0.01,
                                         .first_step = first_step,
                                         .grad_scale = 2.0f});
        std::vector<double> weights, buffer, got;
        for (int64_t i = 0; i < 100; ++i) {
          const double g = 2 * before.grad[i] + 0.01 * before.weight(i);
          buffer.push_back(first_step ? g : 0.9 * before.first[i] + 0.7 * g);
          weights.push_back(before.weight(i) - 0.1 * buffer[i]);
          got.push_back(a.weight(i));
        }
        const double kept = types.master ? 0x1p-24 : unit_roundoff(types.param);
        expect_near(got, weights, within(weights, 1.01 * kept, 2e-7), describe(types));
        expect_near(a.first.values(), buffer,
                    within(buffer, 1.01 * unit_roundoff(types.state), 1e-7), describe(types));
        EXPECT_TRUE(a.guards_intact()) << describe(types);
      }
    }
  });
}

TEST(Lion, EveryCombinationOfTypes) {
  on_every_isa([] {
    for (const Types& types : all_types()) {
      Arrays a(types, 100);
      const Arrays before = a;
      const ElementTensor<1> tensor = lion_tensor(a);
      element_step<Lion>(
          {&tensor, 1},
          {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.2, .grad_scale = 2.0f});
      std::vector<double> weights, buffer, got;
      for (int64_t i = 0; i < 100; ++i) {
        const double g = 2 * before.grad[i], m = before.first[i];
        const double direction = 0.9 * m + 0.1 * g;
        ASSERT_GT(std::abs(direction), 1e-7) << "the seed makes a sign depend on rounding";
        weights.push_back(before.weight(i) * (1 - 0.1 * 0.2) - std::copysign(0.1, direction));
        buffer.push_back(0.99 * m + 0.01 * g);
        got.push_back(a.weight(i));
      }
      const double kept = types.master ? 0x1p-24 : unit_roundoff(types.param);
      expect_near(got, weights, within(weights, 1.01 * kept, 2e-7), describe(types));
      expect_near(a.first.values(), buffer, within(buffer, 1.01 * unit_roundoff(types.state), 1e-7),
                  describe(types));
      EXPECT_TRUE(a.guards_intact()) << describe(types);
    }
  });
}

// One list gives what its tensors give alone, on any number of threads.
TEST(AdamW, ListsAndThreadsDoNotChangeABit) {
  on_every_isa([] {
    const Types types = {Scalar::BF16, Scalar::BF16, Scalar::BF16, false};
    for (const bool stochastic : {false, true}) {
      AdamWOptions options = kAdamW;
      options.stochastic_rounding = stochastic;
      std::vector<std::vector<Arrays>> results;
      for (const int threads : {1, 2, 3}) {
        options.num_threads = threads;
        std::vector<Arrays> arrays;
        for (const int64_t count : {5, 0, 70001, 33000}) arrays.emplace_back(types, count);
        std::vector<AdamWTensor> tensors;
        for (Arrays& a : arrays) tensors.push_back(adamw_tensor(a));
        if (threads == 3) {
          for (const AdamWTensor& tensor : tensors) adamw_step({&tensor, 1}, options);
        } else {
          adamw_step(tensors, options);
        }
        results.push_back(arrays);
      }
      for (size_t k = 0; k < results[0].size(); ++k) {
        for (const int other : {1, 2}) {
          EXPECT_TRUE(results[0][k].param == results[other][k].param);
          EXPECT_TRUE(results[0][k].first == results[other][k].first);
          EXPECT_TRUE(results[0][k].second == results[other][k].second);
        }
      }
    }
  });
}

// With a zero gradient and weight decay w each weight becomes w * (1 - decay), which lies between
// two bfloat16 numbers; the mean over many weights must be that value.
TEST(StochasticRounding, KeepsTheMeanAndRepeatsBySeed) {
  on_every_isa([] {
    const int64_t count = 200000;
    const auto step = [&](uint64_t seed, int64_t step, uint64_t tensor_id) {
      Array param(Scalar::BF16, std::vector<double>(count, 1.0));
      const Array grad(Scalar::BF16, count);
      Array first(Scalar::F32, count), second(Scalar::F32, count);
      const AdamWTensor tensor = {.count = count,
                                  .param = param.data(),
                                  .grad = grad.data(),
                                  .exp_avg = first.data(),
                                  .exp_avg_sq = second.data(),
                                  .param_type = Scalar::BF16,
                                  .grad_type = Scalar::BF16,
                                  .tensor_id = tensor_id};
      adamw_step({&tensor, 1}, {.lr = 0.001,
                                .weight_decay = 1.0,
                                .step = step,
                                .stochastic_rounding = true,
                                .seed = seed});
      return param;
    };
    const Array param = step(7, 1, 0);
    double sum = 0;
    for (const double v : param.values()) {
      ASSERT_TRUE(v == 1.0 || v == 1.0 - 0x1p-8) << v;
      sum += v;
    }
    // Standard deviation of the mean: 2^-8 * sqrt(p (1-p) / count), p = 0.256.
    EXPECT_NEAR(sum / count, 0.999, 5 * 0x1p-8 * std::sqrt(0.19 / count));
    EXPECT_TRUE(param == step(7, 1, 0));
    EXPECT_FALSE(param == step(8, 1, 0));
    EXPECT_FALSE(param == step(7, 2, 0));
    EXPECT_FALSE(param == step(7, 1, 1));
  });
}

TEST(StochasticRounding, IsTheSameOnEveryInstructionSet) {
  std::vector<Array> results;
  on_every_isa([&] {
    Array param = random_array(Scalar::BF16, 1003, 1);
    const Array grad(Scalar::BF16, 1003);
    const ElementTensor<1> tensor = {.count = 1003,
                                     .param = param.data(),
                                     .grad = grad.data(),
                                     .param_type = Scalar::BF16,
                                     .grad_type = Scalar::BF16};
    element_step<Sgd>({&tensor, 1},
                      {.lr = 0.5, .weight_decay = 0.0078125, .stochastic_rounding = true});
    results.push_back(param);
  });
  for (const Array& other : results) EXPECT_TRUE(other == results[0]);
}

TEST(Optimizers, NotANumberPasses) {
  on_every_isa([] {
    for (const Types& types : all_types()) {
      Arrays a(types, 20), b(types, 20), c(types, 20);
      for (Arrays* arrays : {&a, &b, &c}) arrays->grad.set(3, NAN);
      const AdamWTensor adamw = adamw_tensor(a);
      const ElementTensor<1> sgd = sgd_tensor(b);
      const ElementTensor<1> lion = lion_tensor(c);
      AdamWOptions options = kAdamW;
      options.stochastic_rounding = true;
      adamw_step({&adamw, 1}, options);
      element_step<Sgd>({&sgd, 1}, {.stochastic_rounding = true});
      element_step<Lion>({&lion, 1}, {.stochastic_rounding = true});
      for (int64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(std::isnan(a.param[i]), i == 3) << describe(types);
        EXPECT_EQ(std::isnan(b.param[i]), i == 3) << describe(types);
        EXPECT_EQ(std::isnan(c.param[i]), i == 3) << describe(types);
      }
    }
  });
}

TEST(Optimizers, RefuseWhatCannotBe) {
  Arrays a({Scalar::F32, Scalar::F32, Scalar::F32, false}, 4);
  AdamWTensor adamw = adamw_tensor(a);
  EXPECT_THROW(adamw_step({&adamw, 1}, {.step = 0}), InternalError);
  adamw.state_type = Scalar::F16;
  EXPECT_THROW(adamw_step({&adamw, 1}, {}), InternalError);
  ElementTensor<1> sgd = sgd_tensor(a);
  EXPECT_THROW(element_step<Sgd>({&sgd, 1}, {.nesterov = true}), InternalError);
  sgd.states[0] = nullptr;
  EXPECT_THROW(element_step<Sgd>({&sgd, 1}, {.momentum = 0.9}), InternalError);
  sgd.count = 0;
  element_step<Sgd>({&sgd, 1}, {.momentum = 0.9});
  element_step<Sgd>({}, {.momentum = 0.9});
}

}  // namespace optimizer_test
}  // namespace snug::kernels::cpu
