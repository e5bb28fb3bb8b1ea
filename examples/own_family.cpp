// A family of decoders of one's own: the Code World Model (CWM Team 2025, arXiv:2510.02387), which
// snug's table does not have, as a row. Usage: own_family FOLDER [OPTION...]; a small config.json
// is written there.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr const char* kConfig = R"({
  "model_type": "cwm", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
  "max_position_embeddings": 64, "sliding_window": 8,
  "layer_types": ["full_attention", "sliding_attention"]
})";

void add_cwm() {
  snug::add_family({.model_type = "cwm",
                    .class_name = "CwmForCausalLM",
                    .defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "mlp_bias": false,
                                    "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                                    "rope_scaling": {"rope_type": "llama3", "factor": 16.0,
                                      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192},
                                    "sliding_window": 8192, "layer_types": null,
                                    "max_position_embeddings": 131072})"});
}

int run(int argc, char** argv) {
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  add_cwm();
  std::vector<std::string> options{"--model.config", folder / "config.json", "--precision",
                                   "32-true"};
  options.insert(options.end(), argv + 2, argv + argc);
  const auto recipe = snug::read_recipe(options, /*full=*/true);
  std::printf("planned peak %lld\n",
              static_cast<long long>(snug::predict(recipe, 32).peak_allocated));
  snug::Trainer trainer(recipe, {.longest = 32});
  const at::Tensor rows =
      at::remainder(at::arange(recipe.train.global_batch_size * 32, at::kLong), 50).view({-1, 32});
  const double before = trainer.evaluate(rows, rows);
  snug::Step step;
  for (int i = 0; i < 20; ++i) step = trainer.step(rows, rows, 1e-2);
  const double after = trainer.evaluate(rows, rows);
  std::printf("measured peak %lld\nloss %.4f, after 20 steps %.4f\n",
              static_cast<long long>(step.peak_bytes), before, after);
  trainer.save(folder / "final");
  return after < 0.5 * before ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s FOLDER [OPTION...]\n", argv[0]), 2;
  try {
    return run(argc, argv);
  } catch (const snug::Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), error.exit_code();
  }
}
