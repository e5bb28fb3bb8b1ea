// Trains a model on tensors of one's own and says where the memory went. The task: after a number
// comes the next one, modulo 50. Usage: own_tensors config.json [OPTION...], options as in
// `snug finetune_full`; config.json is that of any decoder that snug supports.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int64_t kSamples = 8, kTokens = 16, kNumbers = 50;

// (S, T) of counting rows: 17 18 19 …
at::Tensor counting_rows() {
  const at::Tensor first = at::randint(kNumbers, {kSamples, 1}, at::kLong);
  return at::remainder(first + at::arange(kTokens, at::kLong), kNumbers);
}

void print_memory(const snug::memory::Snapshot& peak) {
  for (size_t i = 0; i < peak.by_category.size(); ++i)
    if (peak.by_category[i] > 0)
      std::printf(" %s %s", snug::memory::name(static_cast<snug::memory::Category>(i)),
                  snug::format_bytes(peak.by_category[i]).c_str());
  std::printf("\n");
}

void run(int argc, char** argv) {
  std::vector<std::string> options{"--model.config", argv[1], "--precision", "32-true"};
  options.insert(options.end(), argv + 2, argv + argc);
  const snug::recipe::Recipe recipe = snug::read_recipe(options, /*full=*/true);
  std::printf("planned peak %s\n",
              snug::format_bytes(snug::predict(recipe, kTokens).peak_allocated).c_str());
  snug::Trainer trainer(recipe, {.longest = kTokens});
  int64_t peak = 0;
  for (int i = 1; i <= 30; ++i) {
    const at::Tensor rows = counting_rows();
    const snug::Step step = trainer.step(rows, rows, 1e-2);
    peak = std::max(peak, step.peak_bytes);
    if (i % 10 == 0 || i == 1) std::printf("step %2d  loss %.4f\n", i, step.loss);
  }
  std::printf("measured peak %s, of which", snug::format_bytes(peak).c_str());
  print_memory(trainer.ledger().at_peak());
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
