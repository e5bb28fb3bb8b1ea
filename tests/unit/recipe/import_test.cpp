// Recipes of other programs. The names of their keys come from their own sources
// (tests/oracles/import_keys.py); the recipes here are made of the keys and values of their
// published examples, and what snug makes of them is written out as options of snug.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/import.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "recipe/check.h"
#include "recipe/data_sources.h"
#include "recipe/import/programs.h"
#include "recipe/print.h"
#include "support.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Way = KeyRow::Way;

std::vector<const Program*> all_programs() {
  std::vector<const Program*> all{&deepspeed()};
  for (const Program& known : programs()) all.push_back(&known);
  return all;
}

const Program& program(const std::string& name) {
  for (const Program* known : all_programs())
    if (known->name == name) return *known;
  throw InternalError("no program of that name");
}

// --- the tables ---

TEST(Import, KnowsEveryKeyOfTheirPackages) {
  const json keys =
      json::parse(read_file(fs::path(SNUG_SOURCE_DIR) / "tests" / "data" / "import" / "keys.json"));
  const std::map<std::string, std::vector<std::string>> readers = {
      {"axolotl", {"axolotl"}},
      {"llamafactory", {"LLaMA-Factory"}},
      {"transformers", {"LLaMA-Factory", "TRL", "TRL (preferences)", "transformers", "Unsloth"}},
      {"trl", {"TRL"}},
      {"trl-preferences", {"TRL (preferences)"}},
      {"unsloth", {"Unsloth"}},
      {"unsloth-train", {"Unsloth (unsloth train)"}},
      {"deepspeed", {"DeepSpeed"}},
      {"torchtune", {"torchtune"}},
  };
  // A row may take a whole mapping, or its keys one by one.
  const auto is_known = [](const Program& reader, const std::string& key) {
    for (size_t end = key.size(); end < std::string::npos; end = key.rfind('.', end - 1))
      if (reader.row_of(key.substr(0, end)) != nullptr) return true;
    return std::ranges::any_of(
        reader.keys(), [&](const std::string& other) { return other.starts_with(key + "."); });
  };
  for (const auto& [package, names] : keys.items()) {
    const std::string name = package.substr(0, package.find(' '));
    ASSERT_GT(names.size(), 20u) << package;
    for (const std::string& reader : readers.at(name))
      for (const std::string key : names)
        EXPECT_TRUE(is_known(program(reader), key)) << reader << " of " << package << ": " << key;
  }
}

TEST(Import, HasTablesThatAgreeWithOurOptions) {
  Recipe recipe;
  const std::vector<Row> rows = recipe_rows(recipe);
  const auto is_ours = [&](std::string_view ours) {
    return ours == "data" || ours == "optimizer" || find_row(rows, ours) != nullptr;
  };
  for (const Program* known : all_programs())
    for (const std::span<const KeyRow> table : known->tables) {
      std::set<std::string_view> seen;
      for (const KeyRow& row : table) {
        for (const std::string_view key : words_of(row.theirs))
          EXPECT_TRUE(seen.insert(key).second) << known->name << " has two rows for " << key;
        EXPECT_TRUE(row.ours.empty() || is_ours(row.ours)) << row.theirs << " -> " << row.ours;
        EXPECT_EQ(row.way == Way::By, row.by != nullptr) << row.theirs;
        const bool needs_detail =
            row.way == Way::Idle || row.way == Way::Off || row.way == Way::Words;
        EXPECT_EQ(needs_detail, !row.detail.empty()) << row.theirs;
        const bool needs_ours =
            row.way == Way::Same || row.way == Way::Words || row.way == Way::Read;
        EXPECT_TRUE(!needs_ours || !row.ours.empty()) << row.theirs;
        if (row.way != Way::Words) continue;
        for (const std::string_view pair : words_of(row.detail)) {
          const Row* ours = find_row(rows, row.ours);
          const std::string_view word = pair.substr(pair.find('=') + 1);
          EXPECT_EQ(store(*ours, {.kind = Value::Kind::Text, .text = std::string(word)}, *ours), "")
              << row.theirs << ": " << pair;
        }
      }
    }
}

// --- recipes ---

struct Case {
  const char* name;
  const char* program;
  const char* recipe;
  const char* options;                // beside it on the command line
  std::vector<const char*> expected;  // lines of the resolved recipe, without indentation
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// «lora_r: 32» of «  lora_r: 32».
std::set<std::string> lines_of(const std::string& yaml) {
  std::istringstream stream(yaml);
  std::set<std::string> lines;
  for (std::string line; std::getline(stream, line);)
    lines.insert(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  return lines;
}

class ImportedRecipe : public ::testing::TestWithParam<Case> {};

TEST_P(ImportedRecipe, BecomesOurOptions) {
  const Case& c = GetParam();
  const TemporaryFile file(c.recipe);
  const Recipe recipe = parse("plan --config " + file.string() + " " + c.options).recipe;
  const std::string yaml = print_recipe_yaml(recipe);
  const std::set<std::string> lines = lines_of(yaml);
  for (const char* line : c.expected) EXPECT_TRUE(lines.contains(line)) << line << "\nin\n" << yaml;
}

TEST_P(ImportedRecipe, IsTheSameWhenWrittenOut) {
  const Case& c = GetParam();
  const TemporaryFile file(c.recipe);
  const Imported imported = import_file(file.string());
  EXPECT_EQ(imported.program, c.program);
  const TemporaryFile written(print_imported(imported, file.string()), "ours.yaml");
  const std::string rest = std::string(" ") + c.options;
  EXPECT_TRUE(same_values(parse("plan --config " + file.string() + rest).recipe,
                          parse("plan --config " + written.string() + rest).recipe));
}

// Each key is in what is written, as a line or in a list, unless it is null or read with another.
TEST_P(ImportedRecipe, LosesNoKey) {
  const Case& c = GetParam();
  const TemporaryFile file(c.recipe);
  const std::string text = print_imported(import_file(file.string()), file.string());
  YamlNode tree = read_yaml(c.recipe, "recipe");
  if (program(c.program).prepare != nullptr) program(c.program).prepare(tree, program(c.program));
  for (const auto& [key, value] : tree.entries) {
    const KeyRow* row = program(c.program).row_of(key);
    const bool read_with_others = row != nullptr && row->way == Way::Read;
    const bool is_referred_to = contains(c.recipe, "${" + key);
    if (value.kind == YamlNode::Kind::Null || read_with_others || is_referred_to) continue;
    EXPECT_CONTAINS(text, ": " + key);
  }
}

const Case kAxolotl[] = {
    {"AxolotlQlora",
     "axolotl",
     R"(
base_model: NousResearch/Llama-3.2-1B
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
val_set_size: 0.1
output_dir: ./outputs/qlora-out
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules: [gate_proj, down_proj, up_proj, q_proj, v_proj, k_proj, o_proj]
sequence_len: 2048
sample_packing: true
eval_sample_packing: true
wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
logging_steps: 1
flash_attention: true
warmup_ratio: 0.1
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.0
special_tokens:
  pad_token: "<|end_of_text|>"
)",
     "",
     {"checkpoint_dir: checkpoints/NousResearch/Llama-3.2-1B",
      "quantize: bnb.nf4-dq",
      "lora_r: 32",
      "lora_alpha: 16",
      "lora_dropout: 0.05",
      "lora_target_modules: \"gate_proj,down_proj,up_proj,q_proj,v_proj,k_proj,o_proj\"",
      "class_path: Alpaca2k",
      "prompt_style: alpaca",
      "mask_prompt: true",
      "val_split_fraction: 0.1",
      "micro_batch_size: 2",
      "global_batch_size: 8",
      "epochs: 1",
      "max_seq_length: 2048",
      "class_path: adamw_8bit",
      "lr: 0.0002",
      "lr_schedule: cosine",
      "min_lr: 0.0",
      "lr_warmup_fraction: 0.1",
      "lr_warmup_steps: 0",
      "max_norm: 1.0",
      "precision: bf16-true",
      "master_weights: true",
      "activation_checkpointing: all",
      "matmul_precision: highest",
      "seed: 42"}},
    {"AxolotlFullWithFsdp",
     "axolotl",
     R"(
base_model: Qwen/Qwen2.5-7B
plugins:
  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin
datasets:
  - path: rows.jsonl
    type: chat_template
    field_messages: conversations
    message_property_mappings:
      role: from
      content: value
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 2
micro_batch_size: 1
max_steps: 500
num_epochs: 3
optimizer: adamw_torch_fused
lr_scheduler: constant_with_warmup
learning_rate: 2e-5
warmup_steps: 20
max_grad_norm: 0.5
bf16: true
gradient_checkpointing: false
fsdp_version: 2
fsdp_config:
  offload_params: false
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: Qwen2DecoderLayer
  reshard_after_forward: true
  activation_checkpointing: true
save_steps: 100
save_total_limit: 2
)",
     "--devices 4",
     {"full: true", "strategy: fsdp", "activation_checkpointing: all", "global_batch_size: 8",
      "max_steps: 500", "epochs: null", "lr_schedule: constant", "lr_warmup_steps: 20",
      "max_norm: 0.5", "json_path: rows.jsonl", "prompt_style: chat", "val_split_fraction: 0.0",
      "save_interval: 100", "keep_checkpoints: 2", "precision: bf16-true", "master_weights: true",
      "class_path: adamw", "lr: 2.0e-05"}},
    {"AxolotlDeepSpeedByName",
     "axolotl",
     R"(
base_model: mistralai/Mistral-7B-v0.1
datasets:
  - path: rows.jsonl
    type: completion
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
peft_use_rslora: true
load_in_8bit: true
sequence_len: 1024
micro_batch_size: 4
batch_size: 64
num_epochs: 2
optimizer: paged_adamw_8bit
lr_scheduler: linear
learning_rate: 1e-4
fp16: true
bf16: false
deepspeed: deepspeed_configs/zero2.json
)",
     "--devices 2",
     {"strategy: zero2", "quantize: bnb.int8", "lora_target_modules: all-linear",
      "lora_use_rslora: true", "lora_dropout: 0.0", "precision: \"16-true\"",
      "class_path: adamw_8bit", "optimizer_offload: cpu", "global_batch_size: 64",
      "lr_schedule: linear", "lr_warmup_fraction: 0.03", "prompt_style: auto"}},
    {"AxolotlMinimum",
     "axolotl",
     R"(
base_model: tiny
datasets: [{path: rows.jsonl, type: alpaca}]
micro_batch_size: 2
gradient_accumulation_steps: 1
learning_rate: 1e-3
)",
     "",
     {"checkpoint_dir: tiny", "max_seq_length: 512", "epochs: 1", "class_path: adamw",
      "lr_schedule: cosine", "full: true", "global_batch_size: 2", "out_dir: ./model-out",
      "master_weights: false", "activation_checkpointing: none"}},
};
INSTANTIATE_TEST_SUITE_P(Axolotl, ImportedRecipe, ::testing::ValuesIn(kAxolotl),
                         [](const auto& info) { return info.param.name; });

