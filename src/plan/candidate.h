// A recipe planned for a device: its memory, its time, and whether it fits; and the samples that
// such a plan is for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/dist/mesh.h"
#include "data/micro_batch.h"
#include "data/sample_store.h"
#include "models/model.h"
#include "plan/cost_model.h"
#include "plan/devices/device_profile.h"
#include "plan/predict.h"
#include "recipe/recipe.h"
#include "report/progress_line.h"

namespace snug::plan {

// The data of a run, as far as memory and time depend on it.
struct Workload {
  const data::SampleStore& samples;
  int64_t max_seqlen = 0;      // of the longest sample, validation's too
  data::Reading reading = {};  // how samples become micro-batches
  bool made_up = false;        // no data was read: the samples are placeholders
  // Held out, in the order in which they are read; null: none.
  const data::SampleStore* validation = nullptr;
  // The other document of each sample and of each held-out one, which is read without learning from
  // it (nn::Objective::estimate); null: there are none, or they are no longer than the samples.
  const data::SampleStore *others = nullptr, *validation_others = nullptr;
};

// A micro-batch with more tokens is a mistake, and planning it would take very long.
inline constexpr int64_t kMostTokensAtOnce = int64_t{1} << 22;
// Whether a micro-batch of this many of the longest samples has more.
bool is_too_large(const Workload& work, const recipe::Recipe& recipe, int64_t micro_batch_size);

// The largest micro-batch of this recipe: its longest samples together, with as many targets as any
// micro-batch has, on which the head's memory depends. Throws UserError if it is_too_large().
data::MicroBatch largest_micro_batch(const Workload& work, const recipe::Recipe& recipe,
                                     int64_t micro_batch_size);

// The micro-batches of a validation that may take more memory than `largest`, of training: that
// with most tokens and that with the longest sample, where they have more. Usually none.
std::vector<data::MicroBatch> larger_of_validation(const Workload& work,
                                                   const recipe::Recipe& recipe,
                                                   const data::MicroBatch& largest);

struct Candidate {
  recipe::Recipe recipe;
  std::string options;  // its changes to the recipe, as typed on the command line; empty: none
  Prediction prediction;
  StepCost cost;
};

// Sketch: a faster approximation (PredictOptions::sketch).
enum class Detail { Whole, Sketch };

// While it lives, a terminal shows how many plans evaluate() has made, once they take a while.
class ShownPlans {
 public:
  ShownPlans();
  ~ShownPlans();
  ShownPlans(const ShownPlans&) = delete;
  ShownPlans& operator=(const ShownPlans&) = delete;

  static void hide();  // before other output

 private:
  void count();

  std::mutex mutex_;  // several threads plan
  report::ProgressLine line_{"plans", 0, true};
  size_t made_ = 0;
  friend Candidate evaluate(const models::Model&, const recipe::Recipe&, const Workload&,
                            const DeviceProfile&, int, Detail, const Most&);
};

// Plans a recipe for rank `rank`, with its timeline. `most`: see PredictOptions.
Candidate evaluate(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device, int rank = 0, Detail detail = Detail::Whole,
                   const Most& most = {});
// The memory of the pipeline stage that needs most (one that does not fit comes first) and the time
// of the slowest. Where there is little room, of all different ranks.
Candidate evaluate_neediest(const models::Model& model, const recipe::Recipe& recipe,
                            const Workload& work, const DeviceProfile& device,
                            Detail detail = Detail::Whole, const Most& most = {});
// The same of these ranks, at least one.
Candidate evaluate_ranks(const models::Model& model, const recipe::Recipe& recipe,
                         const Workload& work, const DeviceProfile& device,
                         const std::vector<int>& ranks);
// The same from the plans of all stages; at least one.
Candidate neediest_of(const std::vector<Candidate>& stages, const DeviceProfile& device);
bool fits(const Candidate& candidate, const DeviceProfile& device);
// Whether another shard, which may need some more, might not fit.
bool is_tight(const Candidate& candidate, const DeviceProfile& device);
// Missing bytes; 0: enough, or not known.
struct Missing {
  int64_t on_device = 0, in_host = 0, on_disk = 0;
  int64_t sum() const { return on_device + in_host + on_disk; }
};
Missing missing(const Candidate& candidate, const DeviceProfile& device);
// Host memory for `ranks` processes of one machine. On a CPU it includes the device's memory.
int64_t host_bytes_needed(const Prediction& prediction, at::DeviceType kind, int64_t ranks);

// By how much a candidate exceeds the assumed host memory; 0: not at all, or none is assumed.
int64_t beyond_assumed_host(const Candidate& candidate, const DeviceProfile& device);

// One rank of each stage of a pipeline.
std::vector<int> first_of_stages(const dist::MeshShape& mesh);
// One rank of each set of data-parallel copies. If there are very many, the first and the last, and
// one of each stage.
std::vector<int> different_ranks(const dist::MeshShape& mesh);

}  // namespace snug::plan
