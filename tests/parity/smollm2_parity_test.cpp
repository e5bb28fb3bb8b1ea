// The real SmolLM2-135M-Instruct against transformers in float64: logits, loss, every gradient (its
// norm and eight elements), twenty AdamW steps. tests/oracles/smollm2_parity.py wrote the expected
// values.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>

#include "core/memory/ledger.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug::tests {
namespace {

namespace fs = std::filesystem;

// Where scripts/fetch-smollm2 puts it.
fs::path model_path() {
  const char* cache = std::getenv("SNUG_CACHE");
  const char* home = std::getenv("HOME");
  const fs::path root = cache ? fs::path(cache) : fs::path(home ? home : "/") / ".cache/snug";
  return root / "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf";
}

TEST(SmolLm2, EqualsTransformers) {
  if (!fs::exists(model_path()))
    GTEST_SKIP() << model_path() << " is missing: scripts/fetch-smollm2";
  if (!missing_device().empty()) GTEST_SKIP() << missing_device();
  prepare_test_device();
  const auto expected =
      files::open_safetensors(tests::source_dir() / "tests/data/parity/smollm2.safetensors");
  models::Checkpoint checkpoint = models::open_checkpoint(model_path());
  recipe::Recipe recipe;
  recipe.precision = "32-true";
  recipe.optimizer = {.name = "adamw", .lr = 2e-5, .weight_decay = 0.01};
  const engine::Engine engine = engine::make_engine(*checkpoint.model, recipe, test_device(), 64);
  models::load_weights(checkpoint);
  const data::MicroBatch rows =
      rows_as_batch(read(*expected, "input_ids"), read(*expected, "labels"), 0, 2);
  const nn::Batch batch = engine::to_device(rows, test_device());
  const nn::Pass pass{.gradient_scale = 1.0 / static_cast<double>(rows.loss_tokens)};

  expect_close("logits", engine.executor->last_logits(batch, at::kFloat)[0],
               read(*expected, "last_logits"), 2e-5);
  const at::Tensor losses = read(*expected, "losses");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss =
        engine.executor->forward_backward(batch, pass) / static_cast<double>(rows.loss_tokens);
    EXPECT_NEAR(loss, losses[step].item<double>(), 1e-4 * losses[0].item<double>())
        << "step " << step;
    for (const auto& [name, tensor] : engine.parameters) {
      if (step > 0) break;
      const at::Tensor flat = tensor.grad().flatten().cpu();
      // Float32 roundings through thirty blocks: measured 1.2e-5 at most, 3e-6 for the elements.
      expect_close("gradient norm of " + name, flat.to(at::kDouble).norm().reshape({1}),
                   read(*expected, "grad_norm." + name), 5e-5);
      const at::Tensor sample = flat.index_select(0, at::arange(8, at::kLong) * (flat.numel() / 8));
      const double largest = flat.abs().max().item<double>();
      EXPECT_LE((sample - read(*expected, "grad_sample." + name)).abs().max().item<double>(),
                2e-5 * largest)
          << "gradient of " << name;
    }
    engine.optimizer->step({.lr = 2e-5});
    engine.drop_gradients();
  }
}

}  // namespace
}  // namespace snug::tests
