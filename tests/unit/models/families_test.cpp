// From config.json to models of each family: how large they are, what configs leave open, and what
// is refused with which words.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kParity = fs::path(SNUG_SOURCE_DIR) / "tests/data/parity";

json config_of(const char* shape) {
  return json::parse(read_file(kParity / shape / "config.json"));
}

class FromConfig : public ::testing::Test {
 protected:
  std::unique_ptr<Model> make(const json& config) const {
    write_file_atomically(folder_ / "config.json", config.dump());
    return model_from_config(folder_ / "config.json");
  }

  // The words of the UserError that this config is refused with.
  std::string refusal(const json& config) const {
    try {
      make(config);
    } catch (const UserError& error) {
      return error.what();
    }
    return "it is not refused";
  }

  test::TempFolder folder_;
};

TEST_F(FromConfig, PublishedSizes) {
  const json opt_2_7b = {{"model_type", "opt"},
                         {"hidden_size", 2560},
                         {"ffn_dim", 10240},
                         {"num_attention_heads", 32},
                         {"num_hidden_layers", 32}};
  EXPECT_EQ(make(opt_2_7b)->num_parameters(), 2'651'596'800);
  const json opt_6_7b = {{"model_type", "opt"},
                         {"hidden_size", 4096},
                         {"ffn_dim", 16384},
                         {"num_attention_heads", 32},
                         {"num_hidden_layers", 32}};
  EXPECT_EQ(make(opt_6_7b)->num_parameters(), 6'658'473'984);
  const json flan_t5_xl = {{"model_type", "t5"},
                           {"d_model", 2048},
                           {"d_ff", 5120},
                           {"num_heads", 32},
                           {"num_layers", 24},
                           {"feed_forward_proj", "gated-gelu"},
                           {"tie_word_embeddings", false}};
  EXPECT_EQ(make(flan_t5_xl)->num_parameters(), 2'849'757'184);
  const json flan_t5_xxl = {{"model_type", "t5"},
                            {"d_model", 4096},
                            {"d_ff", 10240},
                            {"num_heads", 64},
                            {"num_layers", 24},
                            {"feed_forward_proj", "gated-gelu"},
                            {"tie_word_embeddings", false}};
  EXPECT_EQ(make(flan_t5_xxl)->num_parameters(), 11'135'332'352);
}

// The rest is what transformers assumes, or what the published files say beside it.
TEST_F(FromConfig, PublishedSizesOfDecoders) {
  const auto expect = [&](const char* type, int64_t vocabulary, int64_t hidden, int64_t inner,
                          int64_t layers, int64_t heads, int64_t kv_heads, const json& more,
                          int64_t parameters) {
    json config = {{"model_type", type},
                   {"vocab_size", vocabulary},
                   {"hidden_size", hidden},
                   {"intermediate_size", inner},
                   {"num_hidden_layers", layers},
                   {"num_attention_heads", heads},
                   {"num_key_value_heads", kv_heads}};
    config.update(more);
    EXPECT_EQ(make(config)->num_parameters(), parameters) << type;
  };
  const json tied = {{"tie_word_embeddings", true}, {"max_window_layers", 28}};
  expect("qwen3", 151936, 1024, 3072, 28, 16, 8, tied, 596'049'920);
  expect("ministral", 131072, 4096, 12288, 36, 32, 8, {{"head_dim", 128}}, 8'019'808'256);
  expect("ministral3", 131072, 4096, 14336, 34, 32, 8, {{"tie_word_embeddings", false}},
         8'489'553'920);
  expect("granite", 49155, 2048, 8192, 40, 32, 8, tied, 2'533'531'648);
  expect("smollm3", 128256, 2048, 11008, 36, 16, 4, tied, 3'075'098'624);
  expect("olmo2", 100352, 4096, 11008, 32, 32, 32, {{"full_attn_mod", 1}}, 7'298'617'344);
  const json olmo3 = {{"rope_scaling",
                       {{"rope_type", "yarn"},
                        {"factor", 8.0},
                        {"attention_factor", 1.2079441541679836},
                        {"beta_fast", 32.0},
                        {"beta_slow", 1.0},
                        {"original_max_position_embeddings", 8192}}},
                      {"rope_theta", 500000},
                      {"max_position_embeddings", 65536}};
  expect("olmo3", 100278, 4096, 11008, 32, 32, 32, olmo3, 7'298'011'136);
  expect("phi3", 32064, 3072, 8192, 32, 32, 32, {{"embd_pdrop", 0.0}}, 3'821'079'552);
  expect("gemma", 256000, 2048, 16384, 18, 8, 1, {{"head_dim", 256}}, 2'506'172'416);
  expect("gemma", 256000, 3072, 24576, 28, 16, 16, {{"hidden_act", "gelu"}}, 8'537'680'896);
  expect("glm", 151552, 4096, 13696, 40, 32, 2, {{"head_dim", 128}}, 9'399'951'360);
  expect("glm4", 151552, 4096, 13696, 40, 32, 2, {{"rms_norm_eps", 1e-5}}, 9'400'279'040);
  expect("ernie4_5", 103424, 1024, 3072, 18, 16, 2, {{"use_bias", false}}, 360'748'032);
  expect("seed_oss", 155136, 5120, 27648, 64, 80, 8, {{"attention_out_bias", false}},
         36'151'104'512);
  const json usual = {{"full_attn_idxs", {2, 5, 8, 10, 12, 14}}, {"block_dim", 1024}};
  expect("lfm2", 65536, 1024, 6656, 16, 16, 8, usual, 354'483'968);
  expect("lfm2", 65536, 2048, 12288, 16, 32, 8, usual, 1'170'340'608);
  const json lite = {{"q_lora_rank", nullptr},    {"moe_intermediate_size", 1408},
                     {"num_experts_per_tok", 6},  {"first_k_dense_replace", 1},
                     {"moe_layer_freq", 1},       {"aux_loss_alpha", 0.001},
                     {"scoring_func", "softmax"}, {"seq_aux", true}};
  expect("deepseek_v2", 102400, 2048, 10944, 27, 16, 16, lite, 15'706'484'224);
  const json v3 = {{"topk_method", "noaux_tc"}, {"scoring_func", "sigmoid"}, {"ep_size", 1}};
  expect("deepseek_v3", 129280, 7168, 18432, 61, 128, 128, v3, 671'026'404'352);
  const json air = {{"head_dim", 128}, {"attention_bias", true}, {"num_nextn_predict_layers", 1}};
  expect("glm4_moe", 151552, 4096, 10944, 46, 96, 8, air, 106'852'245'504);
  expect("glm4_moe_lite", 154880, 2048, 10240, 47, 20, 20, {{"partial_rotary_factor", 1.0}},
         29'943'390'976);
  const json dots = {{"n_routed_experts", 128},
                     {"n_shared_experts", 2},
                     {"head_dim", 128},
                     {"num_experts_per_tok", 6},
                     {"first_k_dense_replace", 1}};
  expect("dots1", 152064, 4096, 10944, 62, 32, 32, dots, 142'774'373'888);
  const json m2 = {{"head_dim", 128},           {"rotary_dim", 64},
                   {"num_local_experts", 256},  {"use_qk_norm", true},
                   {"use_mtp", true},           {"qk_norm_type", "per_layer"},
                   {"num_mtp_modules", 3},      {"use_routing_bias", true},
                   {"scoring_func", "sigmoid"}, {"attn_type_list", {1, 1}}};
  expect("minimax_m2", 200064, 3072, 1536, 62, 48, 8, m2, 228'689'748'992);
  json types = json::array();
  for (int layer = 0; layer < 24; ++layer)
    types.push_back(layer % 4 == 2 && layer < 16 ? "full_attention" : "conv");
  types[18] = types[21] = "full_attention";
  expect("lfm2_moe", 65536, 2048, 7168, 24, 32, 8, {{"layer_types", types}}, 8'339'929'856);
  json hybrid = {{"tie_word_embeddings", true}, {"num_local_experts", 0},
                 {"num_experts_per_tok", 0},    {"shared_intermediate_size", 8192},
                 {"mamba_n_heads", 64},         {"mamba_d_head", 64},
                 {"mamba_d_state", 128},        {"position_embedding_type", "nope"},
                 {"init_method", "mup"},        {"normalization_function", "rmsnorm"}};
  for (int layer = 0; layer < 40; ++layer)
    hybrid["layer_types"].push_back(layer % 10 == 5 ? "attention" : "mamba");
  expect("granitemoehybrid", 100352, 2048, 8192, 40, 32, 8, hybrid, 3'191'396'096);
  expect("gemma2", 256000, 2304, 9216, 26, 8, 4, {{"cache_implementation", "hybrid"}},
         2'614'341'888);
  expect("gemma3_text", 262144, 1152, 6912, 26, 4, 1, {{"sliding_window", 512}}, 999'885'952);
  const auto gemma4 = [](int64_t layers, int64_t turn, json more) {
    for (int64_t layer = 1; layer <= layers; ++layer)
      more["layer_types"].push_back(layer % turn == 0 ? "full_attention" : "sliding_attention");
    return more;
  };
  expect("gemma4_text", 262144, 1536, 6144, 35, 8, 1,
         gemma4(35, 5, {{"num_kv_shared_layers", 20}, {"use_double_wide_mlp", true}}),
         4'628'569'344);
  expect("gemma4_text", 262144, 2560, 10240, 42, 8, 2,
         gemma4(42, 6, {{"num_kv_shared_layers", 18}}), 7'463'013'376);
  const json wide = {{"hidden_size_per_layer_input", 0},
                     {"attention_k_eq_v", true},
                     {"use_bidirectional_attention", "vision"}};
  json more = gemma4(60, 6, wide);
  more["num_global_key_value_heads"] = 4;
  expect("gemma4_text", 262144, 5376, 21504, 60, 32, 16, more, 30'697'345'280);
  more = gemma4(30, 6, wide);
  more.update({{"num_global_key_value_heads", 2},
               {"enable_moe_block", true},
               {"num_experts", 128},
               {"top_k_experts", 8},
               {"moe_intermediate_size", 704}});
  expect("gemma4_text", 262144, 2816, 2112, 30, 16, 8, more, 25'233'141'760);
  expect("gpt_neox", 50304, 768, 3072, 12, 12, 12, {{"rotary_pct", 0.25}}, 162'322'944);
  expect("gpt_neox", 50304, 2048, 8192, 16, 8, 8, {{"rotary_pct", 0.25}}, 1'011'781'632);
  const json of_1_2b = {{"tie_word_embeddings", true},
                        {"sliding_window", nullptr},
                        {"sliding_window_pattern", nullptr}};
  expect("exaone4", 102400, 2048, 4096, 30, 32, 8, of_1_2b, 1'279'391'488);
  const json of_32b = {{"head_dim", 128}, {"sliding_window", 4096}};
  expect("exaone4", 102400, 5120, 27392, 64, 40, 8, of_32b, 32'003'216'384);
  // What the files say of heads and norms, under names of their own.
  const auto falcon = [&](int64_t hidden, int64_t layers, int64_t heads, const json& more,
                          int64_t parameters) {
    expect("falcon", 65024, hidden, 0, layers, heads, 0, more, parameters);
  };
  falcon(4544, 32, 71, {{"alibi", false}, {"hidden_dropout", 0.0}}, 6'921'720'704);
  const json falcon_40b = {{"new_decoder_architecture", true}, {"num_kv_heads", 8}};
  falcon(8192, 60, 128, falcon_40b, 41'303'293'952);
  json falcon2_11b = falcon_40b;
  falcon2_11b.update({{"num_ln_in_parallel_attn", 1},
                      {"ffn_hidden_size", 16384},
                      {"rope_theta", 500042.0},
                      {"tie_word_embeddings", false}});
  falcon(4096, 60, 32, falcon2_11b, 11'102'822'400);
  expect("starcoder2", 49152, 3072, 12288, 30, 24, 2, {{"residual_dropout", 0.1}}, 3'030'371'328);
  expect("stablelm", 50304, 2560, 6912, 32, 32, 32, {{"qk_layernorm", false}}, 2'795'443'200);
  expect("olmoe", 50304, 2048, 1024, 16, 16, 16, {{"clip_qkv", nullptr}}, 6'919'161'856);
  expect("qwen3_moe", 151936, 2048, 6144, 48, 32, 4, {{"head_dim", 128}}, 30'532'122'624);
  expect("mixtral", 32000, 4096, 14336, 32, 32, 8, {{"router_jitter_noise", 0.0}}, 46'702'792'704);
  // As published: 20.9 and 116.8 thousand millions.
  const json gpt_oss = {{"num_local_experts", 32}, {"initial_context_length", 4096}};
  expect("gpt_oss", 201088, 2880, 2880, 24, 64, 8, gpt_oss, 20'914'757'184);
  expect("gpt_oss", 201088, 2880, 2880, 36, 64, 8, {{"experts_per_token", 4}}, 116'829'156'672);
}

// transformers' own defaults: where nothing is said every second layer sees all, and rotary
// frequencies are stretched.
TEST_F(FromConfig, GptOssIsReadAndRefusedByName) {
  json config = config_of("gpt-oss");
  const json types = config["layer_types"];
  config.erase("layer_types");
  EXPECT_EQ(make(config)->hugging_face_config()["layer_types"], types);
  config.erase("rope_parameters");
  EXPECT_EQ(make(config)->hugging_face_config()["rope_scaling"]["factor"], 32.0);
  config["swiglu_limit"] = 0.0;
  EXPECT_NE(refusal(config).find("swiglu_limit = 0 must be positive"), std::string::npos)
      << refusal(config);
  config["swiglu_limit"] = 7.0;
  config["hidden_act"] = "gelu";
  EXPECT_NE(refusal(config).find("have the activation silu, not \"gelu\""), std::string::npos)
      << refusal(config);
}

// Optimizers form groups from roles, so a new family must not forget to say them.
TEST_F(FromConfig, ParametersHaveTheRolesThatTheirNamesSay) {
  const auto is_table = [](const std::string& name) {
    for (const char* word : {"embed_tokens", "embed_in", "word_embeddings", "wte", "wpe",
                             "shared.weight", "embed_positions", "position_embedding",
                             "class_embedding", "query_tokens", "relative_attention_bias"})
      if (name.find(word) != std::string::npos) return true;
    return false;
  };
  std::map<nn::ParameterRole, int> counts;
  for (const auto& entry : fs::directory_iterator(kParity)) {
    if (!entry.is_directory()) continue;
    const auto model = model_from_config(entry.path() / "config.json");
    for (const nn::Parameter* parameter : model->parameters()) {
      const std::string& name = parameter->name;
      const auto expected = is_table(name) ? nn::ParameterRole::Embedding
                            : name.ends_with("lm_head.weight") || name == "embed_out.weight"
                                ? nn::ParameterRole::Head
                            : parameter->shape.size() == 1 || name.ends_with("per_expert_scale")
                                ? nn::ParameterRole::Vector
                                : nn::ParameterRole::Matrix;
      EXPECT_EQ(parameter->role, expected) << entry.path().filename() << ": " << name;
      EXPECT_FALSE(parameter->is_added()) << name;
      ++counts[parameter->role];
    }
  }
  EXPECT_EQ(counts.size(), 4U);
}

// Recipes count blocks, so a new family must say which of its units are some.
TEST_F(FromConfig, UnitsAreOfTheKindThatTheirNamesSay) {
  const std::map<std::string, nn::UnitKind> kinds = {{"embedding", nn::UnitKind::Embedding},
                                                     {"embeddings", nn::UnitKind::Embedding},
                                                     {"norm", nn::UnitKind::Norm},
                                                     {"projection", nn::UnitKind::Projection},
                                                     {"head", nn::UnitKind::Head}};
  for (const auto& entry : fs::directory_iterator(kParity)) {
    if (!entry.is_directory()) continue;
    const auto model = model_from_config(entry.path() / "config.json");
    for (const nn::Unit* unit : model->units()) {
      const std::string& name = unit->name();
      const bool is_block = name.find("block ") != std::string::npos;
      const auto kind = is_block ? nn::UnitKind::Block : kinds.at(name.substr(name.rfind(' ') + 1));
      EXPECT_EQ(unit->kind(), kind) << entry.path().filename() << ": " << name;
    }
  }
}

TEST_F(FromConfig, ATwinHasTheSameConfig) {
  for (const char* shape :
       {"granite", "starcoder2", "gpt2", "opt", "opt-after", "opt-plain", "t5", "t5-gated"}) {
    const auto model = make(config_of(shape));
    model->set_dropout(0.25);
    EXPECT_EQ(model_like(*model)->hugging_face_config(), model->hugging_face_config()) << shape;
    EXPECT_NE(model->hugging_face_config().dump().find("0.25"), std::string::npos) << shape;
  }
}

TEST_F(FromConfig, RefusalsNameFileAndKey) {
  const auto with = [](const char* shape, const char* key, const json& value) {
    json config = config_of(shape);
    config[key] = value;
    return config;
  };
  const auto expect = [&](const json& config, const char* words) {
    const std::string found = refusal(config);
    EXPECT_NE(found.find("config.json"), std::string::npos) << found;
    EXPECT_NE(found.find(words), std::string::npos) << found;
  };
  expect(with("opt", "model_type", "mamba"), "supported are llama, mistral");
  expect(with("opt", "hidden_size", 0), "hidden_size = 0 is out of range");
  expect(with("opt", "hidden_size", "wide"), "\"hidden_size\" is \"wide\"");
  expect(with("opt", "num_attention_heads", 5), "5 attention heads");
  expect(with("opt", "dropout", 1.0), "dropout = 1");
  expect(with("opt", "layer_norm_elementwise_affine", false), "layer_norm_elementwise_affine");
  expect(with("opt", "activation_function", "cosine"), "activation_function");
  expect(with("t5", "dense_act_fn", "gelu"), "gelu without a gate");
  expect(with("t5", "relative_attention_num_buckets", 7), "relative_attention_num_buckets = 7");
  expect(with("t5", "decoder_start_token_id", 1000), "decoder_start_token_id = 1000");
  expect(with("t5", "is_encoder_decoder", false), "is_encoder_decoder");
  expect(with("mixtral", "num_local_experts", 60000), "2 layers of 60000 experts each");
}

// A decoder's config is read whole or not at all.
TEST_F(FromConfig, KeysThatADecoderHasNoPlaceForAreRefused) {
  json config = config_of("llama");
  config["attn_logit_softcapping"] = 50.0;
  EXPECT_NE(refusal(config).find("does not know attn_logit_softcapping of a llama model"),
            std::string::npos)
      << refusal(config);
  config["attn_logit_softcapping"] = nullptr;
  config["num_local_experts"] = 0;
  config["use_mrope"] = false;
  config["_name_or_path"] = "somewhere";
  config["torch_dtype"] = "bfloat16";
  // What transformers 4 and 5 write for any model.
  config["return_dict"] = true;
  config["chunk_size_feed_forward"] = 0;
  config["num_beams"] = config["num_return_sequences"] = 1;
  config["length_penalty"] = config["repetition_penalty"] = config["typical_p"] = 1.0;
  EXPECT_EQ(refusal(config), "it is not refused");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"mrope_section", {1, 1}}};
  config.erase("rope_parameters");
  EXPECT_NE(refusal(config).find("mrope_section"), std::string::npos) << refusal(config);
}

// Gemma 3 4B leaves out what transformers takes by itself, Qwen2.5-VL 3B has no text_config.
TEST_F(FromConfig, PublishedSizesOfLanguageParts) {
  const auto count = [&](const json& config) {
    write_file_atomically(folder_ / "config.json", config.dump());
    return model_from_config(folder_ / "config.json")->num_parameters();
  };
  const json gemma3_4b = {{"model_type", "gemma3"},
                          {"vision_config", {{"hidden_size", 1152}}},
                          {"text_config",
                           {{"model_type", "gemma3_text"},
                            {"hidden_size", 2560},
                            {"intermediate_size", 10240},
                            {"num_hidden_layers", 34},
                            {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                            {"sliding_window", 1024}}}};
  EXPECT_EQ(count(gemma3_4b), 3'880'263'168);
  json qwen = {{"model_type", "qwen2_5_vl"},
               {"vision_config", {{"depth", 32}}},
               {"image_token_id", 151655},
               {"hidden_size", 2048},
               {"intermediate_size", 11008},
               {"max_window_layers", 70},
               {"num_attention_heads", 16},
               {"num_hidden_layers", 36},
               {"num_key_value_heads", 2},
               {"sliding_window", 32768},
               {"use_sliding_window", false},
               {"tie_word_embeddings", true},
               {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
               {"vocab_size", 151936}};
  EXPECT_EQ(count(qwen), 3'085'938'688);  // as Qwen2.5 3B
  qwen["text_config"] = 3;
  EXPECT_THROW(count(qwen), UserError);
  qwen["model_type"] = "qwen2";
  EXPECT_THROW(count(qwen), UserError);
}

TEST_F(FromConfig, AnUnknownFamilyIsComparedWithTheNearest) {
  json config = config_of("qwen2-windows");
  config["model_type"] = "qwen2x";
  config["num_splines"] = 60;
  EXPECT_NE(refusal(config).find("nearest is qwen2, which has no place for num_splines"),
            std::string::npos)
      << refusal(config);
  config.erase("num_splines");
  EXPECT_NE(refusal(config).find("nearest to qwen2"), std::string::npos) << refusal(config);
  config.erase("num_attention_heads");
  EXPECT_NE(refusal(config).find("its config has no num_attention_heads"), std::string::npos)
      << refusal(config);
  config["text_config"] = {{"model_type", 3}};
  EXPECT_EQ(refusal(config).find("text model"), std::string::npos) << refusal(config);
  config["text_config"] = config_of("ministral3");
  EXPECT_NE(refusal(config).find("its text model alone is a ministral3"), std::string::npos)
      << refusal(config);
}

TEST_F(FromConfig, LayersWithASlidingWindowAreReadFromEitherForm) {
  const json both = config_of("qwen2-windows");  // the second of two layers slides
  const json read = make(both)->hugging_face_config();
  EXPECT_EQ(read["layer_types"], (json{"full_attention", "sliding_attention"}));
  EXPECT_EQ(read["max_window_layers"], 1);
  json before = both;
  before.erase("layer_types");
  EXPECT_EQ(make(before)->hugging_face_config(), read);
  before["max_window_layers"] = 28;
  EXPECT_EQ(make(before)->hugging_face_config()["layer_types"],
            (json{"full_attention", "full_attention"}));
  json shorter = both;
  shorter["layer_types"] = {"full_attention"};
  EXPECT_NE(refusal(shorter).find("layer_types"), std::string::npos) << refusal(shorter);
  shorter["layer_types"] = {"full_attention", "chunked_attention"};
  EXPECT_NE(refusal(shorter).find("chunked_attention"), std::string::npos) << refusal(shorter);
}

// transformers 5 puts a family's own scaling where a config says nothing, or null.
TEST_F(FromConfig, NoScalingIsSaidWhereAFamilyHasOne) {
  json unscaled = config_of("gpt-oss");
  unscaled.erase("rope_scaling");
  unscaled["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  const json written = make(unscaled)->hugging_face_config();
  EXPECT_EQ(written["rope_scaling"], (json{{"rope_type", "default"}}));
  EXPECT_EQ(written["rope_theta"], 1e4);
  EXPECT_EQ(make(written)->hugging_face_config(), written);
  json silent = unscaled;
  silent.erase("rope_parameters");
  silent["rope_scaling"] = nullptr;
  EXPECT_EQ(make(silent)->hugging_face_config()["rope_scaling"]["rope_type"], "yarn");
}

TEST_F(FromConfig, ADecoderThatSeesWhatFollowsIsRefused) {
  json config = config_of("llama");
  config["is_causal"] = true;
  EXPECT_NO_THROW(make(config));
  config["is_causal"] = false;
  EXPECT_NE(refusal(config).find("is_causal"), std::string::npos) << refusal(config);
}

// Groups of experts that do not come out, and values of keys of which only one is computed.
TEST_F(FromConfig, RoutersAndLatentAttentionAreRefusedByName) {
  const auto expect = [&](const char* shape, const json& patch, const char* words) {
    json config = config_of(shape);
    config.merge_patch(patch);
    EXPECT_NE(refusal(config).find(words), std::string::npos) << refusal(config);
  };
  expect("deepseek-v3", {{"n_group", 3}}, "8 experts do not make n_group = 3 groups");
  expect("deepseek-v3", {{"n_group", 8}}, "groups of 1 experts; they are compared by their best 2");
  expect("deepseek-v3", {{"num_experts_per_tok", 5}}, "topk_group = 2 groups of 2 experts have 4");
  expect("deepseek-v3", {{"scoring_func", "softmax"}},
         "scoring_func = \"softmax\" is not supported for a deepseek_v3 model, only \"sigmoid\"");
  expect("deepseek-v3", {{"moe_layer_freq", 2}}, "moe_layer_freq = 2");
  expect("deepseek-v3", {{"v_head_dim", 13}}, "v_head_dim");
  expect("deepseek-v3", {{"qk_rope_head_dim", 3}}, "by qk_rope_head_dim 3 elements");
  expect("deepseek-v3", {{"num_key_value_heads", 2}}, "each of the 4 heads");
  expect("deepseek-v2", {{"topk_method", "noaux_tc"}}, "known are \"greedy\"");
  expect("deepseek-v2", {{"norm_topk_prob", true}}, "norm_topk_prob = true");
  expect("glm4-moe", {{"rope_parameters", {{"partial_rotary_factor", 2.0}}}}, "24 of 12 elements");
  expect("glm4-moe-lite", {{"mlp_layer_types", {"dense", "thin"}}}, "\"dense\" or \"sparse\"");
  expect("granite-hybrid", {{"num_local_experts", -1}}, "num_local_experts");
}

// A router's bias keeps its bits whatever type is asked for.
TEST(Constants, AreReadInFloat32) {
  Checkpoint checkpoint =
      open_checkpoint(std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/parity/deepseek-v3");
  int found = 0;
  for (const nn::Parameter* parameter : checkpoint.model->parameters()) {
    if (!parameter->constant) continue;
    ++found;
    const at::Tensor value = read_parameter(checkpoint, *parameter, at::kBFloat16);
    EXPECT_EQ(value.scalar_type(), at::kFloat);
    EXPECT_FALSE(value.equal(value.to(at::kBFloat16).to(at::kFloat)));
    EXPECT_FALSE(parameter->trained);
  }
  EXPECT_EQ(found, 1);
}

// What transformers reads otherwise than a plain reading would, or does not read at all.
TEST_F(FromConfig, RotaryScalingThatTransformersReadsOtherwiseIsRefused) {
  const auto expect = [&](const char* shape, const json& patch, const char* words) {
    json config = config_of(shape);
    config.merge_patch(patch);
    EXPECT_NE(refusal(config).find(words), std::string::npos) << refusal(config);
  };
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  expect("llama", {{"rope_scaling", linear}}, "both \"rope_parameters\" and \"rope_scaling\"");
  expect("llama", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor");
  expect("llama3-rope", {{"rope_parameters", {{"llama_4_scaling_beta", 0.1}}}},
         "llama_4_scaling_beta is not supported for llama");
  expect("phi3", {{"rope_parameters", nullptr}, {"rope_scaling", linear}}, "of type longrope");
  for (const json& bare :
       {json{{"rope_type", "linear"}}, json{{"type", "linear"}, {"factor", nullptr}},
        json{{"rope_type", "dynamic"}}, json{{"rope_type", "yarn"}},
        json{{"rope_type", "llama3"}}}) {
    json config = config_of("llama");
    config.erase("rope_parameters");
    config["rope_scaling"] = bare;
    EXPECT_NE(refusal(config).find("\"factor\""), std::string::npos) << bare << refusal(config);
  }
  expect("gemma3", {{"rope_parameters", {{"sliding_attention", {{"partial_rotary_factor", 0.5}}}}}},
         "partial_rotary_factor");
  expect("gemma3",
         {{"rope_parameters",
           {{"sliding_attention", nullptr}, {"full_attention", nullptr}, {"rope_theta", 1e4}}}},
         "do not differ by layer");
  expect("olmo3", {{"rope_parameters", {{"sliding_attention", {{"rope_theta", 1e4}}}}}},
         "a rope_theta for sliding_attention alone");
  expect("olmo3", {{"rope_parameters", nullptr}, {"rope_theta", 1e4}}, "unless it is 500000");
  expect("olmo3",
         {{"rope_parameters",
           {{"rope_theta", 1e4}, {"full_attention", nullptr}, {"sliding_attention", nullptr}}}},
         "do not differ by layer");
  expect("gemma4", {{"per_layer_config", {{"2", {{"head_dim", 8}, {"scale", 2}}}}}},
         "\"scale\" is unknown");
  expect("gemma4", {{"per_layer_config", {{"1", {{"head_dim", 8}}}}}}, "the 1 layers of type");
  expect("gemma4", {{"per_layer_config", nullptr}, {"global_head_dim", 514}},
         "global_head_dim = 514");
  expect("gemma4",
         {{"per_layer_config", nullptr},
          {"attention_k_eq_v", false},
          {"num_global_key_value_heads", 1}},
         "without attention_k_eq_v");
  expect("gemma4", {{"use_bidirectional_attention", "all"}}, "only \"vision\"");
  expect("gemma4", {{"rope_parameters", {{"full_attention", nullptr}}}}, "says nothing of");
  expect("gemma4-moe", {{"moe_intermediate_size", nullptr}}, "moe_intermediate_size");
  expect("gemma4", {{"layer_types", {"sliding_attention", "x", "full_attention"}}},
         "contains \"x\"");
  expect("minimax-m2", {{"output_router_logits", true}}, "does not know output_router_logits");
  expect("minimax-m2", {{"attn_type_list", {1, 0}}}, "does not know attn_type_list");
  expect("gemma4-shared", {{"num_kv_shared_layers", 4}}, "num_kv_shared_layers = 4: no layer");
  expect("gemma4-shared", {{"vocab_size_per_layer_input", 80}}, "leaves tokens of vocab_size = 96");
  expect("gemma3", {{"attn_logit_softcapping", 2.0}}, "does not know attn_logit_softcapping");
  expect("qwen2-windows", {{"use_sliding_window", false}}, "use_sliding_window false");
  expect("mistral", {{"sliding_window", 0}}, "sliding_window = 0 is out of range");
  json config = config_of("gemma2");
  config["sliding_window"] = nullptr;
  EXPECT_NE(refusal(config).find("sliding_window is null"), std::string::npos) << refusal(config);
}

// What a config of Gemma 4 leaves out, as transformers takes it.
TEST_F(FromConfig, LayersOfGemma4) {
  json config = config_of("gemma4");
  config["per_layer_config"] = json::object();  // all layers are alike
  EXPECT_EQ(make(config)->hugging_face_config()["global_head_dim"], config["head_dim"]);
  config["layer_types"] = nullptr;  // each sixth sees all, and the last one
  const json types = {"sliding_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(make(config)->hugging_face_config()["layer_types"], types);
  config["rotary_dim"] = 4;
  EXPECT_NE(refusal(config).find("rotary_dim"), std::string::npos);
  json m2 = config_of("minimax-m2");
  m2["rope_parameters"].erase("partial_rotary_factor");
  m2["rotary_dim"] = 6;
  EXPECT_EQ(make(m2)->hugging_face_config()["partial_rotary_factor"], 0.5);
}

TEST_F(FromConfig, RotaryScalingIsWrittenWhole) {
  json config = config_of("phi3-longrope");
  json& rope = config["rope_parameters"];
  rope.update({{"attention_factor", 1.3}, {"factor", 8.0}});
  rope["original_max_position_embeddings"] = 12;  // the one beside it counts
  const json written = make(config)->hugging_face_config();
  EXPECT_EQ(written["original_max_position_embeddings"], 6);
  const json expected = {{"type", "longrope"},
                         {"factor", 8.0},
                         {"attention_factor", 1.3},
                         {"short_factor", rope["short_factor"]},
                         {"long_factor", rope["long_factor"]}};
  EXPECT_EQ(written["rope_scaling"], expected);
  EXPECT_EQ(make(written)->hugging_face_config(), written);
}

TEST_F(FromConfig, WhereAConfigIsSilentTransformersDefaultsCount) {
  const json sizes = {{"vocab_size", 96},
                      {"hidden_size", 64},
                      {"intermediate_size", 48},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 32}};
  for (const auto& [type, heads] : std::map<std::string, int64_t>{{"llama", 32}, {"mistral", 8}}) {
    json config = sizes;
    config["model_type"] = type;
    EXPECT_EQ(make(config)->dimensions().num_kv_heads, heads) << type;
  }
}

// The published EXAONE 4.0 writes the pattern in letters; transformers' page says what they mean.
TEST_F(FromConfig, ExaonesWindowsAreInLetters) {
  json config = config_of("exaone4");
  config.erase("layer_types");
  config["num_hidden_layers"] = 6;
  config["sliding_window"] = 16;
  config["sliding_window_pattern"] = "LLLG";
  const char *l = "sliding_attention", *g = "full_attention";
  EXPECT_EQ(make(config)->hugging_face_config()["layer_types"], json({l, l, l, g, l, g}));
  config["sliding_window_pattern"] = "LLXG";
  EXPECT_NE(refusal(config).find("letters are L and G"), std::string::npos) << refusal(config);
}

// StarCoder2's files say of norms and MLP what all of them are.
TEST_F(FromConfig, StarCoder2SaysWhatAllOfThemAre) {
  json config = config_of("starcoder2");
  config["norm_type"] = "layer_norm";
  config["mlp_type"] = "default";
  EXPECT_NO_THROW(make(config));
  config["norm_type"] = "rms_norm";
  EXPECT_NE(refusal(config).find("norm_type = \"rms_norm\" is not supported"), std::string::npos)
      << refusal(config);
}

// Its own names count, and are written; what only some of its models do is refused.
TEST_F(FromConfig, GptNeoXHasNamesOfItsOwn) {
  json config = config_of("gpt-neox");
  config.erase("rope_parameters");
  config["rotary_pct"] = 0.5;
  config["rotary_emb_base"] = 500;
  const json written = make(config)->hugging_face_config();
  EXPECT_EQ(written["rotary_pct"], 0.5);
  EXPECT_EQ(written["rotary_emb_base"], 500);
  EXPECT_EQ(written["layer_norm_eps"], config["layer_norm_eps"]);
  EXPECT_FALSE(written.contains("rms_norm_eps"));
  EXPECT_EQ(make(written)->hugging_face_config(), written);
  config["hidden_dropout"] = 0.1;
  EXPECT_NE(refusal(config).find("does not know hidden_dropout"), std::string::npos)
      << refusal(config);
  json stable = config_of("stablelm");
  stable["use_parallel_residual"] = stable["qk_layernorm"] = true;
  EXPECT_NE(refusal(stable).find("qk_layernorm, use_parallel_residual"), std::string::npos)
      << refusal(stable);
}

// Its flags say which heads share keys and which norms a block has.
TEST_F(FromConfig, FalconIsReadAndRefusedByName) {
  const json config = config_of("falcon"), grouped = config_of("falcon-grouped");
  const json written = make(config)->hugging_face_config();
  EXPECT_EQ(make(written)->hugging_face_config(), written);
  EXPECT_EQ(written["num_kv_heads"], config["num_kv_heads"]);  // which counts in other models alone
  // transformers' class cannot set its head_dim.
  for (const char* key : {"head_dim", "num_key_value_heads", "intermediate_size", "hidden_act"})
    EXPECT_FALSE(written.contains(key)) << key;
  const auto kv_heads = [&](json of, const char* key, const json& value) {
    of[key] = value;
    return make(of)->dimensions().num_kv_heads;
  };
  EXPECT_EQ(kv_heads(config, "multi_query", true), 1);
  EXPECT_EQ(kv_heads(config, "multi_query", false), 4);
  EXPECT_EQ(kv_heads(grouped, "multi_query", false), 2);
  EXPECT_EQ(kv_heads(grouped, "num_kv_heads", nullptr), 8);
  json silent = config;
  silent.erase("ffn_hidden_size");
  EXPECT_EQ(make(silent)->hugging_face_config()["ffn_hidden_size"], 4 * 32);
  const auto expect = [&](json of, const char* key, const json& value, const char* words) {
    of[key] = value;
    EXPECT_NE(refusal(of).find(words), std::string::npos) << refusal(of);
  };
  expect(config, "alibi", true, "alibi = true, as Falcon-RW has it, is not supported");
  expect(config, "attention_dropout", 0.1, "attention_dropout = 0.1 of a falcon model");
  expect(config, "hidden_dropout", 0.1, "does not know hidden_dropout");
  expect(config, "num_ln_in_parallel_attn", 2, "transformers has no such block");
  expect(config, "num_attention_heads", 5, "no head_dim of their own");
  expect(grouped, "parallel_attn", false, "transformers has no such block");
  expect(grouped, "num_ln_in_parallel_attn", 3, "num_ln_in_parallel_attn = 3 is out of range");
  expect(grouped, "num_kv_heads", 3, "8 attention heads cannot share 3 key-value heads");
}

// Frequencies that depend on each row's length have no table.
TEST_F(FromConfig, DynamicScalingIsRefusedWhereItWouldScale) {
  json config = config_of("llama");
  config["rope_parameters"] = {
      {"rope_type", "dynamic"}, {"factor", 2.0}, {"original_max_position_embeddings", 32}};
  const auto model = make(config);
  EXPECT_NO_THROW(model->prepare(at::kCPU, 128));
  EXPECT_THROW(model->prepare(at::kCPU, 129), UserError);
}

TEST_F(FromConfig, SequencesBeyondLearnedPositionsAreRefused) {
  const auto model = make(config_of("opt"));
  EXPECT_NO_THROW(model->prepare(at::kCPU, 128));
  EXPECT_THROW(model->prepare(at::kCPU, 129), UserError);
  EXPECT_NO_THROW(make(config_of("t5"))->prepare(at::kCPU, 100'000));
}

TEST_F(FromConfig, AnEncoderIsSaidToBeThere) {
  EXPECT_TRUE(make(config_of("t5"))->reads().source);
  EXPECT_EQ(make(config_of("t5"))->reads().decoder_start_token, 0);
  EXPECT_FALSE(make(config_of("opt"))->reads().source);
}

// Half of a document's tokens go through the encoder: more layers there cost as much as in the
// decoder but for what that has besides.
TEST_F(FromConfig, WorkOfAnEncoderCounts) {
  json config = config_of("t5");
  const auto flops = [&](int encoder, int decoder, double seqlen) {
    config["num_layers"] = encoder;
    config["num_decoder_layers"] = decoder;
    return make(config)->flops_per_token(seqlen, 0);
  };
  const double at_rest = flops(2, 2, 0);
  // 2 · 3 passes: q, k, v, o of 32 x 24 and two layers of 32 x 40, for half of the tokens.
  EXPECT_EQ(flops(3, 2, 0) - at_rest, 6.0 * (4 * 32 * 24 + 2 * 32 * 40) / 2);
  EXPECT_EQ(flops(2, 3, 0) - at_rest, 6.0 * (8 * 32 * 24 + 2 * 32 * 40) / 2);
  // 12 a query and key, of 50 tokens a stack, for half of the tokens; causal: half as many keys.
  EXPECT_EQ(flops(3, 2, 100) - flops(2, 2, 100) - (flops(3, 2, 0) - at_rest), 12.0 * 24 * 50 / 2);
  EXPECT_EQ(flops(2, 3, 100) - flops(2, 2, 100) - (flops(2, 3, 0) - at_rest), 18.0 * 24 * 50 / 2);
}

// A directory with these tensors, of the shapes that `model` wants, beside its config.
class Directory : public FromConfig {
 protected:
  void write(const json& config, Model& model, const std::string& omit, bool with_head,
             float head_value = 0.5F) const {
    std::vector<files::TensorInfo> infos;
    for (const nn::Parameter* parameter : model.parameters()) {
      std::string name = parameter->name;
      if (name.starts_with(omit)) name.erase(0, omit.size());
      infos.push_back(files::make_tensor_info(name, files::DType::F32, parameter->shape));
      if (with_head && (name == "shared.weight" || name.ends_with("embed_tokens.weight")))
        infos.push_back(
            files::make_tensor_info("lm_head.weight", files::DType::F32, parameter->shape));
    }
    files::write_sharded(
        folder_.path(), infos, int64_t{1} << 30,
        [values = std::vector<float>(), head_value](const files::TensorInfo& info) mutable {
          values.assign(static_cast<size_t>(info.num_elements()), 0.5F);
          if (info.name == "lm_head.weight") values.back() = head_value;
          return std::as_bytes(std::span(values));
        });
    write_file_atomically(folder_ / "config.json", config.dump());
  }

  bool has_own_head() const {
    const auto checkpoint = open_checkpoint(folder_.path());
    bool found = false;
    for (const nn::Parameter* parameter : checkpoint.model->parameters())
      found |= parameter->name == "lm_head.weight";
    return found;
  }
};

// transformers 5 writes tie_word_embeddings = true for every T5, whose head may be its own.
TEST_F(Directory, FilesSayWhetherAT5HasAHeadOfItsOwn) {
  json config = config_of("t5");
  const auto expect = [&](const json& tie, const json& scale, bool in_files, bool own,
                          float head_value = 0.5F) {
    config["tie_word_embeddings"] = tie;
    config["scale_decoder_outputs"] = scale;
    const auto model = make(config_of("t5"));
    write(config, *model, "", in_files, head_value);
    EXPECT_EQ(has_own_head(), own) << config.dump() << (in_files ? ", head in files" : "");
  };
  expect(true, false, /*in_files=*/true, /*own=*/true);
  expect(true, false, /*in_files=*/false, /*own=*/false);
  expect(false, nullptr, /*in_files=*/true, /*own=*/true);
  expect(true, true, /*in_files=*/true, /*own=*/false);  // a copy of the embedding
  expect(true, true, /*in_files=*/true, /*own=*/true, /*head_value=*/0.25F);
  expect(true, nullptr, /*in_files=*/true, /*own=*/true, /*head_value=*/0.25F);
  expect(true, nullptr, /*in_files=*/false, /*own=*/false);
}

TEST_F(Directory, AnOptDecoderWithoutItsModelIsRead) {
  const auto model = make(config_of("opt"));
  write(config_of("opt"), *model, "model.", /*with_head=*/false);
  const Checkpoint checkpoint = open_checkpoint(folder_.path());
  for (const nn::Parameter* parameter : checkpoint.model->parameters())
    EXPECT_EQ(read_parameter(checkpoint, *parameter, at::kFloat).sum().item<float>(),
              0.5F * static_cast<float>(parameter->num_elements()))
        << parameter->name;
}

}  // namespace
}  // namespace snug::models
