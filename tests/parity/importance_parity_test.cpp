// Importance matrices of small models against what transformers' linear layers read.
// tests/oracles/input_squares.py wrote the expected values.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/export/collect_importance.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug::tests {
namespace {

class RowSource : public data::BatchSource {
 public:
  explicit RowSource(const ParityRows& rows) : rows_(rows) {}
  std::shared_ptr<const data::MicroBatch> make(std::span<const int64_t> indices) override {
    return std::make_shared<data::MicroBatch>(rows_.batch(indices.front(), std::ssize(indices)));
  }

 private:
  const ParityRows& rows_;
};

class ImportanceParity : public testing::TestWithParam<const char*> {};

TEST_P(ImportanceParity, EqualsTheInputsInTransformers) {
  if (!missing_device().empty()) GTEST_SKIP() << missing_device();
  prepare_test_device();
  const std::filesystem::path data = source_dir() / "tests/data/parity";
  models::Checkpoint checkpoint = models::open_checkpoint(data / GetParam());
  recipe::Recipe recipe;
  recipe.precision = "32-true";
  const auto loaded = engine::make_engine(*checkpoint.model, recipe, test_device(), 128);
  models::load_weights(checkpoint);
  const auto stored = files::open_safetensors(data / GetParam() / "expected.safetensors");
  const ParityRows rows(*stored, checkpoint.model->reads());
  RowSource source(rows);
  std::vector<int64_t> progress;
  const files::ImportanceMatrix matrix = engine::collect_importance(
      *loaded->executor, *checkpoint.model, source, rows.count(),
      {.micro_batch_size = 3, .progress = [&](int64_t done) { progress.push_back(done); }});
  EXPECT_EQ(progress, (std::vector<int64_t>{3, 6, 8}));

  const auto expected = files::open_safetensors(data / "input_squares.safetensors");
  size_t num_matrices = 0;
  for (const nn::Parameter* parameter : checkpoint.model->parameters()) {
    const auto place = [&](models::Layout layout) {
      return checkpoint.model->placement(layout, *parameter).tensor;
    };
    const std::string name = std::string(GetParam()) + "/" + place(models::Layout::HuggingFace);
    const auto found = matrix.columns.find(place(models::Layout::Gguf));
    if (expected->find(name) == nullptr) {
      EXPECT_TRUE(found == matrix.columns.end()) << found->first;
      continue;
    }
    ++num_matrices;
    ASSERT_TRUE(found != matrix.columns.end()) << name;
    const at::Tensor wanted = read(*expected, name);
    const at::Tensor means = at::tensor(found->second);
    ASSERT_EQ(means.sizes(), wanted.sizes()) << name;
    EXPECT_LE(((means - wanted) / wanted).abs().max().item<double>(), 1e-5) << name;
  }
  EXPECT_EQ(num_matrices, matrix.columns.size());
}

INSTANTIATE_TEST_SUITE_P(Models, ImportanceParity,
                         testing::Values("llama", "qwen2", "qwen3", "phi3", "gemma2"));

}  // namespace
}  // namespace snug::tests
