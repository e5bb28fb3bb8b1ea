// SPDX-License-Identifier: Apache-2.0
#include "use/save_top_k.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/abandoned.h"
#include "base/error.h"
#include "engine/asked/teacher.h"
#include "report/progress_line.h"
#include "use/evaluated_rows.h"

namespace snug::use {
namespace {

void check(const recipe::EvaluateOptions& options, const engine::LanguageModel& lm) {
  if (std::filesystem::exists(options.teacher_file))
    throw UserError("{} exists already; give another --teacher_file, or remove it first",
                    options.teacher_file);
  if (options.max_iters)
    throw UserError(
        "--max_iters leaves rows out, of which --save_top_k would say nothing; leave it out, or "
        "read fewer with --data.max_samples");
  const data::Reading reads = lm.model->reads();
  if (reads.source || reads.image_size > 0)
    throw UserError("--save_top_k is for models of text without an encoder, and {} {}",
                    options.checkpoint_dir, reads.source ? "has one" : "looks at pictures");
  if (const int64_t vocabulary = lm.model->dimensions().vocabulary; vocabulary < options.save_top_k)
    throw UserError("--save_top_k {}: {} has {} tokens; give at most so many", options.save_top_k,
                    options.checkpoint_dir, vocabulary);
}

}  // namespace

nlohmann::json save_top_k(const recipe::EvaluateOptions& options, const engine::LanguageModel& lm) {
  check(options, lm);
  const data::DatasetOptions read = evaluated_options(options, lm);
  const EvaluatedRows rows(options, read, lm);
  const data::Dataset& dataset = rows.dataset();
  // A folder holds its own rows out, which training validates on.
  const auto train = dataset.train_batches(), validation = dataset.validation_batches();
  std::vector<engine::TaughtSamples> taught;
  if (options.split != "val") taught.push_back({dataset.train, *train});
  if (options.split != "train" && !dataset.validation.empty())
    taught.push_back({dataset.validation, *validation});
  int64_t samples = 0;
  for (const engine::TaughtSamples& part : taught) samples += part.samples.num_different();
  std::map<std::string, std::string> notes = engine::notes_on(dataset, read.mask_prompt);
  notes.insert({{"model", options.checkpoint_dir},
                {"precision", options.precision},
                {"quantize", options.quantize}});
  remove_abandoned_versions(options.teacher_file);
  report::ProgressLine progress("samples", static_cast<size_t>(samples), true);
  const int64_t targets = engine::write_top_k(
      {.path = options.teacher_file, .top_k = options.save_top_k, .notes = std::move(notes)},
      taught, *lm.executor,
      {.micro_batch_size = options.micro_batch_size,
       .compute = lm.precision.compute,
       .after_each = [&](int64_t done) { progress.show(static_cast<size_t>(done)); }});
  progress.clear();
  return {
      {"file", options.teacher_file}, {"bytes", std::filesystem::file_size(options.teacher_file)},
      {"top_k", options.save_top_k},  {"targets", targets},
      {"samples", samples},           {"prompt_style", dataset.prompt_style}};
}

}  // namespace snug::use
