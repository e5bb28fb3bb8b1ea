// Idefics3 and SmolVLM as a pair of GGUF files: against the files that llama.cpp's converter made
// of the same model (tests/oracles/gguf_converted.py), and written and read back.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "core/nn/linear.h"
#include "engine/adapters/gguf_adapter.h"
#include "engine/export/export.h"
#include "engine/export/vocabulary.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/pth/zip.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kModel = fs::path(SNUG_SOURCE_DIR) / "tests/data/system/smolvlm";
const fs::path kConverted = fs::path(SNUG_SOURCE_DIR) / "tests/data/formats/converted";

class PictureGguf : public testing::Test {
 protected:
  void SetUp() override {
    memory::install_allocators();
    source_ = models::open_checkpoint(kModel);
  }

  // As smolvlm.gguf and mmproj-smolvlm.gguf.
  fs::path write(const models::Checkpoint& source, const ExportOptions& options) const {
    const auto tokenizer = open_tokenizer(source);
    const auto read = [&](const nn::Parameter& parameter) {
      return models::read_parameter(source, parameter, at::kFloat);
    };
    export_gguf(folder_ / "smolvlm.gguf", *source.model, *tokenizer, read, options);
    return folder_ / "smolvlm.gguf";
  }
  fs::path write(const ExportOptions& options) const { return write(source_, options); }

  // The model with another config.json.
  models::Checkpoint changed(const std::function<void(json&)>& change) const {
    fs::copy(kModel, folder_ / "changed", fs::copy_options::recursive);
    json config = json::parse(read_file(kModel / "config.json"));
    change(config);
    write_file_atomically(folder_ / "changed/config.json", config.dump());
    return models::open_checkpoint(folder_ / "changed");
  }

  std::string refusal_of(const std::function<void()>& act) const {
    try {
      act();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  const test::TempFolder folder_;
  models::Checkpoint source_;
};

void expect_same_weights(const models::Checkpoint& found, const models::Checkpoint& wanted,
                         at::ScalarType type = at::kFloat) {
  const std::vector<nn::Parameter*> all = wanted.model->parameters(),
                                    read = found.model->parameters();
  ASSERT_EQ(read.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(read[i]->name, all[i]->name);
    EXPECT_TRUE(at::equal(models::read_parameter(found, *read[i], type),
                          models::read_parameter(wanted, *all[i], type)))
        << all[i]->name;
  }
}

// All but what describes the file.
std::map<std::string, std::string> said(const files::GgufFile& file) {
  std::map<std::string, std::string> all;
  for (const auto& [key, value] : file.metadata())
    if (key != "general.size_label" && key != "general.quantization_version")
      all[key] = files::GgufFile::show(value);
  return all;
}

std::set<std::string> names_in(const files::TensorSource& source) {
  std::set<std::string> names;
  for (const files::TensorInfo& tensor : source.tensors()) names.insert(tensor.name);
  return names;
}

TEST_F(PictureGguf, HasTensorsAndKeysOfLlamaCppsConverter) {
  const fs::path written = write({.dtype = at::kFloat});
  for (const fs::path& name : {written, files::pictures_file(written)}) {
    const auto ours = files::GgufFile::open(name);
    const auto theirs = files::GgufFile::open(kConverted / name.filename());
    EXPECT_EQ(names_in(*ours), names_in(*theirs));
    for (const files::TensorInfo& wanted : theirs->tensors()) {
      const files::TensorInfo* found = ours->find(wanted.name);
      ASSERT_NE(found, nullptr) << wanted.name;
      EXPECT_EQ(found->dtype, wanted.dtype) << wanted.name;
      EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
      EXPECT_TRUE(std::ranges::equal(ours->raw(*found), theirs->raw(wanted))) << wanted.name;
    }
    auto found = said(*ours), wanted = said(*theirs);
    // Theirs says the usual width of heads, ours what the tokenizer adds to a text.
    for (const char* key : {"llama.attention.key_length", "llama.attention.value_length"})
      wanted.erase(key);
    std::erase_if(found,
                  [](const auto& entry) { return entry.first.starts_with("tokenizer.ggml.add_"); });
    EXPECT_EQ(found, wanted);
  }
}

// A row of 24 or 40 is no whole block of Q8_0.
TEST_F(PictureGguf, HasTypesAndBytesOfLlamaCppsConverter) {
  const json expected = json::parse(read_file(kConverted / "mmproj-smolvlm.json"));
  const std::vector<std::pair<const char*, ExportOptions>> cases{{"F16", {.dtype = at::kHalf}},
                                                                 {"BF16", {.dtype = at::kBFloat16}},
                                                                 {"Q8_0", {.gguf_type = "Q8_0"}},
                                                                 {"Q8_0", {.gguf_type = "Q4_K_M"}}};
  for (const auto& [name, options] : cases) {
    const auto file = files::GgufFile::open(files::pictures_file(write(options)));
    ASSERT_EQ(file->tensors().size(), expected[name].size());
    for (const files::TensorInfo& tensor : file->tensors()) {
      const json found{files::name(tensor.dtype), files::crc32(file->raw(tensor))};
      EXPECT_EQ(found, expected[name][tensor.name]) << name << " " << tensor.name;
    }
    const json numbers{{"F16", 1}, {"BF16", 32}, {"Q8_0", 7}};
    EXPECT_EQ(file->integer("general.file_type"), numbers[name]);
  }
}

TEST_F(PictureGguf, OfLlamaCppsConverterIsRead) {
  const models::Checkpoint read = models::open_checkpoint(kConverted / "smolvlm.gguf");
  expect_same_weights(read, source_);
  const data::Reading found = read.model->reads(), wanted = source_.model->reads();
  EXPECT_EQ(found.picture_token, wanted.picture_token);
  EXPECT_EQ(found.num_picture_tokens, wanted.num_picture_tokens);
  EXPECT_EQ(found.image_size, wanted.image_size);
  EXPECT_EQ(found.image_mean, wanted.image_mean);
  EXPECT_EQ(found.image_std, wanted.image_std);
  EXPECT_EQ(found.longest_side, 56);
  EXPECT_EQ(wanted.longest_side, 56);
  const std::string text = "User:<fake_token_around_image><row_1_col_1><image> What is this?";
  EXPECT_EQ(open_tokenizer(read)->encode(text, false),
            open_tokenizer(source_)->encode(text, false));
}

// The tied head of one and the own head of the other too.
TEST_F(PictureGguf, KeepsWeightsOfEachTypeAndConfig) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const bool tied : {false, true}) {
      const models::Checkpoint source = changed([&](json& config) {
        config["text_config"]["tie_word_embeddings"] = config["tie_word_embeddings"] = tied;
      });
      const models::Checkpoint read = models::open_checkpoint(write(source, {.dtype = type}));
      expect_same_weights(read, source, type);
      const json found = read.model->hugging_face_config();
      const json wanted = source.model->hugging_face_config();
      for (const char* key :
           {"model_type", "architectures", "image_token_id", "scale_factor", "tie_word_embeddings"})
        EXPECT_EQ(found[key], wanted[key]) << key;
      for (const auto& [key, value] : found["vision_config"].items()) {
        if (wanted["vision_config"].contains(key)) {
          EXPECT_EQ(value, wanted["vision_config"][key]) << key;
        }
      }
      json text = wanted["text_config"];
      text.erase("initializer_range");  // for random weights alone
      for (const auto& [key, value] : text.items())
        EXPECT_EQ(found["text_config"][key], value) << key;
      fs::remove_all(folder_ / "changed");
    }
}

