// SPDX-License-Identifier: Apache-2.0
#include "train/records/best_validation.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace snug::train {
namespace {

constexpr const char* kBestName = "best.json";

bool is_by_loss(const report::BestRecord& best) {
  return best.metric == recipe::word_of(recipe::BestMetric::Loss);
}

}  // namespace

bool is_best_yet(report::BestRecord& best, const report::ValidationRecord& validation,
                 recipe::BestMetric metric) {
  if (validation.step == 0) return false;
  const std::string name(recipe::word_of(metric));
  if (best.metric != name) best = {.metric = name};
  const std::optional<double> value = metric == recipe::BestMetric::Loss
                                          ? validation.loss
                                          : report::accuracy_in(validation.figures);
  const report::BestRecord own{.step = validation.step, .metric = name, .value = value.value_or(0)};
  const bool is_best = value && std::isfinite(*value) && is_better(own, best);
  if (is_best)
    best = own;
  else
    ++best.later;
  return is_best;
}

std::string words_on(const report::BestRecord& best) {
  return is_by_loss(best) ? fmt::format("validation loss {:.4f}", best.value)
                          : fmt::format("validation accuracy {:.1f} %", 100 * best.value);
}

void write_best(const std::filesystem::path& folder, const report::BestRecord& best) {
  const nlohmann::json written{{"step", best.step}, {"metric", best.metric}, {"value", best.value}};
  write_file_atomically(folder / kBestName, written.dump(2) + "\n");
}

std::optional<report::BestRecord> read_best(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kBestName;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::nullopt;
  const auto read = nlohmann::json::parse(read_file(file, size_t{1} << 16), nullptr, false);
  const auto has = [&](const char* key, bool (nlohmann::json::*is)() const noexcept) {
    return read.is_object() && read.contains(key) && (read[key].*is)();
  };
  if (!has("step", &nlohmann::json::is_number_integer) ||
      !has("metric", &nlohmann::json::is_string) || !has("value", &nlohmann::json::is_number))
    return std::nullopt;
  return report::BestRecord{.step = read["step"], .metric = read["metric"], .value = read["value"]};
}

bool is_better(const report::BestRecord& best, const report::BestRecord& than) {
  if (than.step == 0 || best.step == 0) return best.step > 0;
  if (best.metric != than.metric) return false;
  return is_by_loss(best) ? best.value < than.value : best.value > than.value;
}

}  // namespace snug::train