const Case kLlamaFactory[] = {
    {"LlamaFactoryLora",
     "LLaMA-Factory",
     R"(
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
max_samples: 1000
preprocessing_num_workers: 16
dataloader_num_workers: 4
output_dir: saves/llama3-8b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
)",
     "",
     {"checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B-Instruct",
      "lora_r: 8",
      "lora_alpha: 16",
      "lora_dropout: 0.0",
      "lora_target_modules: all-linear",
      "max_samples: 1000",
      "prompt_style: chat",
      "mask_prompt: true",
      "val_split_fraction: 0.0",
      "max_seq_length: 2048",
      "micro_batch_size: 1",
      "global_batch_size: 8",
      "epochs: 3",
      "lr: 0.0001",
      "lr_warmup_fraction: 0.1",
      "precision: bf16-true",
      "master_weights: true",
      "activation_checkpointing: all",
      "collective_timeout: 10000000",
      "save_interval: 500",
      "log_interval: 10",
      "max_norm: 1.0",
      "out_dir: saves/llama3-8b/lora/sft"}},
    {"LlamaFactoryQlora",
     "LLaMA-Factory",
     R"(
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
quantization_bit: 4
quantization_method: bnb
double_quantization: false
stage: sft
finetuning_type: lora
lora_rank: 16
lora_alpha: 64
lora_dropout: 0.1
lora_target: q_proj,v_proj
use_dora: true
dataset: identity
template: qwen3
cutoff_len: 1024
learning_rate: 2e-4
max_steps: 200
lr_scheduler_type: constant
warmup_ratio: 0.1
val_size: 0.1
eval_strategy: steps
eval_steps: 50
per_device_eval_batch_size: 1
optim: paged_adamw_32bit
bf16: true
)",
     "",
     {"quantize: bnb.nf4", "lora_alpha: 64", "lora_dropout: 0.1", "lora_use_dora: true",
      "lora_target_modules: \"q_proj,v_proj\"", "max_steps: 200", "epochs: null",
      "lr_schedule: constant", "lr_warmup_steps: 0", "val_split_fraction: 0.1", "interval: 50",
      "micro_batch_size: 8", "global_batch_size: 8", "class_path: adamw",
      "optimizer_offload: cpu"}},
    {"LlamaFactoryFullPureBf16",
     "LLaMA-Factory",
     R"(
model_name_or_path: ./models/llama
stage: sft
finetuning_type: full
pure_bf16: true
dataset: mine
template: alpaca
cutoff_len: 512
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 1
optim: adamw_8bit
disable_gradient_checkpointing: true
train_on_prompt: true
)",
     "",
     {"full: true", "precision: bf16-true", "master_weights: false", "class_path: adamw_8bit",
      "prompt_style: alpaca", "activation_checkpointing: none", "mask_prompt: false",
      "lr_schedule: linear", "global_batch_size: 4"}},
    {"LlamaFactoryFullDeepSpeed",
     "LLaMA-Factory",
     R"(
model_name_or_path: ./models/llama
stage: sft
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_offload_config.json
dataset: mine
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 0.5
warmup_steps: 50
bf16: true
)",
     "--devices 8",
     {"strategy: fsdp", "optimizer_offload: cpu", "epochs: 1", "limit_train_batches: \"0.5\"",
      "precision: bf16-true", "master_weights: true", "lr_warmup_steps: 50",
      "global_batch_size: 16"}},
};
INSTANTIATE_TEST_SUITE_P(LlamaFactory, ImportedRecipe, ::testing::ValuesIn(kLlamaFactory),
                         [](const auto& info) { return info.param.name; });

const Case kTrl[] = {
    {"TrlLora",
     "TRL",
     R"(
model_name_or_path: Qwen/Qwen2-0.5B
dataset_name: rows.jsonl
learning_rate: 2.0e-4
num_train_epochs: 1
packing: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
eos_token: "<|im_end|>"
eval_strategy: steps
eval_steps: 100
use_peft: true
lora_r: 32
lora_alpha: 16
output_dir: Qwen2-0.5B-SFT
push_to_hub: true
)",
     "",
     {"checkpoint_dir: checkpoints/Qwen/Qwen2-0.5B", "json_path: rows.jsonl", "full: false",
      "lora_r: 32", "lora_alpha: 16", "lora_dropout: 0.05", "precision: bf16-mixed",
      "activation_checkpointing: all", "lr_schedule: linear", "lr_warmup_steps: 0",
      "global_batch_size: 16", "max_seq_length: 1024", "mask_prompt: false", "interval: 100",
      "out_dir: Qwen2-0.5B-SFT", "max_norm: 1.0", "weight_decay: 0.0"}},
    {"TrlQloraInJson",
     "TRL",
     R"({
"model_name_or_path": "meta-llama/Llama-3.2-1B", "dataset_name": "rows.jsonl",
"dtype": "bfloat16", "use_peft": true, "lora_target_modules": ["q_proj", "v_proj"],
"load_in_4bit": true, "use_bnb_nested_quant": true, "bnb_4bit_quant_type": "nf4",
"max_length": 512, "assistant_only_loss": true, "max_steps": 100,
"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
"learning_rate": 1e-4, "warmup_ratio": 0.03, "optim": "paged_adamw_8bit",
"gradient_checkpointing": false, "report_to": "none", "seed": 7})",
     "",
     {"quantize: bnb.nf4-dq", "precision: bf16-true", "master_weights: true",
      "lora_target_modules: \"q_proj,v_proj\"", "max_seq_length: 512", "mask_prompt: true",
      "min_lr: 1.0e-05", "lr_schedule: cosine", "lr_warmup_fraction: 0.03", "max_steps: 100",
      "epochs: null", "activation_checkpointing: none", "optimizer_offload: cpu", "seed: 7",
      "micro_batch_size: 8"}},
    {"TrlFullWithFsdp",
     "TRL",
     R"(
model_name_or_path: ./model
dataset_name: rows.parquet
completion_only_loss: true
max_seq_length: 2048
bf16: true
fsdp: "full_shard auto_wrap offload"
fsdp_config:
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  backward_prefetch: backward_pre
per_device_train_batch_size: 4
optim: adafactor
)",
     "--devices 2",
     {"strategy: fsdp", "optimizer_offload: cpu", "weight_streaming: true", "full: true",
      "precision: bf16-mixed", "mask_prompt: true", "class_path: adafactor", "max_seq_length: 2048",
      "global_batch_size: 8", "lr: 2.0e-05", "epochs: 3"}},
    {"TrlWithoutALength",
     "TRL",
     R"(
model_name_or_path: ./model
dataset_name: rows.jsonl
max_length: null
use_peft: false
)",
     "",
     {"max_seq_length: null", "full: true"}},
    {"TransformersAlone",
     "transformers",
     R"({
"model_name_or_path": "gpt2", "train_file": "text.jsonl", "block_size": 1024,
"per_device_train_batch_size": 8, "num_train_epochs": 2.0, "learning_rate": 5e-05,
"fp16": true, "warmup_steps": 0.1, "do_train": true, "save_strategy": "no",
"gradient_checkpointing": true, "output_dir": "out", "label_smoothing_factor": 0.1})",
     "",
     {"checkpoint_dir: checkpoints/openai-community/gpt2", "json_path: text.jsonl",
      "max_seq_length: 1024", "full: true", "precision: \"16-mixed\"", "lr_warmup_fraction: 0.1",
      "lr_schedule: linear", "save_interval: null", "activation_checkpointing: all",
      "label_smoothing: 0.1", "epochs: 2", "global_batch_size: 8", "betas: [0.9, 0.999]"}},
};
INSTANTIATE_TEST_SUITE_P(Trl, ImportedRecipe, ::testing::ValuesIn(kTrl),
                         [](const auto& info) { return info.param.name; });

