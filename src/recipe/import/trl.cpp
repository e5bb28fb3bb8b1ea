// TRL (1.16, and keys of 0.12): https://github.com/huggingface/trl, its SFTConfig and its configs
// of preferences; and the arguments of transformers alone, with those of its script run_clm.py.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "recipe/data_sources.h"
#include "recipe/import/programs.h"
#include "recipe/import/shared.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

constexpr std::string_view kOwnFolder = "the model and its tokenizer are those of the folder";

// ModelConfig
void take_template(Draft& draft, const Found& path) {
  const std::string found = existing_file(draft, path.node.text);
  draft.set("data.chat_template", found.empty() ? path.node.text : found, path.key);
}

constexpr KeyRow kModelRows[] = {
    {"model_name_or_path", Way::By, "checkpoint_dir", {}, {}, take_model},
    {"dtype", Way::Read, "precision"},
    {"torch_dtype", Way::Read, "precision"},
    {"use_peft", Way::Read, "full"},
    {"lora_r", Way::Same, "lora_r", {}, "16"},
    {"lora_alpha", Way::Same, "lora_alpha", {}, "32"},
    {"lora_dropout", Way::Same, "lora_dropout", {}, "0.05"},
    {"lora_target_modules", Way::Read, "lora_target_modules"},
    {"use_rslora", Way::Same, "lora_use_rslora"},
    {"use_dora", Way::Same, "lora_use_dora"},
    {"load_in_4bit load_in_8bit", Way::Read, "quantize"},
    {"bnb_4bit_quant_type", Way::Read, "quantize", {}, "nf4"},
    {"use_bnb_nested_quant", Way::Read, "quantize"},
    {"bnb_4bit_quant_storage lora_task_type",
     Way::Idle,
     {},
     "snug stores 4 bits as they are, and trains language models"},
    {"lora_modules_to_save lora_target_parameters", Way::Off, "lora_target_modules",
     kPlainAdapters},
    {"model_revision trust_remote_code", Way::Idle, {}, kOwnModel},
    {"attn_implementation", Way::Idle, {}, kOwnKernels},
};

// What all configs have, and ScriptArguments
constexpr KeyRow kTrlRows[] = {
    {"logging_steps", Way::By, "train.log_interval", {}, {}, take_log_steps},
    {"bf16 fp16", Way::Read, "precision"},
    {"gradient_checkpointing", Way::Read, "activation_checkpointing", {}, "true"},
    {"model_init_kwargs", Way::Off, "precision",
     "the model is built as its config.json says; types are chosen with --precision"},
    {"dataset_name", Way::Read, "data.json_path"},
    {"datasets", Way::Read, "data.sources"},
    {"test_split_size", Way::By, "data.val_split_fraction", {}, {}, take_held_out},
    {"dataset_train_split", Way::By, "data", {}, {}, take_split},
    {"dataset_config", Way::Read, "data.subset"},
    {"config dataset_test_split",
     Way::Idle,
     {},
     "a data file has one split; a validation file is --data.val_path"},
    {"dataset_streaming streaming", Way::Off, "data", "snug reads a file; give --data FILE"},
    {"max_length", Way::Read, "train.max_seq_length"},
    {"activation_offloading", Way::Same, "activation_offload"},
    {"pad_token", Way::Idle, {}, kOwnFolder},
    {"padding_free pad_to_multiple_of dataset_num_proc truncation_mode", Way::Idle, {}, kOwnLoader},
    {"use_liger", Way::By, {}, {}, {}, take_liger},
    {"ignore_bias_buffers gradient_checkpointing_use_reentrant", Way::Idle, {}, kOwnKernels},
    {"router_aux_loss_coef", Way::Off, "train.router_aux_loss_coef",
     "TRL uses it where the model's config has output_router_logits: true alone; if it has, give "
     "--train.router_aux_loss_coef"},
};

// SFTConfig
constexpr KeyRow kSftRows[] = {
    {"learning_rate", Way::Same, "optimizer.lr", {}, "2e-05"},
    {"max_seq_length", Way::Read, "train.max_seq_length"},
    {"packing", Way::Read, "data.packing"},
    {"completion_only_loss assistant_only_loss", Way::Read, "data.mask_prompt"},
    {"dataset_text_field", Way::Words, "data.prompt_style", "text=auto messages=auto"},
    {"loss_type", Way::Read, "train.loss_normalization", {}, "nll"},
    {"chat_template_path", Way::By, "data.chat_template", {}, {}, take_template},
    {"eos_token", Way::Same, "data.eos_token"},
    {"packing_strategy eval_packing dataset_batch_size dataset_kwargs shuffle_dataset "
     "chars_per_token num_of_sequences",
     Way::Idle,
     {},
     kOwnLoader},
};

