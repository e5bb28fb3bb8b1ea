// The gated delta rule and Mamba 2's scan in chunks against the recurrence in double, token by
// token, and their gradients against that recurrence's, which are finite differences.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/delta_rule.h"

#include <memory>

#include "base/error.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "unit/core/kernels/arrays.h"
#include "unit/core/kernels/delta_rule_reference.h"

namespace snug::kernels::cpu {
namespace delta_rule_test {

using delta_rule_reference::Doubles;
using delta_rule_reference::Inputs;
using delta_rule_reference::Sizes;

enum class Decay { Mixed, None, Strong, SomeStrong };

struct Case {
  Scalar type = Scalar::F32;
  Sizes sizes;
  int64_t chunk = 64;
  Decay decay = Decay::Mixed;
  int shift = 0;

  bool is_sum() const { return sizes.form == StateForm::Sum; }
};

std::string describe(const Case& c) {
  std::string text = std::string(name_of(c.type)) + " documents to";
  for (const int32_t border : c.sizes.borders) text += " " + std::to_string(border);
  return text + " heads " + std::to_string(c.sizes.key_heads) + "/" +
         std::to_string(c.sizes.value_heads) + " dims " + std::to_string(c.sizes.key_dim) + "/" +
         std::to_string(c.sizes.value_dim) + " chunk " + std::to_string(c.chunk) + " decay " +
         std::to_string(static_cast<int>(c.decay)) + (c.is_sum() ? " sum" : "");
}

Sizes sum(Sizes sizes) {
  sizes.form = StateForm::Sum;
  return sizes;
}

std::vector<Case> cases_of_sums() {
  std::vector<Case> result;
  for (const int32_t n : {0, 1, 63, 64, 65, 130})
    result.push_back({.sizes = sum({{0, n}, 1, 3, 16, 24}), .shift = n % 2});
  for (const int64_t chunk : {1, 5, 16, 128}) {
    result.push_back({.sizes = sum({{0, 70, 70, 101, 230}, 2, 4, 20, 12}), .chunk = chunk});
  }
  result.push_back({.sizes = sum({{0, 100}, 3, 3, 33, 17})});
  result.push_back({.sizes = sum({{0, 90, 200}, 1, 20, 128, 64})});
  for (const Decay decay : {Decay::None, Decay::Strong, Decay::SomeStrong}) {
    result.push_back({.sizes = sum({{0, 150}, 1, 2, 32, 32}), .decay = decay});
  }
  for (const Scalar type : {Scalar::BF16, Scalar::F16}) {
    result.push_back({.type = type, .sizes = sum({{0, 30, 130}, 2, 4, 48, 36}), .shift = 1});
  }
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int32_t n : {0, 1, 63, 64, 65, 130})
    result.push_back({.sizes = {{0, n}, 1, 2, 16, 24}, .shift = n % 2});
  for (const int64_t chunk : {1, 5, 16, 128}) {
    result.push_back({.sizes = {{0, 70, 70, 101, 230}, 2, 4, 20, 12}, .chunk = chunk});
  }
  result.push_back({.sizes = {{0, 33, 100}, 2, 2, 64, 40}, .shift = 1});
  result.push_back({.sizes = {{0, 100}, 1, 4, 33, 17}});
  result.push_back({.sizes = {{0, 90, 200}, 1, 2, 128, 128}});
  result.push_back({.sizes = {{0, 1, 2, 3}, 1, 1, 2, 1}});
  for (const Decay decay : {Decay::None, Decay::Strong, Decay::SomeStrong}) {
    result.push_back({.sizes = {{0, 150}, 1, 2, 32, 32}, .decay = decay});
  }
  for (const Scalar type : {Scalar::BF16, Scalar::F16}) {
    result.push_back({.type = type, .sizes = {{0, 30, 130}, 2, 4, 48, 36}, .shift = 1});
  }
  for (Case& c : cases_of_sums()) result.push_back(std::move(c));
  return result;
}

double log_decay(Decay decay, double drawn, int64_t i) {
  if (decay == Decay::None) return 0;
  if (decay == Decay::Strong) return -20;
  if (decay == Decay::SomeStrong) return i % 3 == 0 ? -20 : -1e-3 * std::abs(drawn);
  return -0.3 * std::abs(drawn);
}

// The arrays of a case; q, k and v have gaps between tokens.
struct Data {
  explicit Data(const Case& c)
      : sizes(c.sizes),
        q(spread(c, sizes.key_heads * sizes.key_dim, 1)),
        k(spread(c, sizes.key_heads * sizes.key_dim, 2)),
        v(spread(c, sizes.value_heads * sizes.value_dim, 3)),
        g(Scalar::F32, sizes.gate_count()),
        beta(Scalar::F32, sizes.gate_count()),
        skip(random_array(Scalar::F32, c.is_sum() ? sizes.value_heads : 0, 7)),
        d_out(random_array(c.type, sizes.value_count(), 6, 1.0, c.shift)) {
    const Doubles drawn = random_values(sizes.gate_count(), 4), share = random_values(g.size(), 5);
    for (int64_t i = 0; i < g.size(); ++i) {
      g.set(i, log_decay(c.decay, drawn[i], i / sizes.value_heads));
      // A sum's may be larger than 1.
      const double rate = c.is_sum() ? std::abs(share[i]) : 1 / (1 + std::exp(-share[i]));
      beta.set(i, i % 17 == 3 ? 0 : rate);
    }
  }

