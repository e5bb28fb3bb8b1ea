// Predicts memory before a byte is allocated: the real engine runs one optimizer step on meta
// tensors, and the ledger is read. There is no separate model of memory that could differ from the
// program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/dist/mesh.h"
#include "core/memory/ledger.h"
#include "core/ops/device/work.h"
#include "data/micro_batch.h"
#include "engine/extensions.h"
#include "models/model.h"
#include "plan/replay.h"
#include "recipe/recipe.h"

namespace snug::plan {

// The peak of one unit in one phase of an optimizer step.
struct Moment {
  memory::Phase phase = memory::Phase::Setup;
  std::string unit;
  int64_t allocated = 0;
  memory::ByCategory by_category{};
};

// Records the events of a ledger while it lives.
class TimelineRecorder {
 public:
  explicit TimelineRecorder(memory::Ledger& ledger);
  ~TimelineRecorder();
  TimelineRecorder(const TimelineRecorder&) = delete;
  TimelineRecorder& operator=(const TimelineRecorder&) = delete;

  // What follows is a step, until end_step(). The last one counts.
  void begin_step() { events_.step_begin = events_.all.size(); }
  void end_step() { events_.step_end = events_.all.size(); }
  // Every allocation and free.
  const MemoryEvents& events() const { return events_; }
  std::vector<Moment> moments() const;
  // Bytes allocated in forward and backward so far, which operators write.
  int64_t bytes_written() const { return bytes_written_; }

 private:
  struct StepRange {
    memory::Phase phase;
    int32_t unit;
    int64_t allocated;
    memory::ByCategory live;
  };

  memory::Ledger& ledger_;
  MemoryEvents events_;
  std::vector<StepRange> step_ranges_;
  int64_t bytes_written_ = 0;
};

struct Prediction {
  int64_t peak_allocated = 0;
  memory::ByCategory by_category{};  // live at the moment of the peak
  int64_t peak_host = 0;             // offloaded to host memory
  int64_t host_staging = 0;          // pinned buffers for batches, at the peak
  memory::ByCategory host_by_category{};
  int64_t host_activations = 0;   // the most activations offloaded at one time
  int64_t on_disk = 0;            // optimizer states and frozen weights in files
  int64_t weights_on_disk = 0;    // of it
  memory::ByCategory resident{};  // on the device between steps: weights and states
  double weight_bytes = 0;        // of all weights as stored
  double expert_bytes = 0;        // of experts' among them
  double trained_bytes = 0;       // of the weights that train
  int64_t peak_reserved = 0;      // by the device's allocator; on a CPU the same as allocated
  bool fits_reserved = true;      // within PredictOptions::reserved_limit
  DriverCalls driver_calls;       // of the allocator, in each step within that limit
  int64_t after_forward = 0;      // live right after the first forward
  int64_t bytes_written = 0;      // allocated in all forwards and backwards
  int64_t tokens = 0;             // of the micro-batch
  int64_t micro_batches = 1;      // that were simulated
  int64_t host_waits = 0;         // host synchronisations in the whole step
  // The collectives of this rank along each axis in one step, over all micro-batches.
  std::array<dist::TrafficByOperation, dist::kNumAxes> traffic{};
  std::vector<Moment> timeline;
};

// For searching: a plan that is seen to take more ends in OutOfMemory; 0: none does.
struct Most {
  int64_t on_device = 0, on_host = 0;
};

struct PredictOptions {
  at::DeviceType device = at::kCPU;
  // cuda: libtorch's flash attention runs on the planned GPU; std::nullopt: as on this machine.
  std::optional<bool> flash_attention = {};
  int64_t reserved_limit = 0;  // cuda: what the allocator may reserve; 0: no limit
  bool timeline = false;       // also fill timeline, peak_reserved and bytes_written
  Most most = {};
  // Told of what a GPU would do in the step (`device`: cuda), and how often in the whole step.
  std::function<void(const ops::Work&, double times)> on_work = {};
  // For searching: runs a 1F1B pipeline with only as many micro-batches as show its start, its
  // steady state and its end. Traffic is that of all micro-batches.
  bool sketch = false;
  // Micro-batches of the validation after a step, if larger (candidate.h: larger_of_validation).
  std::vector<data::MicroBatch> validation = {};
  // The same of the samples' other documents, where the objective wants an estimate of them
  // (nn::Objective::estimate); none: as `largest`.
  std::optional<data::MicroBatch> others = {};
  std::vector<data::MicroBatch> validation_others = {};
  engine::Extensions extensions = {};  // the run's
  // The rank's mesh, with planned groups.
  std::shared_ptr<dist::Mesh> mesh = dist::single_mesh();
};

// How many micro-batches must be simulated to see a step's peak: engine::Simulation's, or all of a
// pipeline's.
int64_t micro_batches_that_matter(const recipe::Recipe& recipe, const dist::MeshShape& mesh = {});

// `largest`: the run's micro-batch with most tokens; `max_seqlen`: as given to the engine. Counts
// the run itself, not what the device holds already.
Prediction predict(const models::Model& model, const recipe::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen,
                   const PredictOptions& options = {});

// The memory of the device that a run takes: on a GPU what the allocator reserves.
int64_t bytes_on_device(const Prediction& prediction, at::DeviceType kind);

}  // namespace snug::plan
