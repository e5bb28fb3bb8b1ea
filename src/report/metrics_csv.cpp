// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_csv.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace snug::report {
namespace {

constexpr std::string_view kHeader =
    "step,loss,tokens,padded_tokens,tokens_per_second,lr,grad_norm,seconds,peak_allocated,"
    "peak_reserved,val_loss\n";

// Shortest text that reads back as the same number; an empty cell for what is no number.
std::string cell(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

std::optional<int64_t> step_of(std::string_view line) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool whole = error == std::errc() && end != line.data() + line.size() && *end == ',';
  return whole ? std::optional(step) : std::nullopt;
}

// A validation's row has neither loss nor tokens; a step's may lack a loss that is no number.
bool is_validation(std::string_view line) { return line.find(",,,") == line.find(','); }

// The header and the whole rows that belong to steps up to `last`.
std::string kept_rows(std::string_view text, const LoggedUntil& last) {
  std::string kept(kHeader);
  text.remove_prefix(kHeader.size());
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end + 1);
    const auto step = step_of(line);
    if (step && *step <= (is_validation(line) ? last.validation : last.step)) kept += line;
    text.remove_prefix(end + 1);
  }
  return kept;
}

void prepare(const std::filesystem::path& path, const std::optional<LoggedUntil>& resumed,
             const std::filesystem::path& earlier) {
  std::string content(kHeader);
  if (resumed && std::filesystem::exists(earlier)) {
    const std::string old = read_file(earlier);
    if (old.starts_with(kHeader)) content = kept_rows(old, *resumed);
  } else if (resumed && std::filesystem::exists(path)) {
    const std::string old = read_file(path);
    if (old.starts_with(kHeader)) {
      content = kept_rows(old, *resumed);
    } else {
      const std::filesystem::path aside = path.string() + ".old";
      std::filesystem::rename(path, aside);
      warn("{} has different columns from those that this version writes; it is kept as {}",
           path.string(), aside.filename().string());
    }
  }
  write_file_atomically(path, content);
}

}  // namespace

MetricsCsv::MetricsCsv(const std::filesystem::path& path, std::optional<LoggedUntil> resumed,
                       const std::filesystem::path& earlier)
    : path_(path) {
  if (path_.has_parent_path()) {
    std::error_code ignored;  // a folder that can't be made shows when the file is written
    std::filesystem::create_directories(path_.parent_path(), ignored);
  }
  prepare(path_, resumed, earlier);
  file_.reset(std::fopen(path_.c_str(), "ae"));
  if (!file_) throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
}

void MetricsCsv::write(const MetricsRow& row) {
  write_line(fmt::format("{},{},{},{},{},{},{},{},{},{},\n", row.step, cell(row.loss), row.tokens,
                         row.padded_tokens, cell(row.tokens_per_second), cell(row.lr),
                         cell(row.grad_norm), cell(row.seconds), row.peak_allocated,
                         row.peak_reserved));
}

void MetricsCsv::write_validation(int64_t step, double loss) {
  write_line(fmt::format("{},,,,,,,,,,{}\n", step, cell(loss)));
}

void MetricsCsv::write_line(std::string_view line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!written || std::fflush(file_.get()) != 0)
    throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace snug::report
