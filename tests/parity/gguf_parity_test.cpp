// Real models from GGUF files against transformers in float64: logits, loss, every gradient (its
// norm and eight elements), AdamW steps, greedy ids; and their vocabulary against
// sentencepiece. tests/oracles/gguf_parity.py wrote the expected values.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.h"
#include "core/memory/ledger.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/export/export.h"
#include "engine/export/vocabulary.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/pth/zip.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"
#include "support/test_device.h"
#include "unit/text/mixed_text.h"

namespace snug::tests {
namespace {

namespace fs = std::filesystem;

struct RealModel {
  const char* name;  // of `snug demo --model`
  const char* file;  // where it puts it
  const char* expected;
};

constexpr RealModel kModels[] = {
    {"smollm2", "smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"},
    {"gemma3", "gemma-3-270m/gemma-3-270m-q4_k_m.gguf", "gemma3-270m"},
};

fs::path model_path(const RealModel& model) {
  const char* cache = std::getenv("SNUG_CACHE");
  const char* home = std::getenv("HOME");
  const fs::path root = cache ? fs::path(cache) : fs::path(home ? home : "/") / ".cache/snug";
  return root / "models" / model.file;
}

class GgufParity : public testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    if (!fs::exists(model_path(GetParam())))
      GTEST_SKIP() << model_path(GetParam()) << " is missing: snug demo --fetch_only --model "
                   << GetParam().name;
    if (!missing_device().empty()) GTEST_SKIP() << missing_device();
    prepare_test_device();
    expected = files::open_safetensors(source_dir() / "tests/data/parity" /
                                       (std::string(GetParam().expected) + ".safetensors"));
    checkpoint = models::open_checkpoint(model_path(GetParam()));
    recipe::Recipe recipe;
    recipe.precision = "32-true";
    recipe.optimizer = {.name = "adamw", .lr = 2e-5, .weight_decay = 0.01};
    loaded = engine::make_engine(*checkpoint.model, recipe, test_device(), 1024);
    models::load_weights(checkpoint);
  }
  bool has(const char* name) const { return expected->find(name) != nullptr; }

  // The logits after the last token, as many as the oracle keeps.
  at::Tensor last_logits(const at::Tensor& ids) const {
    const nn::Batch batch = engine::to_device(rows_as_batch(ids, ids, 0, 1), test_device());
    return loaded->executor->last_logits(batch, at::kFloat)[0];
  }
  at::Tensor some_last_logits(const at::Tensor& ids) const {
    const at::Tensor all = last_logits(ids);
    return all.slice(0, 0, all.numel(), std::max<int64_t>(1, all.numel() / 49152));
  }

  std::unique_ptr<files::TensorSource> expected;
  models::Checkpoint checkpoint;
  std::unique_ptr<engine::Engine> loaded;
};

TEST_P(GgufParity, EqualsTransformers) {
  const data::MicroBatch rows =
      rows_as_batch(read(*expected, "input_ids"), read(*expected, "labels"), 0, 2);
  const nn::Batch batch = engine::to_device(rows, test_device());
  const nn::Pass pass{.gradient_scale = 1.0 / static_cast<double>(rows.loss_tokens)};

  expect_close("logits", some_last_logits(read(*expected, "input_ids")),
               read(*expected, "last_logits"), 2e-5);
  if (has("long_ids"))
    expect_close("logits beyond the window", some_last_logits(read(*expected, "long_ids")),
                 read(*expected, "long_logits"), 2e-5);
  const at::Tensor losses = read(*expected, "losses");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss =
        loaded->executor->forward_backward(batch, pass) / static_cast<double>(rows.loss_tokens);
    EXPECT_NEAR(loss, losses[step].item<double>(), 1e-4 * losses[0].item<double>())
        << "step " << step;
    for (const auto& [name, tensor] : loaded->parameters) {
      if (step > 0) break;
      const at::Tensor flat = tensor.grad().flatten().cpu();
      // Float32 roundings through thirty blocks: measured 1.2e-5 at most, and for the elements
      // 3e-6, or 2.3e-5 of Gemma's norms on a processor with other instructions.
      expect_close("gradient norm of " + name, flat.to(at::kDouble).norm().reshape({1}),
                   read(*expected, "grad_norm." + name), 5e-5);
      const at::Tensor sample = flat.index_select(0, at::arange(8, at::kLong) * (flat.numel() / 8));
      const double largest = flat.abs().max().item<double>();
      EXPECT_LE((sample - read(*expected, "grad_sample." + name)).abs().max().item<double>(),
                5e-5 * largest)
          << "gradient of " << name;
    }
    loaded->optimizer->step({.lr = 2e-5});
    loaded->drop_gradients();
  }
}

TEST_P(GgufParity, WritesTheSameTokens) {
  if (!has("greedy_ids")) GTEST_SKIP() << "not in the oracle's file";
  const at::Tensor wanted = read(*expected, "greedy_ids");
  for (int64_t row = 0; row < wanted.size(0); ++row)
    for (int64_t at = 16; at < wanted.size(1); ++at)
      ASSERT_EQ(last_logits(wanted[row].slice(0, 0, at).unsqueeze(0)).argmax().item<int64_t>(),
                wanted[row][at].item<int64_t>())
          << "row " << row << ", token " << at;
}

