// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/abandoned.h"
#include "base/error.h"
#include "base/uninterrupted.h"

namespace snug {
namespace {

constexpr std::string_view kTemporary = ".tmp-";

// Closes a descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string system_reason() { return std::strerror(errno); }

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written =
        uninterrupted([&] { return ::write(fd, content.data(), content.size()); });
    if (written < 0) throw UserError("cannot write {}: {}", path.string(), system_reason());
    content.remove_prefix(static_cast<size_t>(written));
  }
}

int open_file(const std::filesystem::path& path, int flags) {
  constexpr mode_t kMode = 0666;
  return uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, kMode); });
}

int sync(int fd) {
  return uninterrupted([&] { return ::fsync(fd); });
}

// Whose temporary file it is by its name; 0: it is none.
pid_t owner_of(const std::string& name) {
  const size_t at = name.rfind(kTemporary);
  if (at == std::string::npos || at == 0) return 0;
  const char* begin = name.data() + at + kTemporary.size();
  const char* end = name.data() + name.size();
  pid_t process = 0;
  const auto [rest, error] = std::from_chars(begin, end, process);
  return error == std::errc() && rest == end ? process : 0;
}

bool is_gone(pid_t process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

// A file system that knows no files without a name gets one with a name for a moment.
int open_named(const std::filesystem::path& folder) {
  std::string name = (folder / ".snug-XXXXXX").string();
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0) ::unlink(name.c_str());
  return file;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  const Descriptor file(open_file(path, O_RDONLY));
  if (file.get() < 0) throw UserError("cannot open {}: {}", path.string(), system_reason());
  struct stat info {};
  if (::fstat(file.get(), &info) == 0 && S_ISDIR(info.st_mode))
    throw UserError("cannot read {}: it is a folder, not a file", path.string());
  std::string content;
  content.reserve(info.st_size > 0 ? std::min<size_t>(info.st_size, max_bytes) : 0);
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = uninterrupted([&] { return ::read(file.get(), buffer, sizeof(buffer)); });
    if (got < 0) throw UserError("cannot read {}: {}", path.string(), system_reason());
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
    if (content.size() > max_bytes)
      throw UserError("{} is larger than {} bytes, which no file of its kind should be",
                      path.string(), max_bytes);
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::error_code is_dangling;
  if (std::filesystem::is_symlink(path, is_dangling))
    if (const auto file = std::filesystem::canonical(path, is_dangling); !is_dangling)
      return write_file_atomically(file, content);
  if (std::error_code ignored; std::filesystem::is_other(path, ignored)) {
    const Descriptor device(open_file(path, O_WRONLY));
    if (device.get() < 0) throw UserError("cannot open {}: {}", path.string(), system_reason());
    write_all(device.get(), content, path);
    return;
  }
  std::filesystem::path temporary = path;
  temporary += fmt::format("{}{}", kTemporary, ::getpid());
  try {
    const Descriptor file(open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC));
    if (file.get() < 0) throw UserError("cannot create {}: {}", path.string(), system_reason());
    write_all(file.get(), content, path);
    if (sync(file.get()) != 0)
      throw UserError("cannot write {}: {}", path.string(), system_reason());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = system_reason();
    ::unlink(temporary.c_str());
    throw UserError("cannot write {}: {}", path.string(), reason);
  }
  const std::filesystem::path folder = path.parent_path();
  sync_path(folder.empty() ? "." : folder);
}

namespace {

// Those whose name begins so.
void remove_abandoned(const std::filesystem::path& folder, const std::string& beginning) {
  std::error_code ignored;
  std::vector<std::filesystem::path> abandoned;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const pid_t owner = name.starts_with(beginning) ? owner_of(name) : 0;
    if (owner > 0 && is_gone(owner) && entry.is_regular_file(ignored))
      abandoned.push_back(entry.path());
  }
  for (const std::filesystem::path& path : abandoned) std::filesystem::remove(path, ignored);
}

}  // namespace

void remove_abandoned(const std::filesystem::path& folder) { remove_abandoned(folder, ""); }

void remove_abandoned_versions(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  remove_abandoned(folder.empty() ? "." : folder, file.filename().string() + kTemporary.data());
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file(open_file(path, O_RDONLY));
  if (file.get() < 0 || sync(file.get()) != 0)
    throw UserError("cannot sync {} to disk: {}", path.string(), system_reason());
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(open_file(path, O_RDONLY | O_NONBLOCK));  // a pipe would be waited for
  if (file.get() < 0) throw UserError("cannot open {}: {}", path.string(), system_reason());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    throw UserError("cannot read {}: {}", path.string(), system_reason());
  if (!S_ISREG(info.st_mode)) throw UserError("cannot read {}: it is not a file", path.string());
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) throw UserError("cannot map {}: {}", path.string(), system_reason());
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t length) const {
  if (data_ == nullptr || offset >= size_) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  // Only whole pages inside the range: its first and last page may belong to a neighbour.
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + length, size_) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

int open_nameless_file(const std::filesystem::path& folder) {
  const int file =
      uninterrupted([&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); });
  const bool knows_none = file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
  return knows_none ? open_named(folder) : file;
}

}  // namespace snug
