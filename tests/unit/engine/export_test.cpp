// Models of every kind written in each layout and read back: the same weights, bit for bit, and the
// same config.
// SPDX-License-Identifier: Apache-2.0
#include "engine/export/export.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "engine/adapters/adapters.h"
#include "engine/export/vocabulary.h"
#include "engine/more_tokens.h"
#include "files/weights/convert.h"
#include "files/weights/gguf/mix.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kData = fs::path(SNUG_SOURCE_DIR) / "tests/data";

// A model of a parity case's shape, with the vocabulary of the tiny tokenizer.
class Exported : public testing::Test {
 protected:
  void SetUp() override { memory::install_allocators(); }

  void make(const std::string& kind, at::ScalarType type = at::kFloat, const json& more = {}) {
    json config = json::parse(read_file(kData / "parity" / kind / "config.json"));
    config["vocab_size"] = kVocabulary;
    if (config.contains("query_pre_attn_scalar")) {  // what GGUF files have no keys for
      config["query_pre_attn_scalar"] = config["head_dim"];
      config.erase("layer_types");
      config.erase("sliding_window_pattern");
    }
    if (config.contains("mlp_only_layers")) config["mlp_only_layers"] = json::array();
    if (config["model_type"] == "olmoe") config["num_key_value_heads"] = 4;
    if (config["model_type"] == "gpt_oss") {
      config["swiglu_limit"] = 7.0;
      config["rope_parameters"].update({{"beta_fast", 32.0}, {"beta_slow", 1.0}});
    }
    if (config["model_type"] == "ministral3")  // says nothing beside the model's own
      config["rope_parameters"].erase("max_position_embeddings");
    config.update(more.is_null() ? json::object() : more);
    write_file_atomically(folder_ / "config.json", config.dump());
    model_ = models::model_from_config(folder_ / "config.json");
    float scale = 1;
    for (nn::Parameter* parameter : model_->parameters()) {
      parameter->allocate(at::kCPU, type);
      at::Tensor plain = parameter->value.detach().to(at::kFloat).contiguous();
      auto* values = plain.mutable_data_ptr<float>();
      for (int64_t i = 0; i < plain.numel(); ++i)
        values[i] = std::sin(scale * static_cast<float>(i));
      parameter->value.detach().copy_(plain);
      scale += 0.37F;
    }
    tokenizer_ = tokenizer::Tokenizer::from_directory(kData / "system/tiny");
    options_.dtype = type;
  }

  void expect_same_weights(const models::Checkpoint& checkpoint, models::Model& model) const {
    const std::vector<nn::Parameter*> wanted = model.parameters();
    const std::vector<nn::Parameter*> found = checkpoint.model->parameters();
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i]->name, wanted[i]->name);
      // A sum with 1 has lost the last bits.
      const bool is_sum = checkpoint.model->placement(checkpoint.layout, *found[i]).added != 0;
      EXPECT_TRUE(at::allclose(models::read_parameter(checkpoint, *found[i], options_.dtype),
                               resident_value(*wanted[i]), 0, is_sum ? 1.2e-7 : 0))
          << found[i]->name;
    }
  }

  static constexpr int64_t kVocabulary = 304;
  test::TempFolder folder_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  ExportOptions options_{.dtype = at::kFloat};
};

class EachModel : public Exported, public testing::WithParamInterface<const char*> {};

