// SPDX-License-Identifier: Apache-2.0
#include "recipe/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

// A key of another trainer and the key that it corresponds to here. Names whose values are written
// the same way are aliases in the rows instead.
struct Synonym {
  std::string_view word, key;
};

constexpr Synonym kSynonyms[] = {
    // transformers and TRL
    {"model_name_or_path", "checkpoint_dir"},
    {"output_dir", "out_dir"},
    {"num_train_epochs", "train.epochs"},
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"gradient_accumulation_steps", "train.accumulate_grad_batches"},
    {"learning_rate", "optimizer.lr"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.eps"},
    {"optim", "optimizer"},
    {"warmup_steps", "train.lr_warmup_steps"},
    {"warmup_ratio", "train.lr_warmup_fraction"},
    {"max_grad_norm", "train.max_norm"},
    {"label_smoothing_factor", "train.label_smoothing"},
    {"logging_steps", "train.log_interval"},
    {"save_steps", "train.save_interval"},
    {"save_total_limit", "train.keep_checkpoints"},
    {"eval_steps", "eval.interval"},
    {"report_to", "logger_name"},
    {"gradient_checkpointing", "activation_checkpointing"},
    {"resume_from_checkpoint", "resume"},
    {"max_length", "train.max_seq_length"},
    {"model_max_length", "train.max_seq_length"},
    {"load_in_4bit", "quantize"},
    {"load_in_8bit", "quantize"},
    {"target_modules", "lora_target_modules"},
    {"dataset_name", "data"},
    {"dataset_text_field", "data.text_column"},
    {"train_file", "data.json_path"},
    {"validation_file", "data.val_path"},
    {"dataloader_num_workers", "data.num_workers"},
    {"max_train_samples", "data.max_samples"},
    // axolotl
    {"base_model", "checkpoint_dir"},
    {"datasets", "data.json_path"},
    {"num_epochs", "train.epochs"},
    {"sequence_len", "train.max_seq_length"},
    {"sample_packing", "data.packing"},
    {"chat_template", "data.chat_template"},
    {"lora_target_linear", "lora_target_modules"},
    {"val_set_size", "data.val_split_fraction"},
    {"gradient_clipping", "train.max_norm"},
    // LLaMA-Factory
    {"dataset", "data.json_path"},
    {"cutoff_len", "train.max_seq_length"},
    {"template", "data.prompt_style"},
    {"val_size", "data.val_split_fraction"},
    {"lora_rank", "lora_r"},
    {"lora_target", "lora_target_modules"},
    {"quantization_bit", "quantize"},
    {"loraplus_lr_ratio", "lora_plus_lr_ratio"},
    {"use_dora", "lora_use_dora"},
    {"use_rslora", "lora_use_rslora"},
    // peft
    {"r", "lora_r"},
    {"rank", "lora_r"},
    {"alpha", "lora_alpha"},
    {"init_lora_weights", "lora_init_weights"},
    // LitGPT, Lightning, torchrun
    {"initial_checkpoint_dir", "checkpoint_dir"},
    {"clip_grad_norm", "train.max_norm"},
    // as people call them
    {"seq_length", "train.max_seq_length"},
    {"dtype", "precision"},
    {"torch_dtype", "precision"},
    {"steps", "train.max_steps"},
    {"batch_size", "train.micro_batch_size"},
    {"data_file", "data.json_path"},
    {"data_path", "data.json_path"},
    {"qlora", "quantize"},
    {"gradient_clip_val", "train.max_norm"},
    {"val_check_interval", "eval.interval"},
    {"block_size", "train.max_seq_length"},
    {"seq_len", "train.max_seq_length"},
    {"grad_clip", "train.max_norm"},
    {"gpu", "devices"},
    {"gpus", "devices"},
    {"num_gpus", "devices"},
    {"nproc_per_node", "devices"},
    {"nnodes", "num_nodes"},
    {"model", "checkpoint_dir"},
    {"output", "out_dir"},
    // generation
    {"max_tokens", "max_new_tokens"},
    {"output", "out"},
    {"quantize", "gguf_type"},
    {"max_length", "max_new_tokens"},
    {"system", "sys_prompt"},
    {"system_prompt", "sys_prompt"},
    {"temp", "temperature"},
    {"lora_path", "adapter"},
    {"lora", "adapter"},
    {"peft_model", "adapter"},
};

}  // namespace

void throw_faults(std::vector<std::string> faults, const std::string& where) {
  const std::string front = where.empty() ? "" : where + ": ";
  if (faults.size() == 1) throw UserError("{}{}", front, faults[0]);
  constexpr size_t kMostShown = 50;
  const size_t count = faults.size();
  if (count > kMostShown) {
    faults.resize(kMostShown);
    faults.push_back(fmt::format("and {} more", count - kMostShown));
  }
  if (count > 0) throw UserError("{}{} faults:\n  - {}", front, count, fmt::join(faults, "\n  - "));
}

std::string near_key(std::string_view key, const std::vector<Row>& rows) {
  std::vector<std::string> names, words;
  for (const Row& row : rows) {
    names.push_back(row.key);
    words.emplace_back(last_word(row.key));
  }
  const auto row_of = [&](std::string_view word) {
    const auto found = std::ranges::find(words, word);
    return found == words.end() ? "" : names[static_cast<size_t>(found - words.begin())];
  };
  const std::string_view word = last_word(key);
  if (std::string same = row_of(word); !same.empty()) return same;
  for (const Synonym& other : kSynonyms)
    if (other.word == word && std::ranges::count(names, other.key) > 0)
      return std::string(other.key);
  // gguf_type for type, which dtype is nearer to by its letters alone.
  const auto has_part = [&](const std::string& other) {
    return ("_" + other + "_").find(fmt::format("_{}_", word)) != std::string::npos;
  };
  if (word.size() > 2 && std::ranges::count_if(words, has_part) == 1)
    return row_of(*std::ranges::find_if(words, has_part));
  for (const Row& row : rows) names.insert(names.end(), row.aliases.begin(), row.aliases.end());
  if (const Row* near = find_row(rows, nearest_name(key, names))) return near->key;
  if (std::string near = row_of(nearest_name(word, words)); !near.empty()) return near;
  // max_new_tokens for max_token, by max_tokens. A first letter that differs is another word.
  std::vector<std::string> others;
  for (const Synonym& other : kSynonyms)
    if (!word.empty() && other.word.front() == word.front() &&
        std::ranges::count(names, other.key) > 0)
      others.emplace_back(other.word);
  const std::string other = nearest_name(word, others);
  return other.empty() ? "" : near_key(other, rows);
}

}  // namespace snug::recipe
