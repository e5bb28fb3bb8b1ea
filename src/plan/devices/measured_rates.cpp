// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/measured_rates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/files.h"
#include "core/kernels/cpu/linalg/cpu_features.h"
#include "core/kernels/cpu/linalg/gemm.h"
#include "data/dataset.h"
#include "watch/machine/machine.h"

namespace snug::plan {
namespace {

// The best rates measured so far, in a JSON file.
class BestRates {
 public:
  // If the file is missing, not readable or lacks one of `names`, all rates are 0.
  BestRates(std::filesystem::path path, std::initializer_list<const char*> names);

  bool is_known() const { return is_known_; }
  double operator[](const std::string& name) const { return rates_.at(name); }
  // Takes `now` if it is clearly more than the stored rate; less may be due to other programs.
  void raise(const std::string& name, double now);
  // Writes raised rates; if several programs write at once, the best rates stay. Ignores a file
  // that cannot be written: the next call measures again.
  void save();

 private:
  std::filesystem::path path_;
  std::map<std::string, double> rates_;
  bool is_known_ = false, is_raised_ = false;
};

using Rates = std::map<std::string, double>;

// Empty if the file is missing, or of another version.
std::optional<Rates> read(const std::filesystem::path& path, const Rates& names) {
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    Rates rates;
    for (const auto& [name, zero] : names) rates[name] = json.at(name).get<double>();
    return rates;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// While it lives no other program is between reading the file beside it and writing it.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ >= 0) ::flock(file_, LOCK_EX);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  int file_;
};

BestRates::BestRates(std::filesystem::path path, std::initializer_list<const char*> names)
    : path_(std::move(path)) {
  for (const char* name : names) rates_[name] = 0;
  if (const auto known = read(path_, rates_)) {
    rates_ = *known;
    is_known_ = true;
  }
}

void BestRates::raise(const std::string& name, double now) {
  constexpr double kClearly = 1.03;
  double& best = rates_.at(name);
  if (now < kClearly * best) return;
  best = now;
  is_raised_ = true;
}

void BestRates::save() {
  if (!std::exchange(is_raised_, false)) return;
  try {
    std::filesystem::create_directories(path_.parent_path());
    const Lock lock(path_.string() + ".lock");
    // Another program may have written more since the file was read.
    if (const auto known = read(path_, rates_))
      for (auto& [name, rate] : rates_) rate = std::max(rate, known->at(name));
    write_file_atomically(path_, nlohmann::json(rates_).dump(2) + "\n");
  } catch (const std::exception&) {
  }
}

// snug's cache folder: $SNUG_CACHE, else ~/.cache/snug.
std::filesystem::path rates_folder() { return data::default_cache_folder().parent_path(); }

namespace cpu = kernels::cpu;
using Clock = std::chrono::steady_clock;

// The best of as many rounds as fit into `seconds`: neighbours only ever slow one down.
template <class Round>
double best_rate(double work, double seconds, Round round) {
  const auto begin = Clock::now();
  double best = 0;
  do {
    const auto start = Clock::now();
    round();
    best = std::max(best, work / std::chrono::duration<double>(Clock::now() - start).count());
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

double copy_rate(double seconds) {
  constexpr size_t kBytes = size_t{18}
                            << 20;  // more than 32 MiB of cache hold, and no more than that
  std::vector<char> memory(2 * kBytes, 1);
  const char* from = memory.data();
  char* to = memory.data() + kBytes;
  return best_rate(2.0 * kBytes, seconds, [&] {
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < 64; ++part)
      std::memcpy(to + part * (kBytes / 64), from + part * (kBytes / 64), kBytes / 64);
  });
}

double product_rate(kernels::Scalar type, double seconds) {
  constexpr int64_t kM = 512, kN = 2048, kK = 1024;
  constexpr size_t kWidest = sizeof(float);
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  const auto buffer = [](size_t bytes) {
    constexpr size_t kLine = 64;
    std::unique_ptr<void, Free> memory(
        std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
    std::memset(memory.get(), 0, bytes);
    return memory;
  };
  const auto a = buffer(kM * kK * kWidest), b = buffer(kK * kN * kWidest),
             c = buffer(kM * kN * kWidest);
  const cpu::GemmArgs args{.m = kM,
                           .n = kN,
                           .k = kK,
                           .a = {.data = a.get(), .type = type, .row_stride = kK},
                           .b = {.data = b.get(), .type = type, .row_stride = kN},
                           .c = c.get(),
                           .c_type = type,
                           .c_row_stride = kN};
  const auto workspace = buffer(static_cast<size_t>(cpu::gemm_workspace_bytes(args)));
  return best_rate(2.0 * kM * kN * kK, seconds, [&] { cpu::gemm(args, workspace.get()); });
}

std::string file_name() {
  std::string name = "cpu-rates-";
  for (const char c : cpu::cpu_summary())
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return name + ".json";
}

}  // namespace

CpuRates cpu_rates(const std::filesystem::path& folder) {
  BestRates best(folder / file_name(), {"flops_16bit", "flops_32bit", "copy_bytes_per_second"});
  const double seconds = best.is_known() ? 0.03 : 0.2;
  best.raise("flops_16bit", product_rate(kernels::Scalar::BF16, seconds));
  best.raise("flops_32bit", product_rate(kernels::Scalar::F32, seconds));
  best.raise("copy_bytes_per_second", copy_rate(seconds));
  best.save();
  return {.flops_16bit = best["flops_16bit"],
          .flops_32bit = best["flops_32bit"],
          .copy_bytes_per_second = best["copy_bytes_per_second"]};
}

CpuRates cpu_rates() { return cpu_rates(rates_folder()); }

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

// A temporary file without a name, without the page cache if the file system allows.
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

  // Bytes per second; 0 if nothing could be transferred.
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

// Not compressible by a drive or file system.
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