const Case kTorchtune[] = {
    {"TorchtuneQlora",
     "torchtune",
     R"(
output_dir: /tmp/torchtune/llama3_2_1B/qlora
model_dir: /tmp/Llama-3.2-1B-Instruct
model:
  _component_: torchtune.models.llama3_2.qlora_llama3_2_1b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 64
  lora_alpha: 128
  lora_dropout: 0.0
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: ${model_dir}/original/tokenizer.model
  max_seq_len: 2048
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: ${model_dir}
  checkpoint_files: [model.safetensors]
  output_dir: ${output_dir}
  model_type: LLAMA3_2
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
  packed: False
seed: null
shuffle: True
batch_size: 4
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  weight_decay: 0.01
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 100
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
epochs: 1
max_steps_per_epoch: 10
gradient_accumulation_steps: 8
clip_grad_norm: null
compile: False
device: cuda
dtype: bf16
enable_activation_checkpointing: True
enable_activation_offloading: False
metric_logger:
  _component_: torchtune.training.metric_logging.DiskLogger
  log_dir: ${output_dir}/logs
profiler:
  _component_: torchtune.training.setup_torch_profiler
  enabled: False
)",
     "",
     {"checkpoint_dir: /tmp/Llama-3.2-1B-Instruct",
      "quantize: bnb.nf4-dq",
      "lora_r: 64",
      "lora_alpha: 128",
      "lora_target_modules: \"q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj\"",
      "class_path: Alpaca",
      "mask_prompt: false",
      "micro_batch_size: 4",
      "global_batch_size: 32",
      "limit_train_batches: \"80\"",
      "epochs: 1",
      "lr: 0.0003",
      "weight_decay: 0.01",
      "lr_warmup_steps: 100",
      "lr_schedule: cosine",
      "min_lr: 0.0",
      "precision: bf16-true",
      "master_weights: false",
      "activation_checkpointing: all",
      "max_seq_length: 2048",
      "val_split_fraction: 0.0",
      "max_norm: null"}},
    {"TorchtuneFull",
     "torchtune",
     R"(
output_dir: /tmp/out
model:
  _component_: torchtune.models.qwen2_5.qwen2_5_0_5b
tokenizer:
  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer
  max_seq_len: null
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/Qwen2.5-0.5B-Instruct
resume_from_checkpoint: False
dataset:
  _component_: torchtune.datasets.chat_dataset
  source: json
  data_files: chats.jsonl
  conversation_column: messages
  conversation_style: openai
epochs: 3
batch_size: 2
gradient_accumulation_steps: 1
optimizer:
  _component_: bitsandbytes.optim.PagedAdamW8bit
  lr: 2e-5
optimizer_in_bwd: True
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dtype: fp32
fsdp_cpu_offload: False
)",
     "",
     {"full: true", "precision: \"32-true\"", "class_path: adamw_8bit", "optimizer_offload: cpu",
      "optimizer_in_backward: true", "json_path: chats.jsonl", "prompt_style: chat",
      "mask_prompt: true", "lr_schedule: constant", "lr_warmup_steps: 0", "epochs: 3",
      "global_batch_size: 2", "lr: 2.0e-05"}},
};
INSTANTIATE_TEST_SUITE_P(Torchtune, ImportedRecipe, ::testing::ValuesIn(kTorchtune),
                         [](const auto& info) { return info.param.name; });

const Case kUnsloth[] = {
    {"UnslothNotebook",
     "Unsloth",
     R"(
model_name: unsloth/Llama-3.2-3B-Instruct
max_seq_length: 2048
dtype: null
load_in_4bit: true
r: 32
target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
lora_alpha: 64
lora_dropout: 0
bias: none
use_gradient_checkpointing: unsloth
random_state: 3407
use_rslora: true
loftq_config: {}
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
warmup_steps: 5
max_steps: 60
learning_rate: 2e-4
logging_steps: 1
optim: adamw_8bit
weight_decay: 0.01
lr_scheduler_type: linear
seed: 11
output_dir: outputs
report_to: none
train_on_responses_only: true
)",
     "",
     {"checkpoint_dir: checkpoints/unsloth/Llama-3.2-3B-Instruct",
      "quantize: bnb.nf4-dq",
      "full: false",
      "lora_r: 32",
      "lora_alpha: 64",
      "lora_dropout: 0.0",
      "lora_use_rslora: true",
      "lora_target_modules: \"q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj\"",
      "activation_checkpointing: all",
      "activation_offload: true",
      "precision: bf16-true",
      "master_weights: true",
      "max_seq_length: 2048",
      "micro_batch_size: 2",
      "global_batch_size: 16",
      "lr_warmup_steps: 5",
      "max_steps: 60",
      "epochs: null",
      "class_path: adamw_8bit",
      "weight_decay: 0.01",
      "seed: 11",
      "mask_prompt: true",
      "out_dir: outputs"}},
    {"UnslothInSections",
     "Unsloth",
     R"(
model:
  model_name: unsloth/Qwen2.5-0.5B
  max_seq_length: 256
  full_finetuning: true
training:
  num_train_epochs: 1
  bf16: true
)",
     "",
     {"full: true", "precision: bf16-true", "master_weights: false",
      "activation_checkpointing: all", "activation_offload: false", "micro_batch_size: 4",
      "global_batch_size: 8", "lr: 5.0e-05", "weight_decay: 0.001", "class_path: adamw_8bit",
      "lr_warmup_fraction: 0.1", "seed: 3407", "max_seq_length: 256", "mask_prompt: false"}},
    {"UnslothFloat32",
     "Unsloth",
     R"(
from_pretrained: {model_name: ./model, full_finetuning: true, float32_mixed_precision: true}
SFTConfig: {gradient_checkpointing: false, max_length: 1024, warmup_steps: 0, num_train_epochs: 2}
get_peft_model: {use_gradient_checkpointing: false}
)",
     "",
     {"checkpoint_dir: ./model", "precision: bf16-mixed", "activation_checkpointing: none",
      "max_seq_length: 1024", "lr_warmup_steps: 0", "lr_warmup_fraction: null", "epochs: 2"}},
    {"UnslothCommand",
     "Unsloth (unsloth train)",
     R"(
model: unsloth/Qwen2.5-0.5B
data:
  local_dataset: [rows.jsonl]
  format_type: sharegpt
training:
  training_type: lora
  max_seq_length: 1024
  load_in_4bit: false
  num_epochs: 2
  learning_rate: 1e-4
  max_steps: 0
  random_seed: 7
  train_on_completions: true
  gradient_checkpointing: true
lora:
  lora_alpha: 32
  target_modules: "q_proj,v_proj"
logging:
  enable_wandb: false
  enable_tensorboard: true
)",
     "",
     {"checkpoint_dir: checkpoints/unsloth/Qwen2.5-0.5B",
      "json_path: rows.jsonl",
      "prompt_style: chat",
      "lora_r: 64",
      "lora_alpha: 32",
      "lora_target_modules: \"q_proj,v_proj\"",
      "max_seq_length: 1024",
      "epochs: 2",
      "micro_batch_size: 2",
      "global_batch_size: 8",
      "lr: 0.0001",
      "lr_warmup_steps: 5",
      "weight_decay: 0.01",
      "class_path: adamw_8bit",
      "lr_schedule: linear",
      "seed: 7",
      "mask_prompt: true",
      "activation_checkpointing: all",
      "activation_offload: false",
      "precision: bf16-true",
      "master_weights: true",
      "logger_name: tensorboard"}},
};
INSTANTIATE_TEST_SUITE_P(Unsloth, ImportedRecipe, ::testing::ValuesIn(kUnsloth),
                         [](const auto& info) { return info.param.name; });

// --- preferences ---

