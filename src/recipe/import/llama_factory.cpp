// LLaMA-Factory (0.9.5): https://github.com/hiyouga/LLaMA-Factory
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "base/text.h"
#include "recipe/data_sources.h"
#include "recipe/import/programs.h"
#include "recipe/import/shared.h"
#include "recipe/numbers.h"
#include "recipe/tables/objectives.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

constexpr KeyRow kLlamaFactoryRows[] = {
    // Model
    {"model_name_or_path", Way::By, "checkpoint_dir", {}, {}, take_model},
    {"cache_dir use_fast_tokenizer model_revision low_cpu_mem_usage infer_dtype device_map "
     "trust_remote_code infer_backend offload_folder use_kv_cache print_param_status "
     "upcast_layernorm upcast_lmhead_output model_max_length compute_dtype quantization_device_map "
     "hf_hub_token ms_hub_token om_hub_token adapter_folder",
     Way::Idle,
     {},
     kOwnModel},
    {"split_special_tokens init_special_tokens new_special_tokens_config",
     Way::Idle,
     {},
     kOwnTokenizer},
    {"add_tokens add_special_tokens", Way::Read, "tokens.add"},
    {"resize_vocab", Way::Idle, {}, "embedding and head get rows for new tokens anyway"},
    {"rope_scaling shift_attn mixture_of_depths",
     Way::Off,
     {},
     "the model is built as its config.json says; change it there"},
    {"moe_aux_loss_coef", Way::Same, "train.router_aux_loss_coef"},
    {"train_from_scratch", Way::Off, "model.config", "give --model.config for random weights"},

    // Adapters and quantized weights
    {"finetuning_type", Way::Read, "full", {}, "lora"},
    {"lora_rank", Way::Same, "lora_r", {}, "8"},
    {"lora_alpha", Way::Read, "lora_alpha"},
    {"lora_dropout", Way::Read, "lora_dropout", {}, "0.0"},
    {"lora_target", Way::Read, "lora_target_modules", {}, "all"},
    {"use_rslora", Way::Same, "lora_use_rslora"},
    {"use_dora", Way::Same, "lora_use_dora"},
    {"pissa_init", Way::Words, "lora_init_weights", "true=pissa false=default"},
    {"loraplus_lr_ratio", Way::Same, "lora_plus_lr_ratio"},
    {"loraplus_lr_embedding", Way::Idle, {}, "embeddings get no adapters"},
    {"pissa_iter pissa_convert",
     Way::Idle,
     {},
     "PiSSA's adapters are always written for the unchanged base"},
    {"quantization_bit", Way::Read, "quantize"},
    {"quantization_type", Way::Read, "quantize", {}, "nf4"},
    {"double_quantization", Way::Read, "quantize", {}, "true"},
    {"quantization_method", Way::Read, "quantize", {}, "bnb"},
    {"adapter_name_or_path", Way::Same, "adapter"},
    {"additional_target create_new_adapter module_dropout", Way::Off, "lora_target_modules",
     kPlainAdapters},
    {"oft_rank oft_block_size oft_target freeze_trainable_layers freeze_trainable_modules "
     "freeze_extra_modules",
     Way::Idle,
     {},
     "belongs to a finetuning_type that snug does not have"},
    {"freeze_vision_tower freeze_multi_modal_projector freeze_language_model",
     Way::Idle,
     {},
     "--model.train_parts says which components train"},

    // Data
    {"dataset", Way::Read, "data.json_path"},
    {"dataset_dir", Way::Read, "data.json_path", {}, "data"},
    {"eval_dataset", Way::Read, "data.val_path"},
    {"template", Way::Read, "data.prompt_style"},
    {"cutoff_len", Way::Same, "train.max_seq_length", {}, "2048"},
    {"train_on_prompt", Way::Words, "data.mask_prompt", "true=false false=true", "false"},
    {"max_samples", Way::Read, "data.max_samples"},
    {"val_size", Way::By, "data.val_split_fraction", {}, {}, take_held_out},
    {"packing neat_packing block_diag_attn", Way::Read, "data.packing"},
    {"mask_history", Way::Off, "data.include_multiturn_conversations",
     "snug learns every answer of a chat; leave it out"},
    {"mix_strategy", Way::Read, "data.sources", {}, "concat"},
    {"interleave_probs", Way::Read, "data.sources"},
    {"streaming", Way::Off, "data", "snug reads its rows at the beginning"},
    {"media_dir buffer_size overwrite_cache preprocessing_batch_size "
     "preprocessing_num_workers eval_num_beams ignore_pad_token_for_loss eval_on_each_dataset "
     "tokenized_path data_shared_file_system disable_shuffling",
     Way::Idle,
     {},
     kOwnLoader},
    {"default_system",
     Way::Off,
     {},
     "snug adds no system text; write it into the rows, or into the template"},
    {"tool_format enable_thinking preserve_thinking",
     Way::Idle,
     {},
     "chats are written in the template of the model's folder"},
    {"image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels "
     "video_min_pixels video_fps video_maxlen use_audio_in_video audio_sampling_rate",
     Way::Idle,
     {},
     "pictures have a guide of their own: docs/guide/captioning.md"},

    // Memory and kernels
    {"pure_bf16", Way::Read, "precision"},
    {"disable_gradient_checkpointing", Way::Read, "activation_checkpointing"},
    {"enable_liger_kernel", Way::By, {}, {}, {}, take_liger},
    {"flash_attn use_unsloth use_unsloth_gc use_reentrant_gc use_v1_kernels",
     Way::Idle,
     {},
     kOwnKernels},
    {"fp8 use_kt", Way::Off, "quantize", "snug quantizes frozen weights: --quantize bnb.nf4"},
    {"fp8_backend fp8_enable_fsdp_float8_all_gather kt_weight_path kt_expert_checkpoint_path "
     "kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size",
     Way::Idle,
     {},
     "belongs to a technique that is off"},

    // Ways to train
    {"stage", Way::Read, "data.mask_prompt", {}, "sft"},
    {"use_badam use_apollo use_galore use_llama_pro use_adam_mini use_mca use_hyper_parallel "
     "use_muon use_dft_loss use_asft_loss use_eaft_loss",
     Way::Off, "optimizer", kNoSuchTechnique},
    {"badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio "
     "badam_mask_mode badam_verbose apollo_target apollo_rank apollo_update_interval apollo_scale "
     "apollo_proj apollo_proj_type apollo_scale_type apollo_layerwise apollo_scale_front "
     "galore_target galore_rank galore_update_interval galore_scale galore_proj_type "
     "galore_layerwise hyper_parallel_args asft_alpha eaft_alpha",
     Way::Idle,
     {},
     "belongs to a technique that is off"},
    {"pref_loss", Way::Read, "objective.name", {}, "sigmoid"},
    {"pref_beta", Way::Read, "objective.beta", {}, "0.1"},
    {"simpo_gamma", Way::Read, "objective.gamma", {}, "0.5"},
    {"dpo_label_smoothing", Way::Read, "objective.label_smoothing", {}, "0.0"},
    {"pref_ftx", Way::Read, "objective.sft_weight", {}, "0.0"},
    {"pref_bco_weight ld_alpha ref_model ref_model_adapters ref_model_quantization_bit", Way::Read,
     "objective.name"},
    {"kto_chosen_weight", Way::Read, "objective.desirable_weight", {}, "1.0"},
    {"kto_rejected_weight", Way::Read, "objective.undesirable_weight", {}, "1.0"},
    {"ppo_buffer_size ppo_epochs ppo_score_norm ppo_target "
     "ppo_whiten_rewards reward_model reward_model_adapters reward_model_quantization_bit "
     "reward_model_type",
     Way::Idle,
     {},
     "belongs to a stage that is off"},
    {"early_stopping_steps", Way::Same, "train.early_stopping"},

    // Logs and other commands
    {"use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key "
     "swanlab_logdir swanlab_lark_webhook_url swanlab_lark_secret",
     Way::Idle,
     {},
     kNoOnlineLogger},
    {"plot_loss compute_accuracy include_effective_tokens_per_second",
     Way::Idle,
     {},
     "report.html shows the losses and the tokens a second"},
    {"enable_torch_profiler profiler_output_dir profiler_wait_steps profiler_warmup_steps "
     "profiler_active_steps profiler_repeat profiler_record_shapes profiler_profile_memory "
     "profiler_with_stack profile_modules",
     Way::Idle,
     {},
     "give --profile true"},
    {"ray_num_workers ray_init_kwargs master_addr master_port ray_run_name ray_storage_path "
     "ray_storage_filesystem resources_per_worker placement_strategy",
     Way::Idle,
     {},
     kOwnProcesses},
    {"export_dir export_size export_device export_quantization_bit export_quantization_dataset "
     "export_quantization_nsamples export_quantization_maxlen export_legacy_format "
     "export_hub_model_id",
     Way::Idle,
     {},
     "snug merge and snug convert write models"},
    {"sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend "
     "vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config do_sample "
     "temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty "
     "length_penalty skip_special_tokens",
     Way::Idle,
     {},
     kNoGeneration},
    {"task task_dir batch_size lang n_shot save_dir download_mode",
     Way::Idle,
     {},
     "belongs to LLaMA-Factory's evaluation"},
};

