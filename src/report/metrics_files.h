// The metrics of a run as files: metrics.csv and TensorBoard's events. metrics.csv has one row per
// log interval and one per validation whose training cells are empty, the layout of Lightning's
// CSVLogger, so that scripts which plot those files plot ours. Rows and events are flushed as they
// are written: a killed run loses at most the one being written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/run_record.h"

namespace snug::report {

struct MetricsRow {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;         // without padding, since the previous row
  int64_t padded_tokens = 0;  // with padding
  double tokens_per_second = 0;
  double lr = 0;
  double grad_norm = 0;
  double seconds = 0;  // wall seconds since the previous row
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;
  Figures figures = {};
};

// The last step and the last validation that a checkpoint includes.
struct LoggedUntil {
  int64_t step = 0;
  int64_t validation = 0;
};

class MetricsCsv {
 public:
  // Without `resumed`, replaces any file at `path`. With it, keeps the rows up to and including
  // that step and drops later ones (of a run that died after its last checkpoint) and an incomplete
  // last row. Reads them from `earlier` if that file exists: a run that is resumed in another
  // folder starts with the rows of its first.
  // `figures`: the names of further columns, each of steps and, with val_ before it, of
  // validations.
  explicit MetricsCsv(const std::filesystem::path& path,
                      std::optional<LoggedUntil> resumed = std::nullopt,
                      const std::filesystem::path& earlier = {},
                      std::vector<std::string> figures = {});

  void write(const MetricsRow& row);
  void write_validation(int64_t step, double loss, const Figures& figures = {});

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_line(std::string_view line);
  std::string cells(const Figures& figures) const;

  std::filesystem::path path_;
  std::vector<std::string> figures_;
  std::unique_ptr<std::FILE, Close> file_;
};

// TensorBoard event files are written without protobuf: an Event has four fields that matter here,
// so its bytes are put together by hand. The framing is TFRecord's: length, its CRC, payload, its
// CRC, with CRC-32C masked as TensorFlow does.
struct TensorBoardOptions {
  // Tells TensorBoard to drop the events that an earlier run in this folder wrote after this step.
  std::optional<int64_t> resumed_step;
  // Seconds since 1970; replaced in tests so that the bytes repeat.
  std::function<double()> clock;
};

class TensorBoardWriter {
 public:
  // Makes the folder and a new events file in it. Throws UserError if that fails.
  explicit TensorBoardWriter(const std::filesystem::path& dir, TensorBoardOptions options = {});

  // One point of the curve `tag` ("loss", "memory/peak_allocated").
  void scalar(std::string_view tag, double value, int64_t step);

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_record(std::string_view payload);

  std::function<double()> clock_;
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// CRC-32C (Castagnoli), before TFRecord's masking.
uint32_t crc32c(std::string_view bytes);

}  // namespace snug::report