const Case kPreferences[] = {
    {"AxolotlDpo",
     "axolotl",
     R"(
base_model: meta-llama/Meta-Llama-3-8B-Instruct
load_in_8bit: true
chat_template: llama3
rl: dpo
rl_beta: 0.3
dpo_label_smoothing: 0.1
precompute_ref_log_probs: true
datasets:
  - path: rows.jsonl
    type: chat_template.default
    field_messages: conversation
    field_chosen: chosen
    field_rejected: rejected
    message_property_mappings: {role: role, content: content}
    roles: {system: [system], user: [user], assistant: [assistant]}
adapter: lora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_bnb_8bit
learning_rate: 0.0002
train_on_inputs: false
)",
     "",
     {"name: dpo", "beta: 0.3", "label_smoothing: 0.1", "sft_weight: 0.0", "prompt_style: chat",
      "json_path: rows.jsonl", "lora_dropout: 0.0", "dropout: 0.0", "global_batch_size: 8",
      "lr: 0.0002"}},
    {"AxolotlIpoByItsLoss",
     "axolotl",
     "base_model: m\nrl: dpo\ndpo_loss_type: [ipo]\nlearning_rate: 1e-6\n"
     "datasets: [{path: rows.jsonl, type: {field_prompt: prompt, prompt_format: '{prompt}'}}]\n",
     "",
     {"name: ipo", "beta: 0.1", "full: true", "dropout: 0.0", "prompt_style: auto"}},
    {"AxolotlOrpo",
     "axolotl",
     "base_model: m\nrl: orpo\norpo_alpha: 0.2\nlearning_rate: 1e-6\nadapter: lora\n"
     "datasets: [{path: rows.jsonl, type: chat_template.argilla}]\n",
     "",
     {"name: orpo", "beta: 0.2", "sft_weight: 0.0", "prompt_style: chat"}},
    {"AxolotlSimpo",
     "axolotl",
     "base_model: chatml-model\nrl: simpo\nrl_beta: 2.5\nsimpo_gamma: 1.4\ncpo_alpha: 0\n"
     "learning_rate: 1e-6\ndatasets: [{path: rows.jsonl, type: chatml.intel}]\n",
     "",
     {"name: simpo", "beta: 2.5", "gamma: 1.4", "sft_weight: 0.0", "prompt_style: chat"}},
    {"AxolotlSimpoByItsDefaults",
     "axolotl",
     "base_model: m\nrl: simpo\ntrl: {beta: 0.7}\nlearning_rate: 1e-6\n"
     "datasets: [{path: rows.jsonl, type: passthrough}]\n",
     "",
     {"name: simpo", "beta: 0.7", "gamma: 0.5", "sft_weight: 1.0", "prompt_style: auto"}},
    {"AxolotlKto",
     "axolotl",
     "base_model: m\nrl: kto\nrl_beta: 0.5\nkto_desirable_weight: 0.2\nadapter: qlora\n"
     "lora_dropout: 0.05\nlearning_rate: 1e-6\n"
     "datasets: [{path: rows.jsonl, type: {field_completion: completion, field_label: label}}]\n",
     "",
     {"name: kto", "beta: 0.5", "desirable_weight: 0.2", "undesirable_weight: 1.0",
      "lora_dropout: 0.0", "prompt_style: auto"}},
    {"LlamaFactoryKto",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: kto\npref_beta: 0.2\nkto_rejected_weight: 1.4\n",
     "",
     {"name: kto", "beta: 0.2", "desirable_weight: 1.0", "undesirable_weight: 1.4",
      "lora_dropout: 0.0"}},
    {"TrlKto",
     "TRL (preferences)",
     "model_name_or_path: m\ndataset_name: rows.jsonl\nbeta: 0.3\ndesirable_weight: 0.8\n"
     "undesirable_weight: 1.2\nprecompute_ref_log_probs: true\n",
     "",
     {"name: kto", "beta: 0.3", "desirable_weight: 0.8", "undesirable_weight: 1.2", "lr: 1.0e-06",
      "max_seq_length: 1024", "dropout: 0.0"}},
    {"TrlKtoByItsLoss",
     "TRL (preferences)",
     "model_name_or_path: m\nloss_type: kto\n",
     "",
     {"name: kto", "beta: 0.1", "desirable_weight: 1.0", "undesirable_weight: 1.0"}},
    {"LlamaFactoryDpo",
     "LLaMA-Factory",
     R"(
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
stage: dpo
do_train: true
finetuning_type: lora
lora_dropout: 0.1
pref_beta: 0.2
pref_loss: sigmoid
pref_ftx: 0.5
dpo_label_smoothing: 0.25
dataset: dpo_en_demo
template: qwen3_nothink
cutoff_len: 2048
learning_rate: 5.0e-6
ref_model: Qwen/Qwen3-4B-Instruct-2507
)",
     "",
     {"name: dpo", "beta: 0.2", "sft_weight: 0.5", "label_smoothing: 0.25", "lora_dropout: 0.0",
      "dropout: 0.0", "mask_prompt: true", "lr: 5.0e-06"}},
    {"AxolotlDpoOfMeans",
     "axolotl",
     "base_model: m\nrl: dpo\ndpo_norm_loss: true\nlearning_rate: 1e-6\n"
     "datasets: [{path: rows.jsonl, type: {field_prompt: prompt, prompt_format: '{prompt}'}}]\n",
     "",
     {"name: dpo", "length_normalized: true"}},
    {"TrlDpoOfMeans",
     "TRL (preferences)",
     "model_name_or_path: m\nlearning_rate: 1.0e-6\nloss_type: [sigmoid_norm]\nbeta: 5\n"
     "dataset_name: rows.jsonl\n",
     "",
     {"name: dpo", "length_normalized: true", "beta: 5.0"}},
    {"LlamaFactoryAnotherReference",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: dpo\ndo_train: true\nfinetuning_type: lora\n"
     "ref_model: other\ndataset: dpo_en_demo\n",
     "",
     {"name: dpo", "reference: other"}},
    {"LlamaFactoryDefaults",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: dpo\nfinetuning_type: full\n",
     "",
     {"name: dpo", "beta: 0.1", "sft_weight: 0.0", "dropout: 0.0", "lr: 5.0e-05"}},
    {"LlamaFactorySimpo",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: dpo\npref_loss: simpo\npref_beta: 2.0\n",
     "",
     {"name: simpo", "beta: 2.0", "gamma: 0.5", "sft_weight: 0.0"}},
    {"LlamaFactoryOrpo",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: dpo\npref_loss: orpo\npref_ftx: 0.25\n",
     "",
     {"name: orpo", "beta: 0.1", "sft_weight: 0.25"}},
    {"LlamaFactoryIpo",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: dpo\npref_loss: ipo\npref_beta: 0.4\n",
     "",
     {"name: ipo", "beta: 0.4"}},
    {"TrlDpo",
     "TRL (preferences)",
     R"(
model_name_or_path: Qwen/Qwen2-0.5B-Instruct
dataset_name: rows.parquet
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
max_length: 2048
beta: 0.2
loss_type: [sigmoid]
precompute_ref_log_probs: true
f_divergence_type: reverse_kl
sync_ref_model: false
ld_alpha: 1.0
use_peft: true
lora_r: 32
output_dir: Qwen2-0.5B-DPO
)",
     "",
     {"name: dpo", "beta: 0.2", "sft_weight: 0.0", "lr: 1.0e-06", "json_path: rows.parquet",
      "max_seq_length: 2048", "lora_dropout: 0.0", "dropout: 0.0", "prompt_style: auto",
      "global_batch_size: 16", "lora_r: 32", "precision: bf16-mixed", "lr_schedule: linear",
      "activation_checkpointing: all", "log_interval: 1"}},
    {"TrlDefaults",
     "TRL (preferences)",
     "model_name_or_path: m\ndataset_name: rows.jsonl\nbeta: 0.1\n",
     "",
     {"name: dpo", "beta: 0.1", "full: true", "lr: 1.0e-06", "max_seq_length: 1024",
      "micro_batch_size: 8", "epochs: 3", "dropout: 0.0"}},
    {"TrlOfTwoLosses",
     "TRL (preferences)",
     "model_name_or_path: m\nloss_type: [hinge, sft]\nloss_weights: [0.5, 0.25]\n"
     "disable_dropout: false\nuse_peft: true\nlearning_rate: 5e-7\n",
     "",
     {"name: hinge", "sft_weight: 0.5", "lora_dropout: 0.05", "dropout: null", "lr: 5.0e-07"}},
    {"TrlOf2024",
     "TRL (preferences)",
     "model_name_or_path: m\nbeta: 0.05\nrpo_alpha: 1.5\nlabel_smoothing: 0.2\n"
     "max_prompt_length: 512\n",
     "",
     {"name: dpo", "beta: 0.05", "sft_weight: 1.5", "label_smoothing: 0.2"}},
    {"TrlSimpo",
     "TRL (preferences)",
     "model_name_or_path: m\nloss_type: simpo\nbeta: 2.0\ncpo_alpha: 0.0\nsimpo_gamma: 1.2\n",
     "",
     {"name: simpo", "beta: 2.0", "gamma: 1.2", "sft_weight: 0.0", "lr: 1.0e-06"}},
    {"TrlSimpoByItsDefaults",
     "TRL (preferences)",
     "model_name_or_path: m\nloss_type: simpo\nlabel_smoothing: 0.3\n",
     "",
     {"name: simpo", "beta: 0.1", "gamma: 0.5", "sft_weight: 1.0", "label_smoothing: 0.3"}},
    {"TrlCpo",
     "TRL (preferences)",
     "model_name_or_path: m\ncpo_alpha: 0.7\n",
     "",
     {"name: cpo", "beta: 0.1", "sft_weight: 0.7"}},
    {"TrlReward",
     "TRL (preferences)",
     "model_name_or_path: m\ncenter_rewards_coefficient: 0.01\n",
     "",
     {"name: reward", "center_rewards_coefficient: 0.01", "lr: 0.0001"}},
    {"LlamaFactoryReward",
     "LLaMA-Factory",
     "model_name_or_path: m\nstage: rm\nlearning_rate: 1.0e-4\n",
     "",
     {"name: reward", "center_rewards_coefficient: 0.0", "lr: 0.0001"}},
    {"TorchtuneDpo",
     "torchtune",
     R"(
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/m/}
ref_checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/m}
dataset:
  _component_: torchtune.datasets.preference_dataset
  source: json
  data_files: rows.jsonl
  column_map: {prompt: question, chosen: chosen, rejected: rejected}
batch_size: 4
optimizer: {_component_: torch.optim.AdamW, fused: True, weight_decay: 0.05, lr: 2e-5}
loss:
  _component_: torchtune.rlhf.loss.DPOLoss
  beta: 0.05
  label_smoothing: 0.1
)",
     "",
     {"name: dpo", "beta: 0.05", "label_smoothing: 0.1", "json_path: rows.jsonl",
      "prompt_style: chat", "full: true", "lr: 2.0e-05", "mask_prompt: true"}},
    {"TorchtuneHinge",
     "torchtune",
     "loss: {_component_: torchtune.rlhf.loss.RSOLoss, gamma: 0.4}\n"
     "optimizer: {_component_: torch.optim.AdamW, lr: 2e-5}\ncheckpointer: {checkpoint_dir: m}\n"
     "dataset: {_component_: torchtune.datasets.hh_rlhf_helpful_dataset, source: json, "
     "data_files: rows.jsonl}\n",
     "",
     {"name: hinge", "beta: 0.4"}},
    {"TorchtuneDefaults",
     "torchtune",
     "loss: {_component_: torchtune.rlhf.loss.DPOLoss}\n"
     "optimizer: {_component_: torch.optim.AdamW, lr: 2e-5}\ncheckpointer: {checkpoint_dir: m}\n",
     "",
     {"name: dpo", "beta: 0.1"}},
};
INSTANTIATE_TEST_SUITE_P(Preferences, ImportedRecipe, ::testing::ValuesIn(kPreferences),
                         [](const auto& info) { return info.param.name; });

TEST(Import, ListsTheKeysOfADataSetToo) {
  const TemporaryFile file(
      "base_model: m\nlearning_rate: 1e-4\ndatasets:\n  - {path: a.json, type: alpaca, ds_type: "
      "json, train_on_eos: turn}\n");
  EXPECT_CONTAINS(print_imported(import_file(file.string()), file.string()),
                  "line 3: datasets: ds_type: ");
}

// --- what they name ---

TEST(Import, ReadsDeepSpeedsFileBesideTheRecipe) {
  const test::TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  write("ds.json", R"({"zero_optimization": {"stage": 3, "overlap_comm": true,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/fast"},
      "offload_param": {"device": "cpu"}}, "train_batch_size": "auto", "bf16": {"enabled": true}})");
  write("r.yaml", "base_model: m\nlearning_rate: 1e-4\nbf16: true\ndeepspeed: ds.json\n");
  const Recipe recipe = parse("plan " + (folder / "r.yaml").string()).recipe;
  EXPECT_EQ(recipe.strategy, "fsdp");
  EXPECT_EQ(recipe.optimizer_offload, "disk:/fast");
  EXPECT_TRUE(recipe.weight_streaming);
  EXPECT_TRUE(recipe.optimizer.master_weights);
  const auto fault_of = [&](const std::string& text) {
    write("ds.json", text);
    return error_of([&] { parse("plan " + (folder / "r.yaml").string()); });
  };
  EXPECT_CONTAINS(fault_of(R"({"zero_optimization": {"stage": 3, "overlap_com": true}})"),
                  "overlap_com: unknown key of DeepSpeed; did you mean");
  EXPECT_CONTAINS(fault_of(R"({"zero_optimization": {"offload_optimizer": {"gpu": 1}}})"),
                  "zero_optimization.offload_optimizer.gpu: ");
  EXPECT_CONTAINS(fault_of(R"({"tensor_parallel": {"autotp_size": 2}})"), "give --mesh tp=2");
  EXPECT_CONTAINS(fault_of(R"({"zero_optimization": {"zero_hpz_partition_size": 4}})"),
                  "give --strategy hybrid");
}

