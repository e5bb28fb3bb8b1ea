// Cross-entropy against sums in double, and its gradient against finite differences of the loss.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cross_entropy.h"

#include <algorithm>

#include "base/error.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

struct Case {
  int64_t rows, vocabulary;
  double spread;
  float smoothing, z;
};

const Case kCases[] = {{0, 10, 1, 0, 0},     {1, 1, 1, 0, 0},           {3, 7, 1, 0, 0},
                       {5, 100, 3, 0.1f, 0}, {4, 2049, 2, 0, 1e-2f},    {2, 49153, 2, 0, 0},
                       {2, 300000, 1, 0, 0}, {3, 5000, 30, 0.2f, 1e-3f}};

std::vector<int32_t> targets_of(const Case& c) {
  std::vector<int32_t> targets;
  for (int64_t row = 0; row < c.rows; ++row) {
    targets.push_back(row == 1 ? -100 : static_cast<int32_t>((row * 7919 + 3) % c.vocabulary));
  }
  return targets;
}

struct Row {
  double loss = 0;
  std::vector<double> gradient;
};

Row reference(const std::vector<double>& x, int32_t target, double smoothing, double z) {
  const auto v = static_cast<double>(x.size());
  double most = -INFINITY, sum = 0, mean = 0;
  for (const double value : x) most = std::max(most, value);
  for (const double value : x) sum += std::exp(value - most);
  for (const double value : x) mean += value / v;
  const double lse = most + std::log(sum);
  Row row;
  row.loss = lse - (1 - smoothing) * x[target] - smoothing * mean + z * lse * lse;
  for (size_t i = 0; i < x.size(); ++i) {
    const double onehot = static_cast<int32_t>(i) == target ? 1 - smoothing : 0;
    row.gradient.push_back((1 + 2 * z * lse) * std::exp(x[i] - lse) - onehot - smoothing / v);
  }
  return row;
}

std::vector<double> row_of(const Array& logits, int64_t row, int64_t vocabulary) {
  std::vector<double> values;
  for (int64_t i = 0; i < vocabulary; ++i) values.push_back(logits[row * vocabulary + i]);
  return values;
}

TEST(CrossEntropy, ReferenceGradientIsTheFiniteDifference) {
  const std::vector<double> x = random_values(6, 1, 2.0);
  const Row row = reference(x, 2, 0.1, 0.05);
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<double> up = x, down = x;
    up[i] += 1e-6;
    down[i] -= 1e-6;
    const double difference = reference(up, 2, 0.1, 0.05).loss - reference(down, 2, 0.1, 0.05).loss;
    EXPECT_NEAR(row.gradient[i], difference / 2e-6, 1e-8);
  }
}

TEST(CrossEntropy, LossAndGradientInPlace) {
  on_every_isa([] {
    for (const Case& c : kCases) {
      const Array x = random_array(Scalar::F32, c.rows * c.vocabulary, 5, c.spread, 1);
      const std::vector<int32_t> targets = targets_of(c);
      Array logits = x, row_loss(Scalar::F32, c.rows, 1);
      const CrossEntropyResult result = cross_entropy({.rows = c.rows,
                                                       .vocabulary = c.vocabulary,
                                                       .logits = logits.floats(),
                                                       .targets = targets.data(),
                                                       .scale = 0.25f,
                                                       .label_smoothing = c.smoothing,
                                                       .z_loss = c.z,
                                                       .row_loss = row_loss.floats()});
      double loss_sum = 0;
      for (int64_t row = 0; row < c.rows; ++row) {
        std::vector<double> expected(c.vocabulary);
        double loss = 0;
        if (targets[row] != -100) {
          const Row r = reference(row_of(x, row, c.vocabulary), targets[row], c.smoothing, c.z);
          for (int64_t i = 0; i < c.vocabulary; ++i) expected[i] = 0.25 * r.gradient[i];
          loss = r.loss;
        }
        loss_sum += loss;
        // exp's own error, and that of x - maximum, grow with the spread of the logits.
        const double relative = 1e-6 + 1.2e-7 * 8 * c.spread;
        // With smoothing the gradient is a difference of two numbers of the size of s / V.
        const double absolute = 1e-11 + relative * c.smoothing / static_cast<double>(c.vocabulary);
        expect_near(row_of(logits, row, c.vocabulary), expected,
                    within(expected, relative, absolute),
                    "gradient of vocabulary " + std::to_string(c.vocabulary));
        EXPECT_NEAR(row_loss[row], loss, 2e-6 + 1e-6 * std::abs(loss));
      }
      EXPECT_NEAR(result.loss_sum, loss_sum, 2e-6 + 1e-6 * std::abs(loss_sum));
      EXPECT_EQ(result.count, c.rows - (c.rows > 1));
      EXPECT_TRUE(logits.guards_intact() && row_loss.guards_intact());
    }
  });
}

