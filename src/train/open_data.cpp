// SPDX-License-Identifier: Apache-2.0
#include "train/open_data.h"

#include <filesystem>
#include <optional>

#include "hub/download.h"

namespace snug::train {
namespace {

// What the recipe holds out: unless somebody said so, sets and folders with a validation part of
// their own keep it whole.
std::optional<double> held_out_fraction(const config::Recipe& recipe) {
  const config::DataOptions& d = recipe.data;
  const bool one_file =
      d.class_path == "JSON" && !d.val_path && !std::filesystem::is_directory(d.json_path);
  if (one_file || recipe.given("data.val_split_fraction")) return d.val_split_fraction;
  return std::nullopt;
}

}  // namespace

data::Dataset open_data(const config::Recipe& recipe, const tokenizer::Tokenizer& tokenizer) {
  const config::DataOptions& d = recipe.data;
  const bool own_style = d.class_path != "JSON" && !recipe.given("data.prompt_style");
  const data::DatasetOptions options{.name = d.class_path,
                                     .json_path = d.json_path,
                                     .val_path = d.val_path.value_or(""),
                                     .val_split_fraction = held_out_fraction(recipe),
                                     .prompt_style = own_style ? "" : d.prompt_style,
                                     .mask_prompt = d.mask_prompt,
                                     .ignore_index = static_cast<int32_t>(d.ignore_index),
                                     .seed = d.seed,
                                     .num_workers = static_cast<int>(d.num_workers),
                                     .max_seq_length = recipe.train.max_seq_length.value_or(0),
                                     .cache_folder = d.download_dir};
  return data::load_dataset(options, data::make_encoder(tokenizer),
                            [&](const data::DownloadRequest& request) {
                              return hub::download({.repo_id = request.repo_id,
                                                    .repo_type = "dataset",
                                                    .directory = request.folder,
                                                    .token = recipe.access_token,
                                                    .patterns = request.patterns},
                                                   {});
                            });
}

}  // namespace snug::train
