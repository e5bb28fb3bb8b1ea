// An optimizer of one's own, as a formula: Adagrad (Duchi et al. 2011), whose rate falls with the
// sum of an element's squared gradients. It is held to the same formula computed here with
// libtorch, and its plan to what it takes. Usage: own_optimizer config.json [OPTION...]
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using snug::kernels::ElementOptions;

struct Adagrad {
  static constexpr const char* kName = "adagrad";
  static constexpr int kStates = 1;
  static constexpr std::array<const char*, kStates> kStateNames = {"sum"};

  struct Factors {
    float lr, eps;
  };
  static Factors factors(const ElementOptions& o) {
    return {static_cast<float>(o.lr), static_cast<float>(o.eps)};
  }
  template <class Math, class F>
  static void update(F& p, F g, F* states, const Factors& f) {
    states[0] = states[0] + g * g;
    p = p - g * f.lr / (Math::square_root(states[0]) + f.eps);
  }
};

// Notes the gradients of a step's backward, of one unit's first parameter.
class Gradient final : public snug::exec::Policy {
 public:
  void after_backward(snug::exec::UnitRun& run) override {
    if (run.index == 0) last = run.unit->parameters().front()->value.grad().clone();
  }
  at::Tensor last;
};

int run(int argc, char** argv) {
  std::vector<std::string> options{"--model.config",   argv[1], "--precision", "32-true",
                                   "--train.max_norm", "0"};
  options.insert(options.end(), argv + 2, argv + argc);
  const auto recipe = snug::read_recipe(options, /*full=*/true);
  snug::TrainerOptions own{.longest = 64, .optimizer = snug::optim::portable<Adagrad>()};
  std::printf("planned peak %lld\n",
              static_cast<long long>(snug::predict(recipe, 64, own).peak_allocated));
  snug::Trainer plain(recipe, own);
  const at::Tensor rows =
      at::remainder(at::arange(recipe.train.global_batch_size * 64, at::kLong), 50).view({-1, 64});
  std::printf("measured peak %lld\n", static_cast<long long>(plain.step(rows, rows).peak_bytes));

  const auto gradient = std::make_shared<Gradient>();
  own.policies = {[gradient] { return gradient; }};
  snug::Trainer watched(recipe, own);
  const at::Tensor& weight = watched.parameters().front()->value;
  const at::Tensor expected = weight.detach().clone(), sum = at::zeros_like(expected);
  double first = 0, last = 0;
  for (int i = 0; i < 5; ++i) {
    last = watched.step(rows, rows, 1e-2).loss;
    if (i == 0) first = last;
    sum.add_(gradient->last.square());
    expected.sub_(1e-2 * gradient->last / (sum.sqrt() + recipe.optimizer.eps));
  }
  const double difference = (weight.detach() - expected).abs().max().item<double>();
  std::printf("loss %.4f, after 5 steps %.4f; farthest from libtorch's Adagrad: %.1e\n", first,
              last, difference);
  return difference < 1e-6 && last < first ? 0 : 1;
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
