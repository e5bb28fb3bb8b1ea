// Memory before a byte is allocated: the true engine runs one optimizer step on meta, and the
// ledger is read. There is no second model of memory to keep in step with the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dist/mesh.h"
#include "core/memory/ledger.h"
#include "data/micro_batch.h"
#include "models/model.h"
#include "plan/timeline.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct Prediction {
  int64_t peak_allocated = 0;
  memory::ByCategory by_category{};  // live at the moment of the peak
  int64_t peak_host = 0;             // what offloading puts into host memory beside the device
  int64_t host_staging = 0;          // at that moment, what batches travel through to a GPU
  memory::ByCategory host_by_category{};
  int64_t host_activations = 0;   // of them at most
  int64_t on_disk = 0;            // optimizer states in a file
  memory::ByCategory resident{};  // on the device between steps: weights and states
  double weight_bytes = 0;        // of all weights as they are stored
  double trained_bytes = 0;       // of those that train
  int64_t peak_reserved = 0;      // by the device's allocator; on cpu as much as allocated
  bool fits_reserved = true;      // into the limit given
  int64_t after_forward = 0;      // live right after the first forward
  int64_t bytes_written = 0;      // allocated over all forwards and backwards
  int64_t tokens = 0;             // of the micro-batch
  int64_t micro_batches = 1;      // that were run through
  int64_t host_waits = 0;         // of the program for its device, in the step of these
  // What this rank asks of the groups of each axis in one step, all its micro-batches counted.
  std::array<dist::TrafficByOperation, dist::kNumAxes> traffic{};
  std::vector<Moment> timeline;
};

struct PredictOptions {
  at::DeviceType device = at::kCPU;
  int64_t reserved_limit = 0;  // cuda: what the allocator may reserve; 0: no limit
  bool timeline = false;       // fill timeline, peak_reserved and bytes_written too
  // Of a pipeline, one forward one backward: only so many micro-batches as show how it starts, goes
  // on and ends. Its traffic is that of all; for searching.
  bool sketch = false;
  // One of the processes that share the model, with groups that are planned too.
  std::shared_ptr<dist::Mesh> mesh = dist::single_mesh();
};

// How many micro-batches show every height that a step reaches: where gradients are accumulated the
// second one meets the first one's, and where the last one frees them on its way back, one between
// them keeps all of them to its end.
int64_t micro_batches_that_matter(const recipe::Recipe& recipe, const dist::MeshShape& mesh = {});

// `largest` is the micro-batch with most tokens of the run; `max_seqlen` as given to the engine.
// Of the run itself on `device`, beyond what that holds already.
Prediction predict(const models::Model& model, const recipe::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen,
                   const PredictOptions& options = {});

// Of libtorch's caching allocator: made to measure, its default, or expandable, our own.
enum class Segments { Fixed, Expandable };
// Those of a run of ours, here.
Segments own_segments();

// Fills in what libtorch's caching allocator reserves for these events on a device of any size, and
// whether `limit` (0: none) is enough for it.
void replay_reserved(const std::vector<TimelineRecorder::Event>& events, int64_t limit,
                     Segments segments, Prediction& result);

// What a run takes of its device: on a GPU what the allocator reserves, since that is what the
// device gives.
int64_t bytes_on_device(const Prediction& prediction, at::DeviceType kind);

}  // namespace snug::plan