void take_divergence(Draft& draft, const Found& found) {
  if (found.node.text == "reverse_kl")
    draft.idle(found.key, "as it is here");
  else
    draft.refuse(found.key, "", std::string(kNoSuchTechnique));
}

void take_part_length(Draft& draft, const Found& found) {
  draft.differs(found.key, "prompts and answers have one bound together, train.max_seq_length");
}

// DPOConfig, ORPOConfig, CPOConfig and KTOConfig, whose defaults are the same.
constexpr KeyRow kPreferenceRows[] = {
    {"loss_type", Way::Read, "objective.name", {}, "sigmoid"},
    {"beta", Way::Read, "objective.beta", {}, "0.1"},
    {"simpo_gamma", Way::Read, "objective.gamma", {}, "0.5"},
    {"label_smoothing", Way::Read, "objective.label_smoothing", {}, "0.0"},
    {"cpo_alpha", Way::Read, "objective.sft_weight", {}, "1.0"},
    {"rpo_alpha loss_weights", Way::Read, "objective.sft_weight"},
    {"learning_rate", Way::Read, "optimizer.lr", {}, "1e-06"},
    {"disable_dropout", Way::Read, "model.dropout", {}, "true"},
    {"lora_dropout", Way::Read, "lora_dropout", {}, "0.05"},
    {"max_prompt_length max_completion_length max_target_length",
     Way::By,
     "train.max_seq_length",
     {},
     {},
     take_part_length},
    {"precompute_ref_log_probs precompute_ref_batch_size", Way::Idle, {}, kOwnReferencePass},
    {"sync_ref_model reference_free ref_model_init_kwargs model_adapter_name ref_adapter_name",
     Way::Off,
     {},
     kOwnReference},
    {"ld_alpha", Way::By, {}, {}, {}, take_ld_alpha},
    {"f_divergence_type", Way::By, {}, {}, {}, take_divergence},
    {"use_weighting alpha", Way::Off, {}, kNoSuchTechnique},
    {"f_alpha_divergence_coef discopop_tau ref_model_mixup_alpha ref_model_sync_steps "
     "force_use_ref_model",
     Way::Idle,
     {},
     "belongs to a technique that is off"},
    {"generate_during_eval", Way::Idle, {}, kNoGeneration},
    {"label_pad_token_id padding_value is_encoder_decoder", Way::Idle, {}, kOwnLoader},
    {"label_smoothing_factor", Way::Idle, {}, "it smooths tokens, and only pairs are learnt"},
    {"desirable_weight", Way::Read, "objective.desirable_weight", {}, "1.0"},
    {"undesirable_weight", Way::Read, "objective.undesirable_weight", {}, "1.0"},
    // RewardConfig
    {"center_rewards_coefficient", Way::Read, "objective.center_rewards_coefficient"},
    // GRPOConfig
    {"num_generations", Way::Off, "objective.name", kNoSuchObjective},
    // GKDConfig
    {"teacher_model_name_or_path", Way::Off, "objective.teacher", kOwnDistillation},
};
// Those of CPOConfig and of DPOConfig alone; ORPOConfig has none.
constexpr std::string_view kOnlyCpo = "cpo_alpha simpo_gamma alpha";
constexpr std::string_view kOnlyDpo =
    "precompute_ref_log_probs precompute_ref_batch_size loss_weights rpo_alpha sync_ref_model "
    "reference_free ref_model_init_kwargs ld_alpha f_divergence_type use_weighting discopop_tau "
    "max_target_length";
constexpr std::string_view kOnlyKto = "desirable_weight undesirable_weight";
constexpr std::string_view kCpoLosses = "sigmoid=cpo simpo=simpo";

constexpr KeyRow kScriptRows[] = {
    {"model_name_or_path", Way::By, "checkpoint_dir", {}, {}, take_model},
    {"train_file", Way::Read, "data.json_path"},
    {"validation_file", Way::Same, "data.val_path"},
    {"max_train_samples", Way::Same, "data.max_samples"},
    {"block_size max_seq_length", Way::Same, "train.max_seq_length"},
    {"torch_dtype dtype", Way::Read, "precision"},
    {"config_name tokenizer_name cache_dir model_revision use_fast_tokenizer trust_remote_code "
     "low_cpu_mem_usage token use_auth_token",
     Way::Idle,
     {},
     kOwnFolder},
    {"preprocessing_num_workers overwrite_cache keep_linebreaks max_eval_samples "
     "validation_split_percentage",
     Way::Idle,
     {},
     kOwnLoader},
    {"config_overrides model_type", Way::Off, "model.config",
     "give --model.config for random weights of another shape"},
    {"streaming", Way::Off, "data", "snug reads a file; give --data FILE"},
};

