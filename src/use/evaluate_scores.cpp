// SPDX-License-Identifier: Apache-2.0
#include "use/evaluate_scores.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "engine/steps/validation.h"
#include "use/evaluated_rows.h"

namespace snug::use {
namespace {

using nlohmann::json;

// The rows that are scored, with their scores one after the other.
struct Scored {
  const EvaluatedRows& rows;
  std::vector<double> scores = {};
  int64_t count = 0;

  double number(int64_t i) const {
    const data::SampleStore& samples = rows.samples();
    return samples.numbers(samples.columns()[1], i, 0).front();
  }
};

json of_labels(const Scored& scored, const std::vector<std::string>& labels,
               std::vector<json>& rows) {
  double loss = 0;
  int64_t right = 0;
  const size_t width = labels.size();
  for (int64_t i = 0; i < scored.count; ++i) {
    const auto own = std::span(scored.scores).subspan(static_cast<size_t>(i) * width, width);
    const auto label = static_cast<size_t>(scored.number(i));
    const double most = *std::ranges::max_element(own);
    double sum = 0;
    for (const double score : own) sum += std::exp(score - most);
    loss += most + std::log(sum) - own[label];
    const auto found = static_cast<size_t>(std::ranges::max_element(own) - own.begin());
    right += found == label ? 1 : 0;
    json scores = json::object();
    for (size_t k = 0; k < width; ++k) scores[labels[k]] = own[k];
    rows.push_back({{"row", scored.rows.row_of(i)},
                    {"label", labels[label]},
                    {"predicted", labels[found]},
                    {"scores", std::move(scores)}});
  }
  const auto count = static_cast<double>(scored.count);
  return {{"loss", loss / count},
          {"accuracy", static_cast<double>(right) / count},
          {"samples", scored.count},
          {"labels", labels}};
}

json of_pairs(const Scored& scored, std::vector<json>& rows) {
  double loss = 0, chosen = 0, rejected = 0;
  int64_t right = 0;
  for (int64_t i = 0; i < scored.count; ++i) {
    const double c = scored.scores[static_cast<size_t>(2 * i)],
                 r = scored.scores[static_cast<size_t>(2 * i + 1)];
    const double x = c - r - scored.number(i);
    loss += std::max(0.0, -x) + std::log1p(std::exp(-std::abs(x)));
    chosen += c;
    rejected += r;
    right += c > r ? 1 : 0;
    rows.push_back({{"row", scored.rows.row_of(i)}, {"chosen", c}, {"rejected", r}});
  }
  const auto count = static_cast<double>(scored.count);
  return {{"loss", loss / count},
          {"accuracy", static_cast<double>(right) / count},
          {"rewards_chosen", chosen / count},
          {"rewards_rejected", rejected / count},
          {"rewards_margin", (chosen - rejected) / count},
          {"samples", scored.count}};
}

}  // namespace

void check_scores_file(const recipe::EvaluateOptions& options) {
  if (!options.scores_file.empty() && std::filesystem::exists(options.scores_file))
    throw UserError("{} exists already; give another --scores_file, or remove it first",
                    options.scores_file);
}

// Samples are in an order of their own.
void write_scores_file(const recipe::EvaluateOptions& options, std::vector<json> rows) {
  std::ranges::stable_sort(rows, {}, [](const json& row) { return row["row"].get<int64_t>(); });
  std::string lines;
  for (const json& row : rows)
    lines += row.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  write_file_atomically(options.scores_file, lines);
}

json evaluate_scores(const recipe::EvaluateOptions& options, const engine::LanguageModel& lm) {
  const std::vector<std::string> labels = lm.model->labels();
  check_scores_file(options);
  data::DatasetOptions read = evaluated_options(options, lm);
  read.preferences = labels.size() == 1;
  read.classes = !read.preferences;
  read.labels = labels;
  const EvaluatedRows evaluated(options, read, lm);
  Scored scored{.rows = evaluated, .count = evaluated.num_taken(evaluated.samples().count())};
  scored.scores = engine::scores_of_documents(
      *lm.executor, *evaluated.batches(), scored.count, std::ssize(labels),
      {.micro_batch_size = options.micro_batch_size, .compute = lm.precision.compute});
  for (const double score : scored.scores) check_finite(score, "a score", options);
  std::vector<json> rows;
  json result = labels.size() == 1 ? of_pairs(scored, rows) : of_labels(scored, labels, rows);
  result["prompt_style"] = evaluated.dataset().prompt_style;
  if (!options.scores_file.empty()) write_scores_file(options, std::move(rows));
  return result;
}

std::string scores_text(const json& result) {
  const auto number = [&](const char* key) { return result[key].get<double>(); };
  const bool is_of_pairs = result.contains("rewards_margin");
  std::string text = fmt::format(
      "accuracy {:.2f} %, loss {:.4f} ({} {})\n", 100 * number("accuracy"), number("loss"),
      with_commas(result["samples"].get<int64_t>()), is_of_pairs ? "pairs" : "texts");
  if (is_of_pairs)
    text +=
        fmt::format("mean rewards {:.4f} of chosen and {:.4f} of rejected answers, margin {:.4f}\n",
                    number("rewards_chosen"), number("rewards_rejected"), number("rewards_margin"));
  return text;
}

}  // namespace snug::use
