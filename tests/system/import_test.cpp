// Recipes of other programs through the program: planned at full size, and trained at a tiny one.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

fs::path write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

// --- planned ---

struct Planned {
  const char* name;
  json config;         // the model's
  const char* recipe;  // r.yaml
  int64_t trainable;   // as peft 0.21 counts for this model and recipe
};

json llama(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 128256},
          {"hidden_size", hidden},
          {"intermediate_size", intermediate},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", 8},
          {"max_position_embeddings", 8192},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"tie_word_embeddings", hidden == 2048},
          {"torch_dtype", "bfloat16"}};
}

class ImportedPlan : public ::testing::TestWithParam<Planned> {};

TEST_P(ImportedPlan, TrainsAsManyParametersAsPeft) {
  const Planned& p = GetParam();
  const TempFolder folder;
  const fs::path config = write_text(folder / "config.json", p.config.dump());
  const fs::path recipe = write_text(folder / "r.yaml", p.recipe);
  const Result result = run({"plan", recipe, "--checkpoint_dir", "none", "--model.config", config,
                             "--device", "a100-80", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json plan = json::parse(result.output.substr(result.output.find('{')));
  EXPECT_EQ(plan["model"]["trained"], p.trainable) << result.output;
}

INSTANTIATE_TEST_SUITE_P(
    Programs, ImportedPlan,
    ::testing::Values(Planned{"AxolotlLlama1B", llama(2048, 8192, 16, 32), R"(
base_model: NousResearch/Llama-3.2-1B
adapter: lora
lora_r: 32
lora_alpha: 16
lora_target_modules: [gate_proj, down_proj, up_proj, q_proj, v_proj, k_proj, o_proj]
datasets: [{path: teknium/GPT4-LLM-Cleaned, type: alpaca}]
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 2
num_epochs: 1
optimizer: adamw_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
gradient_checkpointing: true
)",
                              22544384},
                      Planned{"LlamaFactoryLlama8B", llama(4096, 14336, 32, 32), R"(
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
)",
                              20971520},
                      Planned{"TrlLlama8B", llama(4096, 14336, 32, 32), R"(
model_name_or_path: meta-llama/Meta-Llama-3-8B
dataset_name: trl-lib/Capybara
dtype: bfloat16
use_peft: true
lora_r: 16
lora_alpha: 32
lora_target_modules: [q_proj, v_proj]
load_in_4bit: true
learning_rate: 2.0e-4
num_train_epochs: 1
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
)",
                              6815744},
                      Planned{"TorchtuneLlama1B", llama(2048, 8192, 16, 32), R"(
output_dir: /tmp/torchtune/llama3_2_1B/qlora
model:
  _component_: torchtune.models.llama3_2.qlora_llama3_2_1b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 64
  lora_alpha: 128
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/Llama-3.2-1B-Instruct
  output_dir: ${output_dir}
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
batch_size: 2
gradient_accumulation_steps: 8
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 3e-4
dtype: bf16
)",
                              42467328}),
    [](const auto& info) { return info.param.name; });

// --- trained ---

