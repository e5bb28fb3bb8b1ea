// SPDX-License-Identifier: Apache-2.0
#include "train/join_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/program.h"
#include "core/dist/check_agreement.h"
#include "recipe/print.h"
#include "train/launch/rank_record.h"

namespace snug::train {
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

}  // namespace snug::train
