// SPDX-License-Identifier: Apache-2.0
#include "train/launch/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "core/dist/mpi/bundled_mpi.h"
#include "watch/machine/machine.h"

namespace snug::launch {
namespace {

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
