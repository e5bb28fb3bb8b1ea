// Experts in MXFP4 against what transformers makes of the same files (tests/oracles/mxfp4.py): each
// matrix to the bit, logits, the plain files written from them, and quantizing them again.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "engine/batch.h"
#include "engine/exec/executor.h"
#include "engine/export/export.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

class Mxfp4 : public testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  const fs::path folder_ = tests::source_dir() / "tests/data/formats/mxfp4";
  const std::unique_ptr<files::TensorSource> expected_ =
      files::open_safetensors(folder_ / "expected.safetensors");
};

void load(models::Checkpoint& checkpoint, at::ScalarType type) {
  for (nn::Parameter* parameter : checkpoint.model->parameters()) {
    parameter->trained = false;
    parameter->allocate(at::kCPU, type);
  }
  models::load_weights(checkpoint);
}

int compare_matrices(models::Checkpoint& checkpoint, const files::TensorSource& expected) {
  int compared = 0;
  for (const nn::Parameter* parameter : checkpoint.model->parameters()) {
    if (expected.find(parameter->name) == nullptr) continue;
    EXPECT_TRUE(
        at::equal(parameter->value,
                  tests::read(expected, parameter->name).to(parameter->value.scalar_type())))
        << parameter->name;
    ++compared;
  }
  return compared;
}

TEST_F(Mxfp4, EveryMatrixIsTransformers) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    models::Checkpoint checkpoint = models::open_checkpoint(folder_);
    load(checkpoint, type);
    EXPECT_EQ(compare_matrices(checkpoint, *expected_), 2 * 3 * 2);
    for (const nn::Parameter* parameter : checkpoint.model->parameters())
      EXPECT_EQ(models::stored_type(checkpoint, *parameter), at::kBFloat16) << parameter->name;
  }
}

TEST_F(Mxfp4, LogitsAreTransformers) {
  models::Checkpoint checkpoint = models::open_checkpoint(folder_);
  load(checkpoint, at::kFloat);
  checkpoint.model->prepare(at::kCPU, 64);
  exec::Executor executor(checkpoint.model->units(), {}, memory::ledger_of(at::kCPU));
  const at::Tensor ids = tests::read(*expected_, "input_ids");
  const nn::Batch batch = engine::to_device(tests::rows_as_batch(ids, ids, 0, 1), at::kCPU);
  tests::expect_close("logits", executor.last_logits(batch, at::kFloat),
                      tests::read(*expected_, "logits").select(1, ids.size(1) - 1), 1e-5);
}

// Written as bfloat16 and read again: the same numbers. Quantized to NF4, from MXFP4 a stretch at a
// time, they are the same codes; from a GGUF file too, where gates and ups are two tensors.
TEST_F(Mxfp4, IsWrittenAsPlainNumbers) {
  const test::TempFolder out;
  models::Checkpoint checkpoint = models::open_checkpoint(folder_);
  engine::export_hugging_face(out.path() / "plain", *checkpoint.model, nullptr,
                              [&](const nn::Parameter& parameter) {
                                return models::read_parameter(checkpoint, parameter, at::kBFloat16);
                              },
                              {.dtype = at::kBFloat16});
  const std::string config = read_file(out.path() / "plain/config.json", 1 << 20);
  EXPECT_FALSE(nlohmann::json::parse(config).contains("quantization_config"));
  models::Checkpoint plain = models::open_checkpoint(out.path() / "plain");
  EXPECT_NE(plain.tensors->find("model.layers.1.mlp.experts.gate_up_proj"), nullptr);
  models::Checkpoint gguf =
      models::open_checkpoint(folder_.parent_path() / "converted/gpt-oss.gguf");
  for (models::Checkpoint* each : {&checkpoint, &plain, &gguf}) {
    for (nn::Parameter* parameter : each->model->parameters())
      if (parameter->name.find(".experts.") != std::string::npos && parameter->shape.size() == 2)
        parameter->quantization =
            nn::Quantization{.format = kernels::QuantizedFormat::Nf4, .source = at::kBFloat16};
    for (const nn::Parameter* parameter : each->model->parameters())
      if (parameter->quantization) {
        EXPECT_EQ(models::stored_type(*each, *parameter), at::kBFloat16) << parameter->name;
      }
    load(*each, at::kBFloat16);
  }
  const auto ours = checkpoint.model->parameters();
  for (models::Checkpoint* each : {&plain, &gguf}) {
    const auto again = each->model->parameters();
    ASSERT_EQ(ours.size(), again.size());
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_TRUE(at::equal(ours[i]->value, again[i]->value)) << ours[i]->name;
  }
}

TEST_F(Mxfp4, RefusesAnotherShape) {
  const test::TempFolder copy;
  fs::copy(folder_, copy.path(), fs::copy_options::recursive);
  nlohmann::json config = nlohmann::json::parse(read_file(folder_ / "config.json", 1 << 20));
  config["intermediate_size"] = 64;
  write_file_atomically(copy.path() / "config.json", config.dump());
  models::Checkpoint checkpoint = models::open_checkpoint(copy.path());
  try {
    load(checkpoint, at::kFloat);
    FAIL() << "it is read";
  } catch (const UserError& error) {
    EXPECT_NE(
        std::string(error.what()).find("has shape [3, 64, 64], the config asks for [3, 128, 64]"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace snug