Words trained_words(const fs::path& recipe, const Words& more = {}) {
  Words words{"finetune", recipe, "--model.config", tiny_checkpoint() + "/config.json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(ImportedRun, TrainsAdaptersByAxolotlsRecipe) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const fs::path recipe =
      write_text(folder / "axolotl.yaml", "base_model: " + tiny_checkpoint() + R"(
adapter: lora
lora_r: 4
lora_alpha: 8
lora_target_linear: true
datasets:
  - path: )" + rows.string() + R"(
    type: alpaca
val_set_size: 0.125
sequence_len: 128
micro_batch_size: 2
gradient_accumulation_steps: 2
num_epochs: 1
optimizer: adamw_torch
lr_scheduler: linear
warmup_steps: 2
learning_rate: 0.01
bf16: false
output_dir: )" + (folder / "out").string() + "\nwandb_project: mine\n");
  const Result result = run(trained_words(recipe, {"--eval.num_samples", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("is one of axolotl"), std::string::npos) << result.output;
  const json record = read_run(folder / "out");
  // 56 rows in steps of 4; q, k, v, o (48x48, 48x24, 48x24, 48x48) and three of 48x96, two blocks.
  EXPECT_EQ(record["steps"].size(), 14U);
  EXPECT_EQ(record["model"]["trainable"], 2 * 4 * (2 * 96 + 2 * 72 + 3 * 144));
  EXPECT_LT(losses(record).back(), losses(record).front());
  // Warm-up from 0 in two steps, then a straight line to 0 after the fourteenth.
  EXPECT_DOUBLE_EQ(record["steps"][1]["lr"], 0.005);
  EXPECT_DOUBLE_EQ(record["steps"][2]["lr"], 0.01);
  EXPECT_NEAR(record["steps"][13]["lr"], 0.01 / 12, 1e-12);
  EXPECT_TRUE(fs::exists(folder / "out/final/adapter_model.safetensors"));
}

TEST(ImportedRun, TrainsAllWeightsByLlamaFactorysRecipe) {
  const TempFolder folder;
  fs::create_directories(folder / "data");
  write_rows(folder / "data/mine.jsonl", 32);
  write_text(folder / "data/dataset_info.json", R"({"mine": {"file_name": "mine.jsonl"}})");
  const fs::path recipe =
      write_text(folder / "sft.yaml", "model_name_or_path: " + tiny_checkpoint() + R"(
stage: sft
finetuning_type: full
dataset: mine
template: alpaca
cutoff_len: 128
per_device_train_batch_size: 4
gradient_accumulation_steps: 1
max_steps: 6
learning_rate: 0.003
lr_scheduler_type: constant
report_to: none
output_dir: )" + (folder / "out").string() +
                                          "\n");
  const Result result = run(trained_words(recipe, {"--eval.num_samples", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json record = read_run(folder / "out");
  EXPECT_EQ(record["steps"].size(), 6U);
  EXPECT_EQ(record["model"]["trainable"], record["model"]["parameters"]);
  EXPECT_DOUBLE_EQ(record["steps"][0]["lr"], 0.003);
  EXPECT_DOUBLE_EQ(record["steps"][5]["lr"], 0.003);
  EXPECT_LT(losses(record).back(), losses(record).front());
}

TEST(ImportedRun, TrainsByTrlsArgumentsInJson) {
  const TempFolder folder;
  std::ofstream rows(folder / "rows.jsonl");
  for (int i = 0; i < 32; ++i)
    rows << json{{"prompt", "say " + std::to_string(i % 5)}, {"completion", " abc"}}.dump() << "\n";
  rows.close();
  const json arguments = {{"model_name_or_path", tiny_checkpoint()},
                          {"dataset_name", (folder / "rows.jsonl").string()},
                          {"use_peft", true},
                          {"lora_r", 2},
                          {"lora_target_modules", {"q_proj", "v_proj"}},
                          {"completion_only_loss", true},
                          {"per_device_train_batch_size", 4},
                          {"max_steps", 4},
                          {"learning_rate", 0.01},
                          {"bf16", false},
                          {"report_to", {"none"}},
                          {"deepspeed", {{"zero_optimization", {{"stage", 2}}}}},
                          {"output_dir", (folder / "out").string()}};
  const fs::path recipe = write_text(folder / "args.json", arguments.dump(2));
  const Result result = run(trained_words(recipe, {"--eval.num_samples", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json record = read_run(folder / "out");
  EXPECT_EQ(record["steps"].size(), 4U);
  EXPECT_EQ(record["model"]["trainable"], 2 * 2 * (96 + 72));
  EXPECT_LT(losses(record).back(), losses(record).front());
}

TEST(ImportedRun, TrainsByTorchtunesRecipe) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const fs::path recipe =
      write_text(folder / "tune.yaml", "output_dir: " + (folder / "out").string() + R"(
model: {_component_: torchtune.models.llama2.llama2_7b}
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: )" + tiny_checkpoint() + R"(
  output_dir: ${output_dir}
tokenizer: {_component_: torchtune.models.llama2.llama2_tokenizer, max_seq_len: 240}
dataset:
  _component_: torchtune.datasets.instruct_dataset
  source: json
  data_files: )" + rows.string() + R"(
batch_size: 4
gradient_accumulation_steps: 2
epochs: 2
max_steps_per_epoch: 3
optimizer: {_component_: torch.optim.SGD, lr: 0.1, momentum: 0.9}
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
dtype: fp32
)");
  const Result result = run(trained_words(recipe, {"--eval.num_samples", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json record = read_run(folder / "out");
  EXPECT_EQ(record["steps"].size(), 6U);  // 3 an epoch, of two micro-batches each
  EXPECT_EQ(record["recipe"]["optimizer"]["momentum"], 0.9);
  EXPECT_LT(losses(record).back(), losses(record).front());
}

TEST(ImportedRun, WritesTheRecipeAndSaysWhatItRefuses) {
  const TempFolder folder;
  const fs::path recipe =
      write_text(folder / "a.yaml", "base_model: m\nlearning_rate: 1e-4\nscaling_softmax: true\n");
  const Result result = run({"import", recipe, "-o", folder / "ours.yaml"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("a.yaml:3: scaling_softmax: "), std::string::npos) << result.output;
  EXPECT_NE(read_file(folder / "ours.yaml").find("lr: 0.0001  # line 2: learning_rate"),
            std::string::npos);
  EXPECT_EQ(run({"import", recipe, "-o", folder / "ours.yaml"}).output, result.output) << "anew";
  const std::string source = read_file(recipe);
  const Result over = run({"import", recipe, "-o", recipe});
  EXPECT_EQ(over.exit_code, 2);
  EXPECT_NE(over.output.find("a.yaml exists already, and snug import did not write it"),
            std::string::npos)
      << over.output;
  EXPECT_EQ(read_file(recipe), source);
}

}  // namespace
}  // namespace snug::tests