// transformers 5 has another name for accelerate's.
TEST(Import, ReadsCpuOffloadOfFsdpUnderBothNames) {
  for (const char* key : {"offload_params", "cpu_offload"}) {
    const TemporaryFile file(
        fmt::format("base_model: m\nlearning_rate: 1e-4\nfsdp: full_shard\nfsdp_config: "
                    "{{version: 2, {}: true}}\n",
                    key));
    const Recipe recipe = parse("plan " + file.string()).recipe;
    EXPECT_EQ(recipe.optimizer_offload, "cpu") << key;
    EXPECT_TRUE(recipe.weight_streaming) << key;
  }
}

TEST(Import, TakesWhatIsSwitchedOffAsOff) {
  const TemporaryFile file(
      R"({"base_model": "m", "learning_rate": 1e-4, "bf16": true, "deepspeed": {
          "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}},
          "data_efficiency": {"enabled": false}}})");
  const Imported imported = import_file(file.string());
  EXPECT_TRUE(imported.refused.empty());
  const std::string text = print_imported(imported, file.string());
  EXPECT_CONTAINS(text, "data_efficiency: off, as it always is here");
  EXPECT_CONTAINS(text, "ratio: the whole optimizer state is kept in host memory");
}

// snug has no such switch; a plan beside transformers reads it.
TEST(Import, NotesLigersKernels) {
  const auto has_liger = [](const std::string& text) {
    return import_recipe(read_yaml(text, "r.yaml"), "r.yaml")->has_liger;
  };
  for (const char* recipe :
       {"finetuning_type: lora\nenable_liger_kernel: ", "dataset_name: d\nuse_liger_kernel: ",
        "base_model: m\nsequence_len: 8\nliger_fused_linear_cross_entropy: "}) {
    EXPECT_TRUE(has_liger(std::string(recipe) + "true")) << recipe;
    EXPECT_FALSE(has_liger(std::string(recipe) + "false")) << recipe;
  }
}

// … and so for DeepSpeed, whose buckets are nothing here.
TEST(Import, NotesDeepSpeedsSettings) {
  const auto settings_of = [](const std::string& deepspeed) {
    return import_recipe(read_yaml("base_model: m\nlearning_rate: 1e-4\n" + deepspeed, "r.yaml"),
                         "r.yaml")
        ->deepspeed;
  };
  EXPECT_FALSE(settings_of("fsdp: full_shard\n"));
  const auto plain = settings_of("deepspeed: {zero_optimization: {stage: 2}}\n");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->reduce_bucket, 500'000'000);
  EXPECT_FALSE(plain->overlaps);
  const auto given = settings_of(
      "deepspeed: {zero_optimization: {stage: 3, reduce_bucket_size: auto, overlap_comm: true, "
      "stage3_prefetch_bucket_size: 5e7, stage3_param_persistence_threshold: auto, "
      "stage3_max_live_parameters: 1e8, stage3_max_reuse_distance: 2e8, sub_group_size: 1e7, "
      "zero_hpz_partition_size: 8, offload_optimizer: {device: cpu, ratio: 0.3, "
      "super_offload: true}}}\n");
  ASSERT_TRUE(given);
  EXPECT_EQ(given->reduce_bucket, DeepSpeed::kAuto);
  EXPECT_EQ(given->prefetch_bucket, 50'000'000);
  EXPECT_EQ(given->persistence_threshold, DeepSpeed::kAuto);
  EXPECT_EQ(given->max_live, 100'000'000);
  EXPECT_EQ(given->max_reuse_distance, 200'000'000);
  EXPECT_EQ(given->sub_group, 10'000'000);
  EXPECT_TRUE(given->overlaps);
  EXPECT_EQ(given->host_group, 8);
  EXPECT_EQ(given->offloaded, 0.3);
  EXPECT_TRUE(given->super_offload);
  // A file that is not there: its stage by its name.
  const auto named = settings_of("deepspeed: examples/deepspeed/ds_z3_config.json\n");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->reduce_bucket, DeepSpeed::kAuto);
  for (const char* wrong : {"many", "-3", "1e30"}) {
    const auto imported = import_recipe(
        read_yaml("base_model: m\nlearning_rate: 1e-4\ndeepspeed: {zero_optimization: {stage: 2, "
                  "reduce_bucket_size: " +
                      std::string(wrong) + "}}\n",
                  "r.yaml"),
        "r.yaml");
    ASSERT_EQ(imported->refused.size(), 1U) << wrong;
    EXPECT_CONTAINS(imported->refused[0].text(),
                    "reduce_bucket_size: must be a number of elements");
  }
}

TEST(Import, ReadsLlamaFactorysListOfDataSets) {
  const test::TempFolder folder;
  fs::create_directories(folder / "data");
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  write("r.yaml", "model_name_or_path: m\ntemplate: llama3\ndataset: mine\n");
  write("data/mine.json", "[]");
  write("data/dataset_info.json",
        R"({"mine": {"file_name": "mine.json", "formatting": "sharegpt",
            "columns": {"messages": "conversations"}}})");
  const Recipe recipe = parse("finetune --config " + (folder / "r.yaml").string()).recipe;
  EXPECT_EQ(recipe.data.json_path, (folder / "data/mine.json").string());
  write("data/dataset_info.json",
        R"({"mine": {"file_name": "mine.json", "columns": {"prompt": "topic"}}})");
  EXPECT_CONTAINS(error_of([&] { parse("finetune --config " + (folder / "r.yaml").string()); }),
                  "mine: the column topic as prompt");
}

// Three programs' ways to name two files.
TEST(Import, SeveralDataSetsBecomeSources) {
  const test::TempFolder folder;
  fs::create_directories(folder / "data");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  for (const char* name : {"a.jsonl", "b.jsonl", "test.jsonl"}) write(name, "{}\n");
  const auto sources_of = [&](const std::string& yaml) {
    write("r.yaml", yaml);
    const Recipe recipe = parse("finetune --config " + (folder / "r.yaml").string()).recipe;
    // What is printed says the same.
    const Recipe printed =
        recipe_from(print_imported(import_file((folder / "r.yaml").string()), "r.yaml"), {},
                    Command::FinetuneLora);
    EXPECT_EQ(printed.data, recipe.data);
    DataSources found = data_sources(recipe.data, recipe.given_keys);
    EXPECT_TRUE(found.faults.empty()) << found.faults.front();
    return std::move(found.all);
  };
  const std::string axolotl = "base_model: m\nlearning_rate: 1e-4\nval_set_size: 0.1\n";
  std::vector<DataSource> sources =
      sources_of(axolotl +
                 "datasets:\n  - {path: a.jsonl, type: alpaca}\n"
                 "  - {path: json, data_files: [b.jsonl], type: chat_template}\n");
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].data.json_path, (folder / "a.jsonl").string());
  EXPECT_EQ(sources[0].data.prompt_style, "alpaca");
  EXPECT_EQ(sources[0].data.val_split_fraction, 0.1);
  EXPECT_EQ(sources[1].name, "b.jsonl");
  EXPECT_EQ(sources[1].data.prompt_style, "chat");
  sources = sources_of(
      "base_model: m\nlearning_rate: 1e-4\ndatasets: [{path: a.jsonl, type: alpaca}, "
      "{path: b.jsonl, type: alpaca}]\ntest_datasets: [{path: test.jsonl}]\n");
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].data.val_path, (folder / "test.jsonl").string());
  EXPECT_EQ(sources[1].data.val_path, std::nullopt);
  EXPECT_EQ(sources[1].data.val_split_fraction, 0);
  write("r.yaml", axolotl +
                      "datasets:\n  - {path: a.jsonl, type: chat_template, chat_template: chatml}\n"
                      "  - {path: b.jsonl, type: chat_template, chat_template: llama3}\n");
  EXPECT_CONTAINS(error_of([&] { parse("finetune --config " + (folder / "r.yaml").string()); }),
                  "different chat templates");

  write("data/dataset_info.json", R"({"one": {"file_name": "../a.jsonl"},
            "two": {"file_name": "../b.jsonl", "num_samples": 50}})");
  const std::string factory = "model_name_or_path: m\ntemplate: llama3\ndataset: one, two\n";
  sources = sources_of(factory + "max_samples: 200\n");
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].data.max_samples, 200);
  EXPECT_EQ(sources[1].data.max_samples, 50);
  EXPECT_EQ(sources[1].weight, std::nullopt);
  EXPECT_EQ(sources[1].share, std::nullopt);
  sources = sources_of(factory + "mix_strategy: interleave_over\ninterleave_probs: 0.3,0.7\n");
  EXPECT_EQ(sources[0].share, 0.3);
  EXPECT_EQ(sources[1].share, 0.7);
  sources = sources_of(factory + "mix_strategy: interleave_under\n");
  EXPECT_EQ(sources[1].share, 0.5);

  sources = sources_of(
      "model_name_or_path: m\nuse_peft: true\ntest_split_size: 0.2\ndatasets:\n"
      "  - path: a.jsonl\n  - {path: json, data_files: b.jsonl, columns: [messages]}\n");
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[1].data.json_path, (folder / "b.jsonl").string());
  EXPECT_EQ(sources[1].data.val_split_fraction, 0.2);
}

std::string remarks_of(const Imported& imported) {
  std::string all;
  for (const ImportRemark& remark : imported.differing)
    all += remark.where + ": " + remark.why + "\n";
  return all;
}

