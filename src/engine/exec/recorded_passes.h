// Forward and backward of micro-batches that are alike, recorded once and then launched with one
// call (core/ops/device/recording.h). Alike are those whose numbers on the host are the same:
// sizes, borders of documents, the gradient's scale. What is on the device, ids and targets and
// pictures, is copied into the recorded one's tensors, and so is what dropout is drawn from.
//
// Two passes are recorded: a step's first, which makes gradients, and one that adds to them. A step
// whose micro-batches are like those of steps before it, and like each other, runs as always, and
// the tensors of two are kept; the next one records, and those after it launch what is recorded. A
// micro-batch that is not like them ends that: what was recorded is given up with its memory, so
// that there is never memory for recorded passes and for others at the same time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/nn/unit.h"
#include "core/ops/device/recording.h"

namespace snug::exec {

struct MicroBatch;

class RecordedPasses {
 public:
  // `parameters`: those of all units.
  explicit RecordedPasses(std::vector<nn::Parameter*> parameters);
  ~RecordedPasses();

  // Runs forward and backward of the micro-batch, or has them done as recorded, and returns its
  // objective. `pass` runs them and returns it.
  using Pass = std::function<at::Tensor(const MicroBatch&)>;
  at::Tensor run(const MicroBatch& micro_batch, const Pass& pass);

  // Gives up what is recorded; nothing is recorded while it is true.
  void pause(bool is_paused);

  struct Counts {
    int64_t recorded = 0;  // passes, again after they were given up
    int64_t launched = 0;  // micro-batches that ran as recorded
    int64_t all = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  // Micro-batches that are alike, from when their tensors are kept.
  struct Kind {
    nn::Batch batch;  // what the recorded work reads
    at::Tensor key;   // (1) int64: the pass's dropout_key
    at::Tensor objective;
    std::unique_ptr<ops::Recording> recording;
  };
  struct Gradient {
    nn::Parameter* parameter;
    at::Tensor tensor;
  };
  enum class Step { Plain, Keeps, Records };

  bool has_gradients() const;
  void begin_step();
  at::Tensor run_kind(const std::string& key, const MicroBatch& micro_batch, const Pass& pass);
  void keep(const std::string& key, const nn::Batch& batch);
  bool record(Kind& kind, const MicroBatch& micro_batch, const Pass& pass);
  void fill(const Kind& kind, const MicroBatch& micro_batch);
  void give_up();

  std::vector<nn::Parameter*> parameters_;
  std::vector<Gradient> gradients_;  // in the memory of recorded work; none before the first
  std::set<std::string> known_;      // kinds of micro-batches that came
  std::map<std::string, Kind> kinds_;
  std::unique_ptr<ops::Upload> sent_;  // of the last key, until the host has waited for its pass
  Step step_ = Step::Plain;
  // Memory of what was given up is to go back to the device, once no gradient is there.
  std::optional<at::DeviceType> empties_;
  bool has_recorded_ = false;    // or tried to, since the last time it was given up
  int64_t launched_before_ = 0;  // when the recordings began
  int64_t in_vain_ = 0;          // how often they were given up almost unused
  bool is_paused_ = false;
  Counts counts_;
};

}  // namespace snug::exec
