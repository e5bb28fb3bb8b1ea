// Runs of several processes: whom to kill, and what must not be left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>

#include "system/program.h"

namespace snug::tests {

inline bool has_mpirun() { return std::system("mpirun --version >/dev/null 2>&1") == 0; }

struct Rank {
  int number = 0;
  pid_t process = 0;
  std::string ending;
};

// What the ranks' records say; ranks without one are left out.
inline std::vector<Rank> ranks_of(const fs::path& out_dir, int size) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const fs::path record = out_dir / "logs" / ("rank-" + std::to_string(rank) + ".json");
    if (!fs::exists(record)) continue;
    const auto json = nlohmann::json::parse(read_file(record), nullptr, false);
    if (json.is_object()) ranks.push_back({rank, json["process"], json["ending"]});
  }
  return ranks;
}

// Programs whose command names the folder: this run's own.
inline std::vector<std::string> processes_of(const fs::path& out_dir) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    try {
      std::string command = read_file(entry.path() / "cmdline");
      std::replace(command.begin(), command.end(), '\0', ' ');
      if (command.find(out_dir.string()) != command.npos) found.push_back(name + ": " + command);
    } catch (const std::exception&) {  // it has just ended
    }
  }
  return found;
}

// Those that are left a moment after the end.
inline std::vector<std::string> orphans_of(const fs::path& out_dir) {
  for (int attempt = 0; attempt < 100 && !processes_of(out_dir).empty(); ++attempt)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return processes_of(out_dir);
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace snug::tests
