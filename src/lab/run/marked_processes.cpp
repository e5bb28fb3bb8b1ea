// SPDX-License-Identifier: Apache-2.0
#include "lab/run/marked_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>

namespace snug::lab {
namespace {

constexpr std::string_view kMark = "SNUG_LAB_ROW=";
constexpr int kMostSweeps = 200;  // over the processes that are to end

bool has_mark(const std::filesystem::path& process, const std::string& mark) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    const size_t end = at + mark.size();
    if ((at == 0 || text[at - 1] == '\0') && (end == text.size() || text[end] == '\0')) return true;
  }
  return false;
}

}  // namespace

std::string new_mark() {
  static std::atomic<int> count{0};
  return fmt::format("{}{}-{}", kMark, ::getpid(), ++count);
}

bool is_mark(const char* variable) { return std::string_view(variable).starts_with(kMark); }

std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t process = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), process);
    if (read.ec != std::errc() || process == ::getpid()) continue;
    if (has_mark(entry.path(), mark)) found.push_back(process);
  }
  return found;
}

// Again until nobody is found: one may have begun another just before it was ended.
void end_processes_with(const std::string& mark) {
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    const std::vector<pid_t> found = processes_with(mark);
    if (found.empty()) return;
    for (const pid_t process : found) ::kill(process, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace snug::lab
