// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "core/dist/agreement.h"
#include "files/checkpoint/stored_tensors.h"
#include "files/checkpoint/training_checkpoint.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStepPrefix = "step-";
constexpr const char* kTemporary = ".tmp-";
constexpr const char* kDoomed = ".old";
constexpr const char* kEarlier = "earlier";
constexpr const char* kOnTheWay = ".earlier";

// A checkpoint's name while it is being deleted.
fs::path doomed_name(const fs::path& folder) {
  return folder.parent_path() / (kTemporary + folder.filename().string() + kDoomed);
}

// Between the two renames of put_in_place() both old and new folder are complete, and neither has
// the final name.
void finish_putting_in_place(const fs::path& temporary) {
  const std::string name = temporary.filename().string();
  if (name.ends_with(kDoomed)) return;
  const fs::path folder =
      temporary.parent_path() / name.substr(std::string_view(kTemporary).size());
  if (!fs::exists(folder) && fs::exists(doomed_name(folder))) fs::rename(temporary, folder);
}

// Renames a checkpoint and then deletes it. If the process is killed meanwhile, the next
// remove_temporaries() deletes the rest.
void discard(const fs::path& folder) {
  const fs::path doomed = doomed_name(folder);
  fs::remove_all(doomed);
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kStepPrefix)) return -1;
  const std::string digits = name.substr(std::string_view(kStepPrefix).size());
  if (digits.empty() || digits.size() > 12 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  return std::stoll(digits);
}

// Checkpoints of steps first … last, newest first.
std::vector<fs::path> checkpoints_between(const fs::path& out_dir, int64_t first, int64_t last) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_dir, error)) {
    const int64_t step = step_of(entry.path());
    if (step >= std::max<int64_t>(0, first) && step <= last) found.push_back(entry.path());
  }
  std::ranges::sort(found, std::greater(), step_of);
  return found;
}

}  // namespace

std::string folder_name(int64_t step) { return fmt::format("{}{:06}", kStepPrefix, step); }

fs::path temporary_name(const fs::path& folder) {
  return folder.parent_path() / (kTemporary + folder.filename().string());
}

void remove_temporaries(const fs::path& out_dir) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(out_dir))
    if (entry.path().filename().string().starts_with(std::string(kTemporary) + kStepPrefix))
      found.push_back(entry.path());
  for (const fs::path& temporary : found) finish_putting_in_place(temporary);
  for (const fs::path& temporary : found) fs::remove_all(temporary);
}

std::vector<fs::path> all_checkpoints(const fs::path& out_dir) {
  return checkpoints_between(out_dir, 0, std::numeric_limits<int64_t>::max());
}

fs::path move_aside(const fs::path& out_dir, const std::vector<fs::path>& files) {
  const fs::path on_the_way = out_dir / kOnTheWay;
  fs::path earlier = out_dir / kEarlier;
  for (int n = 2; fs::exists(earlier); ++n) earlier = out_dir / fmt::format("{}-{}", kEarlier, n);
  try {
    fs::create_directories(on_the_way);
    for (const fs::path& file : files) fs::rename(file, on_the_way / file.filename());
    fs::rename(on_the_way, earlier);
    sync_path(out_dir);
    return earlier;
  } catch (const fs::filesystem_error& failure) {
    undo_half_a_move(out_dir);
    throw UserError("cannot move an earlier run's files aside: {}; choose another --out_dir",
                    failure.what());
  }
}

void undo_half_a_move(const fs::path& out_dir) {
  const fs::path on_the_way = out_dir / kOnTheWay;
  std::error_code error;
  std::vector<fs::path> moved;
  for (const auto& entry : fs::directory_iterator(on_the_way, error)) moved.push_back(entry.path());
  for (const fs::path& file : moved)
    if (!fs::exists(out_dir / file.filename())) fs::rename(file, out_dir / file.filename(), error);
  fs::remove(on_the_way, error);  // fails if something is left in it
}

void put_in_place(const fs::path& temporary, const fs::path& folder) {
  const fs::path doomed = doomed_name(folder);
  const bool replaces = fs::exists(folder);
  if (replaces) fs::rename(folder, doomed);
  fs::rename(temporary, folder);
  sync_path(folder.parent_path());
  if (replaces) fs::remove_all(doomed);
}

std::optional<fs::path> find_latest(const fs::path& out_dir) {
  for (const fs::path& folder :
       checkpoints_between(out_dir, 0, std::numeric_limits<int64_t>::max())) {
    const std::string fault = fs::exists(folder / kStateName)
                                  ? fault_of(folder)
                                  : fmt::format("{} is missing", kStateName);
    if (fault.empty()) return folder;
    warn("{} is incomplete ({}); looking for an earlier checkpoint", folder.string(), fault);
  }
  return std::nullopt;
}

std::optional<fs::path> find_latest(const fs::path& out_dir, dist::Group& ranks) {
  const std::string found = dist::agree(&ranks, [&]() -> std::string {
    if (ranks.rank() > 0) return "";
    return find_latest(out_dir).value_or("").string();
  })[0];
  if (found.empty()) return std::nullopt;
  dist::agree(&ranks, [&]() -> std::string {
    if (!fs::exists(fs::path(found) / kStateName))
      throw UserError(
          "{} does not exist here, but rank 0 sees it; --out_dir must be on a file system that all "
          "machines share, under the same path on each",
          found);
    return "";
  });
  return found;
}

int64_t count_up_to(const fs::path& out_dir, int64_t step) {
  return std::ssize(checkpoints_between(out_dir, 0, step));
}

int64_t size_bytes(const fs::path& folder) {
  uintmax_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder)) total += entry.file_size();
  return static_cast<int64_t>(total);
}

void keep_newest(const fs::path& out_dir, int64_t step, int64_t count) {
  std::vector<fs::path> found = checkpoints_between(out_dir, 0, step);
  try {
    for (size_t i = static_cast<size_t>(count); i < found.size(); ++i) discard(found[i]);
  } catch (const fs::filesystem_error& failure) {
    warn("an older checkpoint cannot be deleted: {}", failure.what());
  }
}

std::optional<fs::path> set_aside(const fs::path& out_dir, int64_t step) {
  const auto found = checkpoints_between(out_dir, step + 1, std::numeric_limits<int64_t>::max());
  if (found.empty()) return std::nullopt;
  return move_aside(out_dir, found);
}

namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(5);

fs::path mark_name(const fs::path& folder, const std::string& id) {
  return folder / (".seen-by-all-" + id);
}

}  // namespace

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

fs::path leave_mark(const fs::path& folder, const std::string& id) {
  const fs::path mark = mark_name(folder, id);
  write_file_atomically(mark, "");
  return mark;
}

void wait_for_mark(const fs::path& folder, const std::string& id) {
  const fs::path mark = mark_name(folder, id);
  const auto deadline = steady_clock::now() + kPatience;
  while (true) {
    // Opening the folder makes a network file system ask its server again.
    std::error_code ignored;
    fs::directory_iterator(folder, ignored);
    if (fs::exists(mark, ignored)) return;
    if (steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw UserError(
      "{} does not see {}, which rank 0 has made; --out_dir must be on a file system that all "
      "machines share, under the same path on each",
      host_name(), folder.string());
}

}  // namespace snug::checkpoint
