// A family of decoders of one's own: the first Gemma (Gemma Team 2024, arXiv:2403.08295), which
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
  "model_type": "gemma", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
  "max_position_embeddings": 64, "hidden_activation": "gelu_pytorch_tanh"
})";

void add_gemma() {
  snug::add_family({.model_type = "gemma",
                    .class_name = "GemmaForCausalLM",
                    .unit_offset = true,  // norms multiply by 1 + weight
                    .scaled_embedding = true,
                    .defaults = R"({"head_dim": 256, "num_key_value_heads": 16,
                                    "hidden_act": "gelu_pytorch_tanh",
                                    "hidden_activation": "gelu_pytorch_tanh",
                                    "attention_bias": false, "max_position_embeddings": 8192,
                                    "tie_word_embeddings": true})"});
}

int run(int argc, char** argv) {
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  add_gemma();
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
