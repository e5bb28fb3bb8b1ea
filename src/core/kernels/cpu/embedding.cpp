// Copying of rows, and the grouping of tokens by id that makes their sum independent of threads.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

template <class Args>
void check_ids(const Args& args) {
  const int64_t rows = args.whole_vocabulary == 0 ? args.vocabulary : args.whole_vocabulary;
  for (int64_t token = 0; token < args.tokens; ++token) {
    SNUG_CHECK(args.ids[token] >= 0 && args.ids[token] < rows,
               "id {} of token {} is outside the table of {} rows", args.ids[token], token, rows);
  }
}

// The row of an id, or -1 where it is in another part of the table.
template <class Args>
int64_t row_of(const Args& args, int32_t id) {
  const int64_t row = id - args.first;
  return row >= 0 && row < args.vocabulary ? row : -1;
}

// Token numbers ordered by id; tokens of one id keep their order.
std::vector<int32_t> tokens_by_id(const int32_t* ids, int64_t tokens) {
  std::vector<int32_t> order(static_cast<size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  return order;
}

// Where each id's stretch of `order` begins, and the end of the last.
std::vector<int64_t> stretch_starts(const int32_t* ids, const std::vector<int32_t>& order) {
  std::vector<int64_t> starts;
  for (size_t k = 0; k < order.size(); ++k) {
    if (k == 0 || ids[order[k]] != ids[order[k - 1]]) starts.push_back(static_cast<int64_t>(k));
  }
  starts.push_back(static_cast<int64_t>(order.size()));
  return starts;
}

}  // namespace

void embedding_forward(const EmbeddingForward& args) {
  check_ids(args);
  const int64_t row_bytes = args.dim * scalar_bytes(args.type);
  const auto* weight = static_cast<const char*>(args.weight);
  auto* out = static_cast<char*>(args.out);
  parallel_ranges(args.tokens, args.dim, args.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = row_of(args, args.ids[token]);
      if (row >= 0)
        std::memcpy(out + token * row_bytes, weight + row * row_bytes, row_bytes);
      else
        std::memset(out + token * row_bytes, 0, row_bytes);
    }
  });
}

void embedding_backward(const EmbeddingBackward& args) {
  check_ids(args);
  const std::vector<int32_t> order = tokens_by_id(args.ids, args.tokens);
  const std::vector<int64_t> starts = stretch_starts(args.ids, order);
  const auto add_row = SNUG_FOR_ISA(embedding_backward_row);
  const auto num_ids = static_cast<int64_t>(starts.size()) - 1;
  parallel_ranges(num_ids, args.dim, args.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int32_t* tokens = order.data() + starts[k];
      const int32_t id = args.ids[*tokens];
      const int64_t row = row_of(args, id);
      if (row >= 0 && id != args.padding_index)
        add_row(args, row, tokens, starts[k + 1] - starts[k]);
    }
  });
}

}  // namespace snug::kernels::cpu
