// Rows of parameters that no gradient but rounding reaches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace snug::tests {

// Without rotary positions the softmax does not see a bias that all keys share: its gradient is
// rounding, which Adam brings to the size of a step. Where it lies among a parameter's rows.
inline std::pair<int64_t, int64_t> unseen_rows(const std::string& name, int64_t rows) {
  for (const char* ending : {"c_attn.bias", "qkv.bias"})
    if (name.ends_with(ending)) return {rows / 3, 2 * rows / 3};
  const bool rotates = name.starts_with("model.layers.");
  if ((name.ends_with("k_proj.bias") && !rotates) || name.ends_with("key.bias")) return {0, rows};
  return {0, 0};
}

}  // namespace snug::tests
