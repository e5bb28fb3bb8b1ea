// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/best_rates.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/files.h"
#include "data/dataset.h"

namespace snug::plan {
namespace {

using Rates = std::map<std::string, double>;

// None where the file is missing, or of another version.
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

}  // namespace

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

std::filesystem::path rates_folder() { return data::default_cache_folder().parent_path(); }

}  // namespace snug::plan