// Vision models whose files have ffn_up and ffn_down the other way round: those of llama.cpp's
// first converter, and any whose MLP is as wide as they are, which llama.cpp takes for such.
TEST_F(PictureGguf, ExchangedLayersAreReadAsLlamaCppReadsThem) {
  const fs::path written = write({.dtype = at::kFloat});
  const fs::path pictures = files::pictures_file(written);
  const auto exchanged = [](std::string name) {
    for (const auto& [from, to] : {std::pair(".ffn_up.", ".ffn_down."), {".ffn_down.", ".ffn_up."}})
      if (const size_t at = name.find(from); at != std::string::npos)
        return name.replace(at, std::string_view(from).size(), to);
    return name;
  };
  {
    const auto file = files::GgufFile::open(pictures);
    files::GgufWriter out(folder_ / "exchanged.gguf");
    for (const auto& [key, value] : file->metadata()) out.copy(key, value);
    std::vector<files::TensorInfo> tensors = file->tensors();
    for (files::TensorInfo& tensor : tensors) tensor.name = exchanged(tensor.name);
    out.declare(tensors);
    for (const files::TensorInfo& tensor : file->tensors())
      out.write(exchanged(tensor.name), file->raw(tensor));
    out.finish();
  }
  fs::rename(folder_ / "exchanged.gguf", pictures);
  expect_same_weights(models::open_checkpoint(written), source_);
}

TEST_F(PictureGguf, AnMlpAsWideAsTheModelIsExchanged) {
  json config = json::parse(read_file(kModel / "config.json"));
  config["vision_config"]["intermediate_size"] = config["vision_config"]["hidden_size"];
  write_file_atomically(folder_ / "config.json", config.dump());
  const auto model = models::model_from_config(folder_ / "config.json");
  float value = 0;
  for (nn::Parameter* parameter : model->parameters()) {
    parameter->allocate(at::kCPU, at::kFloat);
    parameter->value.detach().fill_(value += 1);
  }
  export_gguf(folder_ / "wide.gguf", *model, *open_tokenizer(source_), resident_value,
              {.dtype = at::kFloat});
  const auto file = files::GgufFile::open(folder_ / "mmproj-wide.gguf");
  const std::string first = "model.vision_model.encoder.layers.0.mlp.fc1.bias";
  const models::Checkpoint read = models::open_checkpoint(folder_ / "wide.gguf");
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const nn::Parameter& parameter = *read.model->parameters()[i];
    EXPECT_TRUE(at::equal(models::read_parameter(read, parameter, at::kFloat),
                          resident_value(*model->parameters()[i])))
        << parameter.name;
    if (parameter.name != first) continue;
    float found = 0;
    file->read(*file->find("v.blk.0.ffn_down.bias"), files::DType::F32, &found, 0, 1);
    EXPECT_EQ(found, resident_value(*model->parameters()[i])[0].item<float>());
  }
}

