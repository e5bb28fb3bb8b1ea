// One run in figures: what run.json says, and what tables and the report page are drawn from.
// The layout of the file is a contract that tests and benchmarks read; adding a key is fine,
// changing one raises `schema`. Bytes are bytes, seconds wall seconds, losses means over the loss
// tokens of the global batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace snug::report {

struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double seconds = 0;
  int64_t tokens = 0;
  int64_t padded_tokens = 0;
  double lr = 0;
  double grad_norm = 0;
};

struct PhaseRecord {
  int64_t step = 0;
  std::string phase;  // before_fwd, after_fwd, after_bwd, after_opt_step
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer_device = 0;
  int64_t optimizer_host = 0;  // beside the device's memory, so not part of `allocated`
  int64_t activations = 0;
  int64_t workspace = 0;
  int64_t communication = 0;
  int64_t data = 0;
  int64_t allocated = 0;
  int64_t peak = 0;
  int64_t reserved = 0;
};

struct ValidationRecord {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;
};

struct ModelRecord {
  std::string id;
  int64_t parameters = 0;
  int64_t trainable = 0;
};

struct DeviceRecord {
  std::string name;
  int64_t budget_bytes = 0;
};

struct SpeedRecord {
  double tokens_per_second = 0;
  double model_flops_per_second = 0;
  double share_of_peak = 0;  // 0..1
};

struct MemoryPeaks {
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;
  int64_t peak_host = 0;                       // measured only
  std::map<std::string, int64_t> by_category;  // live at the moment of the peak
};

struct MemoryRecord {
  std::optional<MemoryPeaks> predicted;  // null in the file when the run was not planned
  MemoryPeaks measured;
  std::vector<PhaseRecord> phases;
};

struct RunRecord {
  int schema = 1;
  std::string outcome = "ok";  // ok, oom, error
  std::string reason;
  std::string command;
  nlohmann::json recipe = nlohmann::json::object();
  ModelRecord model;
  DeviceRecord device;
  int world_size = 1;
  std::vector<StepRecord> steps;
  SpeedRecord speed;
  MemoryRecord memory;
  std::vector<ValidationRecord> validation;
  double seconds_total = 0;
};

// The text of run.json: one line a step, a phase and a validation, so that it reads and diffs well.
// Infinities and NaN become null; bytes that are not UTF-8 become U+FFFD.
std::string run_json(const RunRecord& record);

// Whole or absent, also when the run dies a moment later.
void write_run_json(const RunRecord& record, const std::filesystem::path& path);

}  // namespace snug::report
