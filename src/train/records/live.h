// The live status of this process, for snug monitor: out_dir/live/rank-K.json, from the start of
// the run to its end, even if it fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <exception>
#include <string>

#include "report/live_status.h"

namespace snug::report {
struct StepStatus;
}

namespace snug::train {

class Live {
 public:
  Live(const std::string& out_dir, const std::string& command, int rank, int world_size);
  // Sets the outcome "error" unless ended() was called.
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  // Written with the next state.
  void set_device(c10::DeviceType type, const std::string& name, int64_t budget);
  void set_model(const std::string& model) { state_.model = model; }
  void set_predicted_peak(int64_t bytes) { state_.predicted_peak = bytes; }

  void state(const std::string& name);
  void step(const report::StepStatus& status, double seconds);
  void ended(const std::string& outcome, const std::string& reason = "");

  // Sets a state while it lives, then restores the previous one.
  class Doing {
   public:
    Doing(Live& live, const std::string& state) : live_(live), before_(live.state_.state) {
      live_.state(state);
    }
    ~Doing() {
      // On a failure the state stays, to show what failed.
      if (std::uncaught_exceptions() == 0) live_.state(before_);
    }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    Live& live_;
    std::string before_;
  };

 private:
  void measure_memory();
  void write(bool force) noexcept;
  double seconds_per_step(int64_t step, double now);

  report::LiveState state_;
  report::LiveWriter writer_;
  report::ThinnedSeries losses_;
  c10::DeviceType device_ = c10::DeviceType::CPU;
  bool has_device_ = false;
  int64_t first_step_ = 0;  // of this process
  double first_step_at_ = 0;
};

}  // namespace snug::train
