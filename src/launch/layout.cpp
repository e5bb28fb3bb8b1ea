// SPDX-License-Identifier: Apache-2.0
#include "launch/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "config/batches.h"
#include "config/numbers.h"
#include "launch/command.h"

namespace snug::launch {
namespace {

void set_devices(config::Recipe& recipe, int64_t devices) {
  recipe.devices = fmt::format("{}", devices);
  recipe.given_keys.insert("devices");
}

// The number behind each name of "a:4,b:4", if it is the same for all.
std::optional<int64_t> devices_a_host(const std::string& hosts) {
  std::optional<int64_t> devices;
  std::string_view rest = hosts;
  while (!rest.empty()) {
    const std::string_view host = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), host.size() + 1));
    const size_t colon = host.find(':');
    const auto here = colon == host.npos ? std::nullopt : config::parse_int(host.substr(colon + 1));
    if (!here || (devices && *devices != *here)) return std::nullopt;
    devices = here;
  }
  return devices;
}

void resolve_hosts(config::Recipe& recipe) {
  if (!recipe.hosts.empty() && !recipe.hostfile.empty())
    throw UserError("hosts = {} and hostfile = {}: both name machines; leave one of the two out",
                    recipe.hosts, recipe.hostfile);
  if (!recipe.hostfile.empty() && !std::filesystem::exists(recipe.hostfile))
    throw UserError("hostfile = {}: there is no such file", recipe.hostfile);
  if (recipe.hosts.empty()) return;
  const auto machines = static_cast<int64_t>(host_names(recipe.hosts).size());
  if (!recipe.given("num_nodes")) recipe.num_nodes = machines;
  if (recipe.num_nodes != machines)
    throw UserError("num_nodes = {}: hosts = {} names {} machines; leave num_nodes out",
                    recipe.num_nodes, recipe.hosts, machines);
  if (recipe.given("devices")) return;
  if (const auto devices = devices_a_host(recipe.hosts)) set_devices(recipe, *devices);
}

}  // namespace

bool is_single(const config::Recipe& recipe) {
  return recipe.num_nodes == 1 && config::parse_int(recipe.devices).value_or(1) <= 1;
}

void resolve_alone(config::Recipe& recipe, int visible_gpus) {
  resolve_hosts(recipe);
  if (recipe.devices == "auto") recipe.devices = fmt::format("{}", std::max(1, visible_gpus));
  config::resolve_batches(recipe);
  const auto devices = config::parse_int(recipe.devices);
  if (!devices || recipe.num_nodes > 1) return;
  if (visible_gpus > 0 && *devices > visible_gpus)
    throw UserError(
        "devices = {}: this machine shows {} GPU{}; use --devices {}, or --accelerator cpu",
        *devices, visible_gpus, visible_gpus == 1 ? "" : "s", visible_gpus);
}

void resolve_under(config::Recipe& recipe, const std::string& starter,
                   const dist::Position& position) {
  const int64_t size = position.size;
  if (recipe.devices == "auto" || !recipe.given("devices"))
    set_devices(recipe, position.local_size);
  const auto devices = config::parse_int(recipe.devices);
  if (!devices || *devices < 1) return;  // check_recipe says what is wrong with it
  if (!recipe.given("num_nodes") && size % *devices == 0) recipe.num_nodes = size / *devices;
  config::resolve_batches(recipe);
  if (*devices * recipe.num_nodes != size)
    throw UserError(
        "devices = {}, num_nodes = {}: that makes {} processes, but {} started {}; leave out both "
        "options, or start as many",
        *devices, recipe.num_nodes, *devices * recipe.num_nodes, starter, size);
  if (recipe.num_threads == 0 && !environment("OMP_NUM_THREADS"))
    recipe.num_threads = threads_each(position.local_size);
}

}  // namespace snug::launch