// --- data sets ---

// The usual columns, as LLaMA-Factory names them in dataset_info.json: those that snug reads.
constexpr std::string_view kUsualColumns =
    "prompt=instruction query=input response=output messages=conversations messages=messages "
    "prompt=prompt response=completion prompt=text system=system history=history tools=tools "
    "images=images";

bool learns_rewards(const Draft& draft) { return draft.text("stage") == "rm"; }
bool learns_pairs(const Draft& draft) {
  return draft.text("stage") == "dpo" || learns_rewards(draft);
}
bool learns_ratings(const Draft& draft) { return draft.text("stage") == "kto"; }
// What it calls the column that says whether an answer is good, and which of them snug reads.
constexpr std::string_view kRatingColumns = "kto_tag=kto_tag kto_tag=label";

// Keys of an entry with the words that snug takes; any other word is refused.
struct EntryKey {
  std::string_view key, usual, why;
};
constexpr EntryKey kEntryKeys[] = {
    {"formatting", "alpaca sharegpt openai", kOtherRows},
    {"split", "train", kOneSplit},
    {"subset", "", kOneSplit},
    {"folder", "", kOneSplit},
    {"tags.role_tag", "from role", kOtherRows},
    {"tags.content_tag", "value content", kOtherRows},
    {"tags.user_tag", "human user", kOtherRows},
    {"tags.assistant_tag", "gpt assistant bot model", kOtherRows},
    {"tags.observation_tag", "observation tool", kOtherRows},
    {"tags.function_tag", "function_call", kOtherRows},
    {"tags.system_tag", "system", kOtherRows},
};
// Keys that are read elsewhere.
constexpr std::string_view kReadOfEntries =
    "file_name hf_hub_url ms_hub_url om_hub_url script_url cloud_file_name columns tags "
    "num_samples ranking";

