// SPDX-License-Identifier: Apache-2.0
#include "train/final_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "core/dist/agreement.h"
#include "data/prompts.h"
#include "engine/open_data.h"
#include "files/checkpoint/training_checkpoint.h"
#include "train/out_dir/full_disk.h"
#include "train/records/best_validation.h"

namespace snug::train {

namespace fs = std::filesystem;

fs::path final_folder(const recipe::Recipe& recipe) { return fs::path(recipe.out_dir) / "final"; }

std::optional<fs::path> last_checkpoint(const std::string& out_dir,
                                        const report::RunRecord& record) {
  const auto latest = checkpoint::find_latest(out_dir);
  const bool is_last = latest && !record.steps.empty() &&
                       record.steps.back().step == checkpoint::load_state(*latest).step;
  return is_last ? latest : std::nullopt;
}

FinalModel::FinalModel(const Parts& parts) : parts_(parts), folder_(final_folder(parts.recipe)) {}

void FinalModel::remember_best(int64_t step) {
  const std::string found = dist::agree(&parts_.ranks, [&]() -> std::string {
    const auto there = is_first() ? read_best(folder_) : std::nullopt;
    if (!there || there->step > step || there->metric != parts_.recipe.train.best_metric) return "";
    return nlohmann::json{there->step, there->value}.dump();
  })[0];
  if (found.empty()) return;
  const nlohmann::json numbers = nlohmann::json::parse(found);
  const report::BestRecord there{
      .step = numbers[0], .metric = parts_.recipe.train.best_metric, .value = numbers[1]};
  report::BestRecord& best = parts_.log.record().best;
  if (is_better(there, best)) best = there;
}

// With the prompt style beside the model, so that generate, chat and caption use the same one.
void FinalModel::write_folder(const fs::path& folder, const report::BestRecord* best) {
  const recipe::Recipe& recipe = parts_.recipe;
  const data::Dataset& dataset = parts_.dataset;
  // Frozen weights are written from the base model's files.
  if (recipe.lora.enabled || recipe.model.train_parts != "all") parts_.base.reopen();
  const bool has_style =
      !dataset.train_pictures.rows || dataset.batch_options.reading.pictures_anywhere;
  const bool asks = has_style && !engine::is_synthetic(recipe.data);
  // Questions about pictures are never learned.
  const auto masks = data::masks_prompts(dataset, recipe.data.mask_prompt);
  if (folder == folder_) parts_.log.check_folder(&parts_.ranks);
  parts_.base.write_trained(folder, parts_.run.engine(), [&](const fs::path& into) {
    if (asks)
      data::write_prompt_record(
          into, {.style = dataset.prompt_style, .mask_prompt = masks, .system = dataset.system});
    if (best != nullptr) train::write_best(into, *best);
  });
}

void FinalModel::write_best() {
  const Live::Doing doing(parts_.live, "saving");
  const report::BestRecord& best = parts_.log.record().best;
  try {
    write_folder(folder_, &best);
    written_ = folder_;
    parts_.log.print(fmt::format("Best so far: {}, in {}", words_on(best), folder_.string()));
  } catch (const UserError& error) {
    if (is_first())
      log_warning(fmt::format("the model of step {}, the best so far, is not kept: {}", best.step,
                              error.what()));
  }
}

void FinalModel::finish() {
  if (holds_best())
    tell_of_best();
  else if (parts_.recipe.train.save_model)
    write_last();
}

// Whether the model in out_dir is that of the best validation.
bool FinalModel::holds_best() const {
  if (!parts_.recipe.train.keep_best) return false;
  const report::BestRecord& best = parts_.log.record().best;
  const std::string is_there = dist::agree(&parts_.ranks, [&]() -> std::string {
    if (!is_first() || best.step == 0) return "";
    const auto there = read_best(folder_);
    return there && there->step == best.step && there->metric == best.metric &&
                   there->value == best.value
               ? "yes"
               : "";
  })[0];
  return !is_there.empty();
}

void FinalModel::tell_of_best() {
  report::RunRecord& record = parts_.log.record();
  written_ = folder_;
  record.notes.push_back(fmt::format("the model is that of step {}, the best by its {}",
                                     record.best.step, words_on(record.best)));
  parts_.log.end_line();
  parts_.log.print("Best     " + record.notes.back());
}

void FinalModel::write_last() {
  if (parts_.recipe.train.keep_best && is_first())
    log_warning(parts_.log.record().best.step == 0
                    ? "no validation says which model is the best: the last one is written"
                    : "the best model could not be kept: the last one is written");
  LastWrite wish{.folder = folder_,
                 .write = [&](const fs::path& folder) { write_folder(folder, nullptr); },
                 .ranks = &parts_.ranks,
                 .say =
                     [&](const std::string& text) {
                       parts_.log.end_line();
                       parts_.log.print(text);
                     },
                 .what_remains = [&] { return what_remains(); },
                 .ask = {},
                 .wait = wait_for_seconds};
  if (has_terminal()) wish.ask = ask_at_terminal;
  written_ = write_at_last(wish);
}

std::string FinalModel::what_remains() const {
  const std::string& out_dir = parts_.recipe.out_dir;
  if (parts_.log.has_lost_folder()) return "Its checkpoints are where the folder is.";
  const auto latest = checkpoint::find_latest(out_dir);
  if (!latest) return "No checkpoint holds these weights.";
  if (last_checkpoint(out_dir, parts_.log.record()))
    return fmt::format(
        "{} holds these weights: once there is space, the same command with --resume auto writes "
        "the model from them.",
        latest->string());
  return fmt::format("The newest checkpoint is {}: --resume auto resumes from it.",
                     latest->string());
}

}  // namespace snug::train
