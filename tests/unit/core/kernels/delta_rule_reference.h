// The gated delta rule and Mamba 2's scan written out token by token in double, and their gradients
// by the chain rule, for the kernels' tests. Finite differences hold the gradients in
// delta_rule_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/kernels/delta_rule.h"

namespace snug::kernels::delta_rule_reference {

using Doubles = std::vector<double>;

struct Sizes {
  std::vector<int32_t> borders;  // of the documents, from 0
  int64_t key_heads = 1, value_heads = 1, key_dim = 1, value_dim = 1;
  StateForm form = StateForm::Delta;

  int64_t tokens() const { return borders.back(); }
  int64_t documents() const { return static_cast<int64_t>(borders.size()) - 1; }
  int64_t key_count() const { return tokens() * key_heads * key_dim; }
  int64_t value_count() const { return tokens() * value_heads * value_dim; }
  int64_t gate_count() const { return tokens() * value_heads; }
  int64_t state_count() const { return documents() * value_heads * key_dim * value_dim; }
  int64_t longest() const {
    int64_t most = 0;
    for (int64_t s = 0; s < documents(); ++s)
      most = std::max<int64_t>(most, borders[s + 1] - borders[s]);
    return most;
  }
};

struct Inputs {
  Doubles q, k, v, g, beta;
  Doubles skip;  // of each value head, or empty
};
struct Outputs {
  Doubles out, states;
};
struct Gradients {
  Doubles q, k, v, g, beta;
  Doubles skip;  // each token's share
};

// One value head of one document. Rows of the state are those of a key's elements.
class Head {
 public:
  Head(const Sizes& sizes, const Inputs& inputs, int64_t document, int64_t head)
      : sizes_(sizes), in_(inputs), document_(document), head_(head) {}

  void forward(Outputs& result) {
    Doubles state(static_cast<size_t>(dk() * dv()));
    for (int64_t t = first(); t < last(); ++t) {
      for (double& s : state) s *= std::exp(in_.g[gate(t)]);
      const Doubles k = key(in_.k, t, 1), q = key(in_.q, t, 1 / std::sqrt(double(dk())));
      const Doubles known = is_delta() ? read(state, k) : Doubles(size_t(dv()));
      decayed_.push_back(state);
      Doubles u;
      for (int64_t j = 0; j < dv(); ++j)
        u.push_back(in_.beta[gate(t)] * (in_.v[value(t) + j] - known[j]));
      add(state, k, u);
      const Doubles o = read(state, q);
      for (int64_t j = 0; j < dv(); ++j)
        result.out[value(t) + j] = o[j] + skip() * in_.v[value(t) + j];
      states_.push_back(state);
      updates_.push_back(u);
      known_.push_back(known);
    }
    const int64_t number = document_ * sizes_.value_heads + head_;
    std::copy(state.begin(), state.end(), result.states.begin() + number * dk() * dv());
  }

  // After forward().
  void backward(const Doubles& d_out, Gradients& result) const {
    Doubles ds(static_cast<size_t>(dk() * dv()));
    for (int64_t t = last() - 1; t >= first(); --t) {
      const auto i = static_cast<size_t>(t - first());
      const Doubles k = key(in_.k, t, 1), q = key(in_.q, t, 1 / std::sqrt(double(dk())));
      const Doubles d_o(d_out.begin() + value(t), d_out.begin() + value(t) + dv());
      add(ds, q, d_o);
      add_key(in_.q, t, 1 / std::sqrt(double(dk())), times(states_[i], d_o), result.q);
      Doubles du = read(ds, k), dw, d_key = times(ds, updates_[i]);
      const double beta = in_.beta[gate(t)];
      for (int64_t j = 0; j < dv(); ++j) {
        result.beta[gate(t)] += du[j] * (in_.v[value(t) + j] - known_[i][j]);
        result.v[value(t) + j] = beta * du[j] + skip() * d_o[j];
        result.skip[gate(t)] += d_o[j] * in_.v[value(t) + j];
        dw.push_back(is_delta() ? -beta * du[j] : 0);
      }
      add(ds, k, dw);
      const Doubles through = times(decayed_[i], dw);
      for (int64_t d = 0; d < dk(); ++d) d_key[d] += through[d];
      add_key(in_.k, t, 1, d_key, result.k);
      for (size_t e = 0; e < ds.size(); ++e) result.g[gate(t)] += ds[e] * decayed_[i][e];
      for (double& d : ds) d *= std::exp(in_.g[gate(t)]);
    }
  }