TEST(Import, ReadsWhatLlamaFactorysListSaysOfADataSet) {
  const test::TempFolder folder;
  fs::create_directories(folder / "data");
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const auto with = [&](const std::string& more, const std::string& recipe = "") {
    write("r.yaml", "model_name_or_path: m\ntemplate: llama3\ndataset: mine\n" + recipe);
    write("data/dataset_info.json", R"({"mine": {"file_name": "mine.json", )" + more + "}}");
    return import_file((folder / "r.yaml").string());
  };
  const auto fault = [&](const std::string& more) {
    const Imported imported = with(more);
    return imported.refused.size() == 1 ? imported.refused[0].text() : "";
  };
  write("data/mine.json", "[]");
  EXPECT_CONTAINS(fault(R"("split": "train[:90%]")"),
                  "mine: split is train[:90%]; a data file has");
  EXPECT_CONTAINS(fault(R"("subset": "en")"), "mine: subset is en; ");
  EXPECT_CONTAINS(fault(R"("ranking": true)"), "mine: ranking is true; these are pairs of answers");
  EXPECT_CONTAINS(fault(R"("formatting": "sharegpt", "tags": {"user_tag": "asker"})"),
                  "mine: tags.user_tag is asker; ");
  EXPECT_CONTAINS(fault(R"("shards": 2)"), "mine: shards; snug does not read this key");
  EXPECT_TRUE(with(R"("split": "train", "ranking": false, "subset": null, "formatting": "sharegpt",
                      "columns": {"messages": "messages", "system": "system"},
                      "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user"})")
                  .refused.empty());
  EXPECT_TRUE(with(R"("columns": {"prompt": "instruction", "query": null})").refused.empty());
  // The smaller bound counts.
  const std::string line = "finetune --config " + (folder / "r.yaml").string();
  for (const auto& [recipe, rows] : std::map<std::string, int64_t>{
           {"", 50}, {"max_samples: 200\n", 50}, {"max_samples: 20\n", 20}}) {
    with(R"("num_samples": 50)", recipe);
    EXPECT_EQ(parse(line).recipe.data.max_samples, rows) << recipe;
  }
  EXPECT_CONTAINS(remarks_of(with(R"("file_sha1": null)")), "puts a line break between");
  EXPECT_CONTAINS(remarks_of(with(R"("columns": {"prompt": "instruction", "response": "output"})")),
                  "snug reads the column input too");
  const std::string chats = remarks_of(with(R"("formatting": "sharegpt")"));
  EXPECT_EQ(chats.find("mine"), std::string::npos) << chats;
}

// --- what transformers does otherwise ---

std::string remarks_on(const std::string& recipe) {
  return remarks_of(*import_recipe(read_yaml(recipe, "r.yaml"), "r.yaml"));
}

TEST(Import, SaysWhereTransformersTrainsOtherwise) {
  static constexpr const char* kDecay = "weight_decay: norms and biases decay too";
  static constexpr const char* kEpochs = "a step may go on into the next epoch";
  for (const char* recipe :
       {"base_model: m\nlearning_rate: 1e-4\n", "model_name_or_path: m\nfinetuning_type: full\n",
        "model_name_or_path: m\ndataset_name: a.json\n",
        "model_name_or_path: m\nper_device_train_batch_size: 1\n"}) {
    const std::string text = recipe;
    const std::string epochs = contains(text, "base_model") ? "num_epochs: " : "num_train_epochs: ";
    EXPECT_CONTAINS(remarks_on(text + "weight_decay: 0.1\n"), kDecay);
    EXPECT_FALSE(contains(remarks_on(text + "weight_decay: 0.0\n"), kDecay)) << text;
    EXPECT_CONTAINS(remarks_on(text + epochs + "2\n"), kEpochs);
    EXPECT_FALSE(contains(remarks_on(text + epochs + "1\n"), kEpochs)) << text;
    EXPECT_FALSE(contains(remarks_on(text + "max_steps: 5\n"), kEpochs)) << text;
  }
  // Adapters have neither norms nor biases.
  EXPECT_FALSE(
      contains(remarks_on("base_model: m\nadapter: lora\nlearning_rate: 1e-4\nweight_decay: 0.1\n"),
               kDecay));
  const std::string script = "model_name_or_path: m\nper_device_train_batch_size: 1\n";
  EXPECT_CONTAINS(remarks_on(script + "block_size: 64\n"), "run_clm.py joins all texts");
  EXPECT_FALSE(contains(remarks_on(script), "run_clm.py"));
}

// --- splits ---

std::string import_fault(const std::string& recipe, const std::string& options = "") {
  const TemporaryFile file(recipe);
  return error_of([&] { parse("finetune --config " + file.string() + " " + options); });
}

TEST(Import, HoldsOutWhatTorchtunesRecipesHoldOut) {
  const test::TempFolder folder;
  std::ofstream(folder / "held.jsonl") << "{}";
  const std::string file = (folder / "r.yaml").string();
  const auto write = [&](const std::string& split, const std::string& validation) {
    std::ofstream(file) << "dataset:\n  _component_: torchtune.datasets.instruct_dataset\n"
                           "  source: json\n  data_files: a.jsonl\n"
                        << split << validation
                        << "optimizer: {_component_: torch.optim.AdamW, lr: 2e-5}\n";
  };
  const auto fault = [&] { return error_of([&] { parse("finetune --config " + file); }); };
  const std::string same =
      "dataset_val:\n  _component_: torchtune.datasets.instruct_dataset\n"
      "  source: json\n  data_files: a.jsonl\n";
  write("  split: train[:95%]\n", same + "  split: train[95%:]\nrun_val_every_n_steps: 20\n");
  const Recipe recipe = parse("finetune --config " + file).recipe;
  EXPECT_EQ(recipe.data.val_split_fraction, 0.05);
  EXPECT_EQ(recipe.data.prompt_style, "chat");
  EXPECT_EQ(recipe.eval.interval, 20);
  EXPECT_CONTAINS(remarks_of(import_file(file)), "the columns input and output alone");
  write("  split: train[:95%]\n", "");
  EXPECT_CONTAINS(fault(), ":5: dataset.split: a data file has one split");
  write("  split: train[:95%]\n", same + "  split: train[90%:]\n");
  EXPECT_CONTAINS(fault(), ":5: dataset.split: a data file has one split");
  EXPECT_CONTAINS(fault(), ":6: dataset_val: give the held-out rows as a file");
  EXPECT_NO_THROW(parse("plan --config " + file));
  write("", "dataset_val: {_component_: torchtune.datasets.instruct_dataset, source: org/set}\n");
  EXPECT_CONTAINS(fault(), ":5: dataset_val: give the held-out rows as a file");
  write(
      "  split: train\n",
      "dataset_val: {_component_: torchtune.datasets.instruct_dataset, source: json, data_files: " +
          (folder / "held.jsonl").string() + "}\n");
  EXPECT_EQ(parse("finetune --config " + file).recipe.data.val_path,
            (folder / "held.jsonl").string());
  EXPECT_CONTAINS(import_fault("model_name_or_path: m\ndataset_name: a.json\n"
                               "dataset_train_split: train[:90%]\n"),
                  ":3: dataset_train_split: a data file has one split");
}

// --- refusals ---

TEST(Import, RefusesWhatItCannotCarryOver) {
  const std::string axolotl = "base_model: m\nlearning_rate: 1e-4\n";
  EXPECT_CONTAINS(import_fault(axolotl + "rl: grpo\n"),
                  ":3: rl: snug does not have the objective grpo yet; choose one of its own with "
                  "--objective: sft, dpo, ipo, hinge, orpo, simpo, cpo, kto");
  EXPECT_CONTAINS(import_fault(axolotl + "lora_modules_to_save: [lm_head]\n"),
                  ":3: lora_modules_to_save: ");
  EXPECT_CONTAINS(import_fault(axolotl + "sequence_length: 5\n"),
                  "unknown key of axolotl; did you mean sequence_len?");
  EXPECT_EQ(import_fault(axolotl + "gptq_groupsize:\nrl: grpo\n").find("gptq"), std::string::npos);
  EXPECT_CONTAINS(import_fault(axolotl + "num_epochs: 1.5\n"), ":3: num_epochs: snug counts whole");
  EXPECT_CONTAINS(import_fault(axolotl + "val_set_size: 500\n"), "a share of the rows");
  EXPECT_CONTAINS(import_fault(axolotl + "optimizer: muon\n"), "snug has no optimizer muon");
  EXPECT_CONTAINS(import_fault(axolotl + "datasets: [{path: a.json, type: alpaca, shards: 2}]\n"),
                  ":3: datasets: shards: snug does not read this key of a data set");
  EXPECT_CONTAINS(import_fault(axolotl + "datasets: [{path: a.json, type: alpaca, split: test}]\n"),
                  "split: ");
  EXPECT_CONTAINS(import_fault(axolotl + "micro_batch_size: 0\n"),
                  ":3: micro_batch_size: 0 is out");
  EXPECT_CONTAINS(import_fault("model_name_or_path: m\nstage: ppo\n"),
                  ":2: stage: snug does not have the objective ppo yet");
  EXPECT_CONTAINS(import_fault("model_name_or_path: m\nfinetuning_type: oft\n"),
                  "snug has lora and full, not oft");
  EXPECT_CONTAINS(import_fault("model_name_or_path: m\nuse_peft: true\nloss_type: dft\n"),
                  ":3: loss_type: snug has the usual loss, not dft");
  EXPECT_CONTAINS(import_fault("loss: {_component_: torchtune.rlhf.loss.PPOLoss}\n"),
                  ":1: loss._component_: snug does not have the objective PPOLoss yet");
  EXPECT_CONTAINS(import_fault("full_finetuning: true\nqat_scheme: int4\n"), ":2: qat_scheme: ");
  EXPECT_CONTAINS(import_fault("model: {full_finetuning: true, max_seq_length: 128}\n"
                               "training: {max_seq_length: 256}\n"),
                  ":1: max_seq_length: is 128 here and 256 in line 2; leave one of them out");
  EXPECT_CONTAINS(import_fault("checkpointer:\n  _component_: x.FullModelMetaCheckpointer\n"),
                  ":2: checkpointer._component_: snug does not read Meta's own files");
}

// --- preferences that are not quite theirs, or not had ---

std::vector<std::string> faults_of(const std::string& text, const std::string& options = "") {
  const TemporaryFile file(text);
  return recipe_faults(Command::Plan, parse("plan --config " + file.string() + options).recipe);
}

TEST(Import, MakesRecipesOfPreferencesThatPassTheCheck) {
  for (const Case& c : kPreferences) EXPECT_TRUE(faults_of(c.recipe).empty()) << c.name;
  const std::vector<std::string> faults =
      faults_of("model_name_or_path: m\nstage: dpo\ntrain_on_prompt: true\n");
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_CONTAINS(faults[0], "only answers are compared");
  EXPECT_TRUE(
      faults_of("model_name_or_path: m\nbeta: 0.3\n", " --objective orpo --objective.beta 0.3")
          .empty());
  EXPECT_TRUE(faults_of("model_name_or_path: m\ndataset_name: a.json\n",
                        " --objective dpo --data.mask_prompt true --optimizer.lr 1e-6")
                  .empty());
}

