// SPDX-License-Identifier: Apache-2.0
#include "train/evaluate.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "data/dataset.h"
#include "setup/adapter_directory.h"
#include "setup/language_model.h"
#include "train/host.h"
#include "train/validation.h"

namespace snug::train {
void evaluate(const config::EvaluateOptions& options) {
  const Host host = prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  const bool is_adapter = setup::is_adapter_directory(options.checkpoint_dir);
  if (is_adapter && !options.adapter.empty())
    throw UserError("{} is an adapter already; give the base model beside --adapter {}",
                    options.checkpoint_dir, options.adapter);
  std::vector<std::string> adapters;
  if (!options.adapter.empty()) adapters.push_back(options.adapter);
  const setup::LanguageModel lm = setup::open_language_model(
      options.checkpoint_dir, host.device,
      {.precision = options.precision, .quantize = options.quantize, .adapters = adapters});
  const int64_t positions = lm.model->dimensions().max_positions;
  data::DatasetOptions data_options{
      .name = options.data.class_path,
      .json_path = options.data.json_path,
      .prompt_style = options.data.prompt_style,
      .mask_prompt = options.data.mask_prompt,
      .ignore_index = static_cast<int32_t>(options.data.ignore_index),
      .seed = options.data.seed,
      .num_workers = static_cast<int>(options.data.num_workers),
      .max_seq_length = std::min(options.max_seq_length.value_or(positions), positions),
      .cache_folder = options.data.download_dir};
  // "all": nothing is held out, so that the training part is the whole file.
  // A folder, or a validation file, says by itself which part is which.
  data_options.val_path = options.data.val_path.value_or("");
  const bool one_file =
      !options.data.val_path && !std::filesystem::is_directory(options.data.json_path);
  if (one_file)
    data_options.val_split_fraction =
        options.split == "all" ? 0.0 : options.data.val_split_fraction;
  const data::Dataset dataset = data::load_dataset(
      data_options, data::make_encoder(*lm.tokenizer),
      [](const data::DownloadRequest& request) -> std::vector<std::filesystem::path> {
        throw UserError(
            "data set {} is not in the cache; train on it once, or give a file with "
            "--data JSON --data.json_path FILE",
            request.repo_id);
      });
  const data::SampleStore& samples = options.split == "val" ? dataset.validation : dataset.train;
  if (samples.empty()) throw UserError("the {} part of the data is empty", options.split);
  const ValidationResult result = validate(*lm.executor, samples,
                                           {.micro_batch_size = options.micro_batch_size,
                                            .max_batches = options.max_iters.value_or(0),
                                            .compute = lm.precision.compute,
                                            .packing = options.data.packing,
                                            .ignore_index = options.data.ignore_index});
  if (options.json)
    std::puts(nlohmann::json{{"loss", result.loss},
                             {"perplexity", std::exp(result.loss)},
                             {"tokens", result.tokens},
                             {"samples", samples.count()}}
                  .dump()
                  .c_str());
  else
    std::puts(fmt::format("loss {:.4f}, perplexity {:.2f} ({} tokens of {} samples)", result.loss,
                          std::exp(result.loss), with_commas(result.tokens),
                          with_commas(samples.count()))
                  .c_str());
}

}  // namespace snug::train
