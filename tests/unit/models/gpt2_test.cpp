// GPT-2: weights that files keep as (in, out), read whole, in slices and quantized; files that
// leave out the names' beginning; minGPT's sizes; what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "core/ops/linear/stored_weight.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::models {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(SNUG_SOURCE_DIR) / "tests/data/parity/gpt2";
constexpr const char* kLayer = "transformer.h.1.attn.c_attn.weight";

at::Tensor in_file(const files::TensorSource& source, const std::string& name) {
  const files::TensorInfo* info = source.find(name);
  at::Tensor out = at::empty(info->shape, at::kFloat);
  source.read(*info, info->dtype, out.mutable_data_ptr());
  return out;
}

class TransposedWeights : public testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  static nn::Parameter& find(Checkpoint& checkpoint, const std::string& name) {
    for (nn::Parameter* parameter : checkpoint.model->parameters())
      if (parameter->name == name) return *parameter;
    throw std::runtime_error("no " + name);
  }

  Checkpoint checkpoint_ = open_checkpoint(kFolder);
  nn::Parameter& layer_ = find(checkpoint_, kLayer);  // (96, 32)
  at::Tensor whole_ = in_file(*checkpoint_.tensors, kLayer).t();
};

TEST_F(TransposedWeights, AreReadWhole) {
  EXPECT_EQ(whole_.sizes(), at::IntArrayRef({96, 32}));
  EXPECT_TRUE(at::equal(read_parameter(checkpoint_, layer_, at::kFloat), whole_));
  EXPECT_TRUE(
      at::equal(read_parameter(checkpoint_, layer_, at::kBFloat16), whole_.to(at::kBFloat16)));
}

TEST_F(TransposedWeights, AreReadInSlicesAlongBothSides) {
  for (const int64_t dim : {0, 1}) {
    nn::Parameter part;
    part.name = layer_.name;
    part.shape = layer_.shape;
    part.shape[static_cast<size_t>(dim)] = 11;
    part.slice = nn::Slice{.dim = dim, .begin = 7, .whole = layer_.shape};
    EXPECT_TRUE(at::equal(read_parameter(checkpoint_, part, at::kFloat), whole_.slice(dim, 7, 18)))
        << "along " << dim;
  }
}

TEST_F(TransposedWeights, AreQuantizedRowByRowOfOurs) {
  layer_.quantization = nn::Quantization{.format = ops::QuantizedFormat::Int8};
  layer_.allocate(at::kCPU, at::kFloat);
  load_weights(checkpoint_, {&layer_});
  const ops::StoredWeight wanted = ops::quantize(whole_.contiguous(), ops::QuantizedFormat::Int8);
  EXPECT_TRUE(at::equal(layer_.value, wanted.data));
}

TEST_F(TransposedWeights, NamesMayBeginWithoutTransformer) {
  const test::TempFolder folder;
  const files::TensorSource& source = *checkpoint_.tensors;
  std::vector<files::TensorInfo> infos;
  for (const files::TensorInfo& tensor : source.tensors())
    infos.push_back(files::make_tensor_info(tensor.name.substr(std::string("transformer.").size()),
                                            tensor.dtype, tensor.shape));
  at::Tensor held;
  files::write_sharded(folder.path(), infos, int64_t{1} << 30, [&](const files::TensorInfo& info) {
    held = in_file(source, "transformer." + info.name);
    return std::as_bytes(
        std::span(held.const_data_ptr<float>(), static_cast<size_t>(held.numel())));
  });
  write_file_atomically(folder / "config.json", read_file(kFolder / "config.json"));
  const Checkpoint bare = open_checkpoint(folder.path());
  for (const nn::Parameter* parameter : checkpoint_.model->parameters())
    EXPECT_TRUE(at::equal(read_parameter(bare, *parameter, at::kFloat),
                          read_parameter(checkpoint_, *parameter, at::kFloat)))
        << parameter->name;
}

class Gpt2Config : public testing::Test {
 protected:
  std::unique_ptr<Model> make(const nlohmann::json& config) const {
    write_file_atomically(folder_ / "config.json", config.dump());
    return model_from_config(folder_ / "config.json");
  }
  test::TempFolder folder_;
};

// minGPT's model of the sorting demonstration: three tokens, sequences of 6 and their answers. It
// counts all but the head, which is (3, 48).
TEST_F(Gpt2Config, HasMinGptsSizes) {
  const nlohmann::json nano = {{"model_type", "gpt2"},
                               {"n_layer", 3},
                               {"n_head", 3},
                               {"n_embd", 48},
                               {"vocab_size", 3},
                               {"n_positions", 11},
                               {"tie_word_embeddings", false}};
  EXPECT_EQ(make(nano)->num_parameters() - 3 * 48, 85'584);
}

// GPT-2's four, as released.
TEST_F(Gpt2Config, SizesCountAsPublished) {
  const std::vector<std::pair<std::string, int64_t>> sizes = {{"gpt2", 124'439'808},
                                                              {"gpt2-medium", 354'823'168},
                                                              {"gpt2-large", 774'030'080},
                                                              {"gpt2-xl", 1'557'611'200}};
  const fs::path models = fs::path(SNUG_SOURCE_DIR) / "recipes/models";
  for (const auto& [name, parameters] : sizes)
    EXPECT_EQ(model_from_config(models / (name + ".json"))->num_parameters(), parameters) << name;
}

TEST_F(Gpt2Config, DefaultsAreGpt2s) {
  EXPECT_EQ(make({{"model_type", "gpt2"}})->num_parameters(), 124'439'808);
}

TEST_F(Gpt2Config, RefusalsNameFileAndKey) {
  const auto refusal = [&](const char* key, const nlohmann::json& value) -> std::string {
    try {
      make({{"model_type", "gpt2"}, {key, value}});
    } catch (const UserError& error) {
      return error.what();
    }
    return "it is not refused";
  };
  const auto expect = [&](const std::string& found, const char* words) {
    EXPECT_NE(found.find("config.json"), std::string::npos) << found;
    EXPECT_NE(found.find(words), std::string::npos) << found;
  };
  expect(refusal("n_embd", 0), "n_embd = 0 is out of range");
  expect(refusal("n_head", 5), "n_head = 5 attention heads");
  expect(refusal("resid_pdrop", 1.0), "resid_pdrop = 1");
  expect(refusal("activation_function", "cosine"), "activation_function");
  expect(refusal("add_cross_attention", true), "add_cross_attention");
  const auto model = make({{"model_type", "gpt2"}, {"n_positions", 128}});
  EXPECT_NO_THROW(model->prepare(at::kCPU, 128));
  EXPECT_THROW(model->prepare(at::kCPU, 129), UserError);
}

}  // namespace
}  // namespace snug::models
