// SPDX-License-Identifier: Apache-2.0
#include "train/records/live.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/program.h"
#include "core/memory/ledger.h"
#include "report/live_line.h"

namespace snug::train {
namespace {

// With many ranks, all but the first write less often, since machines may share the folder.
double writes_per_second(int rank, int world_size) {
  return rank == 0 ? 2 : 2 / std::max(1.0, world_size / 8.0);
}

std::map<std::string, int64_t> named(const memory::ByCategory& bytes) {
  std::map<std::string, int64_t> by_name;
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    by_name[memory::name(static_cast<memory::Category>(c))] = bytes[c];
  return by_name;
}

}  // namespace

Live::Live(const std::string& out_dir, const std::string& command, int rank, int world_size)
    : writer_(report::live_file(out_dir, rank), writes_per_second(rank, world_size)) {
  state_.state = "starting";
  state_.pid = ::getpid();
  state_.rank = rank;
  state_.world_size = world_size;
  state_.started = unix_seconds() - seconds_since_program_start();
  state_.command = command;
  state_.host = host_name();
  state_.loss = std::numeric_limits<double>::quiet_NaN();
  write(true);
}

Live::~Live() {
  if (state_.state != "ended") ended("error");
}

void Live::set_device(c10::DeviceType type, const std::string& name, int64_t budget) {
  device_ = type;
  has_device_ = true;
  state_.device = name;
  state_.budget = budget;
}

void Live::state(const std::string& name) {
  state_.state = name;
  write(true);
}

void Live::step(const report::StepStatus& status, double seconds) {
  losses_.add(status.loss);
  const double now = unix_seconds();
  const double per_step = seconds_per_step(status.step, now);
  state_.step = status.step;
  state_.total_steps = status.total_steps;
  state_.loss = status.loss;
  state_.tokens_per_second = status.tokens_per_second;
  state_.share_of_peak = status.share_of_peak;
  state_.step_seconds = seconds;
  if (per_step > 0)
    state_.seconds_left = per_step * static_cast<double>(status.total_steps - status.step);
  if (writer_.is_due()) write(false);
}

// 0 until two steps have ended: the first one is slower than the others.
double Live::seconds_per_step(int64_t step, double now) {
  if (first_step_at_ == 0) {
    first_step_ = step;
    first_step_at_ = now;
  }
  if (step == first_step_) return 0;
  return (now - first_step_at_) / static_cast<double>(step - first_step_);
}

void Live::ended(const std::string& outcome, const std::string& reason) {
  state_.state = "ended";
  state_.outcome = outcome;
  state_.reason = reason.substr(0, reason.find('\n'));
  state_.seconds_left.reset();
  write(true);
}

void Live::measure_memory() {
  const memory::Ledger& ledger = memory::ledger_of(device_);
  const memory::Snapshot peak = ledger.at_peak();
  const memory::ByCategory now = ledger.by_category();
  state_.allocated = ledger.allocated();
  state_.peak = peak.allocated;
  state_.reserved = memory::reserved_on(device_);
  state_.host_bytes =
      device_ == c10::DeviceType::CPU ? 0 : memory::host_ledger_of(device_).allocated();
  state_.by_category = named(now);
  state_.peak_by_category = named(peak.by_category);
}

// Destructors call it too, and so do runs out of memory, so failures are ignored.
void Live::write(bool force) noexcept {
  try {
    if (has_device_) measure_memory();
    state_.losses = losses_.values();
  } catch (const std::exception&) {
  }
  state_.time = unix_seconds();
  writer_.write(state_, force);
}

}  // namespace snug::train