void check_entry(Draft& draft, const YamlNode& entry, const std::string& name) {
  const auto refuse = [&](std::string_view what, std::string_view why) {
    draft.refuse("dataset", "data", fmt::format("{}: {}; {}", name, what, why));
  };
  const bool is_of_hub =
      text_in(entry, "file_name").empty() && names_hub_set(text_in(entry, "hf_hub_url"));
  for (const EntryKey& known : kEntryKeys) {
    if (is_of_hub && (known.key == "split" || known.key == "subset")) continue;
    const YamlNode* value = find_at(entry, known.key);
    if (value == nullptr || value->kind == YamlNode::Kind::Null) continue;
    if (std::ranges::count(words_of(known.usual), value->text) == 0)
      refuse(fmt::format("{} is {}", known.key, value->text), known.why);
  }
  for (const auto& [key, value] : entry.entries)
    if (is_on(value) && std::ranges::count(words_of(kReadOfEntries), key) == 0 &&
        std::ranges::count(kEntryKeys, key, &EntryKey::key) == 0)
      refuse(key, "snug does not read this key of a data set; leave it out");
  const YamlNode* ranking = find_in(entry, "ranking");
  const bool has_pairs = ranking != nullptr && is_on(*ranking);
  if (has_pairs != learns_pairs(draft))
    refuse(has_pairs ? "ranking is true" : "ranking is not true",
           has_pairs ? "these are pairs of answers, which stage: dpo and stage: rm learn"
                     : fmt::format("stage: {} learns pairs of answers", draft.text("stage")));
  const YamlNode* columns = find_in(entry, "columns");
  if (columns == nullptr) return;
  const auto is_usual = [&](const std::string& role, const std::string& column) {
    return std::ranges::count(words_of(kUsualColumns), fmt::format("{}={}", role, column)) > 0 ||
           (has_pairs && is_pair_column(role, column)) ||
           (learns_ratings(draft) &&
            std::ranges::count(words_of(kRatingColumns), fmt::format("{}={}", role, column)) > 0);
  };
  for (const auto& [role, column] : columns->entries)
    if (column.kind != YamlNode::Kind::Null && !is_usual(role, column.text))
      refuse(fmt::format("the column {} as {}", column.text, role), kOtherRows);
}

