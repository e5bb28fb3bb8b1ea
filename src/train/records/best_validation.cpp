// SPDX-License-Identifier: Apache-2.0
#include "train/records/best_validation.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace snug::train {
namespace {

constexpr const char* kBestName = "best.json";

}  // namespace

bool is_best_yet(report::BestRecord& best, const report::ValidationRecord& validation,
                 recipe::BestMetric metric) {
  if (validation.step == 0) return false;
  const bool by_loss = metric == recipe::BestMetric::Loss;
  const std::string name(recipe::word_of(metric));
  if (best.metric != name) best = {.metric = name};
  const std::optional<double> value =
      by_loss ? validation.loss : report::accuracy_in(validation.figures);
  const bool is_better = value && std::isfinite(*value) &&
                         (best.step == 0 || (by_loss ? *value < best.value : *value > best.value));
  if (is_better)
    best = {.step = validation.step, .metric = name, .value = *value};
  else
    ++best.later;
  return is_better;
}

std::string words_on(const report::BestRecord& best) {
  return best.metric == recipe::word_of(recipe::BestMetric::Loss)
             ? fmt::format("validation loss {:.4f}", best.value)
             : fmt::format("validation accuracy {:.1f} %", 100 * best.value);
}

void write_best(const std::filesystem::path& folder, const report::BestRecord& best) {
  const nlohmann::json written{{"step", best.step}, {"metric", best.metric}, {"value", best.value}};
  write_file_atomically(folder / kBestName, written.dump(2) + "\n");
}

std::optional<int64_t> read_best_step(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kBestName;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::nullopt;
  const auto read = nlohmann::json::parse(read_file(file, size_t{1} << 16), nullptr, false);
  const bool has_step = read.is_object() && read.contains("step") && read["step"].is_number();
  return has_step ? std::optional(read["step"].get<int64_t>()) : std::nullopt;
}

}  // namespace snug::train
