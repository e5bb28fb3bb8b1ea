// ReLU, SiLU, GELU and others with their derivatives; see core/kernels/activation.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/math.h"

namespace snug::kernels::cpu {
namespace {

struct Relu {
  SNUG_INLINE F value(F x) { return at_least(x, 0.f); }
  SNUG_INLINE ValueAndSlope both(F x) {
    const F slope = x > 0.f ? broadcast(1.f) : F{};
    return {at_least(x, 0.f), x != x ? x : slope};
  }
};

struct ReluSquared {
  SNUG_INLINE F value(F x) { return at_least(x, 0.f) * at_least(x, 0.f); }
  SNUG_INLINE ValueAndSlope both(F x) {
    const F bounded = at_least(x, 0.f);
    return {bounded * bounded, 2.f * bounded};
  }
};

struct Sigmoid {
  SNUG_INLINE F value(F x) { return logistic(x).share; }
  SNUG_INLINE ValueAndSlope both(F x) {
    const Logistic s = logistic(x);
    return {s.share, s.share * s.rest};
  }
};

// x * (1 + tanh(u)) / 2 = x * logistic(2u), u = sqrt(2/pi) * (x + 0.044715 x^3).
// Beyond 30 the logistic is 0 or 1, and bounding x there keeps its cube finite.
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216f;  // 2 * sqrt(2/pi)
  SNUG_INLINE F bounded(F x) { return at_most(at_least(x, -30.f), 30.f); }
  SNUG_INLINE F twice_u(F x) { return kTwice * (x + 0.044715f * x * x * x); }
  SNUG_INLINE F value(F x) { return x / (1.f + exp_any(-twice_u(bounded(x)))); }
  SNUG_INLINE ValueAndSlope both(F x) {
    const F b = bounded(x);
    const Logistic s = logistic(twice_u(b));
    const F inner = kTwice * (1.f + 0.134145f * b * b);
    return {x * s.share, s.share * (1.f + b * inner * s.rest)};
  }
};

// x times the normal distribution function.
struct Gelu {
  SNUG_INLINE F value(F x) { return x * normal_cdf(x, bell(x)); }
  SNUG_INLINE ValueAndSlope both(F x) {
    const F density = bell(x);
    const F share = normal_cdf(x, density);
    return {x * share, share + x * density * 0.39894228f};
  }
};

// What a gate and its operand give: y = value * up, and of dy the gate's gradient dy * up * slope
// and up's dy * passed.
struct GateTerms {
  F value, slope, up, passed;
};

template <class Act>
struct PlainGate {
  SNUG_INLINE F value(F gate, F up) { return Act::value(gate) * up; }
  SNUG_INLINE GateTerms terms(F gate, F up) {
    const ValueAndSlope both = Act::both(gate);
    return {both.value, both.slope, up, both.value};
  }
};

struct ClampedGate {
  GateClamp clamp;
  [[gnu::always_inline]] F within(F x) const {
    return at_least(at_most(x, clamp.limit), -clamp.limit);
  }
  [[gnu::always_inline]] F value(F gate, F up) const {
    const F g = at_most(gate, clamp.limit);
    return g / (1.f + exp_any(-clamp.alpha * g)) * (within(up) + 1.f);
  }
  [[gnu::always_inline]] GateTerms terms(F gate, F up) const {
    const F g = at_most(gate, clamp.limit);
    const Logistic s = logistic(clamp.alpha * g);
    const F value = g * s.share, slope = s.share * (1.f + clamp.alpha * g * s.rest);
    const F in_range = up < -clamp.limit ? F{} : value;
    return {value, gate > clamp.limit ? F{} : slope, within(up) + 1.f,
            up > clamp.limit ? F{} : in_range};
  }
};

template <class Body>
SNUG_INLINE void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::Relu:
      return body(Relu{});
    case Activation::Gelu:
      return body(Gelu{});
    case Activation::GeluTanh:
      return body(GeluTanh{});
    case Activation::Silu:
      return body(Silu{});
    case Activation::ReluSquared:
      return body(ReluSquared{});
    case Activation::Sigmoid:
      return body(Sigmoid{});
  }
}

// body(type, activation) with the tags of both.
template <class Body>
SNUG_INLINE void with_both(Scalar type, Activation activation, const Body& body) {
  with_type(type, [&](auto t) { with_activation(activation, [&](auto a) { body(t, a); }); });
}

// The same with the gate.
template <class Args, class Body>
SNUG_INLINE void with_gate(const Args& args, const Body& body) {
  if (args.clamp.limit > 0)
    return with_type(args.type, [&](auto t) { body(t, ClampedGate{args.clamp}); });
  with_both(args.type, args.activation, [&](auto t, auto a) { body(t, PlainGate<decltype(a)>{}); });
}

}  // namespace

namespace SNUG_ISA {

void activation_forward_range(const ActivationForward& shared, int64_t begin, int64_t end) {
  with_both(shared.type, shared.activation, [&](auto type, auto act) {
    using T = decltype(type);
    const auto args = shared;
    sweep(begin, end, [&](int64_t i, auto lanes) {
      write<T>(args.y, i, act.value(read<T>(args.x, i, lanes)), lanes);
    });
  });
}

void activation_backward_range(const ActivationBackward& shared, int64_t begin, int64_t end) {
  with_both(shared.type, shared.activation, [&](auto type, auto act) {
    using T = decltype(type);
    const auto args = shared;
    sweep(begin, end, [&](int64_t i, auto lanes) {
      const F x = read<T>(args.x, i, lanes);
      write<T>(args.dx, i, read<T>(args.dy, i, lanes) * act.both(x).slope, lanes);
      if (args.y != nullptr) write<T>(args.y, i, act.value(x), lanes);
    });
  });
}

void gated_forward_rows(const GatedForward& shared, int64_t begin, int64_t end) {
  with_gate(shared, [&](auto type, auto of) {
    using T = decltype(type);
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t in = row * args.input_stride, out = row * args.output_stride;
      sweep(0, args.features, [&](int64_t i, auto lanes) {
        const F gate = read<T>(args.gate, in + i, lanes), up = read<T>(args.up, in + i, lanes);
        write<T>(args.y, out + i, of.value(gate, up), lanes);
      });
    }
  });
}

void gated_backward_rows(const GatedBackward& shared, int64_t begin, int64_t end) {
  with_gate(shared, [&](auto type, auto of) {
    using T = decltype(type);
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t in = row * args.input_stride, out = row * args.output_stride;
      sweep(0, args.features, [&](int64_t i, auto lanes) {
        const F dy = read<T>(args.dy, out + i, lanes), up = read<T>(args.up, in + i, lanes);
        const F g = read<T>(args.gate, in + i, lanes);
        const GateTerms gate = of.terms(g, up);
        write<T>(args.dgate, in + i, dy * gate.up * gate.slope, lanes);
        write<T>(args.dup, in + i, dy * gate.passed, lanes);
        if (args.y != nullptr) write<T>(args.y, out + i, of.value(g, up), lanes);
      });
    }
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