TEST(Import, SaysWherePreferencesAreLearntOtherwise) {
  const std::string trl = "model_name_or_path: m\n",
                    axolotl = "base_model: m\nlearning_rate: 1e-4\n",
                    factory = trl + "stage: dpo\n";
  const std::string only_beta = remarks_on(trl + "beta: 0.3\n");
  EXPECT_CONTAINS(only_beta, "r.yaml:2: beta: taken as DPOConfig's");
  EXPECT_CONTAINS(only_beta, "--objective orpo or cpo, and --objective.beta 0.3");
  EXPECT_CONTAINS(only_beta, "max_length (TRL's default): of longer rows");
  for (const char* key : {"precompute_ref_log_probs: true", "cpo_alpha: 1", "rpo_alpha: 1.0"})
    EXPECT_FALSE(contains(remarks_on(trl + "beta: 0.3\n" + key), "taken as DPOConfig's")) << key;
  EXPECT_CONTAINS(remarks_on(trl + "dataset_name: a.json\n"), "taken as SFTConfig's");
  EXPECT_FALSE(contains(remarks_on(trl + "dataset_name: a.json\npacking: true\n"), "SFTConfig"));

  constexpr const char* kMean = "TRL takes the mean over all chosen tokens of a micro-batch";
  for (const std::string& recipe :
       {trl + "rpo_alpha: 1\n", trl + "cpo_alpha: 1\n", trl + "loss_type: [sigmoid, sft]\n",
        axolotl + "rl: simpo\n", axolotl + "rl: dpo\nrpo_alpha: 1\n"})
    EXPECT_CONTAINS(remarks_on(recipe), kMean);
  for (const std::string& recipe : {trl + "cpo_alpha: 0\n", axolotl + "rl: dpo\n",
                                    factory + "pref_ftx: 1\n", factory + "pref_loss: orpo\n"})
    EXPECT_FALSE(contains(remarks_on(recipe), kMean)) << recipe;
  EXPECT_CONTAINS(remarks_on(axolotl + "rl: orpo\n"), "over the tokens of prompts and chosen");
  EXPECT_CONTAINS(remarks_on(trl + "loss_type: [sigmoid, sft]\nloss_weights: [0.5, 1]\n"),
                  "loss_weights: the loss of pairs has weight 1, and all losses are 2");
  EXPECT_CONTAINS(remarks_on(trl + "label_smoothing: 0.1\n"), "TRL 1.16 does not");
  EXPECT_CONTAINS(remarks_on(axolotl + "rl: dpo\ndpo_label_smoothing: 0.1\n"), "TRL 1 does not");
  EXPECT_FALSE(contains(remarks_on(factory + "dpo_label_smoothing: 0.1\n"), "smooth"));
  EXPECT_CONTAINS(remarks_on(trl + "beta: 1\nmax_prompt_length: 9\n"), "one bound together");
  EXPECT_CONTAINS(remarks_on(factory + "pref_loss: hinge\n"), "computes sigmoid instead");
}

// Keys of preferences without effect, and where dropout goes.
TEST(Import, ListsKeysOfPreferencesThatDoNothing) {
  const auto idle = [](const std::string& recipe) {
    const auto imported = import_recipe(read_yaml(recipe, "r.yaml"), "r.yaml");
    std::string all;
    for (const ImportRemark& remark : imported->idle)
      all += remark.where + ": " + remark.why + "\n";
    return all;
  };
  const std::string trl = "model_name_or_path: m\n",
                    axolotl = "base_model: m\nlearning_rate: 1e-4\n",
                    factory = trl + "stage: dpo\n";
  EXPECT_CONTAINS(idle(trl + "precompute_ref_log_probs: false\n"), "once, before training");
  EXPECT_CONTAINS(idle(trl + "loss_type: ipo\nlabel_smoothing: 0.1\n"),
                  "label_smoothing: ipo has no such argument");
  EXPECT_CONTAINS(idle(trl + "beta: 1\nuse_peft: true\nlora_dropout: 0.1\n"),
                  "lora_dropout: dropout is off in preference training");
  EXPECT_CONTAINS(idle(axolotl + "rl_beta: 0.1\n"), "rl_beta: belongs to preference training");
  EXPECT_CONTAINS(idle(axolotl + "rl: dpo\ntrl: {beta: 0.1}\n"), "trl: beta alone counts");
  EXPECT_CONTAINS(idle(axolotl + "rl: ipo\ndpo_label_smoothing: 0.1\n"), "for rl: dpo");
  EXPECT_CONTAINS(idle(trl + "stage: sft\npref_beta: 0.1\n"), "pref_beta: belongs to preference");
  EXPECT_CONTAINS(idle(factory + "pref_loss: ipo\ndpo_label_smoothing: 0.1\n"),
                  "for pref_loss: sigmoid");
}

TEST(Import, RefusesPreferencesThatItDoesNotHave) {
  const std::string trl = "model_name_or_path: m\n",
                    axolotl = "base_model: m\nlearning_rate: 1e-4\n",
                    factory = trl + "stage: dpo\n";
  const auto without = [](const std::string& name) {
    return "snug does not have the objective " + name + " yet; choose one of its own";
  };
  for (const char* loss :
       {"exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "apo_zero", "discopop"})
    EXPECT_CONTAINS(import_fault(trl + "loss_type: " + loss + "\n"),
                    ":2: loss_type: " + without(loss));
  EXPECT_CONTAINS(import_fault(trl + "loss_type: [sigmoid, bco_pair, sft]\n"),
                  without("sigmoid + bco_pair + sft"));
  EXPECT_CONTAINS(import_fault(trl + "loss_type: [sft]\n"), without("sft without a loss of pairs"));
  EXPECT_CONTAINS(import_fault(trl + "loss_type: hinge\ncpo_alpha: 1\n"),
                  without("hinge of CPOTrainer"));
  EXPECT_CONTAINS(import_fault(trl + "loss_type: apo_zero_unpaired\ndesirable_weight: 1\n"),
                  without("apo_zero_unpaired of KTOTrainer"));
  EXPECT_CONTAINS(import_fault(trl + "stage: kto\npref_ftx: 0.1\n"), ":3: pref_ftx: ");
  EXPECT_CONTAINS(import_fault(trl + "num_generations: 8\n"),
                  "snug does not have this objective yet");
  EXPECT_CONTAINS(import_fault(trl + "beta: 0.5\nteacher_model_name_or_path: t\n"),
                  "--objective distill --objective.teacher MODEL");
  for (const char* key :
       {"sync_ref_model: true", "reference_free: true", "ref_model_init_kwargs: {dtype: bfloat16}"})
    EXPECT_CONTAINS(import_fault(trl + key + "\n"), "the reference is the model before training");
  for (const char* key : {"ld_alpha: 0.0", "f_divergence_type: js_divergence",
                          "use_weighting: true", "cpo_alpha: 1\nalpha: 0.5"})
    EXPECT_CONTAINS(import_fault(trl + key + "\n"), "snug does not have this; leave it out");
  EXPECT_CONTAINS(import_fault(trl + "beta: 1\npacking: true\n"), "packing: ");
  const TemporaryFile robust(trl + "loss_type: robust\n");
  EXPECT_EQ(
      parse("finetune --config " + robust.string() + " --objective dpo").recipe.objective.name,
      "dpo");

  for (const char* rl : {"grpo", "gdpo", "ebft"})
    EXPECT_CONTAINS(import_fault(axolotl + "rl: " + rl + "\n"), ":3: rl: " + without(rl));
  EXPECT_CONTAINS(import_fault(axolotl + "rl: dpo\ndpo_loss_type: [robust]\n"),
                  ":4: dpo_loss_type: " + without("robust"));
  EXPECT_CONTAINS(import_fault(axolotl + "rl: dpo\ndpo_use_weighting: true\n"),
                  ":4: dpo_use_weighting: ");
  EXPECT_CONTAINS(import_fault(axolotl + "reward_model: true\n"),
                  ":3: reward_model: snug does not have this objective yet");
  const auto set = [&](const std::string& more) {
    return import_fault(axolotl + "rl: dpo\ndatasets: [{path: a.json, " + more + "}]\n");
  };
  EXPECT_CONTAINS(set("type: zephyr.nectar"), "type zephyr.nectar: snug has chat_template, ");
  const TemporaryFile chatml(axolotl + "rl: dpo\ndatasets: [{path: a.json, type: chatml.ultra}]\n");
  EXPECT_EQ(parse("finetune --config " + chatml.string()).recipe.data.chat_template, "chatml");
  EXPECT_CONTAINS(set("type: chat_template.default, field_chosen: better"), "field_chosen: ");
  EXPECT_CONTAINS(set("type: {field_rejected: worse}"), "field_rejected is worse; ");
  EXPECT_CONTAINS(set("type: {prompt_format: '[INST] {prompt} [/INST]'}"), "prompt_format is ");
  EXPECT_CONTAINS(set("split: train"), "type is missing: ");

  EXPECT_CONTAINS(import_fault(factory + "pref_loss: kto_pair\n"),
                  ":3: pref_loss: " + without("kto_pair"));
  EXPECT_CONTAINS(import_fault(factory + "pref_bco_weight: 0.1\n"), ":3: pref_bco_weight: ");
  EXPECT_CONTAINS(import_fault(factory + "ref_model: other\nref_model_quantization_bit: 4\n"),
                  ":4: ref_model_quantization_bit: the reference is read in the type");
  EXPECT_CONTAINS(import_fault(factory + "ld_alpha: 0.5\n"), ":3: ld_alpha: ");

  EXPECT_CONTAINS(import_fault("checkpointer: {checkpoint_dir: /a}\n"
                               "ref_checkpointer: {checkpoint_dir: /b}\n"
                               "loss: {_component_: torchtune.rlhf.loss.DPOLoss}\n"),
                  ":2: ref_checkpointer: the reference is the model before training");
  const std::string paired =
      "dataset:\n  _component_: torchtune.datasets.stack_exchange_paired_dataset\n";
  EXPECT_CONTAINS(import_fault(paired), "response_j and response_k, which snug does not know");
  EXPECT_CONTAINS(import_fault(paired + "  column_map: {chosen: better}\n"),
                  ":3: dataset.column_map: ");
  EXPECT_CONTAINS(import_fault("full_finetuning: true\nDPOConfig: {beta: 0.1}\n"),
                  ":2: DPOConfig: of Unsloth's calls snug reads those for SFTConfig");
}

TEST(Import, ReadsPairsOfLlamaFactorysList) {
  const test::TempFolder folder;
  fs::create_directories(folder / "data");
  const auto refused = [&](const std::string& entry) {
    std::ofstream(folder / "r.yaml") << "model_name_or_path: m\nstage: dpo\ndataset: mine\n";
    std::ofstream(folder / "data/mine.json") << "[]";
    std::ofstream(folder / "data/dataset_info.json")
        << R"({"mine": {"file_name": "mine.json", )" << entry << "}}";
    const Imported imported = import_file((folder / "r.yaml").string());
    std::string all;
    for (const ImportRefusal& refusal : imported.refused) all += refusal.text() + "\n";
    return all;
  };
  EXPECT_EQ(refused(R"("ranking": true, "formatting": "sharegpt", "columns": {
      "messages": "conversations", "chosen": "chosen", "rejected": "rejected"})"),
            "");
  EXPECT_EQ(refused(R"("ranking": true, "columns": {
      "prompt": "question", "chosen": "chosen_response", "rejected": "rejected_response"})"),
            "");
  EXPECT_CONTAINS(refused(R"("columns": {"prompt": "instruction"})"),
                  "mine: ranking is not true; ");
  EXPECT_CONTAINS(refused(R"("ranking": true, "columns": {"chosen": "better"})"),
                  "mine: the column better as chosen");
}

