// A technique of one's own, with an option: --unit_clip N scales the gradients of each unit of the
// model down to a norm of N, unit by unit in the backward, before the step's update. The option is
// read, checked and planned like snug's own. Usage: own_technique config.json [OPTION...], as in
// own_technique config.json --unit_clip 0.05
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using snug::recipe::Recipe;
constexpr const char* kKey = "unit_clip";

class UnitClip final : public snug::exec::Policy {
 public:
  explicit UnitClip(double most) : most_(most) {}

  // Tensors only, no numbers: a plan runs this on tensors without contents.
  void after_backward(snug::exec::UnitRun& run) override {
    if (!run.pass->last_micro_batch) return;
    std::vector<at::Tensor> gradients;
    for (const snug::nn::Parameter* parameter : run.unit->parameters())
      if (parameter->value.grad().defined()) gradients.push_back(parameter->value.grad());
    if (gradients.empty()) return;
    at::Tensor squares = at::zeros({}, gradients.front().options().dtype(at::kFloat));
    for (const at::Tensor& g : gradients) squares += g.to(at::kFloat).square().sum();
    const at::Tensor factor = (most_ / (squares.sqrt() + 1e-6)).clamp_max(1);
    for (const at::Tensor& g : gradients) g.mul_(factor);
  }

 private:
  double most_;
};

double most_of(const Recipe& recipe) { return snug::recipe::extra_option(recipe, kKey, 0.0); }

void add_unit_clip() {
  snug::add_technique(
      {.key = kKey,
       .option =
           [](Recipe& r) {
             return snug::recipe::Row{.key = kKey,
                                      .slot = snug::recipe::extra_option(r, kKey, 0.0),
                                      .help = "scale each unit's gradients down to this norm",
                                      .min = 0};
           },
       .excludes = {{"optimizer_offload", "one reads gradients that the other has moved away"}},
       .values = {"0.0", "1.0"},
       .may_try = [](const Recipe&) { return false; }},
      {.key = kKey,
       .policy = [](const Recipe& recipe,
                    snug::engine::Engine&) -> std::shared_ptr<snug::exec::Policy> {
         return std::make_shared<UnitClip>(most_of(recipe));
       }});
}

void run(int argc, char** argv) {
  add_unit_clip();
  std::vector<std::string> options{"--model.config", argv[1], "--precision", "32-true"};
  options.insert(options.end(), argv + 2, argv + argc);
  const Recipe recipe = snug::read_recipe(options, /*full=*/true);
  std::printf("planned peak %lld\n",
              static_cast<long long>(snug::predict(recipe, 64).peak_allocated));
  snug::Trainer trainer(recipe, {.longest = 64});
  const at::Tensor rows =
      at::remainder(at::arange(recipe.train.global_batch_size * 64, at::kLong), 50).view({-1, 64});
  const snug::Step step = trainer.step(rows, rows);
  std::printf("measured peak %lld\ngradient norm %.6f of %zu units\n",
              static_cast<long long>(step.peak_bytes), step.grad_norm, trainer.units().size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s config.json [OPTION...]\n", argv[0]), 2;
  try {
    run(argc, argv);
  } catch (const snug::Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), error.exit_code();
  }
}
