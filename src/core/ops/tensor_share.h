// Which ranks share a layer under tensor parallelism. Layers hold it and hand it to operators; only
// operators look inside (core/ops/shared_rows.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::dist {
class Group;
}

namespace snug::ops {

struct TensorShare {
  dist::Group* group = nullptr;  // outlives the model
  bool sequence_parallel = true;

  int64_t rank() const;
  int64_t size() const;
  int64_t rows_of(int64_t num_tokens) const;
  // The group if ranks have different rows, else null.
  dist::Group* other_rows() const { return sequence_parallel ? group : nullptr; }
};

}  // namespace snug::ops
