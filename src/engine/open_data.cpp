// SPDX-License-Identifier: Apache-2.0
#include "engine/open_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/mix.h"
#include "data/rows/dataset_card.h"
#include "data/rows/hugging_face.h"
#include "data/survey.h"
#include "data/synthetic.h"
#include "engine/steps/objective.h"
#include "files/hub/download.h"
#include "files/hub/meter.h"
#include "files/hub/repository.h"
#include "recipe/data_sources.h"
#include "recipe/faults.h"
#include "recipe/tables/objectives.h"

namespace snug::engine {
namespace {

// What the recipe holds out: unless somebody said so, sets and folders with a validation part of
// their own keep it whole.
std::optional<double> held_out_fraction(const recipe::DataOptions& d,
                                        const std::set<std::string>& given) {
  const bool one_file =
      d.class_path == "JSON" && !d.val_path && !std::filesystem::is_directory(d.json_path);
  if (one_file || given.contains("data.val_split_fraction")) return d.val_split_fraction;
  return std::nullopt;
}

// Whether the class of data has the prompt style, and nobody else said it.
bool has_own_style(const recipe::DataOptions& d, const std::set<std::string>& given) {
  return d.class_path != "JSON" && !given.contains("data.prompt_style");
}

// Each source of a mix is read as `options` says, but for what its own rows are.
std::vector<data::MixSource> mix_of(const recipe::Recipe& recipe,
                                    const data::DatasetOptions& options) {
  std::vector<data::MixSource> mix;
  recipe::DataSources found = recipe::data_sources(recipe.data, recipe.given_keys);
  recipe::throw_faults(std::move(found.faults), "");
  for (const recipe::DataSource& source : found.all) {
    data::DatasetOptions own = dataset_options(source.data);
    own.val_split_fraction = held_out_fraction(source.data, source.given);
    if (has_own_style(source.data, source.given) && options.prompt_style.empty())
      own.prompt_style.clear();
    own.preferences = options.preferences;
    own.share_prompts = options.share_prompts;
    own.ratings = options.ratings;
    own.classes = options.classes;
    own.labels = options.labels;
    own.keep_without_loss = options.keep_without_loss;
    own.max_seq_length = options.max_seq_length;
    own.reading = options.reading;
    own.processor = options.processor;
    own.vocabulary = options.vocabulary;
    own.warns = options.warns;
    mix.push_back({source.name, std::move(own), source.weight, source.share});
  }
  return mix;
}

bool names_texts(const recipe::DataOptions& data) {
  const auto is_text = [](const recipe::DataOptions& d) { return d.class_path == "TextFiles"; };
  return is_text(data) ||
         std::ranges::any_of(recipe::data_sources(data, {}).all,
                             [&](const recipe::DataSource& one) { return is_text(one.data); });
}

// Files and sets of questions and answers, as against those that may hold pictures. Where no data
// is named, a plan is for what the model is made for.
bool reads_text(const recipe::DataOptions& data) {
  const bool is_named = data.class_path != "JSON" || !data.json_path.empty();
  return is_named && data.class_path != "ImageFolder" && data.class_path != "HFDataset" &&
         !is_synthetic(data);
}

// Where nobody has said how long samples may be and the model does not end anywhere: T5 was trained
// with so many tokens.
constexpr int64_t kUsualTokens = 512;

// Good and bad answers, each as often as an epoch has it.
std::pair<double, double> rated_in_an_epoch(const data::Dataset& dataset) {
  double good = 0, bad = 0;
  int64_t begin = 0;
  std::vector<data::SampleRange> ranges = data::ranges_of(dataset);
  if (ranges.empty()) ranges.push_back({dataset.train.count(), dataset.train.count()});
  for (const data::SampleRange& range : ranges) {
    const double often =
        static_cast<double>(range.per_epoch) / static_cast<double>(range.end - begin);
    for (; begin < range.end; ++begin)
      (data::is_desirable(dataset.train, begin) ? good : bad) += often;
  }
  return {good, bad};
}

// Ethayarajh et al. 2024, equation 8: the desirable answers weigh from as much as the others to 4/3
// of it.
void tell_of_balance(const recipe::ObjectiveOptions& objective, const data::Dataset& dataset) {
  if (!recipe::learns_from_ratings(objective.name)) return;
  const data::RatingCounts counts = data::count_ratings(dataset.train);
  if (counts.desirable == 0 || counts.undesirable == 0)
    return warn("kto: all {} answers are rated {}; it learns from good and from bad ones",
                with_commas(dataset.train.count()), counts.desirable > 0 ? "good" : "bad");
  const auto [good, bad] = rated_in_an_epoch(dataset);
  const double desirable = good * objective.desirable_weight,
               undesirable = bad * objective.undesirable_weight;
  constexpr double kMost = 4.0 / 3, kRounding = 0.005;
  if (desirable >= undesirable * (1 - kRounding) && desirable <= undesirable * (kMost + kRounding))
    return;
  const bool has_more_good = desirable > undesirable;
  const double wanted = has_more_good ? desirable / bad : undesirable / good;
  warn(
      "kto: {} good and {} bad answers{}, which weigh {:.2f} to 1; from 1 to 1.33 is recommended: "
      "--objective.{}_weight {:.2f} makes it 1",
      with_commas(std::llround(good)), with_commas(std::llround(bad)),
      dataset.sources.empty() ? "" : " in an epoch", desirable / undesirable,
      has_more_good ? "undesirable" : "desirable", wanted);
}

}  // namespace

bool is_synthetic(const recipe::DataOptions& data) { return data.class_path == "Synthetic"; }

namespace {

bool reads_captions(const recipe::DataOptions& data, const data::Reading& reads) {
  return reads.image_size > 0 && !reads_text(data);
}

// How long picture and text may be together: with tiles and their text, or with a caption.
int64_t usual_with_picture(const data::Reading& reads) {
  if (!reads.pictures_anywhere) return reads.num_picture_tokens + data::kCaptionTokens;
  // Tiles, each with its mark and line end, and the model's own words around them.
  constexpr int64_t kLeast = 2048, kTextOfTile = 16;
  return std::max(kLeast, reads.usual_pictures * (reads.num_picture_tokens + kTextOfTile) +
                              2 * data::kCaptionTokens);
}

}  // namespace

int64_t usual_length(const recipe::DataOptions& data, const models::Model& model) {
  const data::Reading reads = model.reads();
  if (reads_captions(data, reads)) return usual_with_picture(reads);
  if (reads.source) return kUsualTokens;
  return names_texts(data) ? data::kUsualBlock : model.dimensions().max_positions;
}

int64_t longest_sample(const recipe::Recipe& recipe, const models::Model& model) {
  const int64_t positions = model.dimensions().max_positions;
  const data::Reading reads = model.reads();
  const int64_t usual = usual_length(recipe.data, model);
  const int64_t length = std::min(recipe.train.max_seq_length.value_or(usual), positions);
  if (reads_captions(recipe.data, reads) && length <= reads.num_picture_tokens)
    throw UserError(
        "train.max_seq_length = {}: a picture takes {} tokens, which leaves none for its caption; "
        "use {} for captions of {} tokens",
        length, reads.num_picture_tokens, usual, data::kCaptionTokens);
  return length;
}

void tell_of_shorter_samples(const recipe::Recipe& recipe, const models::Model& model) {
  const int64_t positions = model.dimensions().max_positions;
  if (recipe.train.max_seq_length.value_or(0) > positions)
    warn("train.max_seq_length = {}: the model takes at most {} tokens, so that limit is used",
         *recipe.train.max_seq_length, positions);
}

data::DatasetOptions dataset_options(const recipe::DataOptions& d) {
  return {.name = d.class_path,
          .json_path = d.json_path,
          .val_path = d.val_path.value_or(""),
          .prompt_style = d.prompt_style == "auto" ? "" : d.prompt_style,
          .mask_prompt = d.mask_prompt,
          .include_multiturn_conversations = d.include_multiturn_conversations,
          .split_turns = d.split_turns,
          .keep_empty_answers = d.keep_empty_answers,
          .long_rows = static_cast<data::LongRows>(d.long_rows.value()),
          .overlap = d.overlap,
          .ignore_index = static_cast<int32_t>(d.ignore_index),
          .seed = d.seed,
          .num_workers = static_cast<int>(d.num_workers),
          .cache_folder = d.download_dir,
          .packing = d.packing,
          .padding_in_loss = d.padding_in_loss,
          .max_samples = d.max_samples,
          .path = d.path,
          .split = d.split,
          .subset = d.subset,
          .val_split = d.val_split,
          .image_column = d.image_column,
          .text_column = d.text_column,
          .prompt = d.prompt};
}

std::vector<data::DatasetOptions> sources_of(const recipe::Recipe& recipe) {
  std::vector<data::DatasetOptions> all;
  for (const recipe::DataSource& source : recipe::data_sources(recipe.data, recipe.given_keys).all)
    all.push_back(dataset_options(source.data));
  if (all.empty()) all.push_back(dataset_options(recipe.data));
  return all;
}

namespace {

namespace fs = std::filesystem;

// One process at a time; the others find what it fetched. Of a file beside the folder, which goes
// with it, as do folders that are empty then.
class Turn {
 public:
  explicit Turn(const fs::path& folder) : path_(folder.string() + ".lock") {
    std::error_code ignored;
    fs::create_directories(path_.parent_path(), ignored);
    file_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~Turn() {
    if (file_ < 0) return;
    std::error_code ignored;
    fs::remove(path_, ignored);
    fs::remove(path_.parent_path(), ignored);
    ::close(file_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  fs::path path_;
  int file_ = -1;  // where none can be made: the download says why
};

std::vector<std::string> patterns_for(const fs::path& folder, const data::DatasetOptions& options) {
  std::vector<std::string> patterns;
  for (const std::string& split : {options.split, options.val_split}) {
    if (split.empty()) continue;
    const auto own = data::wanted_patterns(
        folder / "README.md", {.path = folder, .split = split, .subset = options.subset});
    patterns.insert(patterns.end(), own.begin(), own.end());
  }
  if (patterns.empty())
    for (const char* kind : {"parquet", "arrow", "jsonl", "json", "csv", "tsv"})
      for (const char* packed : {"", ".gz", ".zst"})
        patterns.push_back(fmt::format("*.{}{}", kind, packed));
  patterns.emplace_back("README.md");
  return patterns;
}

}  // namespace

namespace {

// Whether all files of what is read belong to the last download that ended, of whatever revision: a
// part of a split that was cut off does not.
bool has_rows(const fs::path& folder, const data::DatasetOptions& options) {
  const std::vector<fs::path> whole = hub::downloaded_files(folder);
  if (whole.empty()) return false;
  try {
    for (const std::string& split : {options.split, options.val_split}) {
      if (split.empty()) continue;
      for (const fs::path& file :
           data::hugging_face_files({.path = folder, .split = split, .subset = options.subset}))
        if (std::ranges::find(whole, file) == whole.end()) return false;
    }
  } catch (const UserError&) {
    return false;  // the files that are there say no such split, or not which
  }
  return true;
}

}  // namespace

void fetch_hub_set(const data::DatasetOptions& options, const std::string& access_token) {
  const std::string name = options.path.string();
  if (options.name != "HFDataset" || !recipe::names_hub_set(name)) return;
  const fs::path folder = fs::path("data") / options.path;
  hub::DownloadOptions asked{
      .repo_id = name, .repo_type = "dataset", .directory = folder, .token = access_token};
  std::error_code ignored;
  // What somebody else put there is taken as it is.
  if (fs::exists(folder, ignored) && !fs::exists(folder / hub::kManifestName, ignored)) return;
  if (has_rows(folder, options)) return;
  const Turn turn(folder);
  const auto fetch = [&](std::vector<std::string> patterns) {
    asked.patterns = std::move(patterns);
    if (hub::is_downloaded(asked)) return false;
    hub::ProgressLine line;
    try {
      hub::download(asked, [&](const hub::Progress& progress) { line.show(progress); });
    } catch (const UserError& error) {
      throw UserError(
          "--data {0}: no such file or folder is here, and as a data set of the hub it could not "
          "be fetched: {1}. Where there is a network, snug download --data {0} fetches it; the "
          "folder data/{0} can then be copied here",
          name, error.what());
    }
    line.end();
    return true;
  };
  if (has_rows(folder, options)) return;  // which another process has fetched meanwhile
  patterns_for(folder, options);          // what a README.md that is here says is no word for a hub
  fetch({"README.md", ".gitattributes"});  // one of them is there, and the first says which files
  if (!fetch(patterns_for(folder, options))) return;
  const std::string licence = data::read_dataset_card(folder / "README.md").licence;
  std::fprintf(stderr, "data set %s: fetched to %s; licence: %s\n", name.c_str(), folder.c_str(),
               licence.empty() ? "its README.md names none" : printable(licence).c_str());
}

data::DatasetOptions dataset_options(const recipe::DataOptions& d, const models::Model& model,
                                     const std::filesystem::path& checkpoint) {
  data::DatasetOptions options = dataset_options(d);
  options.reading = model.reads();
  options.vocabulary = model.dimensions().vocabulary;
  if (options.reading.image_size > 0) {
    options.processor = data::read_picture_processor(checkpoint, options.reading);
    options.reading.usual_pictures = options.processor.most_pictures();
  }
  return options;
}

data::Dataset open_data(const recipe::Recipe& recipe, const models::Model& model,
                        const std::filesystem::path& checkpoint,
                        const tokenizer::Tokenizer* tokenizer) {
  check_objective(model, recipe);
  if ((recipe::has_teacher(recipe.objective.name) ||
       recipe::compares_answers(recipe.objective.name)) &&
      model.routing().balance > 0)
    warn("objective {}: experts are not balanced, which is a term of sft's loss alone",
         recipe.objective.name);
  data::DatasetOptions options = dataset_options(recipe.data, model, checkpoint);
  options.preferences = recipe::learns_from_pairs(recipe.objective.name);
  options.ratings = recipe::learns_from_ratings(recipe.objective.name);
  options.classes = recipe::learns_labels(recipe.objective.name);
  options.labels = model.labels();
  options.val_split_fraction = held_out_fraction(recipe.data, recipe.given_keys);
  options.share_prompts = shares_prompts(model, recipe);
  if (is_synthetic(recipe.data)) {
    options.max_seq_length = longest_sample(recipe, model);
    // Enough for a step, or its micro-batches would be smaller than what is measured.
    if (!recipe.given("data.max_samples") || !options.max_samples)
      options.max_samples =
          std::max(options.max_samples.value_or(0), recipe.train.global_batch_size);
    return data::load_synthetic(options);
  }
  SNUG_CHECK(tokenizer != nullptr, "--data {} without a tokenizer", recipe.data.class_path);
  data::Dataset dataset = load_data(recipe, std::move(options), *tokenizer);
  tell_of_balance(recipe.objective, dataset);
  return dataset;
}

data::Dataset load_data(const recipe::Recipe& recipe, data::DatasetOptions options,
                        const tokenizer::Tokenizer& tokenizer) {
  options.val_split_fraction = held_out_fraction(recipe.data, recipe.given_keys);
  options.max_seq_length = recipe.train.max_seq_length.value_or(0);
  const bool is_mix = !recipe.data.sources.empty();
  if (!is_mix && has_own_style(recipe.data, recipe.given_keys)) options.prompt_style.clear();
  const data::DownloadFunction download = [&](const data::DownloadRequest& request) {
    return hub::download({.repo_id = request.repo_id,
                          .repo_type = "dataset",
                          .directory = request.folder,
                          .token = recipe.access_token,
                          .patterns = request.patterns},
                         {});
  };
  for (const data::DatasetOptions& source : sources_of(recipe))
    fetch_hub_set(source, recipe.access_token);
  const data::TextEncoder encoder = data::make_encoder(tokenizer);
  data::Dataset dataset = is_mix ? data::load_mix(mix_of(recipe, options), encoder, download)
                                 : data::load_dataset(options, encoder, download);
  const bool has_chats =
      dataset.prompt_style == "chat" ||
      std::ranges::count(dataset.sources, "chat", &data::MixedSource::prompt_style) > 0;
  if (!recipe.data.chat_template.empty() && !has_chats)
    warn(
        "data.chat_template: these rows become text in prompt style {} and not in the template; "
        "--data.prompt_style chat takes it for questions and answers too",
        dataset.prompt_style);
  return dataset;
}

}  // namespace snug::engine