// The type that weights are loaded in; "auto" is the one of their files, usually bfloat16.
bool loads_in_16_bits(const Draft& draft, std::string_view unset) {
  std::string dtype = draft.text("dtype");
  if (dtype.empty()) dtype = draft.text("torch_dtype");
  if (dtype.empty()) dtype = unset;
  return dtype == "bfloat16" || dtype == "float16" || dtype == "auto";
}

// What both take from TrainingArguments.
void take_training_arguments(Draft& draft) {
  take_length(draft, "num_train_epochs");
  take_schedule(draft, "lr_scheduler_type");
  take_optimizer(draft, "optim");
  take_saving(draft);
  if (draft.find("activation_checkpointing") == nullptr)
    take_checkpointing(draft, "gradient_checkpointing");
}

}  // namespace

namespace {

// dataset_name, or the mixture of `datasets`.
void take_trl_data(Draft& draft) {
  if (draft.find("test_split_size") == nullptr)
    draft.set("data.val_split_fraction", "0", "dataset_test_split");
  const Found* mixture = draft.find("datasets");
  if (mixture == nullptr) {
    const std::string name = draft.text("dataset_name");
    if (!name.empty()) take_data(draft, name, "dataset_name");
    if (const std::string subset = draft.text("dataset_config"); !subset.empty()) {
      if (names_hub_set(name))
        draft.set("data.subset", subset, "dataset_config");
      else
        draft.idle("dataset_config", "a data file has one subset");
    }
    return;
  }
  std::vector<DataKeys> sets;
  for (const YamlNode& set : mixture->node.items) {
    for (const auto& [key, value] : set.entries)
      if (const bool is_read = key == "path" || key == "data_files"; !is_read && is_on(value)) {
        if (names_hub_set(text_in(set, "path")) && (key == "name" || key == "split"))
          continue;
        else if (key == "split" && value.text != "train")
          draft.refuse("datasets", "data", fmt::format("split: {}", kOneSplit));
        else if (key == "columns" || key == "name")
          draft.idle("datasets", fmt::format("{}: rows say by their columns what they are", key));
        else if (key != "split")
          draft.refuse(
              "datasets", "data",
              fmt::format("{}: snug does not read this key of a data set; leave it out", key));
      }
    const YamlNode* files = find_in(set, "data_files");
    sets.push_back(data_keys(draft,
                             files == nullptr           ? text_in(set, "path")
                             : files->items.size() == 1 ? files->items[0].text
                                                        : files->text,
                             "datasets"));
    add_split(sets.back(), text_in(set, "split"), text_in(set, "name"));
  }
  if (!sets.empty()) set_data(draft, sets, "datasets");
}

}  // namespace

void take_sft_arguments(Draft& draft, std::string_view mask) {
  take_trl_data(draft);
  if (draft.find("dataset_text_field") == nullptr)
    draft.set("data.prompt_style", "auto", "dataset_text_field");
  const std::string_view masks = draft.on(mask)                    ? mask
                                 : draft.on("assistant_only_loss") ? "assistant_only_loss"
                                                                   : "completion_only_loss";
  draft.set("data.mask_prompt", draft.on(masks) ? "true" : "false", masks);
  if (draft.find(masks) == nullptr)
    draft.differs(masks,
                  "all tokens count in the loss; of rows with prompt and completion TRL leaves the "
                  "prompt out, which is --data.mask_prompt true");
  if (const std::string loss = draft.text("loss_type"); loss != "nll" && loss != "chunked_nll")
    draft.refuse("loss_type", "train.loss_normalization",
                 fmt::format("snug has the usual loss, not {}", loss));
  if (draft.on("packing"))
    draft.differs("packing",
                  "train.micro_batch_size counts samples, not rows of max_length with several "
                  "samples in each; raise it for short samples");
}