TEST_P(GgufParity, ReadsTextAsSentencepiece) {
  if (!has("line_hashes")) GTEST_SKIP() << "not in the oracle's file";
  const at::Tensor wanted = read(*expected, "line_hashes");
  const auto tokenizer = engine::open_tokenizer(checkpoint);
  const std::vector<std::string> lines =
      tokenizer::test::MixedText(7).lines(static_cast<size_t>(wanted.size(0)));
  for (int64_t i = 0; i < wanted.size(0); ++i) {
    const std::string& line = lines[static_cast<size_t>(i)];
    const uint8_t* bytes = wanted[i].const_data_ptr<uint8_t>();
    EXPECT_EQ(tokenizer::test::hash_ids(tokenizer->encode(line, true)),
              fmt::format("{:02x}{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2], bytes[3]))
        << "line " << i << ": " << line;
  }
}

// The importance matrix with which the oracle quantized.
files::ImportanceMatrix oracle_matrix(const std::vector<files::TensorInfo>& tensors) {
  files::ImportanceMatrix matrix;
  for (const files::TensorInfo& tensor : tensors) {
    if (tensor.shape.size() < 2 || !tensor.name.starts_with("blk.")) continue;
    std::vector<float>& columns = matrix.columns[tensor.name];
    for (int64_t i = 0; i < tensor.shape.back(); ++i)
      columns.push_back(static_cast<float>(1 + i * 7919 % 97));
  }
  return matrix;
}

// tests/oracles/gguf_quantize.py wrote the checksums, without an importance matrix and with one.
// Rows of 576 and of 1536, so that every type of every mix occurs.
TEST(GgufMixes, SmolLm2HasTheBytesOfLlamaQuantize) {
  const fs::path path = model_path(kModels[0]);
  if (!fs::exists(path)) GTEST_SKIP() << path << " is missing: snug demo --fetch_only";
  memory::install_allocators();
  const models::Checkpoint source = models::open_checkpoint(path);
  const auto tokenizer = engine::open_tokenizer(source);
  const auto read = [&](const nn::Parameter& parameter) {
    return models::read_parameter(source, parameter, models::stored_type(source, parameter));
  };
  const test::TempFolder folder;
  const auto checksums =
      nlohmann::json::parse(read_file(source_dir() / "tests/data/parity/smollm2_mixes.json"));
  ASSERT_EQ(checksums.size(), 10u);
  engine::export_gguf(folder / "m.gguf", *source.model, *tokenizer, read, {});
  const files::ImportanceMatrix matrix =
      oracle_matrix(files::GgufFile::open(folder / "m.gguf")->tensors());
  for (const auto& [name, wanted] : checksums.items()) {
    const std::string mix = name.substr(0, name.find(' '));
    engine::export_gguf(folder / "m.gguf", *source.model, *tokenizer, read,
                        {.gguf_type = mix, .importance = name == mix ? nullptr : &matrix});
    const auto file = files::GgufFile::open(folder / "m.gguf");
    std::vector<files::TensorInfo> tensors = file->tensors();
    std::ranges::sort(tensors, {}, &files::TensorInfo::name);
    uint32_t found = 0;
    for (const files::TensorInfo& tensor : tensors) found = files::crc32(file->raw(tensor), found);
    EXPECT_EQ(found, wanted.get<uint32_t>()) << name;
  }
}

struct Converted {
  const char* name;
  const char* source;  // in tests/data
};

// tests/oracles/gguf_converted.py wrote the files, by llama.cpp's converter.
class ConvertedGguf : public testing::TestWithParam<Converted> {};

TEST_P(ConvertedGguf, HasTheWeightsAndTheConfigOfItsDirectory) {
  memory::install_allocators();
  const fs::path data = source_dir() / "tests/data";
  const models::Checkpoint source = models::open_checkpoint(data / GetParam().source);
  const models::Checkpoint converted = models::open_checkpoint(
      data / "formats/converted" / (std::string(GetParam().name) + ".gguf"));
  const auto wanted = source.model->parameters(), found = converted.model->parameters();
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i]->name, wanted[i]->name);
    EXPECT_TRUE(at::equal(models::read_parameter(converted, *found[i], at::kFloat),
                          models::read_parameter(source, *wanted[i], at::kFloat)))
        << found[i]->name;
  }
  nlohmann::json said = converted.model->hugging_face_config();
  nlohmann::json meant = source.model->hugging_face_config();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "initializer_range",
                          "router_aux_loss_coef"}) {
    said.erase(key);
    meant.erase(key);
  }
  // Ministral 3's says it a second time there.
  if (meant.value("rope_scaling", nlohmann::json()).is_object())
    meant["rope_scaling"].erase("max_position_embeddings");
  EXPECT_EQ(said, meant);
}

INSTANTIATE_TEST_SUITE_P(Models, ConvertedGguf,
                         testing::Values(Converted{"gpt-oss", "formats/mxfp4"},
                                         Converted{"gpt-neox", "parity/gpt-neox"},
                                         Converted{"stablelm", "parity/stablelm"},
                                         Converted{"falcon", "parity/falcon-grouped"},
                                         Converted{"gpt2", "parity/gpt2"},
                                         Converted{"ministral3", "parity/ministral3"}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::erase(name, '-');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Models, GgufParity, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace snug::tests
