// An objective of one's own over pairs: DPO (Rafailov et al. 2023, equation 7), which raises the
// log-probability of a chosen answer above that of a rejected one, both beside those of the model
// before training. Usage: own_preference config.json [OPTION...]
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using at::Tensor;

class Dpo final : public snug::nn::Objective {
 public:
  explicit Dpo(double beta) : beta_(beta) {}

  // Rows 2 i and 2 i + 1 are a pair: the chosen and the rejected answer.
  snug::nn::BatchSpec batch() const override {
    return {.documents_per_sample = 2, .columns = {{.name = "reference"}}, .by_document = true};
  }
  int64_t terms(const snug::nn::BatchCounts& counts) const override { return counts.documents / 2; }

  Tensor sum(const Tensor& hidden, const snug::nn::Head& head, const snug::nn::Batch& batch,
             const snug::nn::Pass& pass) const override {
    const Tensor answers = snug::nn::document_sums(head.log_probs(hidden, batch, pass), batch);
    const Tensor gains = (answers - batch.columns[0]).view({-1, 2});
    const Tensor below = gains.select(1, 1) - gains.select(1, 0);
    // Of beta * below a CPU would make a tensor of the number, which no plan knows.
    const Tensor scaled = at::zeros_like(below).add(below, beta_);
    return at::softplus(scaled).sum().reshape({1});  // -log(sigmoid(-scaled))
  }

 private:
  double beta_;
};

struct Pairs {
  Tensor ids, labels;
};
// Each prompt is answered rightly with its last token again, wrongly with another.
Pairs pairs(int64_t count) {
  const Tensor prompts = at::remainder(at::arange(count * 9, at::kLong) * 7, 50).view({count, 9});
  const Tensor right = prompts.slice(1, 8, 9);
  const Tensor chosen = at::cat({prompts, right}, 1);
  const Tensor rejected = at::cat({prompts, at::remainder(right + 1, 50)}, 1);
  const Tensor ids = at::stack({chosen, rejected}, 1).view({2 * count, 10});
  const Tensor labels = ids.clone();
  labels.slice(1, 0, 9).fill_(-100);
  return {ids, labels};
}

int run(int argc, char** argv) {
  std::vector<std::string> options{"--model.config", argv[1], "--precision", "32-true"};
  options.insert(options.end(), argv + 2, argv + argc);
  const auto recipe = snug::read_recipe(options, /*full=*/true);
  const snug::TrainerOptions own{.longest = 10, .objective = std::make_shared<Dpo>(0.5)};
  std::printf("planned peak %lld\n",
              static_cast<long long>(snug::predict(recipe, 10, own).peak_allocated));
  snug::Trainer trainer(recipe, own);
  const auto [ids, labels] = pairs(recipe.train.global_batch_size);
  const snug::Columns reference = {{"reference", trainer.log_probs(ids, labels)}};
  const double before = trainer.evaluate(ids, labels, reference);  // log(2): nothing is preferred
  int64_t peak = 0;
  for (int i = 0; i < 20; ++i) peak = trainer.step(ids, labels, 1e-2, reference).peak_bytes;
  const double after = trainer.evaluate(ids, labels, reference);
  std::printf("measured peak %lld\nloss of a pair %.4f, after 20 steps %.4f\n",
              static_cast<long long>(peak), before, after);
  return std::abs(before - std::log(2.0)) < 1e-4 && after < 0.5 * before ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s config.json [OPTION...]\n", argv[0]), 2;
  try {
    return run(argc, argv);
  } catch (const snug::Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), error.exit_code();
  }
}
