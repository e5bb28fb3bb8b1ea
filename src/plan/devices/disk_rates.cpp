// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/disk_rates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "base/bytes.h"
#include "base/nameless_file.h"
#include "plan/devices/best_rates.h"
#include "watch/machine/machine.h"

namespace snug::plan {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// One request: a device has all of it to do at once, as with an update's read-ahead.
constexpr int64_t kPieceBytes = 8 * kMiB;
constexpr int64_t kPieces = 8;
constexpr double kSeconds = 0.2;  // of reading, and of writing
constexpr size_t kAlignment = 4096;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A file that is gone with this object, past the system's cache where the file system can.
class Scratch {
 public:
  explicit Scratch(const fs::path& folder) {
    file_ = open_nameless_file(folder);
    if (file_ < 0) return;
    const int flags = ::fcntl(file_, F_GETFL);
    is_direct_ = ::fcntl(file_, F_SETFL, flags | O_DIRECT) == 0;
  }
  ~Scratch() {
    if (file_ >= 0) ::close(file_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool is_open() const { return file_ >= 0; }

  // Bytes a second; 0 where not a piece of it got through.
  double write(const std::byte* piece) {
    const auto start = Clock::now();
    while (written_ < kPieces && (written_ == 0 || seconds_since(start) < kSeconds)) {
      if (::pwrite(file_, piece, kPieceBytes, written_ * kPieceBytes) != kPieceBytes) break;
      ++written_;
    }
    if (::fdatasync(file_) != 0) return 0;
    return rate(written_, start);
  }
  double read(std::byte* piece) const {
    if (!is_direct_) ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
    const auto start = Clock::now();
    int64_t read = 0;
    while (read < written_ && (read == 0 || seconds_since(start) < kSeconds)) {
      if (::pread(file_, piece, kPieceBytes, read * kPieceBytes) != kPieceBytes) break;
      ++read;
    }
    return rate(read, start);
  }

 private:
  static double rate(int64_t pieces, Clock::time_point start) {
    return static_cast<double>(pieces * kPieceBytes) / seconds_since(start);
  }

  int file_ = -1;
  bool is_direct_ = false;
  int64_t written_ = 0;
};

// Of no pattern that a drive or file system could make smaller.
void fill(std::byte* bytes, int64_t count) {
  uint64_t state = 0x9E3779B97F4A7C15;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    bytes[i] = static_cast<std::byte>(state >> 32);
  }
}

// Device numbers may be another disk's after a restart: kind and size go with them.
std::string file_name(const fs::path& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return "";
  const machine::Disk disk = machine::disk(folder);
  return fmt::format("disk-rates-{}-{}-{}-{}GiB.json", disk.kind.empty() ? "other" : disk.kind,
                     major(info.st_dev), minor(info.st_dev), disk.size / kGiB);
}

}  // namespace

std::optional<DiskRates> disk_rates(const fs::path& folder, const fs::path& cache) {
  Scratch scratch(folder);
  const std::string name = file_name(folder);
  if (!scratch.is_open() || name.empty()) return std::nullopt;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  const std::unique_ptr<std::byte, Free> piece(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, kPieceBytes)));
  if (piece == nullptr) throw std::bad_alloc();
  fill(piece.get(), kPieceBytes);
  BestRates best(cache / name, {"read_bytes_per_second", "write_bytes_per_second"});
  best.raise("write_bytes_per_second", scratch.write(piece.get()));
  best.raise("read_bytes_per_second", scratch.read(piece.get()));
  const DiskRates rates{.read_bytes_per_second = best["read_bytes_per_second"],
                        .write_bytes_per_second = best["write_bytes_per_second"]};
  // A full disk takes nothing.
  if (rates.read_bytes_per_second == 0 || rates.write_bytes_per_second == 0) return std::nullopt;
  best.save();
  return rates;
}

std::optional<DiskRates> disk_rates(const fs::path& folder) {
  return disk_rates(folder, rates_folder());
}

}  // namespace snug::plan
