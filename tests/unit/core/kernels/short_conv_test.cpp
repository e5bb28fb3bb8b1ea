// Short convolutions against sums in double, and their gradients against finite differences.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/short_conv.h"

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace short_conv_test {

struct Case {
  ConvForm form;
  Scalar type;
  std::vector<int32_t> documents;  // their lengths
  int64_t features, taps;
  bool bias;

  int64_t rows() const {
    int64_t sum = 0;
    for (const int32_t length : documents) sum += length;
    return sum;
  }
  int64_t width() const { return form == ConvForm::Gates ? 3 * features : features; }
  std::vector<int32_t> positions() const {
    std::vector<int32_t> all;
    for (const int32_t length : documents)
      for (int32_t i = 0; i < length; ++i) all.push_back(i);
    return all;
  }
};

std::string describe(const Case& c) {
  return std::string(name_of(c.type)) + (c.form == ConvForm::Gates ? " gates" : " silu") +
         " rows " + std::to_string(c.rows()) + " features " + std::to_string(c.features) +
         " taps " + std::to_string(c.taps) + (c.bias ? " bias" : "");
}

std::vector<Case> cases() {
  const std::vector<std::vector<int32_t>> packings = {{}, {1}, {3}, {1, 1, 5}, {2, 40, 1, 70}};
  std::vector<Case> all;
  for (const ConvForm form : {ConvForm::Gates, ConvForm::Silu})
    for (const Scalar type : kAllTypes)
      for (const auto& documents : packings)
        for (const int64_t features : {1, 19, 64})
          for (const int64_t taps : {1, 3, 4})
            all.push_back({form, type, documents, features, taps, (features + taps) % 2 == 0});
  all.push_back({ConvForm::Gates, Scalar::F32, {9, 3}, 5, kMostTaps, true});
  return all;
}

struct Inputs {
  std::vector<double> x, weight, bias;
};

double silu(double x) { return x / (1 + std::exp(-x)); }

// Document by document, as if there were no others.
std::vector<double> reference(const Inputs& in, const Case& c) {
  std::vector<double> y;
  const int64_t features = c.features;
  const auto part = [&](int64_t row, int64_t which, int64_t i) {
    return in.x[row * c.width() + which * features + i];
  };
  int64_t first = 0;
  for (const int32_t length : c.documents) {
    for (int64_t row = first; row < first + length; ++row)
      for (int64_t i = 0; i < features; ++i) {
        double sum = c.bias ? in.bias[i] : 0;
        for (int64_t j = 0; j < c.taps && row - j >= first; ++j) {
          const double u = c.form == ConvForm::Gates ? part(row - j, 0, i) * part(row - j, 2, i)
                                                     : part(row - j, 0, i);
          sum += in.weight[i * c.taps + c.taps - 1 - j] * u;
        }
        y.push_back(c.form == ConvForm::Gates ? part(row, 1, i) * sum : silu(sum));
      }
    first += length;
  }
  return y;
}

// The kernel's arguments and what they point to.
struct Problem {
  explicit Problem(const Case& c, int shift = 0)
      : of(c),
        x(random_array(c.type, c.rows() * c.width(), 1, 1.0, shift)),
        weight(random_array(Scalar::F32, c.features * c.taps, 2)),
        bias(random_array(Scalar::F32, c.features, 3)),
        dy(random_array(c.type, c.rows() * c.features, 4, 1.0, shift)),
        y(c.type, c.rows() * c.features, shift),
        dx(c.type, c.rows() * c.width(), shift),
        dweight(random_array(Scalar::F32, c.features * c.taps, 5)),
        dbias(random_array(Scalar::F32, c.features, 6)),
        positions(c.positions()) {}

  ShortConvForward forward(int threads = 0) {
    return {.form = of.form,
            .type = of.type,
            .weight_type = Scalar::F32,
            .rows = of.rows(),
            .features = of.features,
            .taps = of.taps,
            .x = x.data(),
            .positions = positions.data(),
            .weight = weight.data(),
            .bias = of.bias ? bias.data() : nullptr,
            .y = y.data(),
            .num_threads = threads};
  }
  ShortConvBackward backward(int threads = 0) {
    return {.forward = forward(threads),
            .dy = dy.data(),
            .dx = dx.data(),
            .dweight = {.data = dweight.data(), .accumulate = true},
            .dbias = {.data = of.bias ? dbias.data() : nullptr, .accumulate = true}};
  }
  Inputs inputs() const { return {x.values(), weight.values(), bias.values()}; }

  Case of;
  Array x, weight, bias, dy, y, dx, dweight, dbias;
  std::vector<int32_t> positions;
};

TEST(ShortConv, ForwardIsTheFormula) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      Problem p(c, static_cast<int>(c.taps) % 2);
      short_conv_forward(p.forward());
      const std::vector<double> expected = reference(p.inputs(), c);
      expect_near(p.y.values(), expected,
                  within(expected, 1.01 * unit_roundoff(c.type) + 1e-6, 2e-6), describe(c));
      EXPECT_TRUE(p.y.guards_intact()) << describe(c);
    }
  });
}

