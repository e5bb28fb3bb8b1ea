// A library to preload into the program: counts its calls on files below one folder and makes the
// N-th of them fail, as a disk that is full or faulty would, or kills the process there. Processes
// that the program starts count on, in the same shared memory.
//
//   SNUG_FAULT_FOLDER  the folder
//   SNUG_FAULT_STATE   a file for what is in State
//   SNUG_FAULT_KIND    EIO, ENOSPC, EINTR, short (reads and writes take half of what they are
//   given)
//                      or kill (a write is cut in half first)
//   SNUG_FAULT_AT      N from 1; 0 counts only
//   SNUG_FAULT_LASTS   1: so do all calls after it
//   SNUG_FAULT_LOG     a file to which each call that changed something is appended: its kind,
//   paths,
//                      offset and number of bytes, between tabs in a line, then the bytes
//
// The program's naps take no time: its clock goes on by them instead, so that whatever it waits for
// before it tries again is over at once.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "faults/faulty_disk.h"

namespace {

using snug::tests::State;

enum class Kind { Eio, Enospc, Eintr, Short, Kill };

// What a call may meet.
enum Trait : unsigned {
  kReads = 0,
  kChanges = 1,  // a full disk, a kill that matters
  kWaits = 2,    // EINTR
  kCounts = 4,   // a short count
};

struct Plan {
  std::string folder;
  Kind kind;
  int64_t at;
  bool lasts;
  State& state;
  int log;  // -1: none
};

const Plan* plan = nullptr;  // made once, never freed: calls come after destructors too
std::atomic<int64_t> napped_nanoseconds{0};

constexpr int kHalf = -1;  // beside the values of errno

#define NEXT(name) \
  static const auto next = reinterpret_cast<decltype(&(name))>(::dlsym(RTLD_NEXT, #name))

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Kind kind_of(const std::string& text) {
  return text == "EIO"      ? Kind::Eio
         : text == "ENOSPC" ? Kind::Enospc
         : text == "EINTR"  ? Kind::Eintr
         : text == "short"  ? Kind::Short
                            : Kind::Kill;
}

__attribute__((constructor)) void begin() {
  const std::string file = text_of("SNUG_FAULT_STATE");
  const int descriptor = file.empty() ? -1 : ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return;
  void* shared = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (shared == MAP_FAILED) std::abort();
  plan =
      new Plan{.folder = text_of("SNUG_FAULT_FOLDER") + "/",
               .kind = kind_of(text_of("SNUG_FAULT_KIND")),
               .at = std::atoll(text_of("SNUG_FAULT_AT").c_str()),
               .lasts = text_of("SNUG_FAULT_LASTS") == "1",
               .state = *static_cast<State*>(shared),
               .log = ::open(text_of("SNUG_FAULT_LOG").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)};
}

std::string path_of(int descriptor) {
  if (descriptor == AT_FDCWD) return "";
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

std::string path_at(int folder, const char* name) {
  return name[0] == '/' ? name : path_of(folder) + "/" + name;
}

bool meets(unsigned traits) {
  switch (plan->kind) {
    case Kind::Eio:
      return true;
    case Kind::Enospc:
    case Kind::Kill:
      return (traits & kChanges) != 0;
    case Kind::Eintr:
      return (traits & kWaits) != 0;
    case Kind::Short:
      return (traits & kCounts) != 0;
  }
  return false;
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

// What this call shall meet: 0 nothing, an errno, or kHalf.
int fate(const char* call, const std::string& path, unsigned traits) {
  const int before = errno;
  if (plan == nullptr || !path.starts_with(plan->folder) || !meets(traits)) return 0;
  const int64_t n = ++plan->state.calls;
  errno = before;
  if (plan->at == 0 || (plan->lasts ? n < plan->at : n != plan->at)) return 0;
  if (n == plan->at)
    ::snprintf(plan->state.where, sizeof(plan->state.where), "%s %s", call,
               path.c_str() + plan->folder.size());
  switch (plan->kind) {
    case Kind::Eio:
      return EIO;
    case Kind::Enospc:
      return ENOSPC;
    case Kind::Eintr:
      return EINTR;
    case Kind::Short:
      return kHalf;
    case Kind::Kill:
      if ((traits & kCounts) != 0) return kHalf;
      die();
  }
  return 0;
}

int fails(int error) {
  errno = error;
  return -1;
}

// A call that moves `bytes`; `move` does it with as many as it is given.
template <class Move>
ssize_t moved(int error, size_t bytes, const Move& move) {
  if (error > 0) return fails(error);
  if (error == 0) return move(bytes);
  const ssize_t result = move(bytes > 1 ? bytes / 2 : bytes);
  if (plan->kind == Kind::Kill) die();
  return result;
}

bool is_logged(const std::string& path) {
  return plan != nullptr && plan->log >= 0 && path.starts_with(plan->folder);
}

void note(const char* what, const std::string& path, const std::string& to = "", off_t offset = 0,
          const void* data = nullptr, size_t bytes = 0) {
  if (!is_logged(path)) return;
  const int before = errno;
  std::string line = std::string(what) + "\t" + path + "\t" + to + "\t" + std::to_string(offset) +
                     "\t" + std::to_string(bytes) + "\n";
  const iovec parts[]{{line.data(), line.size()}, {const_cast<void*>(data), bytes}};
  if (::syscall(SYS_writev, plan->log, parts, 2) < 0) std::abort();
  errno = before;
}

// What a write moved; behind it is the file's position.
ssize_t noted(int file, const void* from, ssize_t written) {
  if (written > 0 && plan != nullptr && plan->log >= 0)
    note("write", path_of(file), "", ::lseek(file, 0, SEEK_CUR) - written, from,
         static_cast<size_t>(written));
  return written;
}

// A stream's bytes pass by this library, so all of the file is noted.
void note_whole(FILE* file) {
  const std::string path = file == nullptr ? "" : path_of(::fileno(file));
  if (!is_logged(path)) return;
  struct stat info {};
  ::stat(path.c_str(), &info);
  std::vector<char> all(static_cast<size_t>(info.st_size));
  const int whole = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY));
  const auto got = ::syscall(SYS_read, whole, all.data(), all.size());
  ::close(whole);
  note("whole", path, "", 0, all.data(), got > 0 ? static_cast<size_t>(got) : 0);
}

// Passes the result of a call that changed something on.
int noted(int result, const char* what, const std::string& path, const std::string& to = "",
          off_t offset = 0) {
  if (result >= 0) note(what, path, to, offset);
  return result;
}

int noted_open(int file, const std::string& path, int flags) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0) return file;
  return noted(file, (flags & O_TRUNC) != 0 ? "truncate" : "create", path);
}

FILE* noted_stream(FILE* file, const char* path, const char* mode) {
  if (file != nullptr && mode[0] != 'r') note(mode[0] == 'w' ? "truncate" : "create", path);
  return file;
}

unsigned traits_of_open(int flags) {
  return kWaits | ((flags & (O_CREAT | O_TRUNC)) != 0 ? kChanges : kReads);
}

mode_t mode_of(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  NEXT(open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  const int error = fate("open", path, traits_of_open(flags));
  return error != 0 ? fails(error) : noted_open(next(path, flags, mode), path, flags);
}

// Folders are opened by the standard library, which does not try again after a signal.
int openat(int folder, const char* path, int flags, ...) {
  NEXT(openat);
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  const int error = fate("openat", path_at(folder, path), traits_of_open(flags) & ~kWaits);
  return error != 0 ? fails(error)
                    : noted_open(next(folder, path, flags, mode), path_at(folder, path), flags);
}

// A stream's open is not tried again after a signal by anyone, so it gets none.
FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  const int error = fate("fopen", path, mode[0] == 'r' ? kReads : kChanges);
  if (error == 0) return noted_stream(next(path, mode), path, mode);
  errno = error;
  return nullptr;
}

FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  const int error = fate("fopen", path, mode[0] == 'r' ? kReads : kChanges);
  if (error == 0) return noted_stream(next(path, mode), path, mode);
  errno = error;
  return nullptr;
}

