// SPDX-License-Identifier: Apache-2.0
#include "plan/cpu_rates.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "data/dataset.h"
#include "kernels/cpu/linalg/cpu_features.h"
#include "kernels/cpu/linalg/gemm.h"

namespace snug::plan {
namespace {

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
  constexpr size_t kBytes = size_t{64} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  return best_rate(2.0 * kBytes, seconds, [&] {
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < 64; ++part)
      std::memcpy(to.data() + part * (kBytes / 64), from.data() + part * (kBytes / 64),
                  kBytes / 64);
  });
}

double product_rate(cpu::Scalar type, double seconds) {
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

std::optional<CpuRates> remembered(const std::filesystem::path& path) {
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    return CpuRates{.flops_16bit = json.at("flops_16bit"),
                    .flops_32bit = json.at("flops_32bit"),
                    .copy_bytes_per_second = json.at("copy_bytes_per_second")};
  } catch (const std::exception&) {  // missing, or of another version
    return std::nullopt;
  }
}

// While it lives no other program is between reading the file beside it and writing it.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
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

// Another program may have written more since the file was read.
void remember(CpuRates& rates, const std::filesystem::path& path) {
  try {
    std::filesystem::create_directories(path.parent_path());
    const Lock lock(path.string() + ".lock");
    const CpuRates known = remembered(path).value_or(CpuRates{});
    rates.flops_16bit = std::max(rates.flops_16bit, known.flops_16bit);
    rates.flops_32bit = std::max(rates.flops_32bit, known.flops_32bit);
    rates.copy_bytes_per_second =
        std::max(rates.copy_bytes_per_second, known.copy_bytes_per_second);
    const nlohmann::json json{{"flops_16bit", rates.flops_16bit},
                              {"flops_32bit", rates.flops_32bit},
                              {"copy_bytes_per_second", rates.copy_bytes_per_second}};
    write_file_atomically(path, json.dump(2) + "\n");
  } catch (const std::exception&) {  // a place that cannot be written to: measured again next time
  }
}

// Raises `best` to `now` where that is clearly more; less is a neighbour's doing.
bool raise(double& best, double now) {
  constexpr double kClearly = 1.03;
  if (now < kClearly * best) return false;
  best = now;
  return true;
}

}  // namespace

CpuRates cpu_rates(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / file_name();
  const std::optional<CpuRates> known = remembered(path);
  const double seconds = known ? 0.03 : 0.2;
  CpuRates rates = known.value_or(CpuRates{});
  bool better = raise(rates.flops_16bit, product_rate(cpu::Scalar::BF16, seconds));
  better |= raise(rates.flops_32bit, product_rate(cpu::Scalar::F32, seconds));
  better |= raise(rates.copy_bytes_per_second, copy_rate(seconds));
  if (better) remember(rates, path);
  return rates;
}

CpuRates cpu_rates() { return cpu_rates(data::default_cache_folder().parent_path()); }

}  // namespace snug::plan