// By its name, or as the only one in a folder that is given.
TEST_F(PictureGguf, IsFoundBesideTheLanguageModel) {
  const fs::path written = write({.dtype = at::kFloat});
  const auto sees = [](const fs::path& path) {
    return models::open_checkpoint(path).model->reads().image_size > 0;
  };
  EXPECT_TRUE(sees(written));
  EXPECT_TRUE(sees(folder_.path()));
  fs::rename(files::pictures_file(written), folder_ / "mmproj-other.gguf");
  EXPECT_TRUE(sees(folder_.path()));
  EXPECT_FALSE(sees(written));
  fs::copy_file(written, folder_ / "third.gguf");
  EXPECT_THAT(refusal_of([&] { models::open_checkpoint(folder_.path()); }),
              testing::HasSubstr("holds 2 GGUF models: name one of smolvlm.gguf, third.gguf"));
  EXPECT_THAT(refusal_of([&] { models::open_checkpoint(folder_ / "mmproj-other.gguf"); }),
              testing::HasSubstr("name the language model's file"));
}

TEST_F(PictureGguf, OfAnotherModelIsRefused) {
  const fs::path written = write({.dtype = at::kFloat}), pictures = files::pictures_file(written);
  const auto copy = [&](const fs::path& from, const std::string& changed,
                        const std::function<void(files::GgufWriter&)>& set) {
    {
      const auto file = files::GgufFile::open(from);
      files::GgufWriter out(folder_ / "copy");
      for (const auto& [key, value] : file->metadata())
        key == changed ? set(out) : out.copy(key, value);
      out.declare(file->tensors());
      for (const files::TensorInfo& tensor : file->tensors())
        out.write(tensor.name, file->raw(tensor));
      out.finish();
    }
    fs::rename(folder_ / "copy", from);
  };
  const auto refusal = [&] { return refusal_of([&] { models::open_checkpoint(written); }); };
  copy(pictures, "clip.use_gelu", [](auto& out) { out.set_bool("clip.use_gelu", false); });
  EXPECT_THAT(refusal(), testing::HasSubstr("clip.use_gelu is false"));
  copy(pictures, "clip.use_gelu", [](auto& out) { out.set_bool("clip.use_gelu", true); });
  EXPECT_EQ(refusal(), "");
  const char* width = "clip.vision.projection_dim";
  copy(pictures, width, [&](auto& out) { out.set_u32(width, 64); });
  EXPECT_THAT(refusal(), testing::HasSubstr("they belong to different models"));
  copy(pictures, width, [&](auto& out) { out.set_u32(width, 32); });
  const char* projector = "clip.projector_type";
  copy(pictures, projector, [&](auto& out) { out.set_text(projector, "gemma3"); });
  EXPECT_EQ(models::open_checkpoint(written).model->reads().image_size, 0);
  copy(pictures, projector, [&](auto& out) { out.set_text(projector, "idefics3"); });
  const char* tokens = "tokenizer.ggml.tokens";
  copy(written, tokens, [&](auto& out) { out.set_texts(tokens, {"a", "b"}); });
  EXPECT_THAT(refusal(), testing::HasSubstr("none of its 2 tokens is <image>"));
}

TEST_F(PictureGguf, WhatItCannotSayIsRefused) {
  const models::Checkpoint other =
      changed([](json& config) { config["vision_config"]["hidden_act"] = "gelu"; });
  EXPECT_THAT(refusal_of([&] { write(other, {.dtype = at::kFloat}); }),
              testing::HasSubstr("hidden_act is gelu"));
  EXPECT_FALSE(fs::exists(folder_ / "smolvlm.gguf"));
  EXPECT_FALSE(fs::exists(folder_ / "mmproj-smolvlm.gguf"));
}

TEST_F(PictureGguf, AnAdapterOfTheLanguageModelIsWrittenAlone) {
  checkpoint::Adapter adapter;
  const auto add = [&](const std::string& module, int64_t out, int64_t in) {
    adapter.modules[module] = {.a = at::ones({2, in}), .b = at::ones({out, 2}), .scaling = 0.5};
  };
  const auto export_it = [&] {
    export_gguf_adapter(folder_ / "adapter.gguf", source_, adapter, "the-adapter", at::kFloat);
  };
  add("model.text_model.layers.0.self_attn.v_proj", 16, 32);
  export_it();
  EXPECT_EQ(names_in(*files::GgufFile::open(folder_ / "adapter.gguf")),
            (std::set<std::string>{"blk.0.attn_v.weight.lora_a", "blk.0.attn_v.weight.lora_b"}));
  add("model.vision_model.encoder.layers.0.mlp.fc1", 40, 24);
  EXPECT_THAT(refusal_of(export_it), testing::HasSubstr("mlp.fc1, which reads pictures"));
}

}  // namespace
}  // namespace snug::engine
