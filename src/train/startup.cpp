// SPDX-License-Identifier: Apache-2.0
#include "train/startup.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/program.h"
#include "core/dist/agreement.h"
#include "engine/steps/objective.h"
#include "recipe/print.h"
#include "report/run_page.h"
#include "train/base_model.h"
#include "train/launch/rank_record.h"
#include "train/reference.h"

namespace snug::train {

void StartupClock::end_stage(const char* name) {
  const double now = seconds_since_program_start();
  record_.stages.emplace_back(name, now - last_);
  last_ = now;
}

void StartupClock::end_step() {
  if (record_.first_step_ended == 0) record_.first_step_ended = seconds_since_program_start();
}

namespace {

// Cores differ from machine to machine.
std::string what_ranks_agree_on(recipe::Recipe recipe) {
  recipe.num_threads = 0;
  std::string text = fmt::format("program = snug {}\n", kVersion);
  const nlohmann::json flat = recipe::recipe_json(recipe).flatten();
  for (const auto& [path, value] : flat.items()) {
    std::string key = path.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    text += fmt::format("{} = {}\n", key, value.dump());
  }
  return text;
}

}  // namespace

std::shared_ptr<dist::World> join_world(const recipe::Recipe& recipe) {
  dist::WorldOptions options{.timeout_seconds = static_cast<double>(recipe.collective_timeout)};
  if (dist::position_in_environment().size > 1)
    options.status_folder = launch::logs_folder(recipe.out_dir);
  const std::shared_ptr<dist::World> world = dist::World::join(options);
  dist::MeshShape all;
  all[dist::Axis::Replicate] = world->size();
  dist::check_agreement(world->make_mesh(all, at::kCPU)->world(), what_ranks_agree_on(recipe));
  return world;
}

namespace {

// Whether a run of this recipe trains what that of `before` did. What --fit chose then is not
// compared.
bool is_same_run(const recipe::Recipe& recipe, const nlohmann::json& before) {
  nlohmann::json then = before, now = recipe::recipe_json(recipe);
  for (nlohmann::json* one : {&then, &now})
    for (const char* key : {"resume", "num_threads", "logger_name", "log_memory", "profile",
                            "collective_timeout", "memory_budget", "devices", "num_nodes"})
      one->erase(key);
  if (!recipe.fit) return then == now;
  then = then.flatten();
  now = now.flatten();
  return std::ranges::all_of(now.items(), [&](const auto& item) {
    std::string key = item.key().substr(1);
    std::ranges::replace(key, '/', '.');
    return !recipe.given(key) || (then.contains(item.key()) && then[item.key()] == item.value());
  });
}

}  // namespace

std::string words_on_finished_run(const recipe::Recipe& recipe) {
  const dist::Position position = dist::position_in_environment();
  // Other nodes may have another folder of this name.
  const bool is_everywhere = position.size == position.local_size;
  if ((recipe.resume != "auto" && recipe.resume != "true") || !is_everywhere) return "";
  const std::filesystem::path folder = recipe.out_dir, file = folder / "run.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return "";
  if (recipe.train.save_model && !std::filesystem::is_directory(folder / kFinalName, ignored))
    return "";
  const report::RunRecord before = [&] {
    try {
      return report::read_run_json(file);
    } catch (const UserError&) {
      return report::RunRecord{.outcome = "unreadable"};
    }
  }();
  if (before.outcome != "ok" || before.steps.empty()) return "";
  if (!is_same_run(recipe, before.recipe)) return "";
  const auto latest = checkpoint::find_latest(folder);
  const bool is_kept = latest && checkpoint::load_state(*latest).step == before.steps.back().step;
  const auto& patience = recipe.train.early_stopping;
  const bool stopped_early = patience && before.best.later >= *patience;
  return fmt::format(
      "{} holds the results of this run, which ended after step {}: nothing is left to do. {}. To "
      "train anew: --resume false, or another --out_dir",
      folder.string(), before.steps.back().step,
      is_kept && stopped_early
          ? "It stopped early; to train further: the same command with a larger "
            "--train.early_stopping"
      : is_kept ? "To train further: the same command with more --train.epochs or --train.max_steps"
                : "It cannot be trained further, since it kept no checkpoint of its last step "
                  "(--train.save_last_state)");
}

void write_missing_report(const std::filesystem::path& out_dir) {
  const std::filesystem::path page = out_dir / "report.html";
  if (!std::filesystem::exists(page))
    report::write_report_html(report::read_run_json(out_dir / "run.json"), page);
}

namespace {

std::optional<std::filesystem::path> checkpoint_of(const recipe::Recipe& recipe,
                                                   dist::Group& ranks) {
  if (recipe.resume == "false") return std::nullopt;
  if (recipe.resume == "true" || recipe.resume == "auto") {
    const auto latest = checkpoint::find_latest(recipe.out_dir, ranks);
    if (!latest && recipe.resume == "true")
      throw UserError(
          "--resume true: there is no checkpoint in {}; use --resume auto to start without one",
          recipe.out_dir);
    return latest;
  }
  const std::filesystem::path folder = recipe.resume;
  if (!std::filesystem::exists(folder / checkpoint::kStateName))
    throw UserError(
        "resume = {}: must be true, false, auto or the folder of a checkpoint, such as "
        "{}/step-000100",
        recipe.resume, recipe.out_dir);
  return folder;
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const recipe::Recipe& recipe, dist::Group& ranks) {
  const std::optional<std::filesystem::path> folder = checkpoint_of(recipe, ranks);
  if (!folder) return std::nullopt;
  ResumePoint point{.folder = *folder, .state = checkpoint::load_state(*folder), .run = {}};
  point.run = {.step = point.state.step,
               .before = report::read_run_json(*folder / checkpoint::kRecordName)};
  check_same_meaning(recipe, point.run.before.recipe, *folder);
  if (engine::needs_reference(*engine::validation_objective(recipe))) check_reference(*folder);
  return point;
}

}  // namespace snug::train