TEST_P(EachModel, GgufHasItsWeightsAndConfig) {
  make(GetParam());
  const fs::path file = folder_ / "sub/model.gguf";
  export_gguf(file, *model_, *tokenizer_, resident_value, options_);
  const models::Checkpoint read = models::open_checkpoint(file);
  expect_same_weights(read, *model_);
  json wanted = model_->hugging_face_config();
  if (wanted["model_type"] == "mistral") {  // a llama without a window there
    wanted["model_type"] = "llama";
    wanted["architectures"] = {"LlamaForCausalLM"};
    wanted.erase("sliding_window");
    wanted["attention_bias"] = wanted["mlp_bias"] = false;
  }
  if (wanted["model_type"] == "starcoder2" || wanted["model_type"] == "mixtral")
    wanted["sliding_window"] = nullptr;  // none there
  json found = read.model->hugging_face_config();
  // The ids are the tokenizer's, below; what a GGUF file does not say is for training alone.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "initializer_range",
                          "attention_dropout", "residual_dropout", "embedding_dropout"}) {
    wanted.erase(key);
    found.erase(key);
  }
  EXPECT_EQ(found, wanted);
  const auto vocabulary = open_tokenizer(read);
  EXPECT_EQ(vocabulary->special().bos, tokenizer_->special().bos);
  EXPECT_EQ(vocabulary->special().eos, tokenizer_->special().eos);
  const std::string text = "say it 3 times, <|im_end|>\n  and again";
  EXPECT_EQ(vocabulary->encode(text, true), tokenizer_->encode(text, true));
  const std::vector<tokenizer::Message> chat{{"user", "Hi"}};
  EXPECT_EQ(vocabulary->apply_chat_template(chat, true),
            tokenizer_->apply_chat_template(chat, true));
}

// With small shards too, whose index counts.
TEST_P(EachModel, TakesTheRoomThatWasForeseen) {
  for (const int64_t shard : {int64_t{5'000'000'000}, int64_t{20'000}}) {
    make(GetParam());
    options_.max_shard_bytes = shard;
    const fs::path out = folder_ / ("out-" + std::to_string(shard));
    export_hugging_face(out, *model_, tokenizer_.get(), resident_value, options_);
    double written = 0;
    for (const auto& entry : fs::directory_iterator(out))
      written += static_cast<double>(entry.file_size());
    const auto foreseen =
        static_cast<double>(hugging_face_bytes(*model_, tokenizer_.get(), options_));
    EXPECT_NEAR(foreseen, written, 0.01 * written);
  }
}

// A file may hold a tied head once more, as LitGPT's do.
TEST_F(Exported, ACopyOfTheEmbeddingIsNoneWhenThatGrows) {
  make("qwen2", at::kFloat, {{"tie_word_embeddings", true}});
  export_litgpt(folder_ / "lit", *model_, *tokenizer_, resident_value, options_);
  models::Checkpoint read = models::open_checkpoint(folder_ / "lit");
  models::grow_vocabulary(read, kVocabulary + 3);
  EXPECT_NO_THROW(models::expect_weights(read, read.model->parameters()));
}