namespace {

// The model, its weights and how they are trained.
void take_trl_arguments(Draft& draft, std::string_view length) {
  const bool adapters = draft.on("use_peft");
  draft.set("full", adapters ? "false" : "true", "use_peft");
  take_targets(draft, "lora_target_modules");
  if (draft.on("load_in_4bit"))
    take_quantization(draft, 4, draft.text("bnb_4bit_quant_type"), draft.on("use_bnb_nested_quant"),
                      "load_in_4bit");
  else if (draft.on("load_in_8bit"))
    take_quantization(draft, 8, "", false, "load_in_8bit");
  const bool sharded = take_sharding(draft);
  const Weights weights = {.in_16_bits = loads_in_16_bits(draft, "float32"),
                           .with_float32_copies = adapters || sharded};
  if (draft.find("bf16") == nullptr && !draft.on("fp16")) {  // TRL's default
    draft.set("precision", weights.in_16_bits ? "bf16-true" : "bf16-mixed", "bf16");
    if (weights.in_16_bits && weights.with_float32_copies)
      draft.set("optimizer.master_weights", "true", "bf16");
  } else {
    take_precision(draft, weights);
  }
  take_training_arguments(draft);
  const bool has_length = draft.find(length) != nullptr;
  const std::string usual = draft.is_null(length) ? "null" : "1024";  // null: nothing is cut
  draft.set("train.max_seq_length", has_length ? draft.text(length) : usual, length);
}

bool has_any(const Draft& draft, std::string_view keys) {
  return std::ranges::any_of(words_of(keys),
                             [&](std::string_view key) { return draft.find(key) != nullptr; });
}

void finish_trl(Draft& draft) {
  take_trl_arguments(draft, draft.find("max_seq_length") ? "max_seq_length" : "max_length");
  take_sft_arguments(draft);
  if (!has_any(draft,
               "packing completion_only_loss assistant_only_loss dataset_text_field "
               "loss_type eos_token max_seq_length chat_template_path dataset_kwargs"))
    draft.differs("dataset_name",
                  "taken as SFTConfig's, since no key says otherwise; for rows of preferences give "
                  "--objective dpo --data.mask_prompt true --optimizer.lr 1e-6");
}

void take_cpo(Draft& draft) {
  const std::string loss = draft.text("loss_type");
  const std::string_view objective = word_for(kCpoLosses, loss);
  if (objective.empty()) return refuse_objective(draft, "loss_type", loss + " of CPOTrainer");
  take_objective(draft, objective, draft.find("loss_type") ? "loss_type" : "cpo_alpha",
                 {.beta = "beta", .gamma = "simpo_gamma", .label_smoothing = "label_smoothing"});
  take_sft_weight(draft, draft.text("cpo_alpha"), "cpo_alpha");
}

void take_dpo(Draft& draft) {
  const std::string objective = take_dpo_losses(draft, "loss_type", "loss_weights");
  if (objective.empty()) return;
  take_objective(draft, objective, "loss_type",
                 {.beta = "beta", .label_smoothing = "label_smoothing"});
  if (draft.on("rpo_alpha")) take_sft_weight(draft, draft.text("rpo_alpha"), "rpo_alpha");
  if (objective == "dpo" && draft.on("label_smoothing"))
    draft.differs("label_smoothing",
                  "as TRL 0.12 smooths pairs; TRL 1.16 does not where loss_type is sigmoid");
  if (!has_any(draft, kOnlyDpo))
    draft.differs(
        "beta", fmt::format("taken as DPOConfig's, since no key says otherwise; for ORPOConfig or "
                            "CPOConfig give --objective orpo or cpo, and --objective.beta {}",
                            draft.text("beta")));
}

void take_kto(Draft& draft) {
  const std::string loss = draft.find("loss_type") ? draft.text("loss_type") : "kto";
  if (loss != "kto") return refuse_objective(draft, "loss_type", loss + " of KTOTrainer");
  const std::string_view said = draft.find("loss_type") ? "loss_type" : "desirable_weight";
  take_objective(draft, "kto", said,
                 {.beta = "beta",
                  .desirable_weight = "desirable_weight",
                  .undesirable_weight = "undesirable_weight"});
  draft.differs(said, std::string(kOtherReferencePoint));
}

constexpr std::string_view kKeysOfLosses =
    "loss_type beta simpo_gamma label_smoothing cpo_alpha rpo_alpha loss_weights";

// RewardConfig says nothing else that others do not.
void take_reward(Draft& draft) {
  constexpr std::string_view kCenter = "center_rewards_coefficient";
  idle_all(draft, kKeysOfLosses, "RewardConfig has no such key");
  draft.set("objective.name", "reward", kCenter);
  draft.set("objective.center_rewards_coefficient", draft.text(kCenter), kCenter);
}

void finish_preferences(Draft& draft) {
  take_trl_arguments(draft, "max_length");
  take_trl_data(draft);
  draft.set("data.prompt_style", "auto", "dataset_name");
  const bool learns_rewards = draft.find("center_rewards_coefficient") != nullptr;
  const bool has_usual_rate = learns_rewards && draft.find("learning_rate") == nullptr;
  draft.set("optimizer.lr", has_usual_rate ? "0.0001" : draft.text("learning_rate"),
            "learning_rate");
  if (learns_rewards)
    take_reward(draft);
  else if (has_any(draft, kOnlyKto) || draft.text("loss_type") == "kto")
    take_kto(draft);
  else if (has_any(draft, kOnlyCpo) || draft.text("loss_type") == "simpo")
    take_cpo(draft);
  else
    take_dpo(draft);
  if (draft.on("disable_dropout")) {
    take_no_dropout(draft, "disable_dropout");
  } else {
    draft.set("model.dropout", "none", "disable_dropout");
    draft.set("lora_dropout", draft.text("lora_dropout"), "lora_dropout");
  }
  if (!draft.is_null("max_length"))
    draft.differs("max_length",
                  learns_rewards
                      ? "of longer pairs the prompt loses its beginning before the answers lose "
                        "their end; TRL leaves such pairs out"
                      : "of longer rows the prompt loses its beginning before the answers lose "
                        "their end; TRL cuts the end");
}

void finish_transformers(Draft& draft) {
  draft.set("full", "true", "model_name_or_path");
  const bool sharded = take_sharding(draft);
  if (draft.text("dtype").empty() && draft.text("torch_dtype").empty())
    draft.differs("dtype",
                  "weights are kept in float32, as transformers 4 loads them; transformers 5 loads "
                  "them in the type of their files, which for bfloat16 is --precision bf16-true");
  take_precision(
      draft, {.in_16_bits = loads_in_16_bits(draft, "float32"), .with_float32_copies = sharded});
  take_training_arguments(draft);
  if (const std::string file = draft.text("train_file"); !file.empty())
    take_data(draft, file, "train_file");
  if (draft.on("block_size"))
    draft.differs("block_size",
                  "each row is a sample of its own, cut there; run_clm.py joins all texts and cuts "
                  "them into rows of block_size");
  draft.set("data.val_split_fraction", "0", "validation_split_percentage");
}

}  // namespace

