// Which experts of a mixture a token goes to, and with what weight (Shazeer et al. 2017; Fedus et
// al. 2021). Shapes: T tokens, E experts, k of them for each token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/ops/device/upload.h"

namespace snug::ops {

// Which rows are tokens; others are padding.
struct RealRows {
  at::Tensor on_device;     // (T) float32: 1, of padding 0; undefined: all are
  std::vector<float> host;  // the same
};

struct Routes {
  at::Tensor weights;  // (T, k), of the logits' type
  at::Tensor experts;  // (T, k) int64, no gradient
  // (E) float32, if asked for: each expert's probability, summed over the tokens that are real.
  at::Tensor probabilities;
};

enum class Probabilities { Unsummed, Summed };
// How logits become the weights of experts: all of a token's together, or each by itself.
enum class RouterScores { Softmax, Sigmoid };

// How a router chooses.
struct Router {
  int64_t k = 1;  // experts of a token
  RouterScores scores = RouterScores::Softmax;
  bool normalized = false;  // the chosen scores are divided by their sum
  double epsilon = 0;       // added to that sum
  double scale = 1;         // of the weights, at last
  // Experts in so many groups, of which a token chooses among the experts of a few: of those whose
  // best experts, so many of each, have the largest sums (DeepSeek-AI 2024).
  int64_t groups = 1, chosen_groups = 1, best_of_group = 1;
  // (E) float32, added to the scores where experts are chosen and nowhere else, without a gradient
  // (Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing"). Undefined: none.
  at::Tensor bias = {};
};

// The scores in float32 of logits (T, E), and the k largest of each token.
Routes route(const at::Tensor& logits, const Router& router,
             Probabilities probabilities = Probabilities::Unsummed, const RealRows& real = {});

// The host's copy of (T, k) experts, for which it waits. On meta it is empty: no expert has any.
std::vector<int64_t> read_experts(const at::Tensor& experts);

// (E): routes of each expert that are a real token's, of T tokens from `first` on.
std::vector<int64_t> count_routes(std::span<const int64_t> chosen, int64_t k, int64_t num_experts,
                                  const RealRows& real = {});

// Every token's k routes, sorted by expert and then by token. Where experts are spread over ranks
// E are this rank's, and routes of others come last.
struct SortedRoutes {
  at::Tensor tokens;            // (T k) int32: the token of each
  at::Tensor places;            // (T k) int32: its place in (T, k)
  at::Tensor positions;         // (T k) int32: the inverse of `places`
  std::vector<int64_t> begins;  // (E + 1): each expert's range
  bool others_last = false;     // there may be routes of others
  std::shared_ptr<Upload> upload;
};

// Sorts the routes to experts from `first` on; `chosen` is read_experts(experts).
SortedRoutes sort_by_expert(const at::Tensor& experts, std::span<const int64_t> chosen,
                            int64_t first, int64_t num_experts);

// The loss that balances experts (Fedus et al. 2021, equations 4 to 6), as transformers computes
// it: E · Σ (share of tokens routed to an expert) · (its mean probability), over the tokens of all
// layers at once.
struct Balance {
  at::Tensor probabilities;   // (E) float32: summed over tokens and layers
  at::Tensor counts;          // (E) float32: routes of the same
  int64_t k = 0;              // experts of a token
  double weight = 0;          // of the loss in the result
  double gradient_scale = 1;  // of the gradient
};

// sum + weight * loss, both (1) float32. The gradient by the probabilities is that of
// (gradient_scale * weight * loss), as cross-entropy's is of its own.
at::Tensor add_balance(const at::Tensor& sum, const Balance& balance);

}  // namespace snug::ops