// New rows of embedding and head are the mean of the others; all else is read as ever.
TEST_P(EachModel, TakesMoreTokens) {
  make(GetParam());
  export_hugging_face(folder_ / "hf", *model_, tokenizer_.get(), resident_value, options_);
  export_gguf(folder_ / "model.gguf", *model_, *tokenizer_, resident_value, options_);
  for (const char* const name : {"hf", "model.gguf"}) {
    SCOPED_TRACE(name);
    models::Checkpoint read = models::open_checkpoint(folder_ / name);
    models::grow_vocabulary(read, kVocabulary - 1);
    ASSERT_EQ(read.model->dimensions().vocabulary, kVocabulary) << "it never shrinks";
    models::grow_vocabulary(read, kVocabulary + 3);
    ASSERT_EQ(read.model->dimensions().vocabulary, kVocabulary + 3);
    const std::vector<nn::Parameter*> grown = models::vocabulary_parameters(*read.model);
    ASSERT_GE(grown.size(), 1U);
    models::expect_weights(read, read.model->parameters());
    const std::vector<nn::Parameter*> found = read.model->parameters();
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(found[i]->name);
      const at::Tensor own = resident_value(*model_->parameters()[i]);
      const at::Tensor value = models::read_parameter(read, *found[i], at::kFloat);
      const bool is_grown = std::ranges::count(grown, found[i]) > 0;
      ASSERT_EQ(value.size(0), own.size(0) + (is_grown ? 3 : 0));
      EXPECT_TRUE(at::allclose(value.slice(0, 0, own.size(0)), own, 0, 1.2e-7));
      if (!is_grown) continue;
      const at::Tensor rest = value.slice(0, own.size(0));
      EXPECT_TRUE(at::allclose(rest, own.mean(0).expand_as(rest), 1e-4, 1e-6));
    }
    // peft finds layers by the last words of their names.
    const recipe::LoraOptions lora{.enabled = true};
    add_adapters(*read.model, lora);
    train_vocabulary(*read.model);
    const checkpoint::Adapter shapes = adapter_shapes(*read.model, lora, at::kFloat);
    EXPECT_EQ(shapes.config.modules_to_save.size(), 2U) << "embedding and head, shared or not";
    for (const std::string& module : shapes.config.modules_to_save)
      EXPECT_TRUE(std::ranges::any_of(shapes.base_weights, [&](const auto& weight) {
        return ("." + weight.first).ends_with("." + module + ".weight");
      })) << module;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachModel,
                         testing::Values("llama", "llama-bias", "llama-linear", "llama3-rope",
                                         "mistral", "qwen2", "qwen3", "granite", "olmo2", "olmo3",
                                         "exaone4-full", "starcoder2", "phi3", "phi3-longrope",
                                         "gemma", "gemma2", "gemma3", "mixtral", "olmoe",
                                         "qwen3-moe", "gpt-oss", "gpt-neox", "stablelm", "falcon",
                                         "falcon-grouped", "falcon-shared-norm", "ministral3",
                                         "gpt2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(Exported, GgufKeepsVectorsInFloat32AndLeavesATiedHeadOut) {
  make("qwen2", at::kBFloat16);
  const fs::path file = folder_ / "model.gguf";
  export_gguf(file, *model_, *tokenizer_, resident_value, options_);
  const auto read = files::GgufFile::open(file);
  EXPECT_EQ(read->text("general.architecture"), "qwen2");
  EXPECT_EQ(read->integer("general.file_type"), 32);
  EXPECT_EQ(read->find("output.weight"), nullptr);
  for (const files::TensorInfo& tensor : read->tensors())
    EXPECT_EQ(tensor.dtype, tensor.shape.size() == 1 ? files::DType::F32 : files::DType::BF16)
        << tensor.name;
  EXPECT_EQ(std::ssize(read->texts("tokenizer.ggml.tokens")), kVocabulary);
}

TEST_F(Exported, AMixtureThatGgufCannotSayIsRefused) {
  const std::vector<std::tuple<const char*, json, const char*>> cases{
      {"qwen3-moe", {{"mlp_only_layers", {1}}}, "layer 1 has no experts"},
      {"qwen3-moe", {{"norm_topk_prob", false}}, "norm_topk_prob is false"},
      {"olmoe", {{"norm_topk_prob", true}}, "norm_topk_prob is true"},
      {"olmoe", {{"num_key_value_heads", 2}}, "share keys"},
      {"gpt-oss", {{"swiglu_limit", 0.7}}, "swiglu_limit is 0.7"},
      {"gpt-oss", {{"attention_bias", false}}, "attention_bias is false"}};
  for (const auto& [kind, more, message] : cases) {
    make(kind, at::kFloat, more);
    EXPECT_THAT(
        [&] { export_gguf(folder_ / "no.gguf", *model_, *tokenizer_, resident_value, options_); },
        testing::ThrowsMessage<UserError>(testing::HasSubstr(message)));
    EXPECT_FALSE(fs::exists(folder_ / "no.gguf"));
  }
}

// Rows of 256, and of 64 in the down projections; Phi-3 has fused matrices.
TEST_F(Exported, AQuantizedGgufFileHasTheBlocksOfTheFloatFile) {
  for (const char* kind : {"llama", "phi3", "mixtral"}) {
    make(kind, at::kBFloat16, {{"hidden_size", 256}, {"head_dim", 64}, {"intermediate_size", 64}});
    export_gguf(folder_ / "float.gguf", *model_, *tokenizer_, resident_value, options_);
    const auto plain = files::GgufFile::open(folder_ / "float.gguf");
    for (const char* mix_name : {"Q8_0", "Q4_0", "Q4_K_M"}) {
      const fs::path file = folder_ / (std::string(mix_name) + ".gguf");
      options_.gguf_type = mix_name;
      export_gguf(file, *model_, *tokenizer_, resident_value, options_);
      options_.gguf_type = "";
      const files::GgufMix& mix = files::gguf_mix(mix_name);
      const auto read = files::GgufFile::open(file);
      EXPECT_EQ(read->integer("general.file_type"), mix.file_type);
      EXPECT_EQ(read->integer("general.quantization_version"), 2);
      const std::vector<files::DType> types = files::types_in_mix(mix, plain->tensors());
      ASSERT_EQ(read->tensors().size(), types.size());
      for (size_t i = 0; i < types.size(); ++i) {
        const files::TensorInfo& wanted = plain->tensors()[i];
        const files::TensorInfo& found = *read->find(wanted.name);
        ASSERT_EQ(found.dtype, types[i]) << wanted.name;
        std::vector<std::byte> expected(static_cast<size_t>(found.nbytes));
        files::convert(wanted.dtype, plain->raw(wanted).data(), found.dtype, expected.data(),
                       wanted.num_elements());
        EXPECT_TRUE(std::ranges::equal(read->raw(found), expected)) << mix_name << wanted.name;
      }
    }
  }
}

// Both files have the same weights; the importance matrix has an entry for one tensor.
TEST_F(Exported, AnImportanceMatrixWeighsTheErrorsOfItsTensors) {
  make("llama", at::kBFloat16, {{"hidden_size", 256}, {"intermediate_size", 64}});
  export_gguf(folder_ / "float.gguf", *model_, *tokenizer_, resident_value, options_);
  const auto plain = files::GgufFile::open(folder_ / "float.gguf");
  files::ImportanceMatrix matrix{.label = "matrix.dat"};
  std::vector<float>& own = matrix.columns["blk.1.ffn_up.weight"];
  for (int i = 0; i < 256; ++i) own.push_back(static_cast<float>(i * i % 89));
  options_.gguf_type = "Q4_K_M";
  options_.importance = &matrix;
  export_gguf(folder_ / "weighted.gguf", *model_, *tokenizer_, resident_value, options_);
  const auto read = files::GgufFile::open(folder_ / "weighted.gguf");
  EXPECT_EQ(read->integer("quantize.imatrix.entries_count"), 1);
  EXPECT_EQ(read->text("quantize.imatrix.file"), "matrix.dat");
  for (const files::TensorInfo& found : read->tensors()) {
    const files::TensorInfo& wanted = *plain->find(found.name);
    std::vector<std::byte> expected(static_cast<size_t>(found.nbytes)), weighted(expected);
    files::convert(wanted.dtype, plain->raw(wanted).data(), found.dtype, expected.data(),
                   wanted.num_elements());
    if (found.name == "blk.1.ffn_up.weight") {
      std::vector<float> values(static_cast<size_t>(wanted.num_elements()));
      plain->read(wanted, files::DType::F32, values.data());
      for (int64_t row = 0; row < wanted.shape[0]; ++row)
        files::quantize(found.dtype, values.data() + row * 256,
                        weighted.data() + files::bytes_for(found.dtype, row * 256), 256,
                        own.data());
      EXPECT_NE(weighted, expected);
      expected = weighted;
    }
    EXPECT_TRUE(std::ranges::equal(read->raw(found), expected)) << found.name;
  }
}

TEST_F(Exported, AnImportanceMatrixOfAnotherModelIsRefused) {
  make("llama", at::kBFloat16);
  options_.gguf_type = "Q8_0";
  const auto refusal = [&](const char* tensor) {
    const files::ImportanceMatrix matrix{.label = "matrix.dat", .columns = {{tensor, {1, 2}}}};
    options_.importance = &matrix;
    try {
      export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
      return std::string("written");
    } catch (const UserError& error) {
      EXPECT_FALSE(fs::exists(folder_ / "m.gguf"));
      return std::string(error.what());
    }
  };
  EXPECT_NE(refusal("blk.0.attn_q.weight").find("blk.0.attn_q.weight has 2 columns"),
            std::string::npos);
  EXPECT_NE(refusal("blk.7.attn_q.weight").find("none of its 1 entries"), std::string::npos);
}

TEST_F(Exported, AQuantizedGgufFileNamesTheWeightThatIsNotFinite) {
  make("llama", at::kFloat);
  for (nn::Parameter* parameter : model_->parameters())
    if (parameter->name == "model.layers.1.mlp.up_proj.weight")
      parameter->value.detach().fill_(INFINITY);
  options_.gguf_type = "Q8_0";
  try {
    export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
    ADD_FAILURE() << "written";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("blk.1.ffn_up.weight: it holds infinities"),
              std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(folder_ / "m.gguf"));
}

TEST(Float16, EndsAt65504) {
  check_fits_float16(at::tensor({-65504.0F, 65519.0F, 1.0F}), "w");
  for (const float beyond : {70000.0F, -1e9F}) {
    try {
      check_fits_float16(at::tensor({1.0F, beyond}), "w");
      ADD_FAILURE() << beyond;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("and float16 numbers end at 65504"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST_F(Exported, LlamasRowsArePairedInGgufAndQwensAreNot) {
  for (const auto& [kind, paired] : {std::pair("llama", true), std::pair("qwen2", false)}) {
    make(kind);
    const fs::path file = folder_ / "model.gguf";
    export_gguf(file, *model_, *tokenizer_, resident_value, options_);
    const auto read = files::GgufFile::open(file);
    const files::TensorInfo* q = read->find("blk.0.attn_q.weight");
    std::vector<float> values(static_cast<size_t>(q->num_elements()));
    read->read(*q, files::DType::F32, values.data());
    const nn::Parameter* ours = nullptr;
    for (const nn::Parameter* parameter : model_->parameters())
      if (parameter->name == "model.layers.0.self_attn.q_proj.weight") ours = parameter;
    const int64_t columns = ours->shape[1], half = 8 / 2;
    const float* rows = ours->value.const_data_ptr<float>();
    EXPECT_EQ(values[columns], rows[(paired ? half : 1) * columns]) << kind;
    EXPECT_EQ(values[2 * columns], rows[(paired ? 1 : 2) * columns]) << kind;
  }
}

TEST_F(Exported, AnotherRotaryScalingInAGgufFileIsRefused) {
  make("llama3-rope");
  json config = model_->hugging_face_config();
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  write_file_atomically(folder_ / "config.json", config.dump());
  const auto model = models::model_from_config(folder_ / "config.json");
  EXPECT_THROW(export_gguf(folder_ / "m.gguf", *model, *tokenizer_, resident_value, options_),
               UserError);
  EXPECT_FALSE(fs::exists(folder_ / "m.gguf"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);  // no leftovers
}

TEST_F(Exported, GgufSaysPhi3sFactorOfAttention) {
  make("phi3-factors");
  export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
  const json read = models::open_checkpoint(folder_ / "m.gguf").model->hugging_face_config();
  EXPECT_EQ(read["rope_scaling"]["attention_factor"], 1.3);
}

TEST_F(Exported, RotaryScalingThatNoOneReadsInAGgufFileIsRefused) {
  make("llama-linear");
  export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
  const auto plain = files::GgufFile::open(folder_ / "m.gguf");
  for (const char* name : {"yarn_beta_fast", "attn_factor"}) {
    const fs::path file = folder_ / (std::string(name) + ".gguf");
    files::GgufWriter out(file);
    for (const auto& [key, value] : plain->metadata()) out.copy(key, value);
    out.set_f32(std::string("llama.rope.scaling.") + name, 1.5F);
    out.declare(plain->tensors());
    for (const files::TensorInfo& tensor : plain->tensors())
      out.write(tensor.name, plain->raw(tensor));
    out.finish();
    try {
      models::open_checkpoint(file);
      ADD_FAILURE() << name;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

// "gpt2-untied" and "gpt-neox-serial" fail for the activation, "falcon-serial" for the block.
TEST_F(Exported, FamiliesWithoutAGgufFormAreRefused) {
  for (const char* kind : {"ministral", "gpt2-untied", "gpt-neox-serial", "falcon-serial"}) {
    make(kind);
    EXPECT_THROW(export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_),
                 UserError);
    EXPECT_THROW(export_litgpt(folder_ / "l", *model_, *tokenizer_, resident_value, options_),
                 UserError);
  }
}

// An OLMo 3 is an OLMo 2 with a window there. Published ones name YaRN's usual factor of attention.
TEST_F(Exported, GgufHasYarnWithItsUsualFactorOfAttentionOnly) {
  json rope = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 16}};
  const auto make_olmo = [&](double attention_factor) {
    rope["attention_factor"] = attention_factor;
    make("olmo3", at::kFloat, {{"rope_parameters", nullptr}, {"rope_scaling", rope}});
  };
  make_olmo(1.2079441541679836);
  export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
  const models::Checkpoint read = models::open_checkpoint(folder_ / "m.gguf");
  EXPECT_EQ(read.model->hugging_face_config()["model_type"], "olmo3");
  rope.erase("attention_factor");
  EXPECT_EQ(read.model->hugging_face_config()["rope_scaling"], rope);
  make_olmo(1.5);
  EXPECT_THROW(export_gguf(folder_ / "n.gguf", *model_, *tokenizer_, resident_value, options_),
               UserError);
}

// llama.cpp knows which EXAONE 4 has windows by its layers, and which of them by the family.
TEST_F(Exported, GgufHasWindowsThatLlamaCppKnowsOnly) {
  const auto refused = [&](const char* kind, const json& change) {
    make(kind);
    json config = model_->hugging_face_config();
    config.update(change);
    write_file_atomically(folder_ / "config.json", config.dump());
    model_ = models::model_from_config(folder_ / "config.json");
    EXPECT_THROW(export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_),
                 UserError)
        << kind;
  };
  refused("exaone4", json::object());
  refused("gemma3", {{"sliding_window_pattern", 2}, {"layer_types", nullptr}});
  refused("exaone4-full", {{"num_hidden_layers", 64}, {"layer_types", nullptr}});
  json types = json::array();
  for (int layer = 0; layer < 64; ++layer)
    types.push_back(layer % 4 == 3 ? "full_attention" : "sliding_attention");
  make("exaone4", at::kFloat,
       {{"num_hidden_layers", 64}, {"layer_types", types}, {"sliding_window_pattern", "LLLG"}});
  export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
  const models::Checkpoint read = models::open_checkpoint(folder_ / "m.gguf");
  EXPECT_EQ(read.model->hugging_face_config()["layer_types"], types);
}

// llama.cpp leaves each fourth layer of a SmolLM3 without rotation, and has no key for others.
TEST_F(Exported, GgufHasSmolLm3sUsualLayersOnly) {
  make("smollm3");  // each second
  EXPECT_THROW(export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_),
               UserError);
  json config = model_->hugging_face_config();
  config["num_hidden_layers"] = 4;
  config["no_rope_layers"] = {1, 1, 1, 0};
  config["layer_types"] = nullptr;
  write_file_atomically(folder_ / "config.json", config.dump());
  model_ = models::model_from_config(folder_ / "config.json");
  for (nn::Parameter* parameter : model_->parameters()) {
    parameter->allocate(at::kCPU, at::kFloat);
    parameter->initialize(3, 0.1);
  }
  export_gguf(folder_ / "m.gguf", *model_, *tokenizer_, resident_value, options_);
  const models::Checkpoint read = models::open_checkpoint(folder_ / "m.gguf");
  expect_same_weights(read, *model_);
  EXPECT_EQ(read.model->hugging_face_config()["no_rope_layers"], config["no_rope_layers"]);
}

TEST_F(Exported, GgufIsAFileNotAFolder) {
  make("llama");
  EXPECT_THROW(export_gguf(folder_.path(), *model_, *tokenizer_, resident_value, options_),
               UserError);
}

TEST_F(Exported, ATiedModelStaysTiedThroughLitGpt) {
  make("llama3-rope");
  export_litgpt(folder_ / "litgpt", *model_, *tokenizer_, resident_value, options_);
  const models::Checkpoint read = models::open_checkpoint(folder_ / "litgpt");
  ASSERT_EQ(read.layout, models::Layout::LitGpt);
  EXPECT_NE(read.tensors->find("lm_head.weight"), nullptr);
  EXPECT_EQ(read.model->hugging_face_config()["tie_word_embeddings"], true);
  expect_same_weights(read, *model_);
}

TEST_F(Exported, AHeadOfItsOwnStaysSoThroughLitGpt) {
  make("llama");
  export_litgpt(folder_ / "litgpt", *model_, *tokenizer_, resident_value, options_);
  const models::Checkpoint read = models::open_checkpoint(folder_ / "litgpt");
  EXPECT_EQ(read.model->hugging_face_config()["tie_word_embeddings"], false);
  expect_same_weights(read, *model_);
}

// LitGPT converts a Hugging Face directory in place.
TEST_F(Exported, LitGptsWeightsAreReadWhereHuggingFacesLieBeside) {
  make("llama");
  export_litgpt(folder_ / "both", *model_, *tokenizer_, resident_value, options_);
  export_hugging_face(folder_ / "hf", *model_, tokenizer_.get(), resident_value, options_);
  fs::copy(folder_ / "hf/model.safetensors", folder_ / "both");
  const models::Checkpoint read = models::open_checkpoint(folder_ / "both");
  EXPECT_EQ(read.layout, models::Layout::LitGpt);
  expect_same_weights(read, *model_);
}

// LitGPT's own config has no words for special tokens; the files it keeps beside it do, and a
// directory without them has the tokenizer's.
TEST_F(Exported, SpecialTokensComeThroughLitGpt) {
  make("llama");
  const json wanted = model_->hugging_face_config();
  const fs::path litgpt = folder_ / "litgpt";
  export_litgpt(litgpt, *model_, *tokenizer_, resident_value, options_);
  const auto ids_through = [&](const char* name) {
    models::Checkpoint read = models::open_checkpoint(litgpt);
    const auto value = [&](const nn::Parameter& parameter) {
      return models::read_parameter(read, parameter, at::kFloat);
    };
    export_hugging_face(folder_ / name, *read.model, tokenizer_.get(), value, options_);
    const json config = json::parse(read_file(folder_ / name / "config.json"));
    const json generation = json::parse(read_file(folder_ / name / "generation_config.json"));
    for (const char* key : {"bos_token_id", "eos_token_id"})
      EXPECT_EQ(generation[key], config[key]) << key;
    return std::pair(config["bos_token_id"], config["eos_token_id"]);
  };
  EXPECT_EQ(ids_through("hf"), std::pair(wanted["bos_token_id"], wanted["eos_token_id"]));
  write_file_atomically(litgpt / "generation_config.json", R"({"eos_token_id": [3, 1]})");
  EXPECT_EQ(ids_through("several").second, json({3, 1}));
  fs::remove(litgpt / "generation_config.json");
  fs::remove(litgpt / "config.json");
  EXPECT_EQ(ids_through("bare"),
            std::pair(json(tokenizer_->special().bos), json(tokenizer_->special().eos)));
}

// generate() of transformers stops at these alone.
TEST_F(Exported, GenerationConfigGoesAlong) {
  make("llama");
  const fs::path source = folder_ / "source";
  export_hugging_face(source, *model_, tokenizer_.get(), resident_value, options_);
  const json own = {{"eos_token_id", {3, 1}}, {"temperature", 0.5}};
  write_file_atomically(source / "generation_config.json", own.dump());
  models::Checkpoint read = models::open_checkpoint(source);
  EXPECT_EQ(read.model->hugging_face_config()["eos_token_id"], (json{3, 1}));
  const auto value = [&](const nn::Parameter& parameter) {
    return models::read_parameter(read, parameter, at::kFloat);
  };
  ExportOptions options = options_;
  options.processor = source;
  export_hugging_face(folder_ / "again", *read.model, tokenizer_.get(), value, options);
  EXPECT_EQ(json::parse(read_file(folder_ / "again/generation_config.json")), own);
}

}  // namespace
}  // namespace snug::engine