 private:
  int64_t dk() const { return sizes_.key_dim; }
  int64_t dv() const { return sizes_.value_dim; }
  int64_t first() const { return sizes_.borders[document_]; }
  int64_t last() const { return sizes_.borders[document_ + 1]; }
  int64_t gate(int64_t t) const { return t * sizes_.value_heads + head_; }
  int64_t value(int64_t t) const { return gate(t) * dv(); }
  bool is_delta() const { return sizes_.form == StateForm::Delta; }
  double skip() const { return in_.skip.empty() ? 0 : in_.skip[head_]; }
  int64_t key(int64_t t) const {
    const int64_t of = head_ / (sizes_.value_heads / sizes_.key_heads);
    return (t * sizes_.key_heads + of) * dk();
  }
  double inverse_length(const Doubles& x, int64_t t) const {
    double squares = 0;
    for (int64_t d = 0; d < dk(); ++d) squares += x[key(t) + d] * x[key(t) + d];
    return 1 / std::sqrt(squares + 1e-6);
  }
  // A query or key as the form reads it: of length `factor`, or as it comes.
  Doubles key(const Doubles& x, int64_t t, double factor) const {
    Doubles result(x.begin() + key(t), x.begin() + key(t) + dk());
    if (!is_delta()) return result;
    for (double& r : result) r *= factor * inverse_length(x, t);
    return result;
  }
  // The gradient of that, added.
  void add_key(const Doubles& x, int64_t t, double factor, const Doubles& d, Doubles& dx) const {
    if (!is_delta()) {
      for (int64_t i = 0; i < dk(); ++i) dx[key(t) + i] += d[i];
      return;
    }
    const double r = inverse_length(x, t);
    double dot = 0;
    for (int64_t i = 0; i < dk(); ++i) dot += d[i] * x[key(t) + i];
    for (int64_t i = 0; i < dk(); ++i)
      dx[key(t) + i] += factor * (r * d[i] - r * r * r * dot * x[key(t) + i]);
  }
  Doubles read(const Doubles& state, const Doubles& key) const {
    Doubles result(static_cast<size_t>(dv()));
    for (int64_t i = 0; i < dk(); ++i)
      for (int64_t j = 0; j < dv(); ++j) result[j] += state[i * dv() + j] * key[i];
    return result;
  }
  Doubles times(const Doubles& state, const Doubles& value) const {
    Doubles result(static_cast<size_t>(dk()));
    for (int64_t i = 0; i < dk(); ++i)
      for (int64_t j = 0; j < dv(); ++j) result[i] += state[i * dv() + j] * value[j];
    return result;
  }
  void add(Doubles& state, const Doubles& key, const Doubles& value) const {
    for (int64_t i = 0; i < dk(); ++i)
      for (int64_t j = 0; j < dv(); ++j) state[i * dv() + j] += key[i] * value[j];
  }

  const Sizes& sizes_;
  const Inputs& in_;
  int64_t document_, head_;
  std::vector<Doubles> decayed_, states_, updates_, known_;  // per token
};

inline Outputs forward(const Sizes& sizes, const Inputs& inputs) {
  Outputs result{Doubles(size_t(sizes.value_count())), Doubles(size_t(sizes.state_count()))};
  for (int64_t s = 0; s < sizes.documents(); ++s)
    for (int64_t h = 0; h < sizes.value_heads; ++h) Head(sizes, inputs, s, h).forward(result);
  return result;
}

inline Gradients backward(const Sizes& sizes, const Inputs& inputs, const Doubles& d_out) {
  Outputs outputs{Doubles(size_t(sizes.value_count())), Doubles(size_t(sizes.state_count()))};
  Gradients result{Doubles(inputs.q.size()), Doubles(inputs.k.size()),    Doubles(inputs.v.size()),
                   Doubles(inputs.g.size()), Doubles(inputs.beta.size()), Doubles(inputs.g.size())};
  for (int64_t s = 0; s < sizes.documents(); ++s) {
    for (int64_t h = 0; h < sizes.value_heads; ++h) {
      Head head(sizes, inputs, s, h);
      head.forward(outputs);
      head.backward(d_out, result);
    }
  }
  return result;
}

}  // namespace snug::kernels::delta_rule_reference
