// SPDX-License-Identifier: Apache-2.0
#include "train/startup.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/program.h"
#include "core/dist/agreement.h"
#include "recipe/print.h"
#include "train/base_model.h"
#include "train/launch/rank_record.h"

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
  return point;
}

}  // namespace snug::train
