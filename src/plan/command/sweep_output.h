// What `snug plan --sweep` shows of its combinations: a table, the largest that fits, and a page
// with charts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/command/plan_sweep.h"

namespace snug::plan {

// One combination.
struct SweepCell {
  std::vector<std::string> values;  // by axis
  std::string refused;              // why it cannot be planned; empty: it can
  bool fits = false;
  int64_t bytes = 0;         // on the device
  int64_t device_bytes = 0;  // that a run can use
  int64_t side_by_side = 0;  // such runs that a machine holds at once
  std::string device;
  double tokens_per_second = 0, step_seconds = 0;
  double million_tokens_price = 0;
  std::string currency;
};

struct Sweep {
  std::vector<SweepAxis> axes;
  std::vector<SweepCell> cells = {};  // the last axis runs fastest
  bool prices_can_differ = false;     // each kind of device has its own
  int64_t machine_devices = 0;        // of the machine that runs stand on side by side; 0: none

  size_t columns() const { return axes.size() > 1 ? axes[1].values.size() : 1; }
  const SweepCell& at(size_t row, size_t column) const { return cells[row * columns() + column]; }
};

// The text as a number; std::nullopt where it is another text.
std::optional<double> number_in(const std::string& text);

std::string sweep_text(const Sweep& sweep);
nlohmann::json sweep_json(const Sweep& sweep);
std::string sweep_html(const Sweep& sweep);

}  // namespace snug::plan