  static constexpr int64_t kGap = 3;
  static Array spread(const Case& c, int64_t row, uint64_t seed) {
    return random_array(c.type, c.sizes.tokens() * (row + kGap), seed, 1.0, c.shift);
  }
  static Doubles packed(const Array& x, int64_t row) {
    Doubles values;
    for (int64_t i = 0; i < x.size(); ++i)
      if (i % (row + kGap) < row) values.push_back(x[i]);
    return values;
  }
  Inputs inputs() const {
    return {packed(q, sizes.key_heads * sizes.key_dim),
            packed(k, sizes.key_heads * sizes.key_dim),
            packed(v, sizes.value_heads * sizes.value_dim),
            g.values(),
            beta.values(),
            skip.values()};
  }

  Sizes sizes;
  Array q, k, v, g, beta, skip, d_out;
};

struct Results {
  explicit Results(const Case& c)
      : out(c.type, c.sizes.value_count(), c.shift),
        states(Scalar::F32, c.sizes.state_count()),
        dq(c.type, c.sizes.key_count(), c.shift),
        dk(c.type, c.sizes.key_count(), c.shift),
        dv(c.type, c.sizes.value_count(), c.shift),
        dg(Scalar::F32, c.sizes.gate_count(), c.shift),
        dbeta(Scalar::F32, c.sizes.gate_count(), c.shift),
        dskip(Scalar::F32, c.is_sum() ? c.sizes.gate_count() : 0, c.shift) {}
  bool guards_intact() const {
    return out.guards_intact() && states.guards_intact() && dq.guards_intact() &&
           dk.guards_intact() && dv.guards_intact() && dg.guards_intact() &&
           dbeta.guards_intact() && dskip.guards_intact();
  }
  bool operator==(const Results&) const = default;
  Array out, states, dq, dk, dv, dg, dbeta, dskip;
};

struct Scratch {
  explicit Scratch(int64_t count) : bytes(static_cast<size_t>(count + 64), '\xff') {}
  void* data() {
    void* start = bytes.data();
    size_t space = bytes.size();
    return std::align(64, space - 64, start, space);
  }
  std::vector<char> bytes;  // NaN until it is written
};

Results compute(const Case& c, Data& data, int threads = 1) {
  Results r(c);
  const Sizes& s = c.sizes;
  const DeltaRuleForward forward{
      .sizes = {c.type, s.tokens(), s.key_heads, s.value_heads, s.key_dim, s.value_dim,
                s.documents(), s.longest(), c.chunk, s.form},
      .cu_seqlens = s.borders.data(),
      .q = data.q.data(),
      .k = data.k.data(),
      .v = data.v.data(),
      .q_stride = s.key_heads * s.key_dim + Data::kGap,
      .k_stride = s.key_heads * s.key_dim + Data::kGap,
      .v_stride = s.value_heads * s.value_dim + Data::kGap,
      .g = data.g.floats(),
      .beta = data.beta.floats(),
      .skip = c.is_sum() ? data.skip.floats() : nullptr,
      .out = r.out.data(),
      .final_states = r.states.floats(),
      .num_threads = threads};
  Scratch first(delta_rule_forward_workspace_bytes(forward));
  delta_rule_forward(forward, first.data());
  Scratch second(delta_rule_backward_workspace_bytes(forward));
  delta_rule_backward({.forward = forward,
                       .d_out = data.d_out.data(),
                       .dq = r.dq.data(),
                       .dk = r.dk.data(),
                       .dv = r.dv.data(),
                       .dg = r.dg.floats(),
                       .dbeta = r.dbeta.floats(),
                       .dskip = r.dskip.floats()},
                      second.data());
  return r;
}

// Relative to the largest: what cancels in a small one came from larger ones.
void expect_close(const Array& got, const Doubles& expected, double relative,
                  const std::string& what) {
  double largest = 0;
  for (const double v : expected) largest = std::max(largest, std::abs(v));
  expect_near(got.values(), expected,
              within(expected, 1.01 * unit_roundoff(got.type()), relative * largest + 1e-7), what);
}

void expect_finite_differences(const Case& c) {
  const Data data(c);
  const Inputs inputs = data.inputs();
  const Doubles d_out = data.d_out.values();
  const auto loss = [&](const Inputs& at) {
    const Doubles out = delta_rule_reference::forward(c.sizes, at).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
    return sum;
  };
  const delta_rule_reference::Gradients gradients =
      delta_rule_reference::backward(c.sizes, inputs, d_out);
  const auto check = [&](Doubles Inputs::*of, const Doubles& expected, const char* what) {
    for (size_t i = 0; i < expected.size(); ++i) {
      Inputs up = inputs, down = inputs;
      (up.*of)[i] += 1e-6;
      (down.*of)[i] -= 1e-6;
      EXPECT_NEAR(expected[i], (loss(up) - loss(down)) / 2e-6, 1e-7) << what << " " << i;
    }
  };
  check(&Inputs::q, gradients.q, "q");
  check(&Inputs::k, gradients.k, "k");
  check(&Inputs::v, gradients.v, "v");
  check(&Inputs::g, gradients.g, "g");
  check(&Inputs::beta, gradients.beta, "beta");
  if (!c.is_sum()) return;
  Doubles of_heads(static_cast<size_t>(c.sizes.value_heads));
  for (size_t i = 0; i < gradients.skip.size(); ++i)
    of_heads[i % of_heads.size()] += gradients.skip[i];
  check(&Inputs::skip, of_heads, "skip");
}

TEST(DeltaRule, ReferenceGradientsAreFiniteDifferences) {
  expect_finite_differences({.sizes = {{0, 3, 7}, 1, 2, 3, 2}});
  expect_finite_differences({.sizes = sum({{0, 3, 7}, 1, 2, 3, 2})});
}

TEST(DeltaRule, IsTheRecurrenceWithItsGradients) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      Data data(c);
      const Inputs inputs = data.inputs();
      const Results r = compute(c, data, 2);
      const auto expected = delta_rule_reference::forward(c.sizes, inputs);
      const auto gradients = delta_rule_reference::backward(c.sizes, inputs, data.d_out.values());
      expect_close(r.out, expected.out, 2e-6, describe(c) + " out");
      expect_close(r.states, expected.states, 2e-6, describe(c) + " states");
      expect_close(r.dq, gradients.q, 3e-6, describe(c) + " dq");
      expect_close(r.dk, gradients.k, 3e-6, describe(c) + " dk");
      expect_close(r.dv, gradients.v, 3e-6, describe(c) + " dv");
      expect_close(r.dg, gradients.g, 3e-6, describe(c) + " dg");
      expect_close(r.dbeta, gradients.beta, 3e-6, describe(c) + " dbeta");
      if (c.is_sum()) expect_close(r.dskip, gradients.skip, 3e-6, describe(c) + " dskip");
      EXPECT_TRUE(r.guards_intact()) << describe(c);
    }
  });
}

