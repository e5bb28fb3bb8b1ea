// The chunked head and loss against libtorch's whole logits, with smoothing and z-loss.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/loss/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "engine/exec/backward.h"

namespace snug::ops {
namespace cross_entropy_test {

struct Case {
  double smoothing, z_loss;
  int64_t vocabulary = 300;  // with 200,000 the rows come in two chunks
  bool picks = false;        // the rows that count
  LogitForm form = {};
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
  const auto [smoothing, z_loss, vocabulary, picks, form] = GetParam();
  at::manual_seed(3);
  constexpr int64_t kRows = 130, kWidth = 24;
  const at::Tensor x = at::randn({kRows, kWidth}).set_requires_grad(true);
  const at::Tensor weight = at::randn({vocabulary, kWidth}).set_requires_grad(true);
  at::Tensor targets = at::randint(vocabulary, {kRows}, at::kInt);
  targets.slice(0, 5, 9).fill_(-100);
  targets.slice(0, 100, 110).fill_(-100);

  const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
  const at::Tensor weight2 = weight.detach().clone().set_requires_grad(true);
  at::Tensor logits = x2.matmul(weight2.t()) * form.scale;
  if (form.cap > 0) logits = form.cap * at::tanh(logits / form.cap);
  const at::Tensor rows = at::cross_entropy_loss(logits, targets.to(at::kLong), {},
                                                 at::Reduction::Sum, -100, smoothing);
  const at::Tensor counted = targets.ne(-100).to(at::kFloat);
  const at::Tensor whole = rows + z_loss * (logits.logsumexp(-1).square() * counted).sum();
  (0.5 * whole).backward();

