// SPDX-License-Identifier: Apache-2.0
#include "use/demo/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "files/hub/meter.h"
#include "files/hub/transfer.h"
#include "recipe/tables/objectives.h"
#include "use/demo/model.h"
#include "use/demo/questions.h"

namespace snug::demo {
namespace {

constexpr size_t kNumTrained = 2000, kNumHeldOut = 100;
constexpr size_t kNumQuestions = kNumTrained + kNumHeldOut;

// Fewer than kNumQuestions if there is no complete package index.
std::vector<Question> about_packages() {
  return package_questions(described_packages(package_index()), kNumQuestions);
}

std::vector<Question> chosen_questions(const std::string& about, std::string& words) {
  std::vector<Question> questions;
  if (about != "numbers") questions = about_packages();
  words = "the packages in this machine's package index";
  if (questions.size() == kNumQuestions) return questions;
  if (about == "debian")
    throw UserError(
        "the package index here describes only {} distinct packages, and the demo needs {}: run "
        "apt-get update as root, or use --questions numbers",
        with_commas(static_cast<long long>(questions.size())),
        with_commas(static_cast<long long>(kNumQuestions)));
  words = "numbers in words and Roman numerals";
  return number_questions(static_cast<int>(kNumQuestions));
}

bool names_recipe(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--config" || word.starts_with("--config=");
  });
}

// The value that the user's words give --objective; empty: none.
std::string objective_of(const std::vector<std::string>& words) {
  std::string name;
  for (size_t i = 0; i < words.size(); ++i)
    for (const std::string key : {"--objective", "--objective.name"}) {
      if (words[i] == key && i + 1 < words.size()) name = words[i + 1];
      if (words[i].starts_with(key + "=")) name = words[i].substr(key.size() + 1);
    }
  return name;
}

// Whether each question has a wrong answer too.
bool has_pairs(const recipe::DemoOptions& options) {
  return recipe::compares_answers(objective_of(options.finetune_words));
}

// Whose files are the demo's, with other questions too.
bool has_default_folder(const recipe::DemoOptions& options) {
  return options.data_dir == recipe::DemoOptions().data_dir;
}

std::string data_dir(const recipe::DemoOptions& options) {
  return has_default_folder(options) && has_pairs(options) ? options.data_dir + "-pairs"
                                                           : options.data_dir;
}

// The user's own model, or the one to fetch.
std::string path_of_model(const recipe::DemoOptions& options) {
  const ModelSource& source = model_source(options.model);
  if (options.checkpoint_dir.empty()) return model_path(source).string();
  if (&source != &model_source(recipe::DemoOptions().model))
    throw UserError("--model {} is fetched, and {} is a model of your own: give one of them",
                    options.model, options.checkpoint_dir);
  return options.checkpoint_dir;
}

}  // namespace

std::vector<std::string> finetune_words(const recipe::DemoOptions& options) {
  const ModelSource& source = model_source(options.model);
  const bool lora = options.lora_is_auto ? source.lora : options.lora;
  std::vector<std::string> words{lora ? "finetune_lora" : "finetune_full", path_of_model(options)};
  const std::vector<std::string>& more = options.finetune_words;
  if (!names_recipe(more)) {
    words.insert(words.end(), {"--config", lora ? "recipes/demo-lora.yaml" : "recipes/demo.yaml"});
    words.insert(words.end(), source.finetune_words.begin(), source.finetune_words.end());
  }
  // The recipes name the default folder, and answers alone.
  if (has_pairs(options) && !names_recipe(more))
    words.insert(words.end(), {"--out_dir", fmt::format("out/demo-{}", objective_of(more)),
                               "--train.max_steps", "40", "--data.max_samples", "640", "--lr",
                               lora ? "0.0002" : "0.00001", "--train.min_lr", "0"});
  if (!has_default_folder(options) || has_pairs(options)) {
    const std::filesystem::path folder = data_dir(options);
    words.insert(words.end(), {"--data.json_path", (folder / "train.jsonl").string(),
                               "--data.val_path", (folder / "held_out.jsonl").string()});
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void make_questions(const recipe::DemoOptions& options) {
  std::string about;
  std::vector<Question> questions = chosen_questions(options.questions, about);
  if (has_pairs(options)) add_rejected(questions, kNumHeldOut);
  const std::string folder = data_dir(options);
  hub::make_folder(folder);
  write_questions(questions, kNumHeldOut, folder, has_default_folder(options));
  std::printf("Questions %s about %s%s, %zu of them held out, in %s\n",
              with_commas(static_cast<long long>(questions.size())).c_str(), about.c_str(),
              has_pairs(options) ? ", with a wrong answer each" : "", kNumHeldOut, folder.c_str());
}

std::string fetch_model(const recipe::DemoOptions& options) {
  const std::string path = path_of_model(options);
  if (!options.checkpoint_dir.empty()) return path;
  const ModelSource& source = model_source(options.model);
  if (!source.terms.empty())
    std::printf("Terms     to use %s is to accept %s\n", source.name.c_str(), source.terms.c_str());
  bool has_begun = false;
  hub::ProgressLine line;
  const auto show = [&](const hub::Progress& progress) {
    if (!has_begun)
      std::printf("Downloading %s (%.0f MB) to %s\n", source.name.c_str(),
                  static_cast<double>(progress.all_total) / 1e6,
                  std::filesystem::path(path).parent_path().c_str());
    has_begun = true;
    std::fflush(stdout);
    line.show(progress);
  };
  demo::fetch_model(source, show);
  const auto copy = std::filesystem::path(path).replace_filename(source.terms_file);
  if (!source.terms_file.empty() && std::filesystem::exists(copy))
    std::printf("          a copy is in %s\n", copy.c_str());
  return path;
}

}  // namespace snug::demo