int fflush(FILE* file) {
  NEXT(fflush);
  const int descriptor = file == nullptr ? -1 : ::fileno(file);
  const int error = descriptor > 2 ? fate("fflush", path_of(descriptor), kChanges) : 0;
  if (error != 0) return fails(error), EOF;
  const int result = next(file);
  if (descriptor > 2) note_whole(file);
  return result;
}

ssize_t read(int file, void* to, size_t bytes) {
  NEXT(read);
  const int error = fate("read", path_of(file), kReads | kWaits | kCounts);
  return moved(error, bytes, [&](size_t n) { return next(file, to, n); });
}

ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  NEXT(pread);
  const int error = fate("pread", path_of(file), kReads | kWaits | kCounts);
  return moved(error, bytes, [&](size_t n) { return next(file, to, n, offset); });
}

ssize_t write(int file, const void* from, size_t bytes) {
  NEXT(write);
  const int error = fate("write", path_of(file), kChanges | kWaits | kCounts);
  return moved(error, bytes, [&](size_t n) { return noted(file, from, next(file, from, n)); });
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) {
  NEXT(pwrite);
  const int error = fate("pwrite", path_of(file), kChanges | kWaits | kCounts);
  return moved(error, bytes, [&](size_t n) {
    const ssize_t written = next(file, from, n, offset);
    if (written > 0) note("write", path_of(file), "", offset, from, static_cast<size_t>(written));
    return written;
  });
}

