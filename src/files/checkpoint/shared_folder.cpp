// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/shared_folder.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/host.h"

namespace snug::checkpoint {
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