TEST(DeltaRule, EveryTableOfProductsServes) {
  for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
    if (isa > best_isa()) continue;
    const ScopedKernels table(kernels_for(isa));
    const ScopedIsa scoped(isa);
    const Case c{.sizes = {{0, 70, 101}, 2, 4, 20, 37}, .chunk = 24};
    Data data(c);
    const Results r = compute(c, data);
    const Doubles d_out = data.d_out.values();
    const auto gradients = delta_rule_reference::backward(c.sizes, data.inputs(), d_out);
    expect_close(r.dq, gradients.q, 3e-6, std::string(isa_name(isa)) + " dq");
    expect_close(r.dk, gradients.k, 3e-6, std::string(isa_name(isa)) + " dk");
    expect_close(r.dg, gradients.g, 3e-6, std::string(isa_name(isa)) + " dg");
  }
}

// With 16 threads each value head is a task of its own, in the backward with one as well.
TEST(DeltaRule, ThreadsDoNotChangeABit) {
  for (const Case& c :
       {Case{.type = Scalar::BF16, .sizes = {{0, 100, 130, 200}, 2, 4, 32, 32}},
        Case{.sizes = sum({{0, 100, 130, 200}, 2, 6, 32, 32}), .chunk = 16},
        Case{.type = Scalar::BF16, .sizes = sum({{0, 5, 5, 200}, 1, 40, 32, 16}), .chunk = 16}}) {
    Data data(c);
    const Results one = compute(c, data, 1);
    for (const int threads : {2, 3, 16})
      EXPECT_TRUE(compute(c, data, threads) == one) << describe(c) << ": " << threads;
  }
}

