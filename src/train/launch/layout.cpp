// SPDX-License-Identifier: Apache-2.0
#include "train/launch/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "core/dist/mpi/bundled_mpi.h"
#include "recipe/batches.h"
#include "recipe/numbers.h"
#include "watch/machine/machine.h"

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

bool is_several_machines(const MpirunOptions& o) {
  return o.num_nodes > 1 || !o.hosts.empty() || !o.hostfile.empty();
}

// Adds the number of slots per machine if the recipe gives only names.
std::string hosts_with_slots(const std::string& hosts, int devices) {
  std::istringstream list(hosts);
  std::string text;
  for (std::string host; std::getline(list, host, ',');) {
    if (host.find(':') == host.npos) host += fmt::format(":{}", devices);
    text += (text.empty() ? "" : ",") + host;
  }
  return text;
}

// Empty if there is no such program.
std::string on_path(const std::string& program, const Environment& get) {
  std::istringstream folders(get("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](auto b) { return text.starts_with(b); });
}

}  // namespace

bool is_single(const recipe::Recipe& recipe) {
  return recipe.num_nodes == 1 && recipe::parse_int(recipe.devices).value_or(1) <= 1;
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

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> mpirun_command(const MpirunOptions& o, const Environment& get) {
  std::vector<std::string> argv{o.mpirun};
  const auto add = [&](std::initializer_list<std::string> words) {
    argv.insert(argv.end(), words);
  };
  if (o.is_root) add({"--allow-run-as-root"});
  add({"--oversubscribe", "--bind-to", "none"});
  add({"-np", fmt::format("{}", o.devices * o.num_nodes)});
  add({"--map-by", fmt::format("ppr:{}:node", o.devices)});
  if (!o.hosts.empty()) add({"-H", hosts_with_slots(o.hosts, o.devices)});
  if (!o.hostfile.empty()) add({"--hostfile", o.hostfile});
  // Passwords cannot be typed, and a machine that does not answer should be reported soon.
  const bool own_agent = get("OMPI_MCA_plm_rsh_agent") || get("OMPI_MCA_plm_rsh_args");
  if (is_several_machines(o) && !own_agent)
    add({"--mca", "plm_rsh_args", "-o BatchMode=yes -o ConnectTimeout=20"});
  // One machine needs no ssh, but mpirun does not start without one.
  if (!is_several_machines(o) && !own_agent && on_path("ssh", get).empty() &&
      on_path("rsh", get).empty())
    add({"--mca", "plm", "isolated"});
  if (is_several_machines(o))
    for (const std::string& variable : o.variables) add({"-x", variable});
  add({o.program});
  argv.insert(argv.end(), o.words.begin(), o.words.end());
  return argv;
}

std::vector<std::string> variables_to_export(char** environ_text) {
  std::vector<std::string> names;
  for (char** entry = environ_text; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::string_view(*entry).find('='));
    // Which GPUs are visible is each machine's own matter.
    if (name == "CUDA_VISIBLE_DEVICES") continue;
    if (starts_with_any(name, {"SNUG_", "OMP_", "NCCL_", "CUDA_", "UCX_", "HF_"}) ||
        name == "LD_LIBRARY_PATH" || name == "NO_COLOR")
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string find_mpirun(int num_ranks, const Environment& get) {
  if (const auto bundled = dist::bundled_mpirun(); !bundled.empty()) return bundled;
  if (std::string mpirun = on_path("mpirun", get); !mpirun.empty()) return mpirun;
  throw UserError(
      "{} processes are started with Open MPI's mpirun, which is not on PATH: install it (on "
      "Debian and Ubuntu the package openmpi-bin), load your cluster's module, or start the "
      "processes yourself with srun",
      num_ranks);
}

int threads_each(int processes) {
  // A process that is bound to its cores has its share already.
  const auto all = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(machine::usable_cores(), all / std::max(1, processes)));
}

std::string condensed(const std::string& words) {
  constexpr size_t kLines = 4;
  std::istringstream text(words);
  std::vector<std::string> outside, inside;
  bool in_frame = false, in_advice = false;
  int frames = 0;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("-----")) {
      in_frame = !in_frame;
      in_advice = false;
      frames += in_frame;
      continue;
    }
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == line.npos) continue;
    line.erase(0, start);
    if (starts_with_any(line, {"This usually is caused", "Either request", "Check to make sure",
                               "This is something that", "Type 'mpirun"}))
      in_advice = in_frame;
    if (in_advice || starts_with_any(line, {"mpirun: Forwarding", "Type 'mpirun",
                                            "snug: ", "warning: ", "Killed by signal"}))
      continue;
    if (!in_frame) outside.push_back(line);
    if (in_frame && frames == 1) inside.push_back(line);
  }
  // The cause is outside of frames if ssh failed, else in mpirun's first frame.
  std::vector<std::string>& best = outside.empty() ? inside : outside;
  if (best.size() > kLines) best.resize(kLines);
  return fmt::format("{}", fmt::join(best, " "));
}

}  // namespace snug::launch