// What changes the text that is learnt is carried over, said to differ, or refused.
TEST(Import, SaysWhatBecomesOfTemplatesAndTokens) {
  const auto with = [](const std::string& model, const std::string& more) {
    const TemporaryFile file("base_model: " + model + "\nlearning_rate: 1e-4\n" + more);
    return import_file(file.string());
  };
  const Imported own = with("meta-llama/Meta-Llama-3.1-8B",
                            "chat_template: llama3\nspecial_tokens: {eos_token: <|eot_id|>}\n");
  EXPECT_TRUE(own.refused.empty());
  const auto set_to = [](const Imported& imported, std::string_view key) {
    for (const Setting& setting : imported.settings)
      if (setting.key == key) return setting.value.text;
    return std::string();
  };
  EXPECT_EQ(set_to(own, "data.chat_template"), "llama3");
  EXPECT_EQ(set_to(own, "data.eos_token"), "<|eot_id|>");
  const Imported qwen = with("Qwen/Qwen3-8B", "chat_template: qwen3\n");
  EXPECT_EQ(set_to(qwen, "data.chat_template"), "");
  EXPECT_CONTAINS(qwen.differing.front().why,
                  "qwen3: chats are written in the template of the model's folder");
  const Imported usual = with("m", "chat_template: tokenizer_default\n");
  EXPECT_TRUE(usual.refused.empty());
  EXPECT_EQ(set_to(usual, "data.chat_template"), "");
  EXPECT_EQ(set_to(with("m", "chat_template: jinja\nchat_template_jinja: \"{{ 1 }}\"\n"),
                   "data.chat_template"),
            "{{ 1 }}");
  const TemporaryFile jinja("{{ 1 }}");
  EXPECT_EQ(
      set_to(with("m", "chat_template_jinja: " + jinja.string() + "\n"), "data.chat_template"),
      jinja.string());
  const std::string of_set =
      "chat_template: llama3\ndatasets: [{path: a.json, type: chat_template, ";
  EXPECT_EQ(set_to(with("m", of_set + "chat_template: chatml}]\n"), "data.chat_template"), "chatml")
      << "the set's own comes first";
  const Imported tokens = with("m",
                               "tokens: [<|a|>, <|b|>]\nadapter: lora\n"
                               "lora_modules_to_save: [embed_tokens, lm_head]\n");
  EXPECT_EQ(set_to(tokens, "tokens.add"), "<|a|>,<|b|>");
  EXPECT_TRUE(tokens.refused.empty());
  EXPECT_CONTAINS(tokens.differing.front().why, "new tokens are special here");
  EXPECT_EQ(set_to(with("m",
                        "tokens: [<|a|>]\nspecial_tokens: {eos_token: <|e|>, "
                        "additional_special_tokens: [<|b|>]}\n"),
                   "tokens.add"),
            "<|a|>,<|b|>");
  EXPECT_EQ(
      set_to(with("m", "special_tokens: {additional_special_tokens: [<|b|>]}\n"), "tokens.add"),
      "<|b|>");
  // What is written is a recipe again.
  const TemporaryFile written(print_imported(
      with("m", "tokens: [<|a|>]\nchat_template: chatml\nval_set_size: 0.1\n"), "a.yaml"));
  const Recipe again = parse("finetune --config " + written.string()).recipe;
  EXPECT_EQ(again.data.add_tokens, "<|a|>");
  EXPECT_EQ(again.data.chat_template, "chatml");
  EXPECT_FALSE(with("m", "adapter: lora\nlora_modules_to_save: [lm_head]\n").refused.empty());
  EXPECT_FALSE(
      with("m", "tokens: [<|a|>]\nadapter: lora\nlora_modules_to_save: [mlp]\n").refused.empty());
  const std::string factory = "model_name_or_path: m\nstage: sft\nfinetuning_type: full\n";
  const TemporaryFile both(factory + "add_tokens: <a>,<b>\nadd_special_tokens: <c>\n");
  EXPECT_EQ(set_to(import_file(both.string()), "tokens.add"), "<a>,<b>,<c>");
  const std::string axolotl = "base_model: smol\nlearning_rate: 1e-4\n";
  EXPECT_CONTAINS(import_fault(axolotl + "tokens: ['<a,b>']\n"), "cannot hold a comma");
  EXPECT_CONTAINS(import_fault(axolotl + "chat_template: metharme\n"),
                  ":3: chat_template: snug has no template metharme: give its file");
  EXPECT_CONTAINS(import_fault(axolotl + "default_system_message: Be good.\n"),
                  "snug adds no system text");
  const std::string set = "datasets: [{path: a.json, type: chat_template, ";
  EXPECT_CONTAINS(import_fault(axolotl + set + "roles_to_train: []}]\n"),
                  "nothing would be learnt");
  EXPECT_CONTAINS(import_fault(axolotl + set + "train_on_eos: last}]\n"), "the end of each answer");
  EXPECT_CONTAINS(import_fault(axolotl + set + "chat_template: aya}]\n"),
                  "snug has no template aya");
  EXPECT_CONTAINS(import_fault("model_name_or_path: m\nstage: sft\ndefault_system: x\n"),
                  "snug adds no system text");
  const TemporaryFile trl(
      "model_name_or_path: m\nuse_peft: true\nchat_template_path: t.jinja\neos_token: <|end|>\n");
  EXPECT_EQ(set_to(import_file(trl.string()), "data.chat_template"), "t.jinja");
  EXPECT_EQ(set_to(import_file(trl.string()), "data.eos_token"), "<|end|>");
}

// Files of Phi have no q_proj.
TEST(Import, NamesTheFusedMatricesOfPhi) {
  const TemporaryFile file(R"(
model:
  _component_: torchtune.models.phi3.lora_phi3_mini
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: true
)");
  const Imported imported = import_file(file.string());
  EXPECT_CONTAINS(print_imported(imported, file.string()),
                  "lora_target_modules: \"qkv_proj,o_proj,gate_up_proj,down_proj\"");
  ASSERT_EQ(imported.differing.size(), 1U);
}

TEST(Import, TakesTheCommandLinesWordWhereTheFilesIsRefused) {
  const TemporaryFile file(
      "base_model: m\nlearning_rate: 1e-4\ndatasets:\n  - path: /some/hub/set\n    type: alpaca\n");
  const std::string line = "finetune --config " + file.string();
  EXPECT_CONTAINS(error_of([&] { parse(line); }),
                  ":3: datasets: /some/hub/set is no file here, and no data set of the hub");
  EXPECT_EQ(parse(line + " --data rows.jsonl").recipe.data.json_path, "rows.jsonl");
  EXPECT_NO_THROW(parse("plan " + file.string()));  // a plan needs no data
}

TEST(Import, NamesDataSetsOfTheHub) {
  const TemporaryFile file(
      "base_model: m\nlearning_rate: 1e-4\ndatasets:\n  - path: some/hub-set\n    name: en\n"
      "    split: held\n    type: alpaca\n");
  const std::string line = "finetune --config " + file.string();
  const DataOptions data = parse(line).recipe.data;
  EXPECT_EQ(data.class_path, "HFDataset");
  EXPECT_EQ(data.path, "some/hub-set");
  EXPECT_EQ(data.subset, "en");
  EXPECT_EQ(data.split, "held");
  // Other rows on the command line take their place whole.
  const DataOptions other = parse(line + " --data rows.jsonl").recipe.data;
  EXPECT_EQ(other.class_path, "JSON");
  EXPECT_EQ(other.json_path, "rows.jsonl");
  EXPECT_EQ(other.path + other.subset, "");
  EXPECT_EQ(other.split, "train");
}

TEST(Import, LeavesOurOwnRecipesAndLitgptsAlone) {
  const TemporaryFile file("checkpoint_dir: m\nmicro_batch_size: 2\nepochs: 1\n");
  EXPECT_EQ(parse("plan " + file.string()).import_note, "");
  EXPECT_CONTAINS(error_of([&] { import_file(file.string()); }),
                  "not a recipe of torchtune, axolotl, ");
}

TEST(Import, SaysWhoseRecipeItIs) {
  const TemporaryFile file("base_model: m\nlearning_rate: 1e-4\nwandb_project: p\n");
  EXPECT_CONTAINS(parse("plan " + file.string()).import_note,
                  "is one of axolotl: 1 key differs, 1 key has no effect");
}

}  // namespace
}  // namespace snug::recipe
