// SPDX-License-Identifier: Apache-2.0
#include "train/launch/layout.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "recipe/batches.h"
#include "recipe/numbers.h"
#include "train/launch/command.h"

namespace snug::launch {
namespace {

void set_devices(recipe::Recipe& recipe, int64_t devices) {
  recipe.devices = fmt::format("{}", devices);
  recipe.given_keys.insert("devices");
}

// One machine of "a:4,b": its name and, if given, its number of devices.
struct Host {
  std::string name;
  std::optional<int64_t> devices;
};

bool is_host_name(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@';
  });
}

std::vector<Host> read_hosts(const std::string& hosts) {
  std::istringstream list(hosts);
  std::vector<Host> machines;
  for (std::string word; std::getline(list, word, ',');) {
    const size_t colon = word.find(':');
    Host host{.name = word.substr(0, colon)};
    if (colon != word.npos) host.devices = recipe::parse_int(word.substr(colon + 1));
    const bool has_bad_count = colon != word.npos && (!host.devices || *host.devices < 1);
    if (!is_host_name(host.name) || has_bad_count)
      throw UserError(
          "hosts = {}: \"{}\" is neither a machine name nor a name with a number of devices, as in "
          "node1:4,node2:4",
          hosts, word);
    machines.push_back(std::move(host));
  }
  return machines;
}

// The number behind each name, if it is the same for all.
std::optional<int64_t> devices_a_host(const std::vector<Host>& machines) {
  const std::optional<int64_t> first = machines.front().devices;
  const bool same =
      std::ranges::all_of(machines, [first](const Host& host) { return host.devices == first; });
  return same ? first : std::nullopt;
}

// Whether one of its addresses is this machine's: one that a socket can be bound to.
bool is_here(std::string host) {
  host.erase(0, host.find('@') + 1);  // user@
  if (host == host_name()) return true;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int socket = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    const bool is_own = ::bind(socket, a->ai_addr, a->ai_addrlen) == 0;
    ::close(socket);
    if (is_own) return true;
  }
  return false;
}

void resolve_hosts(recipe::Recipe& recipe) {
  if (!recipe.hosts.empty() && !recipe.hostfile.empty())
    throw UserError("hosts = {} and hostfile = {} both name machines; leave out one of the two",
                    recipe.hosts, recipe.hostfile);
  if (!recipe.hostfile.empty() && !std::filesystem::exists(recipe.hostfile))
    throw UserError("hostfile = {}: no such file", recipe.hostfile);
  if (recipe.hosts.empty()) return;
  const std::vector<Host> hosts = read_hosts(recipe.hosts);
  const auto machines = static_cast<int64_t>(hosts.size());
  if (!recipe.given("num_nodes")) recipe.num_nodes = machines;
  if (recipe.num_nodes != machines)
    throw UserError("num_nodes = {}: hosts = {} names {} machines; leave num_nodes out",
                    recipe.num_nodes, recipe.hosts, machines);
  const auto devices = devices_a_host(hosts);
  if (!recipe.given("devices") && devices) set_devices(recipe, *devices);
}

// A single process runs here; only mpirun starts processes elsewhere.
void check_is_here(const recipe::Recipe& recipe) {
  if (recipe.hosts.empty() || !is_single(recipe)) return;
  const std::string host = read_hosts(recipe.hosts).front().name;
  if (is_here(host)) return;
  throw UserError(
      "hosts = {}: this machine is {}, and a single process is not started on another machine; "
      "start snug there",
      recipe.hosts, host_name());
}

// Processes that try out many devices on a machine of few cores.
constexpr int64_t kFewRanks = 32;

}  // namespace

bool is_single(const recipe::Recipe& recipe) {
  return recipe.num_nodes == 1 && recipe::parse_int(recipe.devices).value_or(1) <= 1;
}

void resolve_alone(recipe::Recipe& recipe, int visible_gpus) {
  resolve_hosts(recipe);
  if (recipe.devices == "auto") recipe.devices = fmt::format("{}", std::max(1, visible_gpus));
  recipe::resolve_batches(recipe);
  check_is_here(recipe);
  const auto devices = recipe::parse_int(recipe.devices);
  if (!devices || recipe.num_nodes > 1) return;
  if (visible_gpus > 0 && *devices > visible_gpus)
    throw UserError(
        "devices = {}: this machine has {} visible GPU{}; use --devices {}, or --accelerator cpu",
        *devices, visible_gpus, visible_gpus == 1 ? "" : "s", visible_gpus);
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const int64_t most = std::max(kFewRanks, 4 * cores);
  if (visible_gpus == 0 && *devices > most)
    throw UserError(
        "devices = {}: each device is a process here, without a GPU, and this machine has {} "
        "core{}; use at most --devices {}",
        *devices, cores, cores == 1 ? "" : "s", most);
}

void resolve_under(recipe::Recipe& recipe, const std::string& starter,
                   const dist::Position& position) {
  const int64_t size = position.size;
  if (recipe.devices == "auto" || !recipe.given("devices"))
    set_devices(recipe, position.local_size);
  const auto devices = recipe::parse_int(recipe.devices);
  if (!devices || *devices < 1) return;  // check_recipe says what is wrong with it
  if (!recipe.given("num_nodes") && size % *devices == 0) recipe.num_nodes = size / *devices;
  recipe::resolve_batches(recipe);
  if (*devices * recipe.num_nodes != size)
    throw UserError(
        "devices = {}, num_nodes = {}: {} processes are needed, but {} started {}; leave out both "
        "options, or start that many",
        *devices, recipe.num_nodes, *devices * recipe.num_nodes, starter, size);
  if (recipe.num_threads == 0 && !environment("OMP_NUM_THREADS"))
    recipe.num_threads = threads_each(position.local_size);
}

}  // namespace snug::launch