void expect_documents_alone(const Case& packed) {
  Data data(packed);
  const Results all = compute(packed, data);
  const Doubles q = data.q.values(), k = data.k.values(), v = data.v.values();
  const auto part = [](const Doubles& x, int64_t begin, int64_t end) {
    return Doubles(x.begin() + begin, x.begin() + end);
  };
  for (size_t s = 0; s + 1 < packed.sizes.borders.size(); ++s) {
    const int32_t begin = packed.sizes.borders[s], end = packed.sizes.borders[s + 1];
    Case alone = packed;
    alone.sizes.borders = {0, end - begin};
    Data own(alone);
    const auto cut = [&](const Array& x) {
      const int64_t row = x.size() / packed.sizes.tokens();
      return Array(x.type(), part(x.values(), begin * row, end * row));
    };
    for (auto [to, from] : {std::pair(&own.q, &data.q),
                            {&own.k, &data.k},
                            {&own.v, &data.v},
                            {&own.g, &data.g},
                            {&own.beta, &data.beta},
                            {&own.d_out, &data.d_out}})
      *to = cut(*from);
    const Results r = compute(alone, own);
    for (auto [got, of] : {std::pair(&r.out, &all.out),
                           {&r.dq, &all.dq},
                           {&r.dk, &all.dk},
                           {&r.dv, &all.dv},
                           {&r.dg, &all.dg},
                           {&r.dbeta, &all.dbeta}})
      EXPECT_EQ(got->values(), cut(*of).values()) << s;
  }
}

TEST(DeltaRule, PackedDocumentsAreThoseComputedAlone) {
  expect_documents_alone({.sizes = {{0, 70, 71, 135}, 1, 2, 24, 20}});
  expect_documents_alone({.sizes = sum({{0, 70, 71, 135}, 1, 3, 24, 20})});
}

TEST(DeltaRule, NotANumberStaysInItsDocument) {
  const Case c{.sizes = {{0, 70, 80, 150}, 1, 2, 20, 12}};
  Data data(c);
  const Results before = compute(c, data);
  const int64_t row = 2 * 12 + Data::kGap;
  data.v.set(75 * row, NAN);
  const Results after = compute(c, data);
  const auto same = [&](const Array& got, const Array& expected) {
    const int64_t width = got.size() / c.sizes.tokens();
    for (int64_t i = 0; i < got.size(); ++i) {
      if (i / width >= 70 && i / width < 80) continue;
      ASSERT_EQ(got[i], expected[i]) << "token " << i / width;
    }
  };
  EXPECT_TRUE(std::isnan(after.out[75 * 2 * 12]));
  same(after.out, before.out);
  same(after.dq, before.dq);
  same(after.dk, before.dk);
  same(after.dv, before.dv);
  same(after.dg, before.dg);
  same(after.dbeta, before.dbeta);
}