// Rows with instruction and input. A mapping of columns replaces LLaMA-Factory's whole, so that one
// without query reads no input.
void note_inputs(Draft& draft, const YamlNode& entry, const std::string& name) {
  const std::string format = text_in(entry, "formatting");
  const YamlNode* columns = find_in(entry, "columns");
  const bool maps_text = columns != nullptr && text_in(*columns, "prompt") == "text";
  if ((!format.empty() && format != "alpaca") || maps_text) return;
  draft.differs("dataset",
                fmt::format("{}: {}", name,
                            columns != nullptr && text_in(*columns, "query").empty()
                                ? "snug reads the column input too where rows have it; "
                                  "LLaMA-Factory does not, as columns has no query"
                                : "LLaMA-Factory puts a line break between instruction and input; "
                                  "snug an empty line, or the words of prompt style alpaca"));
}

// The data set's own bound, where it is below the recipe's for each.
void add_max_samples(Draft& draft, DataKeys& keys, const std::string& of_set) {
  const std::string most = draft.text("max_samples");
  if (of_set.empty() || (!most.empty() && parse_float(of_set) >= parse_float(most))) return;
  keys.emplace_back("max_samples", of_set);
  draft.differs("dataset",
                "num_samples: a file of fewer rows is taken as it is; LLaMA-Factory repeats rows");
}

// What dataset_info.json says of a data set; empty: refused.
DataKeys named_dataset(Draft& draft, const std::string& name) {
  const std::string folder = draft.text("dataset_dir");
  const std::string info = existing_file(draft, folder + "/dataset_info.json");
  if (info.empty()) {
    draft.refuse("dataset", "data",
                 fmt::format("{} is a name in {}/dataset_info.json, which is not there; "
                             "give the file with --data FILE",
                             name, folder));
    return {};
  }
  const YamlNode all = read_yaml(read_file(info, size_t{1} << 24), info);
  const YamlNode* entry = find_in(all, name);
  if (entry == nullptr) {
    draft.refuse("dataset", "data", fmt::format("{} has no entry {}", info, name));
    return {};
  }
  check_entry(draft, *entry, name);
  note_inputs(draft, *entry, name);
  const std::string file = text_in(*entry, "file_name");
  DataKeys keys =
      data_keys(draft,
                file.empty() ? text_in(*entry, "hf_hub_url")
                             : (std::filesystem::path(info).parent_path() / file).string(),
                "dataset");
  add_split(keys, text_in(*entry, "split"), text_in(*entry, "subset"));
  if (!keys.empty()) add_max_samples(draft, keys, text_in(*entry, "num_samples"));
  return keys;
}