  const at::Tensor loss = linear_cross_entropy(
      x, {.weight = weight}, targets,
      {.scale = 0.5, .label_smoothing = smoothing, .z_loss = z_loss, .form = form}, std::nullopt,
      picks ? counted_rows(targets) : CountedRows{});
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
                                           Case{0, 1e-3, 200'000, true},
                                           Case{0.1, 1e-3, 300, false, {.scale = 0.25}},
                                           Case{0, 1e-3, 200'000, true, {0.5, 4}}));

// Log-probabilities with any gradient, against libtorch's of whole logits.
TEST_P(LinearCrossEntropy, LogProbsEqualThoseOfWholeLogits) {
  memory::install_allocators();
  const auto [smoothing, z_loss, vocabulary, picks, form] = GetParam();
  at::manual_seed(4);
  constexpr int64_t kRows = 130, kWidth = 24;
  const at::Tensor x = at::randn({kRows, kWidth}).set_requires_grad(true);
  const at::Tensor weight = at::randn({vocabulary, kWidth}).set_requires_grad(true);
  const at::Tensor targets = at::randint(vocabulary, {kRows}, at::kInt);
  targets.slice(0, 5, 9).fill_(-100);
  targets.slice(0, 100, 110).fill_(-100);
  const at::Tensor gradient = at::randn({kRows});

  const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
  const at::Tensor weight2 = weight.detach().clone().set_requires_grad(true);
  at::Tensor logits = x2.matmul(weight2.t()) * form.scale;
  if (form.cap > 0) logits = form.cap * at::tanh(logits / form.cap);
  const at::Tensor all = at::log_softmax(logits, 1)
                             .gather(1, targets.to(at::kLong).clamp_min(0).unsqueeze(1))
                             .squeeze(1);
  const at::Tensor expected = at::where(targets.ge(0), all, at::zeros_like(all));
  expected.backward(gradient);

  const CountedRows counted = picks ? counted_rows(targets) : CountedRows{};
  const std::optional<RowCut> cut =
      smoothing > 0 ? std::optional(RowCut{48, 16, true}) : std::nullopt;
  const at::Tensor log_probs = linear_log_probs(x, {.weight = weight}, targets,
                                                {.form = form, .cut = cut}, std::nullopt, counted);
  exec::backward({log_probs}, {gradient});
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).abs().max() / b.abs().max()).item<double>();
  };
  EXPECT_LT(distance(log_probs, expected), 1e-5);
  EXPECT_LT(distance(x.grad(), x2.grad()), 1e-5);
  EXPECT_LT(distance(weight.grad(), weight2.grad()), 1e-5);
}

// Neither direction has more logits at a time than one stretch: what is kept between them is x.
TEST(LinearLogProbs, NeverHaveTheLogitsOfAllRows) {
  memory::install_allocators();
  constexpr int64_t kRows = 4096, kVocabulary = 50'000, kWidth = 8;
  const at::Tensor x = at::zeros({kRows, kWidth}).set_requires_grad(true);
  const at::Tensor weight = at::zeros({kVocabulary, kWidth}).set_requires_grad(true);
  const at::Tensor targets = at::zeros({kRows}, at::kInt);
  memory::Ledger& ledger = memory::cpu_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  const at::Tensor log_probs = linear_log_probs(x, {.weight = weight}, targets, {});
  EXPECT_LE(ledger.allocated() - before, 4 * kRows) << "beside x, which the caller has";
  exec::backward({log_probs}, {at::ones({kRows})});
  EXPECT_LT(ledger.at_peak().allocated - before, 4 * kRows * kVocabulary / 8);
}

// Rows cut as on a GPU, in pieces of several stretches, and the gradients added up apart.
TEST(CutRows, TheCutChangesNothingButRoundings) {
  memory::install_allocators();
  at::manual_seed(5);
  const at::Tensor x = at::randn({130, 24}), targets = at::randint(300, {130}, at::kInt);
  const at::Tensor w = at::randn({300, 24});
  targets.slice(0, 60, 70).fill_(-100);
  const auto run = [&](at::ScalarType type, bool picks, const std::optional<RowCut>& cut) {
    const at::Tensor own_x = x.clone().to(type).set_requires_grad(true);
    const at::Tensor weight = w.clone().to(type).set_requires_grad(true);
    const at::Tensor loss =
        linear_cross_entropy(own_x, {.weight = weight}, targets, {.scale = 0.5, .cut = cut},
                             std::nullopt, picks ? counted_rows(targets) : CountedRows{});
    exec::backward({loss}, {at::ones_like(loss)});
    return std::vector<at::Tensor>{loss, own_x.grad(), weight.grad()};
  };
  for (const bool picks : {false, true})
    for (const RowCut cut : {RowCut{48, 16, false}, RowCut{48, 16, true}, RowCut{130, 48, false},
                             RowCut{16, 16, true}}) {
      const auto whole = run(at::kFloat, picks, std::nullopt);
      const auto cut32 = run(at::kFloat, picks, cut);
      const auto cut16 = run(at::kBFloat16, picks, cut);
      for (size_t i = 0; i < whole.size(); ++i) {
        const double size = whole[i].abs().max().item<double>();
        EXPECT_LT((cut32[i] - whole[i]).abs().max().item<double>(), 1e-5 * size);
        EXPECT_LT((cut16[i].to(at::kFloat) - whole[i]).abs().max().item<double>(), 3e-2 * size);
      }
      EXPECT_EQ(cut16[2].scalar_type(), at::kBFloat16);
    }
}

struct HeadCase {
  const char* name;
  int64_t rows, vocabulary, dim;
  at::ScalarType type, weight_type;
  bool trained = true;
};

// What a head takes on a GPU beside its weight, its input and that one's gradient: all that its
// products ask for, seen on meta.
class HeadOnGpu : public ::testing::TestWithParam<HeadCase> {
 protected:
  HeadOnGpu() { memory::install_allocators(); }

