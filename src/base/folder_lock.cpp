// SPDX-License-Identifier: Apache-2.0
#include "base/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "base/uninterrupted.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLockBytes = size_t{1} << 20;
constexpr size_t kMostCommandLetters = 100;

struct Holder {
  std::string host, command;
  int64_t process = 0;
  std::time_t started = 0;
};

// None where nobody has written a name yet.
std::optional<Holder> holder_of(const fs::path& file) {
  try {
    const auto json = nlohmann::json::parse(read_file(file, kMostLockBytes));
    return Holder{.host = json.at("host"),
                  .command = json.at("command"),
                  .process = json.at("process"),
                  .started = json.at("started")};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// "12:03", with its day where that is another than today.
std::string clock_text(std::time_t time) {
  const std::tm then = fmt::localtime(time), now = fmt::localtime(std::time(nullptr));
  const bool today = then.tm_year == now.tm_year && then.tm_yday == now.tm_yday;
  return today ? fmt::format("{:%H:%M}", then) : fmt::format("{:%Y-%m-%d %H:%M}", then);
}

std::string shortened(const std::string& command) {
  if (command.size() <= kMostCommandLetters) return command;
  return command.substr(0, kMostCommandLetters) + " …";
}

[[noreturn]] void refuse(const LockWish& wish, const std::optional<Holder>& holder) {
  if (!holder)
    throw UserError("{} is in use: another snug is writing there; wait for it, or {}",
                    wish.target.string(), wish.remedy);
  throw UserError(
      "{} is in use: {} (process {} on {}) has been writing there since {}; wait for it, or {}",
      wish.target.string(), shortened(holder->command), holder->process, holder->host,
      clock_text(holder->started), wish.remedy);
}

bool is_running_here(const Holder& holder) {
  if (holder.host != host_name() || holder.process == ::getpid()) return false;
  return ::kill(static_cast<pid_t>(holder.process), 0) == 0 || errno == EPERM;
}

// "model/" by the folder's own name.
fs::path file_beside(const fs::path& target) {
  fs::path whole = fs::absolute(target).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.parent_path() / fmt::format(".{}.lock", whole.filename().string());
}

// Whether the path still leads to the open file: whoever had the lock may have removed it since.
bool is_at(int descriptor, const fs::path& file) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(file.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

FolderLock::FolderLock(const LockWish& wish) : removes_(wish.place == LockWish::Place::Beside) {
  file_ = removes_ ? file_beside(wish.target) : wish.target / ".lock";
  std::error_code error;
  fs::create_directories(file_.parent_path(), error);
  if (error)
    throw UserError("cannot make the folder {}: {}; {}", file_.parent_path().string(),
                    error.message(), wish.remedy);
  if (removes_) check_folders_above(wish);
  while (!take(wish)) continue;
  write_holder(wish);
}

FolderLock::~FolderLock() {
  if (removes_) ::unlink(file_.c_str());
  ::close(descriptor_);
}

// A folder that another run is writing is not a place for files of this process.
void FolderLock::check_folders_above(const LockWish& wish) const {
  constexpr int kLevels = 3;  // OUT_DIR/step-000100/model
  fs::path folder = file_.parent_path();
  for (int level = 0; level < kLevels && folder.has_relative_path(); ++level) {
    const int descriptor =
        uninterrupted([&] { return ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC); });
    if (descriptor >= 0) {
      const bool busy = wish.lock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      ::close(descriptor);
      if (busy) refuse(wish, holder_of(folder / ".lock"));
    }
    folder = folder.parent_path();
  }
}

// False where the file went away meanwhile, and another is to be tried.
bool FolderLock::take(const LockWish& wish) {
  descriptor_ =
      uninterrupted([&] { return ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (descriptor_ < 0)
    throw UserError("cannot write into {}: {}; {}", file_.parent_path().string(),
                    std::strerror(errno), wish.remedy);
  const int result = uninterrupted([&] { return wish.lock(descriptor_, LOCK_EX | LOCK_NB); });
  const int error = result == 0 ? 0 : errno;
  if (error == 0 && is_at(descriptor_, file_)) return true;
  const std::optional<Holder> holder = holder_of(file_);
  const bool unknown = error != 0 && error != EWOULDBLOCK;
  if (unknown && !(holder && is_running_here(*holder))) {
    warn("{} cannot be locked ({}): take care that nothing else writes there meanwhile",
         wish.target.string(), std::strerror(error));
    return true;
  }
  ::close(descriptor_);
  if (error == 0) return false;
  refuse(wish, holder);
}

// On a full disk the lock holds all the same.
void FolderLock::write_holder(const LockWish& wish) const {
  const nlohmann::ordered_json holder{{"host", host_name()},
                                      {"process", ::getpid()},
                                      {"command", wish.command},
                                      {"started", std::time(nullptr)}};
  const std::string text =
      holder.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (::ftruncate(descriptor_, 0) != 0) return;
  const ssize_t written = ::pwrite(descriptor_, text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size()) && ::ftruncate(descriptor_, 0) != 0) return;
}

}  // namespace snug
