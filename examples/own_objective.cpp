// An objective of one's own: the focal loss (Lin et al. 2017, equation 4), which turns to the
// tokens that the model gets wrong: -(1 - p)^g * log(p), p being the target's probability. With g =
// 0 it is cross-entropy, which this program checks. Usage: own_objective config.json
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <cmath>
#include <cstdio>
#include <memory>

namespace {

class FocalLoss final : public snug::nn::Objective {
 public:
  explicit FocalLoss(double gamma) : gamma_(gamma) {}

  // Autograd records all of it: the executor starts backward from Objective::start_gradient().
  at::Tensor sum(const at::Tensor& hidden, const snug::nn::Head& head, const snug::nn::Batch& batch,
                 const snug::nn::Pass& pass) const override {
    const at::Tensor logits = head.logits(hidden, pass).to(at::kFloat);  // (N, V)
    const at::Tensor targets = batch.targets.to(at::kLong);              // (N), -100: none
    const at::Tensor counts = targets.ge(0);
    const at::Tensor log_p =
        at::log_softmax(logits, 1).gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor terms = at::neg(log_p) * at::pow(1 - log_p.exp(), gamma_);
    return at::where(counts, terms, at::zeros_like(terms)).sum().reshape({1});
  }

 private:
  double gamma_;
};

double train(const snug::recipe::Recipe& recipe,
             std::shared_ptr<const snug::nn::Objective> objective) {
  snug::Trainer trainer(recipe, {.longest = 16, .objective = std::move(objective)});
  double loss = 0;
  for (int i = 0; i < 10; ++i) {
    const at::Tensor rows = at::remainder(at::arange(i, i + 8 * 16, at::kLong), 50).view({8, 16});
    loss = trainer.step(rows, rows, 1e-2).loss;
  }
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s config.json\n", argv[0]), 2;
  try {
    const auto recipe = snug::read_recipe(
        {"--model.config", argv[1], "--precision", "32-true", "--train.micro_batch_size", "4"},
        /*full=*/true);
    const double own = train(recipe, nullptr);
    const double same = train(recipe, std::make_shared<FocalLoss>(0));
    const double focal = train(recipe, std::make_shared<FocalLoss>(2));
    std::printf("after 10 steps: cross-entropy %.6f, focal loss with g = 0 %.6f, with g = 2 %.6f\n",
                own, same, focal);
    return std::abs(own - same) < 1e-4 * own && focal < own ? 0 : 1;
  } catch (const snug::Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), error.exit_code();
  }
}