TEST(CrossEntropy, EachRowsOwnFactorIsOfItsGradientAlone) {
  on_every_isa([] {
    const int64_t rows = 4, vocabulary = 2100;
    const std::vector<int32_t> targets = {5, -100, 0, 2099};
    const std::vector<float> factors = {0.5f, 7, 0, -3};
    const Array x = random_array(Scalar::F32, rows * vocabulary, 9, 2.0);
    const auto gradient = [&](const float* row_scale, double* loss) {
      Array logits = x;
      *loss = cross_entropy({.rows = rows,
                             .vocabulary = vocabulary,
                             .logits = logits.floats(),
                             .targets = targets.data(),
                             .scale = 0.25f,
                             .label_smoothing = 0.1f,
                             .z_loss = 1e-3f,
                             .row_scale = row_scale})
                  .loss_sum;
      return logits;
    };
    double loss = 0, scaled_loss = 0;
    const Array plain = gradient(nullptr, &loss), scaled = gradient(factors.data(), &scaled_loss);
    EXPECT_EQ(loss, scaled_loss);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = row * vocabulary; i < (row + 1) * vocabulary; ++i)
        ASSERT_NEAR(scaled[i], factors[row] * plain[i], 1e-6 * std::abs(plain[i]) + 1e-10) << i;
  });
}

TEST(CrossEntropy, GradientIntoAnotherArrayOfAnyType) {
  on_every_isa([] {
    const int64_t rows = 3, vocabulary = 101, stride = 107;
    const std::vector<int32_t> targets = {5, 100, 0};
    for (const Scalar type : kAllTypes) {
      const Array x = random_array(Scalar::F32, rows * vocabulary, 9, 2.0);
      Array logits = x, gradient = random_array(type, rows * stride, 1, 1.0, 1);
      const Array before = gradient;
      cross_entropy({.rows = rows,
                     .vocabulary = vocabulary,
                     .logits = logits.floats(),
                     .targets = targets.data(),
                     .gradient = gradient.data(),
                     .gradient_type = type,
                     .gradient_stride = stride});
      std::vector<double> expected = before.values();
      for (int64_t row = 0; row < rows; ++row) {
        const Row r = reference(row_of(x, row, vocabulary), targets[row], 0, 0);
        for (int64_t i = 0; i < vocabulary; ++i) expected[row * stride + i] = r.gradient[i];
      }
      const double tiny = type == Scalar::F16 ? 0x1p-25 : 1e-10;
      expect_near(gradient.values(), expected,
                  within(expected, 1.01 * unit_roundoff(type) + 4e-6, tiny), name_of(type));
      EXPECT_TRUE(gradient.guards_intact());
    }
  });
}

// Each of several processes has some of the columns, and one of them perhaps only -infinity.
TEST(CrossEntropy, PartsOfTheVocabularyAreAsTheWhole) {
  on_every_isa([] {
    for (const Case& c : kCases) {
      const int64_t cut = (c.vocabulary + 2) / 3;
      const std::vector<int64_t> begins = {0, std::min(cut, c.vocabulary),
                                           std::min(cut + 1, c.vocabulary), c.vocabulary};
      const int64_t num_parts = 3;
      Array whole = random_array(Scalar::F32, c.rows * c.vocabulary, 5, c.spread, 1);
      for (int64_t row = 0; row < c.rows && c.vocabulary > 2; ++row)
        whole.set(row * c.vocabulary + begins[1], -INFINITY);
      const std::vector<int32_t> targets = targets_of(c);
      std::vector<float> factors;
      for (int64_t row = 0; row < c.rows; ++row) factors.push_back(0.5F - static_cast<float>(row));
      std::vector<CrossEntropyPartSums> sums(static_cast<size_t>(num_parts * c.rows));
      std::vector<std::vector<char>> scratch(num_parts);
      std::vector<Array> parts;
      const auto arguments = [&](int64_t part) {
        return CrossEntropy{.rows = c.rows,
                            .vocabulary = begins[part + 1] - begins[part],
                            .logits = parts[part].floats(),
                            .targets = targets.data(),
                            .scale = 0.25f,
                            .label_smoothing = c.smoothing,
                            .z_loss = c.z,
                            .row_scale = factors.data(),
                            .first = begins[part],
                            .whole_vocabulary = c.vocabulary};
      };
      for (int64_t part = 0; part < num_parts; ++part) {
        const int64_t columns = begins[part + 1] - begins[part];
        Array& own = parts.emplace_back(Scalar::F32, c.rows * columns, 1);
        for (int64_t i = 0; i < own.size(); ++i)
          own.set(i, whole[i / columns * c.vocabulary + begins[part] + i % columns]);
        scratch[part].resize(static_cast<size_t>(cross_entropy_part_scratch_bytes(c.rows)));
        cross_entropy_part_sums(arguments(part), sums.data() + part * c.rows, scratch[part].data());
      }
      const CrossEntropyResult expected = cross_entropy({.rows = c.rows,
                                                         .vocabulary = c.vocabulary,
                                                         .logits = whole.floats(),
                                                         .targets = targets.data(),
                                                         .scale = 0.25f,
                                                         .label_smoothing = c.smoothing,
                                                         .z_loss = c.z,
                                                         .row_scale = factors.data()});
      for (int64_t part = 0; part < num_parts; ++part) {
        const CrossEntropyResult result =
            cross_entropy_of_parts(arguments(part), sums.data(), num_parts, scratch[part].data());
        if (std::isfinite(expected.loss_sum)) {
          EXPECT_NEAR(result.loss_sum, expected.loss_sum, 1e-6 * std::abs(expected.loss_sum));
        }
        EXPECT_EQ(result.count, expected.count);
        const int64_t columns = begins[part + 1] - begins[part];
        for (int64_t i = 0; i < parts[part].size(); ++i) {
          const double wanted = whole[i / columns * c.vocabulary + begins[part] + i % columns];
          ASSERT_NEAR(parts[part][i], wanted, 1e-9 + 2e-6 * std::abs(wanted))
              << c.vocabulary << " columns, part " << part << ", element " << i;
        }
        EXPECT_TRUE(parts[part].guards_intact());
      }
    }
  });
}