std::span<const KeyRow> trl_rows() { return kTrlRows; }
std::span<const KeyRow> sft_rows() { return kSftRows; }

constexpr std::string_view kLossesOfPairs =
    "loss_type=sigmoid sigmoid_norm hinge ipo simpo exo_pair nca_pair robust bco_pair sppo_hard "
    "aot aot_pair aot_unpaired apo_zero apo_down apo_zero_unpaired discopop kto kto_pair sft";

// Its signs are in no other config that snug reads.
Program trl_preferences() {
  return {"TRL (preferences)",
          {"beta",
           "simpo_gamma",
           "label_smoothing",
           "cpo_alpha",
           "rpo_alpha",
           "loss_weights",
           "disable_dropout",
           "max_prompt_length",
           "max_completion_length",
           "max_target_length",
           "precompute_ref_log_probs",
           "precompute_ref_batch_size",
           "sync_ref_model",
           "reference_free",
           "ref_model_init_kwargs",
           "ld_alpha",
           "f_divergence_type",
           "use_weighting",
           "discopop_tau",
           "generate_during_eval",
           "desirable_weight",
           "undesirable_weight",
           "center_rewards_coefficient",
           "num_generations",
           kLossesOfPairs},
          {kPreferenceRows, kModelRows, kTrlRows, transformers_rows(), fsdp_rows()},
          nullptr,
          finish_preferences};
}

Program trl() {
  return {"TRL",
          {"use_peft", "dataset_name", "dataset_text_field", "dataset_train_split",
           "completion_only_loss", "assistant_only_loss", "packing_strategy", "test_split_size"},
          {kModelRows, kSftRows, kTrlRows, transformers_rows(), fsdp_rows()},
          nullptr,
          finish_trl};
}

Program transformers() {
  return {"transformers",
          {"model_name_or_path", "per_device_train_batch_size", "num_train_epochs", "deepspeed"},
          {kScriptRows, transformers_rows(), fsdp_rows()},
          nullptr,
          finish_transformers};
}

}  // namespace snug::recipe
