// Where chunks and their scratch lie, for the kernels of the gated delta rule and for a plan, which
// has no device nor CUDA's headers. Chunks have 64 tokens at most, 32 where keys are wider than
// 128, so that a block's shared memory holds a chunk's keys, and where no document has more.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kernels/delta_rule.h"

namespace snug::kernels::cuda::delta {

inline constexpr int64_t kMostKeyDim = 256;

inline int64_t most_tokens(const DeltaRuleSizes& sizes) {
  return sizes.key_dim <= 128 && sizes.max_seqlen > 32 ? 64 : 32;
}

struct Layout {
  const int32_t* borders = nullptr;
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
  int64_t chunk = 0;        // tokens
  int64_t most_chunks = 0;  // of a document
  int64_t slots = 0;        // of chunks: each document has room for one that is not full
  int64_t key_stride = 0;   // floats of a row of keys in shared memory

#ifdef __CUDACC__
#define SNUG_BOTH __host__ __device__
#else
#define SNUG_BOTH
#endif
  SNUG_BOTH int64_t group() const { return value_heads / key_heads; }
  SNUG_BOTH int64_t gate(int64_t token, int64_t head) const { return token * value_heads + head; }
  SNUG_BOTH int64_t square(int64_t slot, int64_t head) const {
    return (slot * value_heads + head) * chunk * chunk;
  }
  SNUG_BOTH int64_t state(int64_t slot, int64_t head) const {
    return (slot * value_heads + head) * key_dim * value_dim;
  }
#undef SNUG_BOTH
};

inline Layout layout_of(const DeltaRuleSizes& sizes, const int32_t* borders) {
  const int64_t chunk = std::min(sizes.chunk, most_tokens(sizes));
  return {.borders = borders,
          .key_heads = sizes.num_key_heads,
          .value_heads = sizes.num_value_heads,
          .key_dim = sizes.key_dim,
          .value_dim = sizes.value_dim,
          .chunk = chunk,
          .most_chunks = (sizes.max_seqlen + chunk - 1) / chunk,
          .slots = sizes.num_tokens / chunk + sizes.num_documents,
          .key_stride = (sizes.key_dim + 3) / 4 * 4};
}

// Parts of the workspace; a forward has the first three alone. A sum has no Y, X and E.
struct Scratch {
  float* sums = nullptr;                         // (N, Hv, 2): b in two parts
  float *p = nullptr, *y = nullptr;              // (slots, Hv, chunk, chunk)
  float* x = nullptr;                            // the same
  float *e = nullptr, *z = nullptr;              // (N, Hv, dv)
  float *states = nullptr, *d_states = nullptr;  // (slots, Hv, dk, dv): before and behind a chunk
};

enum class Pass { Forward, Backward };

// Gives each part its place; with a null base it only measures.
inline Scratch carve(const DeltaRuleSizes& sizes, Pass pass, void* base, int64_t* bytes) {
  const Layout layout = layout_of(sizes, nullptr);
  const int64_t gates = sizes.num_tokens * sizes.num_value_heads;
  const int64_t squares = layout.square(layout.slots, 0), states = layout.state(layout.slots, 0);
  const bool solves = sizes.form == StateForm::Delta;
  int64_t used = 0;
  const auto take = [&](int64_t floats) {
    auto* part = base != nullptr ? static_cast<float*>(base) + used / 4 : nullptr;
    used += (floats * 4 + 255) / 256 * 256;
    return part;
  };
  Scratch scratch;
  scratch.sums = take(2 * gates);
  scratch.p = take(squares);
  if (solves) scratch.y = take(squares);
  if (pass == Pass::Backward) {
    if (solves) scratch.x = take(squares), scratch.e = take(gates * sizes.value_dim);
    scratch.z = take(gates * sizes.value_dim);
    scratch.states = take(states), scratch.d_states = take(states);
  }
  *bytes = used;
  return scratch;
}

inline int64_t workspace_bytes(const DeltaRuleSizes& sizes, Pass pass) {
  int64_t bytes = 0;
  carve(sizes, pass, nullptr, &bytes);
  return bytes;
}

}  // namespace snug::kernels::cuda::delta
