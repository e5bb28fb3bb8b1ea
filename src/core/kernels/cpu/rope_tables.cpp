// Frequencies in double, rounded to float32 at the same points as Hugging Face's tensors.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace snug::kernels::cpu {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// base^(-2i/dim)
std::vector<double> plain_frequencies(double base, int64_t dim) {
  std::vector<double> result;
  for (int64_t i = 0; i < dim; i += 2) {
    result.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(dim)));
  }
  return result;
}

// "NTK-aware": the base grows with the length, once that passes the trained one.
double dynamic_base(const RopeScaling& s, int64_t dim, int64_t max_len) {
  const auto original = static_cast<double>(s.original_max_position);
  const double length = std::max(static_cast<double>(max_len), original);
  const double growth = s.factor * length / original - (s.factor - 1);
  return s.base * std::pow(growth, static_cast<double>(dim) / static_cast<double>(dim - 2));
}

// Long wavelengths are divided by factor, short ones kept, those between interpolated.
void scale_llama3(const RopeScaling& s, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(s.original_max_position);
  for (double& f : frequencies) {
    const double wavelength = kTurn / f;
    if (wavelength < original / s.high_freq_factor) continue;
    const double keep = wavelength > original / s.low_freq_factor
                            ? 0.0
                            : (original / wavelength - s.low_freq_factor) /
                                  (s.high_freq_factor - s.low_freq_factor);
    f = (1 - keep) * f / s.factor + keep * f;
  }
}

// The dimension that makes `rotations` turns over the trained length (YaRN, arXiv 2309.00071).
double yarn_dimension(const RopeScaling& s, double rotations, int64_t dim) {
  const auto original = static_cast<double>(s.original_max_position);
  return static_cast<double>(dim) * std::log(original / (rotations * kTurn)) /
         (2 * std::log(s.base));
}

void scale_yarn(const RopeScaling& s, int64_t dim, std::vector<double>& frequencies) {
  double low = yarn_dimension(s, s.beta_fast, dim), high = yarn_dimension(s, s.beta_slow, dim);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_attention_factor(const RopeScaling& s) {
  const auto stretch = [&](double mscale) {
    return s.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(s.factor) + 1.0;
  };
  if (s.mscale != 0 && s.mscale_all_dim != 0) return stretch(s.mscale) / stretch(s.mscale_all_dim);
  return stretch(1);
}

double longrope_attention_factor(const RopeScaling& s) {
  if (s.factor <= 1) return 1.0;
  return std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_max_position)));
}

void scale_longrope(const RopeScaling& s, int64_t max_len, std::vector<double>& frequencies) {
  const auto& factors = max_len > s.original_max_position ? s.long_factor : s.short_factor;
  if (factors.size() != frequencies.size()) {
    throw UserError("rope_scaling: {} has {} values, but the rotary width needs {}",
                    max_len > s.original_max_position ? "long_factor" : "short_factor",
                    factors.size(), frequencies.size());
  }
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

// Frequencies of the whole head, of which only the first ones turn (Gemma 4).
void stop_others(const RopeScaling& s, std::vector<double>& frequencies) {
  const auto count = static_cast<size_t>(s.proportion * static_cast<double>(frequencies.size()));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = i < count ? frequencies[i] / s.factor : 0;
}

void check(const RopeScaling& s, int64_t dim) {
  if (dim <= 0 || dim % 2 != 0) throw UserError("rotary width is {}; it must be even", dim);
  if (!(s.base > 0)) throw UserError("rope_theta is {}; it must be positive", s.base);
  if (s.type == RopeType::None) return;
  if (!(s.factor > 0)) throw UserError("rope_scaling: factor is {}; it must be positive", s.factor);
  if (s.type == RopeType::Proportional && !(s.proportion > 0 && s.proportion <= 1))
    throw UserError("rope_scaling: partial_rotary_factor is {}; it must be above 0, at most 1",
                    s.proportion);
  const bool has_lengths = s.type != RopeType::Linear && s.type != RopeType::Proportional;
  if (has_lengths && s.original_max_position <= 0) {
    throw UserError("rope_scaling: original_max_position_embeddings is {}; it must be positive",
                    s.original_max_position);
  }
  if (s.type == RopeType::Dynamic && dim <= 2) {
    throw UserError("rope_scaling: type dynamic needs a rotary width above 2, this is {}", dim);
  }
  if (s.type == RopeType::Llama3 &&
      !(s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor)) {
    throw UserError("rope_scaling: high_freq_factor {} must be above low_freq_factor {} and 0",
                    s.high_freq_factor, s.low_freq_factor);
  }
  if (s.type == RopeType::Yarn && !(s.beta_fast > 0 && s.beta_slow > 0 && s.base > 1)) {
    throw UserError("rope_scaling: yarn needs positive beta_fast ({}) and beta_slow ({})",
                    s.beta_fast, s.beta_slow);
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeScaling& scaling, int64_t dim, int64_t max_len) {
  check(scaling, dim);
  const bool dynamic = scaling.type == RopeType::Dynamic;
  std::vector<double> frequencies =
      plain_frequencies(dynamic ? dynamic_base(scaling, dim, max_len) : scaling.base, dim);
  RopeFrequencies result;
  switch (scaling.type) {
    case RopeType::None:
    case RopeType::Dynamic:
      break;
    case RopeType::Linear:
      for (double& f : frequencies) f /= scaling.factor;
      break;
    case RopeType::Llama3:
      scale_llama3(scaling, frequencies);
      break;
    case RopeType::Yarn:
      scale_yarn(scaling, dim, frequencies);
      result.attention_factor = yarn_attention_factor(scaling);
      break;
    case RopeType::Proportional:
      stop_others(scaling, frequencies);
      break;
    case RopeType::LongRope:
      scale_longrope(scaling, max_len, frequencies);
      result.attention_factor = longrope_attention_factor(scaling);
      break;
  }
  const bool given = scaling.type == RopeType::Yarn || scaling.type == RopeType::LongRope;
  if (given && scaling.attention_factor != 0) result.attention_factor = scaling.attention_factor;
  result.inverse.assign(frequencies.begin(), frequencies.end());
  return result;
}

bool has_query_scale(const RopeScaling& scaling, int64_t max_len) {
  return scaling.query_beta != 0 && max_len > scaling.original_max_position;
}

RopeTables build_rope_tables(const RopeScaling& scaling, int64_t dim, int64_t max_len) {
  const RopeFrequencies frequencies = rope_frequencies(scaling, dim, max_len);
  RopeTables tables;
  tables.max_positions = max_len;
  tables.half_dim = dim / 2;
  tables.cos.reserve(static_cast<size_t>(max_len * tables.half_dim));
  tables.sin.reserve(static_cast<size_t>(max_len * tables.half_dim));
  for (int64_t position = 0; position < max_len; ++position) {
    for (const float inverse : frequencies.inverse) {
      const double angle = static_cast<float>(position) * inverse;  // a float32 product
      tables.cos.push_back(static_cast<float>(std::cos(angle) * frequencies.attention_factor));
      tables.sin.push_back(static_cast<float>(std::sin(angle) * frequencies.attention_factor));
    }
  }
  if (!has_query_scale(scaling, max_len)) return tables;
  for (int64_t position = 0; position < max_len; ++position) {
    const auto passed = static_cast<double>(position / scaling.original_max_position);
    tables.query_scale.push_back(static_cast<float>(1 + scaling.query_beta * std::log1p(passed)));
  }
  return tables;
}

}  // namespace snug::kernels::cpu