// A text with commas, or a list.
std::vector<std::string> parts_of(const Draft& draft, std::string_view key) {
  std::vector<std::string> parts;
  const Found* found = draft.find(key);
  if (found != nullptr)
    for (const YamlNode& item : found->node.items) parts.push_back(item.text);
  const std::string text = draft.text(key);
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(trimmed(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

// Data sets that are interleaved are drawn by these chances; equal ones unless given.
void add_shares(Draft& draft, std::vector<DataKeys>& sets) {
  const std::string strategy = draft.text("mix_strategy");
  const std::vector<std::string> chances = parts_of(draft, "interleave_probs");
  if (!strategy.starts_with("interleave_")) {
    if (strategy != "concat")
      draft.refuse(
          "mix_strategy", "data",
          fmt::format("{} is neither concat nor interleave_under or interleave_over", strategy));
    if (!chances.empty())
      draft.idle("interleave_probs", "mix_strategy is concat: every row is read once an epoch");
    return;
  }
  if (sets.size() < 2) return;
  if (!chances.empty() && chances.size() != sets.size())
    return draft.refuse("interleave_probs", "data",
                        fmt::format("{} numbers for {} data sets", chances.size(), sets.size()));
  for (size_t i = 0; i < sets.size(); ++i)
    if (!sets[i].empty())
      sets[i].emplace_back("share", chances.empty()
                                        ? fmt::format("{}", 1.0 / static_cast<double>(sets.size()))
                                        : chances[i]);
  draft.differs("mix_strategy",
                fmt::format("an epoch here has as many samples as all data sets together; "
                            "LLaMA-Factory's ends when the {} of them has been read",
                            strategy == "interleave_under" ? "first" : "last"));
}

void take_llama_factory_data(Draft& draft) {
  std::vector<DataKeys> sets;
  for (const std::string& name : parts_of(draft, "dataset"))
    sets.push_back(named_dataset(draft, name));
  add_shares(draft, sets);
  if (!sets.empty()) set_data(draft, sets, "dataset");
  const bool has_less = sets.size() == 1 && std::ranges::count(sets.front(), "max_samples",
                                                               &DataKeys::value_type::first) > 0;
  if (const std::string most = draft.text("max_samples"); !most.empty() && !has_less)
    draft.set("data.max_samples", most, "max_samples");
  if (draft.find("eval_dataset") != nullptr)
    draft.refuse("eval_dataset", "data.val_path", "give the file with --data.val_path");
  else if (draft.find("val_size") == nullptr)
    draft.set("data.val_split_fraction", "0", "val_size");
  const std::string style = draft.text("template");
  draft.set("data.prompt_style",
            style == "alpaca"                   ? "alpaca"
            : style == "empty" || style.empty() ? "auto"
                                                : "chat",
            "template");
  if (draft.find("template") != nullptr && style != "alpaca" && style != "empty")
    draft.differs("template",
                  "chats are written in the template of the model's own folder; "
                  "--data.chat_template gives another");
}

constexpr std::string_view kKeysOfPairs =
    "pref_loss pref_beta simpo_gamma dpo_label_smoothing pref_ftx pref_bco_weight ld_alpha "
    "ref_model ref_model_adapters ref_model_quantization_bit";

// An adapter's folder names its base.
void take_other_reference(Draft& draft, std::string_view objective) {
  if (!objective_takes(objective, "reference"))
    return idle_all(draft, "ref_model ref_model_adapters ref_model_quantization_bit",
                    "this loss has no reference");
  if (draft.on("ref_model_quantization_bit"))
    draft.refuse("ref_model_quantization_bit", "",
                 "the reference is read in the type that training computes in");
  const char* const key = draft.on("ref_model_adapters") ? "ref_model_adapters" : "ref_model";
  if (draft.on(key) && draft.text(key) != draft.text("model_name_or_path"))
    draft.set("objective.reference", draft.text(key), key);
}

void take_stage_of_pairs(Draft& draft) {
  take_no_dropout(draft, "stage");
  const std::string loss = draft.text("pref_loss");
  const std::string_view objective =
      word_for("sigmoid=dpo hinge=hinge ipo=ipo orpo=orpo simpo=simpo", loss);
  if (objective.empty()) return refuse_objective(draft, "pref_loss", loss);
  PreferenceKeys keys{.beta = "pref_beta", .gamma = "simpo_gamma"};
  if (objective == "dpo")
    keys.label_smoothing = "dpo_label_smoothing";
  else
    idle_all(draft, "dpo_label_smoothing", "LLaMA-Factory has it for pref_loss: sigmoid");
  take_objective(draft, objective, draft.find("pref_loss") ? "pref_loss" : "stage", keys);
  // The mean over each answer's tokens, as here.
  draft.set("objective.sft_weight", draft.text("pref_ftx"), "pref_ftx");
  if (const Found* alpha = draft.find("ld_alpha")) take_ld_alpha(draft, *alpha);
  if (draft.on("pref_bco_weight"))
    draft.refuse("pref_bco_weight", "", std::string(kNoSuchTechnique));
  take_other_reference(draft, objective);
  if (objective == "hinge" || objective == "ipo")
    draft.differs(
        "pref_loss",
        fmt::format("{}, as the recipe says; LLaMA-Factory 0.9.5 with TRL 0.20 to 0.24 computes "
                    "sigmoid instead",
                    loss));
}

void take_stage_of_ratings(Draft& draft) {
  take_no_dropout(draft, "stage");
  take_objective(draft, "kto", "stage",
                 {.beta = "pref_beta",
                  .desirable_weight = "kto_chosen_weight",
                  .undesirable_weight = "kto_rejected_weight"});
  if (parse_float(draft.text("pref_ftx")).value_or(0) > 0)
    draft.refuse("pref_ftx", "", std::string(kNoSuchTechnique));
  take_other_reference(draft, "kto");
  idle_all(draft, "pref_loss simpo_gamma dpo_label_smoothing pref_bco_weight ld_alpha",
           "belongs to stage: dpo");
  draft.differs("stage", std::string(kOtherReferencePoint));
}

void take_stage_of_rewards(Draft& draft) {
  idle_all(draft, kKeysOfPairs, "rewards have no such argument");
  draft.set("objective.name", "reward", "stage");
  draft.set("lora_dropout", draft.text("lora_dropout"), "lora_dropout");
  draft.differs("stage",
                "the head is transformers' \"score\", a layer without a bias; LLaMA-Factory's has "
                "one, and dropout");
}

void take_stage_of_training(Draft& draft) {
  const std::string stage = draft.text("stage");
  if (learns_ratings(draft)) return take_stage_of_ratings(draft);
  idle_all(draft, "kto_chosen_weight kto_rejected_weight", "belongs to stage: kto");
  if (learns_rewards(draft)) return take_stage_of_rewards(draft);
  if (learns_pairs(draft)) return take_stage_of_pairs(draft);
  idle_all(draft, kKeysOfPairs, kNoPreferences);
  draft.set("lora_dropout", draft.text("lora_dropout"), "lora_dropout");
  if (stage != "sft" && stage != "pt") refuse_objective(draft, "stage", stage);
  if (stage == "pt")
    draft.differs("stage",
                  "each text is a sample of its own; LLaMA-Factory cuts all texts into rows of "
                  "cutoff_len");
}

void finish_llama_factory(Draft& draft) {
  const std::string type = draft.text("finetuning_type");
  const bool adapters = type != "full";
  if (type != "lora" && type != "full")
    draft.refuse("finetuning_type", "full", fmt::format("snug has lora and full, not {}", type));
  draft.set("full", adapters ? "false" : "true", "finetuning_type");
  take_stage_of_training(draft);
  const Found* plain = draft.find("add_tokens");
  const Found* special = draft.find("add_special_tokens");
  if (plain != nullptr) draft.differs(plain->key, std::string(kSpecialHere));
  set_tokens(
      draft, plain != nullptr ? "add_tokens" : "add_special_tokens",
      {plain != nullptr ? &plain->node : nullptr, special != nullptr ? &special->node : nullptr});
  take_targets(draft, "lora_target");
  // Without the key: twice the rank.
  draft.set("lora_alpha",
            draft.on("lora_alpha")
                ? draft.text("lora_alpha")
                : fmt::format("{:.0f}", 2 * draft.number("lora_rank").value_or(8)),
            "lora_alpha");
  const std::string method = draft.text("quantization_method");
  if (draft.on("quantization_bit") && method != "bnb" && method != "bitsandbytes")
    draft.refuse("quantization_method", "quantize",
                 fmt::format("snug has bitsandbytes' formats, not those of {}", method));
  if (const auto bits = draft.number("quantization_bit"); bits == 4 || bits == 8)
    take_quantization(draft, static_cast<int>(*bits), draft.text("quantization_type"),
                      draft.on("double_quantization"), "quantization_bit");
  else if (draft.on("quantization_bit"))
    draft.refuse("quantization_bit", "quantize", "snug has 4 and 8 bits");
  const bool sharded = take_sharding(draft);
  // Weights are loaded in 16 bits, and those that train are then made float32, unless pure_bf16
  // forbids it. DeepSpeed and FSDP keep float32 copies instead.
  const bool pure = draft.on("pure_bf16");
  if (pure)
    draft.set("precision", "bf16-true", "pure_bf16");
  else
    take_precision(draft, {.in_16_bits = adapters || sharded, .with_float32_copies = true});
  if (draft.on("disable_gradient_checkpointing"))
    draft.set("activation_checkpointing", "none", "disable_gradient_checkpointing");
  else
    draft.set("activation_checkpointing", "all", "disable_gradient_checkpointing");
  take_length(draft, "num_train_epochs");
  take_schedule(draft, "lr_scheduler_type");
  take_optimizer(draft, "optim");
  take_saving(draft);
  take_llama_factory_data(draft);
  if (draft.on("packing") && !draft.on("neat_packing"))
    draft.differs("packing", "attention stays within a sample, as with neat_packing");
  if (draft.on("packing") || draft.on("neat_packing"))
    draft.differs(draft.on("packing") ? "packing" : "neat_packing",
                  "train.micro_batch_size counts samples, not rows of cutoff_len with several "
                  "samples in each; raise it for short samples");
}

}  // namespace

Program llama_factory() {
  return {"LLaMA-Factory",
          {"finetuning_type", "stage", "cutoff_len", "template", "lora_rank", "dataset_dir"},
          {kLlamaFactoryRows, transformers_rows(), fsdp_rows()},
          nullptr,
          finish_llama_factory};
}

}  // namespace snug::recipe
