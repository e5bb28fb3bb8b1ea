// metrics.csv: one row a log interval, and one a validation whose training cells are empty (the
// layout of Lightning's CSVLogger, so that scripts which plot those files plot ours). Each row is
// flushed as it is written: a run that is killed keeps every row but the one in flight.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace snug::report {

struct MetricsRow {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;         // real tokens since the row before
  int64_t padded_tokens = 0;  // the same, padding counted
  double tokens_per_second = 0;
  double lr = 0;
  double grad_norm = 0;
  double seconds = 0;  // wall seconds since the row before
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;
};

// The last step, and the last step's validation, that a checkpoint knows of.
struct LoggedUntil {
  int64_t step = 0;
  int64_t validation = 0;
};

class MetricsCsv {
 public:
  // Without `resumed` any file at `path` is replaced. With it the rows up to and including that
  // step stay, later ones (written by a run that died after its last checkpoint) and a torn last
  // row go. They are read from `earlier` where there is such a file: a run that goes on in another
  // folder begins with what it logged in its first.
  explicit MetricsCsv(const std::filesystem::path& path,
                      std::optional<LoggedUntil> resumed = std::nullopt,
                      const std::filesystem::path& earlier = {});

  void write(const MetricsRow& row);
  void write_validation(int64_t step, double loss);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_line(std::string_view line);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace snug::report