void expect_steps(Case c, Scalar type) {
  c.type = type;
  Data data(c);
  const Results r = compute(c, data);
  Array states(Scalar::F32, c.sizes.state_count()), out(type, 4 * 37);
  for (int64_t t = 0; t < 40; ++t) {
    const auto at = [&](const Array& x, int64_t row) {
      return static_cast<const char*>(x.data()) + t * row * scalar_bytes(x.type());
    };
    delta_rule_step({.type = type,
                     .form = c.sizes.form,
                     .num_sequences = 1,
                     .num_key_heads = 2,
                     .num_value_heads = 4,
                     .key_dim = 20,
                     .value_dim = 37,
                     .q = at(data.q, 2 * 20 + Data::kGap),
                     .k = at(data.k, 2 * 20 + Data::kGap),
                     .v = at(data.v, 4 * 37 + Data::kGap),
                     .g = data.g.floats() + t * 4,
                     .beta = data.beta.floats() + t * 4,
                     .skip = c.is_sum() ? data.skip.floats() : nullptr,
                     .states = states.floats(),
                     .out = out.data()});
    Doubles expected;
    double largest = 1;
    for (int64_t i = 0; i < 4 * 37; ++i) {
      expected.push_back(r.out[t * 4 * 37 + i]);
      largest = std::max(largest, std::abs(expected.back()));
    }
    expect_near(out.values(), expected,
                within(expected, 2.02 * unit_roundoff(type), 3e-6 * largest), std::to_string(t));
  }
  expect_close(states, r.states.values(), 3e-6, "states");
  EXPECT_TRUE(states.guards_intact() && out.guards_intact());
}

TEST(DeltaRule, StepsAreTheForward) {
  on_every_isa([] {
    for (const Case& c :
         {Case{.sizes = {{0, 40}, 2, 4, 20, 37}}, Case{.sizes = sum({{0, 40}, 2, 4, 20, 37})}})
      for (const Scalar type : kAllTypes) expect_steps(c, type);
  });
}

TEST(DeltaRule, StepsOfSeveralSequencesAreIndependent) {
  const int64_t sequences = 5, heads = 2, dk = 8, dv = 12;
  const Array q = random_array(Scalar::F32, sequences * dk, 1),
              k = random_array(Scalar::F32, sequences * dk, 2);
  const Array v = random_array(Scalar::F32, sequences * heads * dv, 3);
  Array g(Scalar::F32, sequences * heads), beta(Scalar::F32, sequences * heads);
  for (int64_t i = 0; i < g.size(); ++i) g.set(i, -0.1 * double(i)), beta.set(i, 0.5);
  const auto run = [&](int64_t first, int64_t count, Array& states, Array& out) {
    delta_rule_step({.num_sequences = count,
                     .num_key_heads = 1,
                     .num_value_heads = heads,
                     .key_dim = dk,
                     .value_dim = dv,
                     .q = static_cast<const float*>(q.data()) + first * dk,
                     .k = static_cast<const float*>(k.data()) + first * dk,
                     .v = static_cast<const float*>(v.data()) + first * heads * dv,
                     .q_stride = dk,
                     .k_stride = dk,
                     .v_stride = heads * dv,
                     .g = g.floats() + first * heads,
                     .beta = beta.floats() + first * heads,
                     .states = states.floats() + first * heads * dk * dv,
                     .out = out.floats() + first * heads * dv,
                     .num_threads = 2});
  };
  Array together = random_array(Scalar::F32, sequences * heads * dk * dv, 4), apart = together;
  Array out(Scalar::F32, sequences * heads * dv), other = out;
  run(0, sequences, together, out);
  for (int64_t s = 0; s < sequences; ++s) run(s, 1, apart, other);
  EXPECT_TRUE(together == apart);
  EXPECT_TRUE(out == other);
}

TEST(DeltaRule, BordersThatDoNotFitAreRefused) {
  const Case c{.sizes = {{0, 10}, 1, 1, 4, 4}};
  Data data(c);
  Case wrong = c;
  wrong.sizes.key_heads = 2;
  EXPECT_THROW(compute(wrong, data), Error);
  DeltaRuleForward args{.sizes = {Scalar::F32, 10, 1, 1, 4, 4, 1, 9, 64},
                        .cu_seqlens = c.sizes.borders.data()};
  EXPECT_THROW(delta_rule_forward(args, nullptr), Error);  // longer than it says
  args.sizes.max_seqlen = 10, args.sizes.num_tokens = 11;
  EXPECT_THROW(delta_rule_forward(args, nullptr), Error);
}

}  // namespace delta_rule_test
}  // namespace snug::kernels::cpu
