// cos and sin of the rotary embedding for every position, with the usual methods of context
// extension. Angles are rounded to float32 where Hugging Face's code rounds them, so that both
// agree closely.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace snug::kernels::cpu {

enum class RopeType : uint8_t { None, Linear, Dynamic, Llama3, Yarn, LongRope, Proportional };

// Field names as in `rope_scaling` of config.json; only the fields of the type are used.
struct RopeScaling {
  RopeType type = RopeType::None;
  double base = 10000.0;                  // rope_theta
  double factor = 1.0;                    // all but None
  double low_freq_factor = 1.0;           // Llama3
  double high_freq_factor = 4.0;          // Llama3
  int64_t original_max_position = 0;      // original_max_position_embeddings; Dynamic to LongRope
  double beta_fast = 32.0;                // Yarn
  double beta_slow = 1.0;                 // Yarn
  bool truncate = true;                   // Yarn: round the correction range to whole dimensions
  double proportion = 1.0;                // Proportional: partial_rotary_factor
  double mscale = 0.0;                    // Yarn, 0: unset
  double mscale_all_dim = 0.0;            // Yarn, 0: unset
  double attention_factor = 0.0;          // Yarn, LongRope; 0: derived from factor
  std::vector<double> short_factor = {};  // LongRope, R/2 values
  std::vector<double> long_factor = {};   // LongRope, R/2 values
  // llama_4_scaling_beta: queries are multiplied by 1 + beta log(1 + floor(position / original)).
  double query_beta = 0.0;
};

struct RopeTables {
  int64_t max_positions = 0;
  int64_t half_dim = 0;            // R/2
  std::vector<float> cos;          // (max_positions, R/2)
  std::vector<float> sin;          // (max_positions, R/2)
  std::vector<float> query_scale;  // (max_positions); empty if all are 1
};

// Inverse frequencies (R/2) and the factor on cos and sin, for sequences of up to max_len tokens.
struct RopeFrequencies {
  std::vector<float> inverse;
  double attention_factor = 1.0;
};
RopeFrequencies rope_frequencies(const RopeScaling& scaling, int64_t dim, int64_t max_len);

// Whether tables for so many tokens have a query_scale.
bool has_query_scale(const RopeScaling& scaling, int64_t max_len);

// dim is the rotated width R (even). Throws UserError for a scaling that cannot be computed.
RopeTables build_rope_tables(const RopeScaling& scaling, int64_t dim, int64_t max_len);

}  // namespace snug::kernels::cpu