TEST(CrossEntropy, WithoutGradientTheLogitsStay) {
  const Array x = random_array(Scalar::F32, 2 * 5000, 3);
  Array with = x, without = x;
  const std::vector<int32_t> targets = {17, 4999};
  CrossEntropy args = {
      .rows = 2, .vocabulary = 5000, .logits = with.floats(), .targets = targets.data()};
  const double loss = cross_entropy(args).loss_sum;
  args.logits = without.floats();
  args.need_gradient = false;
  EXPECT_EQ(cross_entropy(args).loss_sum, loss);
  EXPECT_TRUE(without == x);
  EXPECT_FALSE(with == x);
}

TEST(CrossEntropy, ThreadsDoNotChangeABit) {
  on_every_isa([] {
    const int64_t rows = 65, vocabulary = 3001;
    const Array x = random_array(Scalar::F32, rows * vocabulary, 4);
    std::vector<int32_t> targets;
    for (int64_t row = 0; row < rows; ++row) targets.push_back(static_cast<int32_t>(row * 31));
    std::vector<Array> gradients;
    std::vector<double> losses;
    for (const int threads : {1, 2, 3}) {
      gradients.push_back(x);
      losses.push_back(cross_entropy({.rows = rows,
                                      .vocabulary = vocabulary,
                                      .logits = gradients.back().floats(),
                                      .targets = targets.data(),
                                      .num_threads = threads})
                           .loss_sum);
    }
    EXPECT_TRUE(gradients[0] == gradients[1] && gradients[0] == gradients[2]);
    EXPECT_TRUE(losses[0] == losses[1] && losses[0] == losses[2]);
  });
}

// Masked logits of -infinity are ordinary; a NaN or +infinity must be seen in the loss.
TEST(CrossEntropy, InfinityAndNotANumber) {
  on_every_isa([] {
    for (const double special : {-double{INFINITY}, double{INFINITY}, double{NAN}}) {
      Array logits = random_array(Scalar::F32, 2 * 2500, 8);
      for (int64_t i = 0; i < 2048; ++i) logits.set(i, special);
      const std::vector<int32_t> targets = {2400, 3};
      Array row_loss(Scalar::F32, 2);
      cross_entropy({.rows = 2,
                     .vocabulary = 2500,
                     .logits = logits.floats(),
                     .targets = targets.data(),
                     .row_loss = row_loss.floats()});
      EXPECT_EQ(std::isfinite(row_loss[0]), special == -INFINITY);
      EXPECT_TRUE(std::isfinite(row_loss[1]));
      EXPECT_EQ(logits[7] == 0.0, special == -INFINITY);
    }
  });
}

TEST(CrossEntropy, IgnoredRowsMayHoldAnything) {
  Array logits(Scalar::F32, {NAN, INFINITY, 1.0});
  const int32_t target = -100;
  const CrossEntropyResult result =
      cross_entropy({.rows = 1, .vocabulary = 3, .logits = logits.floats(), .targets = &target});
  EXPECT_EQ(result.count, 0);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(logits.values(), std::vector<double>(3, 0.0));
}

TEST(CrossEntropy, TargetOutsideTheVocabularyIsRefused) {
  Array logits(Scalar::F32, 3);
  const int32_t target = 3;
  EXPECT_THROW(
      cross_entropy({.rows = 1, .vocabulary = 3, .logits = logits.floats(), .targets = &target}),
      InternalError);
}

}  // namespace
}  // namespace snug::kernels::cpu
