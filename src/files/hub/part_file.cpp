// SPDX-License-Identifier: Apache-2.0
#include "files/hub/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/uninterrupted.h"

namespace snug::hub {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Feeds the rest of `fd` from its position on; returns the number of bytes, or -1.
int64_t feed(int fd, std::optional<Digest>& digest) {
  std::vector<char> buffer(kBufferBytes);
  int64_t total = 0;
  while (true) {
    const ssize_t got = uninterrupted([&] { return ::read(fd, buffer.data(), buffer.size()); });
    if (got <= 0) return got < 0 ? -1 : total;
    if (digest) digest->update({buffer.data(), static_cast<size_t>(got)});
    total += got;
  }
}

const std::string& wanted_hash(const RemoteFile& file) { return file.identity(); }

bool same_file(int fd, const std::filesystem::path& path) {
  struct stat open_info {
  }, named_info{};
  return ::fstat(fd, &open_info) == 0 && ::stat(path.c_str(), &named_info) == 0 &&
         open_info.st_ino == named_info.st_ino && open_info.st_dev == named_info.st_dev;
}

[[noreturn]] void fail_to_write(const std::filesystem::path& path, int error, int64_t kept) {
  std::error_code ignored;
  const auto space = std::filesystem::space(path.parent_path(), ignored);
  throw UserError(
      "cannot write {}: {} ({} free there). The {} that arrived are kept; make room, or choose "
      "another "
      "folder, and run the same command again",
      path.string(), std::strerror(error), format_bytes(static_cast<int64_t>(space.available)),
      format_bytes(kept));
}

}  // namespace

std::optional<Digest> digest_for(const RemoteFile& file) {
  if (!file.sha256.empty()) return Digest(Digest::Kind::Sha256);
  if (file.blob_id.empty() || file.size < 0) return std::nullopt;
  Digest digest(Digest::Kind::Sha1);  // git hashes a blob with its length in front
  digest.update(fmt::format("blob {}", file.size));
  digest.update(std::string_view("\0", 1));
  return digest;
}

bool has_content_of(const std::filesystem::path& path, const RemoteFile& file) {
  std::optional<Digest> digest = digest_for(file);
  const int fd = digest ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return false;
  const int64_t size = feed(fd, digest);
  ::close(fd);
  return size >= 0 && (file.size < 0 || size == file.size) && digest->hex() == wanted_hash(file);
}

PartFile::PartFile(std::filesystem::path path, const RemoteFile& file)
    : path_(std::move(path)), file_(file), digest_(digest_for(file)) {
  open_and_lock();
  hash_existing();
}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
}

// Another process may have finished and renamed the file between opening and locking; then start
// over. A link is not followed: its name can be guessed, and in a shared folder it may be another's
// and lead to a file that would be overwritten.
void PartFile::open_and_lock() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  while (true) {
    fd_ = uninterrupted([&] { return ::open(path_.c_str(), kFlags, 0666); });
    if (fd_ < 0 && errno == ELOOP)
      throw UserError("cannot write {}: it is a symbolic link, which no download makes; remove it",
                      path_.string());
    if (fd_ < 0) throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(std::exchange(fd_, -1));
      throw UserError(
          "{} is being written by another process; wait for it, or choose another folder",
          path_.string());
    }
    if (same_file(fd_, path_)) return;
    ::close(std::exchange(fd_, -1));
  }
}

void PartFile::hash_existing() {
  size_ = feed(fd_, digest_);
  const bool usable = size_ >= 0 && (file_.size < 0 || size_ <= file_.size);
  if (!usable) restart();
}

void PartFile::append(std::string_view bytes) {
  if (digest_) digest_->update(bytes);
  while (!bytes.empty()) {
    const ssize_t written =
        uninterrupted([&] { return ::pwrite(fd_, bytes.data(), bytes.size(), size_); });
    if (written < 0) fail_to_write(path_, errno, size_);
    size_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void PartFile::restart() {
  if (uninterrupted([&] { return ::ftruncate(fd_, 0); }) != 0) fail_to_write(path_, errno, size_);
  size_ = 0;
  digest_ = digest_for(file_);
}

void PartFile::discard() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

bool PartFile::verify(std::string& found) {
  if (file_.size >= 0 && size_ != file_.size) {
    found = fmt::format("{} bytes instead of {}", size_, file_.size);
    return false;
  }
  if (!digest_) return true;
  const std::string hash = digest_->hex();
  found = fmt::format("hash {} instead of {}", hash, wanted_hash(file_));
  return hash == wanted_hash(file_);
}

void PartFile::finish(const std::filesystem::path& final_path) {
  if (uninterrupted([&] { return ::fsync(fd_); }) != 0) fail_to_write(path_, errno, size_);
  std::error_code error;
  std::filesystem::rename(path_, final_path, error);
  if (error)
    throw UserError("cannot rename {} to {}: {}", path_.string(), final_path.string(),
                    error.message());
  sync_path(final_path.parent_path());
}

}  // namespace snug::hub
