// What a checkpoint holds beside or instead of what its model reads: said, or refused.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::models {
namespace {

namespace fs = std::filesystem;
using files::DType;
using files::TensorInfo;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A tensor to write: as it stands in the model's file, or of bytes of a kind of its own.
struct Stored {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

class StoredWeights : public ::testing::Test {
 protected:
  void SetUp() override { take("llama"); }

  void take(const char* name) {
    stored_.clear();
    const fs::path model = fs::path(SNUG_SOURCE_DIR) / "tests/data/parity" / name;
    config_ = nlohmann::json::parse(read_file(model / "config.json"));
    const auto source = files::open_safetensors(model / "model.safetensors");
    for (const TensorInfo& info : source->tensors()) {
      const auto raw = source->raw(info);
      stored_.push_back({info, {raw.begin(), raw.end()}});
    }
  }

  Stored& stored(const std::string& name) {
    return *std::ranges::find_if(stored_, [&](const Stored& s) { return s.info.name == name; });
  }

  void add(const std::string& name, DType type, std::vector<int64_t> shape, unsigned char byte) {
    TensorInfo info{.name = name, .dtype = type, .shape = std::move(shape)};
    info.nbytes = files::bytes_for(type, info.num_elements());
    stored_.push_back({info, std::vector<std::byte>(static_cast<size_t>(info.nbytes),
                                                    static_cast<std::byte>(byte))});
  }

  // Reads all weights; what was warned of.
  std::string load() const {
    write_file_atomically(folder_ / "config.json", config_.dump());
    std::vector<TensorInfo> infos;
    for (const Stored& tensor : stored_) infos.push_back(tensor.info);
    files::SafetensorsWriter writer(folder_ / "model.safetensors", infos);
    for (const Stored& tensor : stored_) writer.write(tensor.info.name, tensor.bytes);
    writer.finish();

    std::string said;
    const LogSinkGuard guard([&said](const std::string& text) { said += text; });
    Checkpoint checkpoint = open_checkpoint(folder_.path());
    grow_vocabulary(checkpoint, checkpoint.model->dimensions().vocabulary + more_rows_);
    for (nn::Parameter* parameter : checkpoint.model->parameters())
      parameter->allocate(at::kCPU, at::kFloat);
    load_weights(checkpoint);
    return said;
  }

  std::string refusal() const {
    try {
      load();
    } catch (const UserError& error) {
      return error.what();
    }
    return "it is not refused";
  }

  test::TempFolder folder_;
  nlohmann::json config_;
  std::vector<Stored> stored_;
  int64_t more_rows_ = 0;  // of the vocabulary
};

TEST_F(StoredWeights, AreReadWithoutAWordWhereAllHaveAPlace) { EXPECT_EQ(load(), ""); }

TEST_F(StoredWeights, AreRefusedWhereTheConfigHasNoPlaceForThem) {
  add("model.layers.99.self_attn.q_proj.weight", DType::F32, {2, 2}, 1);
  add("model.layers.0.self_attn.q_proj.bias", DType::F32, {4}, 2);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("config has no place for 2 tensors"),
                               HasSubstr("model.layers.99.self_attn.q_proj.weight"),
                               HasSubstr("model.layers.0.self_attn.q_proj.bias")));
}

TEST_F(StoredWeights, ListAFewOfMany) {
  for (int layer = 70; layer < 90; ++layer)
    add("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight", DType::F32, {2, 2}, 3);
  const std::string said = refusal();
  EXPECT_THAT(said, AllOf(HasSubstr("20 tensors"), HasSubstr("…")));
  EXPECT_LT(said.size(), 600U);
}

TEST_F(StoredWeights, MayHoldOldBuffersAndCopies) {
  add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::F32, {4}, 1);
  add("position_ids", DType::I64, {1, 8}, 0);
  Stored copy = stored("model.embed_tokens.weight");
  copy.info.name = "copied.words.weight";
  stored_.push_back(copy);
  EXPECT_EQ(load(), "");
}

// A block that predicts a further token stands behind the last one.
TEST_F(StoredWeights, OfFurtherTokensAndWithoutElementsAreLeftOut) {
  add("model.layers.2.mlp.gate_proj.weight", DType::F32, {1}, 1);
  EXPECT_THAT(refusal(), HasSubstr("model.layers.2.mlp.gate_proj.weight"));
  add("model.layers.2.eh_proj.weight", DType::F32, {1}, 1);
  EXPECT_EQ(load(), "");
  add("model.layers.0.mlp.shared.weight", DType::F32, {0}, 1);
  EXPECT_EQ(load(), "");
}

// Published files of Gemma 4 have keys and values of blocks that attend to others'.
TEST_F(StoredWeights, OfBlocksThatShareKeysAreLeftOut) {
  take("gemma4-shared");
  for (const char* part : {"k_proj", "v_proj", "k_norm", "v_norm"})
    add(std::string("model.layers.4.self_attn.") + part + ".weight", DType::F32, {2}, 1);
  EXPECT_EQ(load(), "");
  more_rows_ = 5;  // of both tables
  EXPECT_EQ(load(), "");
  add("model.layers.0.self_attn.v_norm.weight", DType::F32, {2}, 1);
  EXPECT_THAT(refusal(), HasSubstr("model.layers.0.self_attn.v_norm.weight"));
}

// As no program writes them.
TEST_F(StoredWeights, AreRefusedWithoutDimensions) {
  for (const char* const name : {"model.norm.weight", "model.embed_tokens.weight"}) {
    Stored& weight = stored(name);
    weight.info.shape = {};
    weight.info.nbytes = 4;
    weight.bytes.resize(4);
  }
  add("one.number", DType::F32, {}, 1);
  for (const int64_t rows : {0, 3}) {
    more_rows_ = rows;
    EXPECT_NE(refusal(), "it is not refused") << rows;
  }
}

TEST_F(StoredWeights, AreRefusedAsCodes) {
  Stored& weight = stored("model.layers.0.mlp.up_proj.weight");
  weight.info.dtype = DType::I8;
  weight.info.nbytes = weight.info.num_elements();
  weight.bytes.resize(static_cast<size_t>(weight.info.nbytes));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"), HasSubstr("I8"),
                               HasSubstr("quantized"), HasSubstr("--quantize")));
}

}  // namespace
}  // namespace snug::models