// The gradients of sum(y * dy) with respect to `of`, an array of `in`, by finite differences.
std::vector<double> differences(Inputs in, std::vector<double> Inputs::*of, const Case& c,
                                const std::vector<double>& dy) {
  const auto loss = [&] {
    const std::vector<double> y = reference(in, c);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  std::vector<double> gradient;
  for (double& value : in.*of) {
    const double at = value;
    value = at + 1e-5;
    const double above = loss();
    value = at - 1e-5;
    gradient.push_back((above - loss()) / 2e-5);
    value = at;
  }
  return gradient;
}

TEST(ShortConv, BackwardIsTheGradient) {
  on_every_isa([] {
    for (const ConvForm form : {ConvForm::Gates, ConvForm::Silu})
      for (const Scalar type : kAllTypes) {
        const Case c{form, type, {2, 7, 1, 5}, 18, 4, true};
        Problem p(c, 1);
        const std::vector<double> dweight = p.dweight.values(), dbias = p.dbias.values();
        short_conv_backward(p.backward());
        const std::vector<double> dy = p.dy.values();
        const std::vector<double> dx = differences(p.inputs(), &Inputs::x, c, dy);
        expect_near(p.dx.values(), dx, within(dx, 1.01 * unit_roundoff(type), 2e-5),
                    describe(c) + " dx");
        const auto expect_added = [&](const Array& found, std::vector<double> expected,
                                      const std::vector<double>& before, const char* what) {
          for (size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
          expect_near(found.values(), expected, within(expected, 1e-5, 2e-5), describe(c) + what);
        };
        expect_added(p.dweight, differences(p.inputs(), &Inputs::weight, c, dy), dweight, " dw");
        expect_added(p.dbias, differences(p.inputs(), &Inputs::bias, c, dy), dbias, " db");
        EXPECT_TRUE(p.dx.guards_intact() && p.dweight.guards_intact()) << describe(c);
      }
  });
}

// Packed documents are the documents one by one, to the bit.
TEST(ShortConv, DocumentsKnowNothingOfEachOther) {
  for (const ConvForm form : {ConvForm::Gates, ConvForm::Silu}) {
    const Case c{form, Scalar::BF16, {3, 1, 2, 30}, 21, 4, true};
    Problem p(c);
    short_conv_forward(p.forward());
    short_conv_backward(p.backward());
    int64_t first = 0;
    for (const int32_t length : c.documents) {
      Case alone = c;
      alone.documents = {length};
      Problem one(alone);
      for (int64_t i = 0; i < one.x.size(); ++i) one.x.set(i, p.x[first * c.width() + i]);
      for (int64_t i = 0; i < one.dy.size(); ++i) one.dy.set(i, p.dy[first * c.features + i]);
      short_conv_forward(one.forward());
      short_conv_backward(one.backward());
      for (int64_t i = 0; i < one.y.size(); ++i)
        ASSERT_EQ(one.y[i], p.y[first * c.features + i]) << first << " " << i;
      for (int64_t i = 0; i < one.dx.size(); ++i)
        ASSERT_EQ(one.dx[i], p.dx[first * c.width() + i]) << first << " " << i;
      first += length;
    }
  }
}

TEST(ShortConv, ThreadsDoNotChangeABit) {
  on_every_isa([] {
    for (const ConvForm form : {ConvForm::Gates, ConvForm::Silu}) {
      const Case c{form, Scalar::BF16, {700, 5, 795}, 33, 3, true};
      std::vector<Problem> done;
      for (const int threads : {1, 2, 3}) {
        Problem p(c);
        short_conv_forward(p.forward(threads));
        short_conv_backward(p.backward(threads));
        done.push_back(std::move(p));
      }
      for (const Problem& p : done)
        EXPECT_TRUE(p.y == done[0].y && p.dx == done[0].dx && p.dweight == done[0].dweight &&
                    p.dbias == done[0].dbias);
    }
  });
}

}  // namespace short_conv_test
}  // namespace snug::kernels::cpu
