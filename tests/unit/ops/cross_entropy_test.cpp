// The chunked head and loss against libtorch's whole logits, with smoothing and z-loss.
// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "exec/backward.h"
#include "memory/ledger.h"

namespace snug::ops {
namespace {

struct Case {
  double smoothing, z_loss;
  int64_t vocabulary = 300;  // with 200,000 the rows come in two chunks
  bool picks = false;        // the rows that count
};

// As many entries as there are targets.
CountedRows counted_rows(const at::Tensor& targets) {
  const at::Tensor found = targets.ne(-100).nonzero().view({-1});
  const at::Tensor rows = at::full({targets.size(0)}, 1'000'000, at::kInt), counted = rows.clone();
  rows.slice(0, 0, found.size(0)).copy_(found);
  counted.slice(0, 0, found.size(0)).copy_(targets.index_select(0, found));
  return {rows, counted, found.size(0)};
}

class LinearCrossEntropy : public ::testing::TestWithParam<Case> {};

TEST_P(LinearCrossEntropy, EqualsWholeLogits) {
  memory::install_allocators();
  const auto [smoothing, z_loss, vocabulary, picks] = GetParam();
  at::manual_seed(3);
  constexpr int64_t kRows = 130, kWidth = 24;
  const at::Tensor x = at::randn({kRows, kWidth}).set_requires_grad(true);
  const at::Tensor weight = at::randn({vocabulary, kWidth}).set_requires_grad(true);
  at::Tensor targets = at::randint(vocabulary, {kRows}, at::kInt);
  targets.slice(0, 5, 9).fill_(-100);
  targets.slice(0, 100, 110).fill_(-100);

  const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
  const at::Tensor weight2 = weight.detach().clone().set_requires_grad(true);
  const at::Tensor logits = x2.matmul(weight2.t());
  const at::Tensor rows = at::cross_entropy_loss(logits, targets.to(at::kLong), {},
                                                 at::Reduction::Sum, -100, smoothing);
  const at::Tensor counted = targets.ne(-100).to(at::kFloat);
  const at::Tensor whole = rows + z_loss * (logits.logsumexp(-1).square() * counted).sum();
  (0.5 * whole).backward();

  const at::Tensor loss =
      linear_cross_entropy(x, {.weight = weight}, targets,
                           {.scale = 0.5, .label_smoothing = smoothing, .z_loss = z_loss},
                           std::nullopt, picks ? counted_rows(targets) : CountedRows{});
  exec::backward({loss}, {at::ones_like(loss)});
  EXPECT_NEAR(loss.item<double>(), whole.item<double>(), 1e-5 * whole.item<double>());
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).abs().max() / b.abs().max()).item<double>();
  };
  EXPECT_LT(distance(x.grad(), x2.grad()), 1e-5);
  EXPECT_LT(distance(weight.grad(), weight2.grad()), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Options, LinearCrossEntropy,
                         ::testing::Values(Case{0, 0}, Case{0.1, 0}, Case{0, 1e-3}, Case{0.2, 1e-2},
                                           Case{0, 0, 200'000}, Case{0.1, 1e-3, 300, true},
                                           Case{0, 1e-3, 200'000, true}));

}  // namespace
}  // namespace snug::ops