  RowCut cut() const {
    const HeadCase& c = GetParam();
    return cut_rows(x_, {.weight = weight_}, c.rows, c.vocabulary, /*training=*/true);
  }
  const HeadCase& c_ = GetParam();
  const StandInGuard gpu_{at::kCUDA};
  const at::TensorOptions meta_ = at::TensorOptions().device(at::kMeta);
  const at::Tensor x_ = at::empty({c_.rows, c_.dim}, meta_.dtype(c_.type)).set_requires_grad(true);
  const at::Tensor weight_ =
      at::empty({c_.vocabulary, c_.dim}, meta_.dtype(c_.weight_type)).set_requires_grad(c_.trained);
};

TEST_P(HeadOnGpu, AddsToItsGradientOnceForThousandsOfRowsAndInFloat32) {
  const HeadCase& c = GetParam();
  const RowCut rows = cut();
  if (c.trained && c.type != at::kFloat) {
    EXPECT_GE(rows.piece, std::min<int64_t>(c.rows, 2048));
  }
  const bool adds_up = c.rows > rows.piece;
  EXPECT_EQ(rows.sums_apart, adds_up && c.trained);

  // Each stretch's logits, and each piece's gradients of them, are an allocation.
  int64_t stretches = 0, pieces = 0;
  const int64_t type_bytes = c10::elementSize(c.type);
  memory::meta_ledger().observe([&](const memory::Change& change) {
    if (change.bytes <= 0 || change.bytes % c.vocabulary != 0) return;
    const int64_t row_bytes = change.bytes / c.vocabulary;
    if (row_bytes == 4 * rows.stretch) ++stretches;
    if (row_bytes == type_bytes * rows.piece) ++pieces;
  });
  memory::meta_ledger().reset_peak();
  const int64_t before = memory::meta_ledger().allocated();
  linear_cross_entropy(x_, {.weight = weight_}, at::empty({c.rows}, meta_.dtype(at::kInt)), {});
  memory::meta_ledger().observe({});
  // Shorter ones at the ends are of other sizes.
  EXPECT_EQ(pieces, c.rows / rows.piece);
  EXPECT_EQ(stretches,
            c.rows / rows.piece * (rows.piece / rows.stretch) + c.rows % rows.piece / rows.stretch);

  const int64_t peak = memory::meta_ledger().at_peak().allocated - before;
  const int64_t gradients = c.trained ? weight_.numel() * weight_.element_size() : 0;
  const int64_t sums = rows.sums_apart && c.weight_type != at::kFloat ? weight_.numel() * 4 : 0;
  const int64_t d_logits = c.type == at::kFloat ? 0 : rows.piece * c.vocabulary * type_bytes;
  const int64_t logits = rows.stretch * c.vocabulary * 4;
  const int64_t cast = c.weight_type == c.type ? 0 : weight_.numel() * type_bytes;
  const auto all = static_cast<double>(gradients + sums + d_logits + logits + cast +
                                       x_.numel() * x_.element_size());
  EXPECT_LT(static_cast<double>(peak), 1.02 * all + 1e6);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, HeadOnGpu,
    ::testing::Values(HeadCase{"Qwen1B", 8192, 151936, 1536, at::kBFloat16, at::kBFloat16},
                      HeadCase{"Qwen1BInOnePiece", 4096, 151936, 1536, at::kBFloat16,
                               at::kBFloat16},
                      HeadCase{"Qwen7B", 8192, 152064, 3584, at::kBFloat16, at::kBFloat16},
                      HeadCase{"SmolLm", 8192, 49152, 576, at::kBFloat16, at::kBFloat16},
                      HeadCase{"TinyLlama", 8192, 32000, 2048, at::kBFloat16, at::kBFloat16},
                      HeadCase{"Mixed", 8192, 151936, 1536, at::kBFloat16, at::kFloat},
                      HeadCase{"Float", 8192, 151936, 1536, at::kFloat, at::kFloat},
                      HeadCase{"Frozen", 8192, 151936, 1536, at::kBFloat16, at::kBFloat16, false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CutRows, MoreRowsNeverTakeLessOfAGpu) {
  memory::install_allocators();
  const StandInGuard gpu(at::kCUDA);
  const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor weight = at::empty({32000, 576}, meta).set_requires_grad(true);
  int64_t last = 0;
  for (int64_t rows = 100; rows < 7000; rows += 300) {
    weight.mutable_grad().reset();
    memory::meta_ledger().reset_peak();
    const int64_t before = memory::meta_ledger().allocated();
    linear_cross_entropy(at::empty({rows, 576}, meta).set_requires_grad(true), {.weight = weight},
                         at::empty({rows}, meta.dtype(at::kInt)), {});
    const int64_t peak = memory::meta_ledger().at_peak().allocated - before;
    EXPECT_GE(peak, last) << rows;
    last = peak;
  }
}

}  // namespace cross_entropy_test
}  // namespace snug::ops
