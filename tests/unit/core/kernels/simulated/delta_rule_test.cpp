// The CUDA kernels of the gated delta rule and of Mamba 2's scan against the CPU's, which compute
// in other chunks.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/delta_rule.h"

#include "base/error.h"
#include "core/kernels/cuda/operators.h"
#include "unit/core/kernels/simulated/device_array.h"

namespace snug::kernels::simulated {
namespace {

using cpu::random_array;

struct Case {
  Scalar type = Scalar::F32;
  std::vector<int32_t> borders;
  int64_t key_heads = 1, value_heads = 2, key_dim = 16, value_dim = 20;
  int64_t chunk = 64;
  double decay = 0.3;
  int shift = 0;
  StateForm form = StateForm::Delta;

  bool is_sum() const { return form == StateForm::Sum; }
  int64_t tokens() const { return borders.back(); }
  int64_t documents() const { return static_cast<int64_t>(borders.size()) - 1; }
  int64_t key_count() const { return tokens() * key_heads * key_dim; }
  int64_t value_count() const { return tokens() * value_heads * value_dim; }
  int64_t gate_count() const { return tokens() * value_heads; }
  int64_t state_count() const { return documents() * value_heads * key_dim * value_dim; }
};

std::vector<Case> cases() {
  return {
      {.borders = {0, 1}},
      {.borders = {0, 5, 5, 75, 139}, .value_heads = 2, .key_dim = 18, .value_dim = 37},
      {.borders = {0, 70}, .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 4},
      {.borders = {0, 67}, .key_dim = 130, .value_dim = 33},  // wide keys: chunks of 32
      {.borders = {0, 40}, .chunk = 16, .decay = 20},
      {.type = Scalar::BF16, .borders = {0, 30, 100}, .key_dim = 34, .shift = 1},
      {.type = Scalar::F16, .borders = {0, 66}, .shift = 1},
      {.borders = {0, 0, 0}},
      {.borders = {0, 128}, .value_heads = 1, .key_dim = 128, .value_dim = 64},
      {.borders = {0, 1}, .form = StateForm::Sum},
      {.borders = {0, 5, 5, 75, 139},
       .value_heads = 3,
       .key_dim = 18,
       .value_dim = 37,
       .form = StateForm::Sum},
      {.borders = {0, 67},
       .key_heads = 2,
       .value_heads = 4,
       .key_dim = 130,
       .value_dim = 33,
       .form = StateForm::Sum},
      {.borders = {0, 40}, .chunk = 16, .decay = 20, .form = StateForm::Sum},
      {.type = Scalar::BF16,
       .borders = {0, 30, 100},
       .key_dim = 34,
       .shift = 1,
       .form = StateForm::Sum},
      {.borders = {0, 128},
       .value_heads = 3,
       .key_dim = 128,
       .value_dim = 64,
       .form = StateForm::Sum},
  };
}

struct Inputs {
  explicit Inputs(const Case& c)
      : q(random_array(c.type, c.key_count(), 1, 1.0, c.shift)),
        k(random_array(c.type, c.key_count(), 2, 1.0, c.shift)),
        v(random_array(c.type, c.value_count(), 3, 1.0, c.shift)),
        g(Scalar::F32, c.gate_count()),
        beta(Scalar::F32, c.gate_count()),
        skip(random_array(Scalar::F32, c.value_heads, 7)),
        d_out(random_array(c.type, c.value_count(), 6, 1.0, c.shift)) {
    const auto drawn = cpu::random_values(c.gate_count(), 4);
    for (int64_t i = 0; i < g.size(); ++i) {
      g.set(i, -c.decay * std::abs(drawn[i]));
      beta.set(i, i % 7 == 0 ? 0 : (c.is_sum() ? 3 : 1) / (1 + std::exp(-drawn[i])));
    }
  }
  Array q, k, v, g, beta, skip, d_out;
};

template <class Kind>
struct Outputs {
  explicit Outputs(const Case& c)
      : out(c.type, c.value_count(), c.shift),
        dq(c.type, c.key_count(), c.shift),
        dk(c.type, c.key_count(), c.shift),
        dv(c.type, c.value_count(), c.shift),
        states(Scalar::F32, c.state_count()),
        dg(Scalar::F32, c.gate_count()),
        dbeta(Scalar::F32, c.gate_count()),
        dskip(Scalar::F32, c.is_sum() ? c.gate_count() : 0) {}
  Kind out, dq, dk, dv, states, dg, dbeta, dskip;
};

DeltaRuleBackward arguments(const Case& c, const int32_t* borders, const Array& q, const Array& k,
                            const Array& v, Array& g, Array& beta, Array& skip, const Array& d_out,
                            auto& outputs) {
  int32_t longest = 0;
  for (size_t i = 1; i < c.borders.size(); ++i)
    longest = std::max(longest, c.borders[i] - c.borders[i - 1]);
  return {.forward = {.sizes = {c.type, c.tokens(), c.key_heads, c.value_heads, c.key_dim,
                                c.value_dim, c.documents(), longest, c.chunk, c.form},
                      .cu_seqlens = borders,
                      .q = q.data(),
                      .k = k.data(),
                      .v = v.data(),
                      .q_stride = c.key_heads * c.key_dim,
                      .k_stride = c.key_heads * c.key_dim,
                      .v_stride = c.value_heads * c.value_dim,
                      .g = g.floats(),
                      .beta = beta.floats(),
                      .skip = c.is_sum() ? skip.floats() : nullptr,
                      .out = outputs.out.data(),
                      .final_states = outputs.states.floats(),
                      .num_threads = 1},
          .d_out = d_out.data(),
          .dq = outputs.dq.data(),
          .dk = outputs.dk.data(),
          .dv = outputs.dv.data(),
          .dg = outputs.dg.floats(),
          .dbeta = outputs.dbeta.floats(),
          .dskip = outputs.dskip.floats()};
}

Outputs<Array> on_cpu(const Case& c, Inputs& in) {
  Outputs<Array> outputs(c);
  const DeltaRuleBackward args =
      arguments(c, c.borders.data(), in.q, in.k, in.v, in.g, in.beta, in.skip, in.d_out, outputs);
  const int64_t bytes = std::max(cpu::delta_rule_forward_workspace_bytes(args.forward),
                                 cpu::delta_rule_backward_workspace_bytes(args.forward));
  Workspace workspace(bytes);
  cpu::delta_rule_forward(args.forward, workspace.data());
  cpu::delta_rule_backward(args, workspace.data());
  return outputs;
}

// Sums are of other orders, and errors of a token go on to the next ones.
double tolerance_of(const Array& expected) {
  double largest = 0;
  for (const double value : expected.values()) largest = std::max(largest, std::abs(value));
  return 1e-5 * largest + 1e-7;
}

TEST(SimulatedDeltaRule, IsTheCpus) {
  for (const Case& c : cases()) {
    Inputs in(c);
    const Outputs<Array> expected = on_cpu(c, in);
    over_seeds([&] {
      DeviceArray q(in.q), k(in.k), v(in.v), g(in.g), beta(in.beta), skip(in.skip), d_out(in.d_out);
      DeviceVector<int32_t> borders(c.borders);
      Outputs<DeviceArray> got(c);
      const DeltaRuleBackward args =
          arguments(c, borders.data(), q, k, v, g, beta, skip, d_out, got);
      {
        Workspace workspace(cuda::delta_rule_forward_workspace_bytes(args.forward));
        cuda::delta_rule_forward(args.forward, workspace.data(), kStream);
      }
      Workspace workspace(cuda::delta_rule_backward_workspace_bytes(args.forward));
      cuda::delta_rule_backward(args, workspace.data(), kStream);
      const std::string what =
          std::to_string(c.tokens()) + " tokens, keys of " + std::to_string(c.key_dim) + " ";
      expect_close(got.out, expected.out, what + "out", tolerance_of(expected.out));
      expect_close(got.states, expected.states, what + "states", tolerance_of(expected.states));
      expect_close(got.dq, expected.dq, what + "dq", tolerance_of(expected.dq));
      expect_close(got.dk, expected.dk, what + "dk", tolerance_of(expected.dk));
      expect_close(got.dv, expected.dv, what + "dv", tolerance_of(expected.dv));
      expect_close(got.dg, expected.dg, what + "dg", tolerance_of(expected.dg));
      expect_close(got.dbeta, expected.dbeta, what + "dbeta", tolerance_of(expected.dbeta));
      expect_close(got.dskip, expected.dskip, what + "dskip", tolerance_of(expected.dskip));
    });
  }
}

void expect_steps(StateForm form) {
  const int64_t sequences = 3, key_heads = 2, value_heads = 4, dk = 20, dv = 300;
  for (const Scalar type : cpu::kAllTypes) {
    const Array q = random_array(type, sequences * key_heads * dk, 1);
    const Array k = random_array(type, sequences * key_heads * dk, 2);
    const Array v = random_array(type, sequences * value_heads * dv, 3);
    const Array before = random_array(Scalar::F32, sequences * value_heads * dk * dv, 4, 0.3);
    Array skip = random_array(Scalar::F32, value_heads, 5);
    Array g(Scalar::F32, sequences * value_heads), beta = g;
    for (int64_t i = 0; i < g.size(); ++i) g.set(i, -0.2 * double(i)), beta.set(i, 0.1 * double(i));
    const auto arguments = [&](const Array& q, const Array& k, const Array& v, Array& g,
                               Array& beta, Array& skip, Array& states, Array& out) {
      return DeltaRuleStep{.type = type,
                           .form = form,
                           .num_sequences = sequences,
                           .num_key_heads = key_heads,
                           .num_value_heads = value_heads,
                           .key_dim = dk,
                           .value_dim = dv,
                           .q = q.data(),
                           .k = k.data(),
                           .v = v.data(),
                           .q_stride = key_heads * dk,
                           .k_stride = key_heads * dk,
                           .v_stride = value_heads * dv,
                           .g = g.floats(),
                           .beta = beta.floats(),
                           .skip = form == StateForm::Sum ? skip.floats() : nullptr,
                           .states = states.floats(),
                           .out = out.data()};
    };
    Array states = before, out(type, sequences * value_heads * dv);
    cpu::delta_rule_step(arguments(q, k, v, g, beta, skip, states, out));
    over_seeds([&] {
      DeviceArray dev_q(q), dev_k(k), dev_v(v), dev_g(g), dev_beta(beta), dev_skip(skip),
          dev_states(before);
      DeviceArray dev_out(type, out.size());
      cuda::delta_rule_step(
          arguments(dev_q, dev_k, dev_v, dev_g, dev_beta, dev_skip, dev_states, dev_out), kStream);
      expect_close(dev_out, out, "out");
      expect_close(dev_states, states, "states");
    });
  }
}

TEST(SimulatedDeltaRule, StepIsTheCpus) {
  for (const StateForm form : {StateForm::Delta, StateForm::Sum}) expect_steps(form);
}

TEST(SimulatedDeltaRule, RefusesKeysThatDoNotFit) {
  const DeltaRuleForward args{.sizes = {.num_tokens = 4,
                                        .num_key_heads = 1,
                                        .num_value_heads = 1,
                                        .key_dim = 257,
                                        .value_dim = 8,
                                        .num_documents = 1,
                                        .max_seqlen = 4}};
  EXPECT_THROW(cuda::delta_rule_forward(args, nullptr, kStream), Error);
}

}  // namespace
}  // namespace snug::kernels::simulated