ssize_t writev(int file, const iovec* parts, int count) {
  NEXT(writev);
  const int error = fate("writev", path_of(file), kChanges);
  if (error != 0) return fails(error);
  std::string joined;
  for (int i = 0; i < count; ++i)
    joined.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  return noted(file, joined.data(), next(file, parts, count));
}

int fsync(int file) {
  NEXT(fsync);
  const int error = fate("fsync", path_of(file), kChanges | kWaits);
  return error != 0 ? fails(error) : noted(next(file), "sync", path_of(file));
}

int fdatasync(int file) {
  NEXT(fdatasync);
  const int error = fate("fdatasync", path_of(file), kChanges | kWaits);
  return error != 0 ? fails(error) : noted(next(file), "sync", path_of(file));
}

int ftruncate(int file, off_t size) noexcept {
  NEXT(ftruncate);
  const int error = fate("ftruncate", path_of(file), kChanges | kWaits);
  return error != 0 ? fails(error) : noted(next(file, size), "resize", path_of(file), "", size);
}

int truncate(const char* path, off_t size) noexcept {
  NEXT(truncate);
  const int error = fate("truncate", path, kChanges | kWaits);
  return error != 0 ? fails(error) : noted(next(path, size), "resize", path, "", size);
}

int fallocate(int file, int mode, off_t offset, off_t size) {
  NEXT(fallocate);
  const int error = fate("fallocate", path_of(file), kChanges | kWaits);
  if (error != 0) return fails(error);
  const bool extends = (mode & FALLOC_FL_KEEP_SIZE) == 0;
  return noted(next(file, mode, offset, size), extends ? "extend" : "reserve", path_of(file), "",
               offset + size);
}

int rename(const char* from, const char* to) noexcept {
  NEXT(rename);
  const int error = fate("rename", to, kChanges);
  return error != 0 ? fails(error) : noted(next(from, to), "rename", from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  NEXT(mkdir);
  const int error = fate("mkdir", path, kChanges);
  return error != 0 ? fails(error) : noted(next(path, mode), "mkdir", path);
}

int unlink(const char* path) noexcept {
  NEXT(unlink);
  const int error = fate("unlink", path, kChanges);
  return error != 0 ? fails(error) : noted(next(path), "remove", path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  NEXT(unlinkat);
  const int error = fate("unlinkat", path_at(folder, path), kChanges);
  return error != 0 ? fails(error)
                    : noted(next(folder, path, flags), "remove", path_at(folder, path));
}

int remove(const char* path) noexcept {
  NEXT(remove);
  const int error = fate("remove", path, kChanges);
  return error != 0 ? fails(error) : noted(next(path), "remove", path);
}

void* mmap(void* at, size_t bytes, int access, int flags, int file, off_t offset) noexcept {
  NEXT(mmap);
  const int error = file >= 0 ? fate("mmap", path_of(file), kReads) : 0;
  if (error == 0) return next(at, bytes, access, flags, file, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

int nanosleep(const timespec* wanted, timespec* /*left*/) {
  napped_nanoseconds += wanted->tv_sec * 1'000'000'000 + wanted->tv_nsec;
  return 0;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  NEXT(clock_gettime);
  const int result = next(clock, time);
  if (clock != CLOCK_MONOTONIC || result != 0) return result;
  const int64_t total = time->tv_nsec + napped_nanoseconds.load();
  time->tv_sec += total / 1'000'000'000;
  time->tv_nsec = total % 1'000'000'000;
  return 0;
}

}  // extern "C"
