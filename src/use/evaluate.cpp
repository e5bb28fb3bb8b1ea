// SPDX-License-Identifier: Apache-2.0
#include "use/commands.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/dataset.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/host.h"
#include "engine/language_model.h"
#include "engine/open_data.h"
#include "engine/steps/validation.h"
#include "use/caption/evaluate_captions.h"
#include "use/evaluate_pairs.h"
#include "use/evaluate_scores.h"
#include "use/evaluated_rows.h"
#include "use/save_top_k.h"

namespace snug::use {
namespace {

void write_captions_file(const std::string& path, const std::vector<WrittenCaption>& captions) {
  std::string text;
  for (const WrittenCaption& written : captions)
    text += nlohmann::json{{"file", written.file},
                           {"caption", written.caption},
                           {"references", written.references}}
                .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
            "\n";
  write_file_atomically(path, text);
}

// Captions of the evaluated split, and their scores.
nlohmann::json evaluate_captions(const recipe::EvaluateOptions& options,
                                 const engine::LanguageModel& lm, const CaptionSet& set) {
  TextGenerator generator(*lm.executor, *lm.model, *lm.tokenizer, lm.precision.compute);
  const std::vector<WrittenCaption> captions = caption_samples(
      generator, set,
      {.max_new_tokens = options.max_new_tokens,
       .sampling = {.temperature = 0},
       .num_beams = options.num_beams},
      options.micro_batch_size, options.max_iters.value_or(0) * options.micro_batch_size);
  if (!options.captions_file.empty()) write_captions_file(options.captions_file, captions);
  const scores::CaptionScores scores = score_captions(captions);
  return {{"pictures", captions.size()}, {"bleu_1", scores.bleu[0]}, {"bleu_2", scores.bleu[1]},
          {"bleu_3", scores.bleu[2]},    {"bleu_4", scores.bleu[3]}, {"rouge_l", scores.rouge_l},
          {"cider_d", scores.cider}};
}

std::optional<bool> masks_in(const nlohmann::json& result) {
  const nlohmann::json& masks = result["mask_prompt"];
  return masks.is_null() ? std::nullopt : std::optional(masks.get<bool>());
}

void print(const nlohmann::json& result) {
  const auto number = [&](const char* key) { return result[key].get<double>(); };
  const auto count = [&](const char* key) { return with_commas(result[key].get<int64_t>()); };
  std::string how;
  if (result.contains("prompt_style"))
    how = fmt::format(", prompt style {}, {}", result["prompt_style"].get<std::string>(),
                      data::words_on_loss(masks_in(result)));
  print_piece(fmt::format("loss {:.4f}, perplexity {:.2f} ({} tokens of {} samples{})\n",
                          number("loss"), number("perplexity"), count("tokens"), count("samples"),
                          how));
  if (result.contains("bleu_4"))
    print_piece(
        fmt::format("BLEU-4 {:.1f}, ROUGE-L {:.1f}, CIDEr-D {:.1f} (hundredths; captions "
                    "of {} pictures)\n",
                    100 * number("bleu_4"), 100 * number("rouge_l"), 100 * number("cider_d"),
                    count("pictures")));
}

std::string saved_text(const nlohmann::json& saved) {
  return fmt::format(
      "{}: the {} most likely tokens of each of {} targets of {} samples, {} (prompt style {}); "
      "learn from it with --objective distill --objective.teacher {}\n",
      saved["file"].get<std::string>(), saved["top_k"].get<int64_t>(),
      with_commas(saved["targets"].get<int64_t>()), with_commas(saved["samples"].get<int64_t>()),
      format_bytes(saved["bytes"].get<int64_t>()), saved["prompt_style"].get<std::string>(),
      saved["file"].get<std::string>());
}

}  // namespace

void evaluate(const recipe::EvaluateOptions& options) {
  if (std::filesystem::exists(options.captions_file))
    throw UserError("{} exists already; give another --captions_file, or remove it first",
                    options.captions_file);
  const engine::Host host =
      engine::prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  const bool is_adapter = engine::is_adapter_directory(options.checkpoint_dir);
  if (!options.data.add_tokens.empty())
    throw UserError(
        "tokens.add = {}: new tokens have rows that nothing has trained; train with them, then "
        "evaluate what that wrote",
        options.data.add_tokens);
  if (is_adapter && !options.adapter.empty())
    throw UserError("{} is an adapter already; give the base model beside --adapter {}",
                    options.checkpoint_dir, options.adapter);
  std::vector<std::string> adapters;
  if (!options.adapter.empty()) adapters.push_back(options.adapter);
  const engine::LanguageModel lm = engine::open_language_model(options.checkpoint_dir, host.device,
                                                               {.precision = options.precision,
                                                                .quantize = options.quantize,
                                                                .adapters = adapters,
                                                                .data = &options.data,
                                                                .takes_scores = true});
  if (!lm.model->labels().empty()) {
    const nlohmann::json scores = evaluate_scores(options, lm);
    return print_piece(options.json ? scores.dump() + "\n" : scores_text(scores));
  }
  if (options.save_top_k == 0 && options.teacher_file != recipe::EvaluateOptions{}.teacher_file)
    throw UserError("--teacher_file {}: say how many tokens, as in --save_top_k 64",
                    options.teacher_file);
  if (options.save_top_k > 0) {
    const nlohmann::json saved = save_top_k(options, lm);
    return print_piece(options.json ? saved.dump() + "\n" : saved_text(saved));
  }
  if (options.objective.name != recipe::ObjectiveName::Sft) {
    const nlohmann::json pairs = evaluate_pairs(options, lm);
    return print_piece(options.json ? pairs.dump() + "\n" : scores_text(pairs));
  }
  if (!options.scores_file.empty())
    throw UserError(
        "--scores_file is for models that score documents, and {} writes text; of pairs of answers "
        "it has their log-probabilities: --objective dpo",
        options.checkpoint_dir);
  const data::DatasetOptions read = evaluated_options(options, lm);
  const EvaluatedRows rows(options, read, lm);
  const data::Dataset& dataset = rows.dataset();
  const data::PictureIndex& pictures = rows.pictures();
  const data::SampleStore& samples = rows.samples();
  const auto batches = rows.batches();
  const engine::ValidationResult loss =
      engine::validate(*lm.executor, *batches, samples.count(),
                       {.micro_batch_size = options.micro_batch_size,
                        .max_batches = options.max_iters.value_or(0),
                        .compute = lm.precision.compute});
  if (loss.tokens == 0)
    throw UserError("no sample of the {} split has a token with loss: {}", options.split,
                    dataset.train_pictures.rows ? "none of the pictures could be read"
                                                : "the prompts fill the model's whole length");
  check_finite(loss.loss, "the loss", options);
  nlohmann::json result{{"loss", loss.loss},
                        {"perplexity", std::exp(loss.loss)},
                        {"tokens", loss.tokens},
                        {"samples", rows.num_taken(samples.count()) - batches->num_unreadable()}};
  if (!pictures.are_captions() && !engine::is_synthetic(options.data)) {
    const auto masks = data::masks_prompts(dataset, read.mask_prompt);
    result.update({{"prompt_style", dataset.prompt_style},
                   {"mask_prompt", masks ? nlohmann::json(*masks) : nlohmann::json()}});
  }
  if (pictures.are_captions() && options.captions && !engine::is_synthetic(options.data))
    result.update(evaluate_captions(options, lm, {samples, pictures, dataset.processor}));
  if (options.json)
    print_piece(result.dump() + "\n");
  else
    print(result);
}

}  // namespace snug::use
