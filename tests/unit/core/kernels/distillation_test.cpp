// Divergence from a teacher beside cross-entropy: against its definition in double, and the
// gradient against finite differences of that.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/kernels/cross_entropy.h"
#include "unit/core/kernels/arrays.h"
#include "unit/core/kernels/teacher_rows.h"

namespace snug::kernels::cpu {
namespace distillation_test {

double kl(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] * std::log(p[i] / q[i]);
  return sum;
}

double divergence(const std::vector<double>& p, const std::vector<double>& q, double beta) {
  if (beta == 0) return kl(p, q);
  if (beta == 1) return kl(q, p);
  std::vector<double> mixed;
  for (size_t i = 0; i < p.size(); ++i) mixed.push_back(beta * p[i] + (1 - beta) * q[i]);
  return beta * kl(p, mixed) + (1 - beta) * kl(q, mixed);
}

struct Shape {
  int64_t rows, vocabulary, top_k;
};
const Shape kShapes[] = {{3, 7, 3}, {2, 7, 7}, {4, 2100, 16}, {2, 300, 64}, {3, 5, 1}};

double log_sum(const std::vector<double>& logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

// Of one row; with the vocabulary's last token, if it is no token of the teacher's, all others are.
double reference(const std::vector<double>& logits, const float* teacher, int64_t top_k,
                 int32_t target, double beta, double weight) {
  const double lse = log_sum(logits);
  std::vector<double> p, q;
  double others_p = 1, others_q = 1;
  for (int64_t i = 0; i < top_k; ++i) {
    if (teacher[i] < 0) continue;
    p.push_back(std::exp(static_cast<double>(teacher[top_k + i])));
    q.push_back(std::exp(logits[static_cast<size_t>(teacher[i])] - lse));
    others_p -= p.back();
    others_q -= q.back();
  }
  constexpr double kLeast = 1e-6;
  p.push_back(std::max(others_p, kLeast));
  q.push_back(std::max(others_q, kLeast));
  return divergence(p, q, beta) + weight * (lse - logits[static_cast<size_t>(target)]);
}

std::vector<double> row_of(const Array& all, int64_t row, int64_t width) {
  std::vector<double> values;
  for (int64_t i = 0; i < width; ++i) values.push_back(all[row * width + i]);
  return values;
}

// The second target is ignored, the first one is the teacher's first token.
std::vector<int32_t> targets_of(const Shape& s, const std::vector<float>& teacher) {
  std::vector<int32_t> targets;
  for (int64_t row = 0; row < s.rows; ++row)
    targets.push_back(row == 1   ? -100
                      : row == 0 ? static_cast<int32_t>(teacher[0])
                                 : static_cast<int32_t>((row * 7919 + 3) % s.vocabulary));
  return targets;
}

struct Case {
  Shape shape;
  double beta, weight;
};

void expect_reference(const Case& c) {
  const auto& [s, beta, weight] = c;
  const std::vector<float> teacher = teacher_rows(s.rows, s.vocabulary, s.top_k);
  const std::vector<int32_t> targets = targets_of(s, teacher);
  const Array x = random_array(Scalar::F32, s.rows * s.vocabulary, 5, 2.0, 1);
  Array logits = x, row_loss(Scalar::F32, s.rows, 1), found(Scalar::F32, s.rows * s.top_k, 1);
  CrossEntropy args = {.rows = s.rows,
                       .vocabulary = s.vocabulary,
                       .logits = logits.floats(),
                       .targets = targets.data(),
                       .scale = 0.25f,
                       .row_loss = row_loss.floats(),
                       .top_k = s.top_k,
                       .teacher = teacher.data(),
                       .target_weight = static_cast<float>(weight),
                       .beta = static_cast<float>(beta)};
  teachers_logits(args, found.floats());
  args.at_teachers = found.floats();
  const CrossEntropyResult result = cross_entropy(args);
  double sum = 0;
  for (int64_t row = 0; row < s.rows; ++row) {
    if (targets[row] == -100) {
      EXPECT_EQ(row_loss[row], 0);
      for (int64_t i = 0; i < s.vocabulary; ++i) EXPECT_EQ(logits[row * s.vocabulary + i], 0);
      continue;
    }
    const float* own = teacher.data() + row * 2 * s.top_k;
    std::vector<double> values = row_of(x, row, s.vocabulary);
    const auto loss = [&] { return reference(values, own, s.top_k, targets[row], beta, weight); };
    sum += loss();
    EXPECT_NEAR(row_loss[row], log_sum(values) - values[targets[row]], 1e-5);
    // All columns of small vocabularies, some of large ones, and those that are not like others.
    for (int64_t i = 0; i < s.vocabulary; i += i < 60 ? 1 : 97) {
      const double before = values[i];
      values[i] = before + 1e-5;
      double difference = loss();
      values[i] = before - 1e-5;
      difference -= loss();
      values[i] = before;
      ASSERT_NEAR(logits[row * s.vocabulary + i], 0.25 * difference / 2e-5, 2e-6)
          << s.vocabulary << " tokens, " << s.top_k << " of the teacher's, beta " << beta
          << ", row " << row << ", " << i;
    }
  }
  EXPECT_NEAR(result.loss_sum, sum, 1e-5 + 1e-5 * std::abs(sum));
  EXPECT_TRUE(logits.guards_intact() && row_loss.guards_intact() && found.guards_intact());
}

TEST(Distillation, IsTheDivergenceAndItsGradient) {
  on_every_isa([] {
    for (const Shape& shape : kShapes)
      for (const double beta : {0.0, 0.3, 0.5, 1.0})
        for (const double weight : {0.0, 0.4}) expect_reference({shape, beta, weight});
  });
}

TEST(Distillation, OfTheTeachersOwnWordsIsNothing) {
  on_every_isa([] {
    const int64_t rows = 2, vocabulary = 50, k = 8;
    const std::vector<float> teacher = teacher_rows(1, vocabulary, k);
    Array logits(Scalar::F32, rows * vocabulary);
    for (int64_t i = 0; i < vocabulary; ++i)
      for (int64_t row = 0; row < rows; ++row)
        logits.set(row * vocabulary + i, random_values(vocabulary, 100, 2.0)[i]);
    std::vector<float> both = teacher;
    both.insert(both.end(), teacher.begin(), teacher.end());
    const std::vector<int32_t> targets = {3, 7};
    for (const float beta : {0.f, 0.5f, 1.f}) {
      Array own = logits, found(Scalar::F32, rows * k);
      CrossEntropy args = {.rows = rows,
                           .vocabulary = vocabulary,
                           .logits = own.floats(),
                           .targets = targets.data(),
                           .top_k = k,
                           .teacher = both.data(),
                           .target_weight = 0,
                           .beta = beta};
      teachers_logits(args, found.floats());
      args.at_teachers = found.floats();
      EXPECT_NEAR(cross_entropy(args).loss_sum, 0, 1e-6);
      for (int64_t i = 0; i < own.size(); ++i) ASSERT_NEAR(own[i], 0, 1e-6) << i;
    }
  });
}

TEST(Distillation, PartsOfTheVocabularyAreAsTheWhole) {
  on_every_isa([] {
    const int64_t rows = 3, vocabulary = 101, k = 9, num_parts = 3;
    const std::vector<int64_t> begins = {0, 40, 41, vocabulary};
    const std::vector<float> teacher = teacher_rows(rows, vocabulary, k);
    const std::vector<int32_t> targets = targets_of({rows, vocabulary, k}, teacher);
    for (const float beta : {0.f, 0.5f, 1.f}) {
      Array whole = random_array(Scalar::F32, rows * vocabulary, 5, 2.0, 1);
      std::vector<Array> parts;
      Array found(Scalar::F32, rows * k);
      const auto arguments = [&](float* logits, int64_t first, int64_t columns) {
        return CrossEntropy{.rows = rows,
                            .vocabulary = columns,
                            .logits = logits,
                            .targets = targets.data(),
                            .top_k = k,
                            .teacher = teacher.data(),
                            .at_teachers = found.floats(),
                            .target_weight = 0.5f,
                            .beta = beta,
                            .first = first,
                            .whole_vocabulary = vocabulary};
      };
      std::vector<CrossEntropyPartSums> sums(static_cast<size_t>(num_parts * rows));
      std::vector<std::vector<char>> scratch(num_parts);
      const auto part = [&](int64_t p) {
        return arguments(parts[p].floats(), begins[p], begins[p + 1] - begins[p]);
      };
      for (int64_t p = 0; p < num_parts; ++p) {
        const int64_t columns = begins[p + 1] - begins[p];
        Array& own = parts.emplace_back(Scalar::F32, rows * columns, 1);
        for (int64_t i = 0; i < own.size(); ++i)
          own.set(i, whole[i / columns * vocabulary + begins[p] + i % columns]);
        // What ranks add up.
        Array of_part(Scalar::F32, rows * k);
        teachers_logits(part(p), of_part.floats());
        for (int64_t i = 0; i < found.size(); ++i) found.set(i, found[i] + of_part[i]);
        scratch[p].resize(static_cast<size_t>(cross_entropy_part_scratch_bytes(rows)));
        cross_entropy_part_sums(part(p), sums.data() + p * rows, scratch[p].data());
      }
      const double expected = cross_entropy(arguments(whole.floats(), 0, vocabulary)).loss_sum;
      for (int64_t p = 0; p < num_parts; ++p) {
        EXPECT_NEAR(
            cross_entropy_of_parts(part(p), sums.data(), num_parts, scratch[p].data()).loss_sum,
            expected, 1e-6 * expected);
        const int64_t columns = begins[p + 1] - begins[p];
        for (int64_t i = 0; i < parts[p].size(); ++i)
          ASSERT_NEAR(parts[p][i], whole[i / columns * vocabulary + begins[p] + i % columns], 3e-7);
      }
    }
  });
}

}  // namespace distillation_test
}  // namespace snug::kernels::cpu
