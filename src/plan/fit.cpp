// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "models/family.h"
#include "setup/strategy.h"
#include "setup/trained_parts.h"

namespace snug::plan {
namespace {

// Where states and weights live and when they are updated.
struct Placement {
  bool in_backward, offload, streaming;
};
constexpr std::array kPlacements = {
    Placement{false, false, false}, Placement{true, false, false}, Placement{false, true, false},
    Placement{true, true, false},   Placement{false, true, true},  Placement{true, true, true},
};
constexpr std::array kCheckpointing = {"none", "selective", "every:2", "all"};

class Search {
 public:
  Search(const models::Model& model, const config::Recipe& recipe, const Workload& work,
         const DeviceProfile& device)
      : model_(model), recipe_(recipe), work_(work), device_(device) {}

  Fit run() {
    for (const std::string& strategy : strategies())
      for (const Placement& placement : kPlacements)
        for (const char* checkpointing : kCheckpointing)
          for (const bool offload : {false, true})
            try_combination(strategy, placement, checkpointing, offload);
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return a.cost.seconds() < b.cost.seconds();
    });
    Fit result{.tried = tried_};
    result.smallest = std::move(smallest_);
    for (Candidate& candidate : found_) {
      if (!result.front.empty() &&
          candidate.prediction.peak_allocated >= result.front.back().prediction.peak_allocated)
        continue;
      result.front.push_back(std::move(candidate));
    }
    if (!result.front.empty()) result.best = result.front.front();
    return result;
  }

 private:
  // False where the recipe's owner has said otherwise.
  template <class T>
  bool set(const char* key, T& member, const T& value) const {
    if (recipe_.given(key)) return member == value;
    member = value;
    return true;
  }

  // How several devices share the work, where nobody has said.
  std::vector<std::string> strategies() const {
    const bool chosen = recipe_.given("strategy") || !recipe_.mesh.empty();
    if (chosen || setup::named_ranks(recipe_) == 1) return {recipe_.strategy};
    if (recipe_.optimizer.name == "adafactor") return {"ddp"};  // it updates whole matrices
    std::vector<std::string> names{"ddp", "zero1", "zero2", "fsdp"};
    if (recipe_.num_nodes > 1) names.emplace_back("hybrid");
    return names;
  }

  void try_combination(const std::string& strategy, const Placement& placement,
                       const char* checkpointing, bool offload) {
    config::Recipe r = recipe_;
    r.strategy = strategy;
    const bool allowed =
        set("activation_checkpointing", r.activation_checkpointing, std::string(checkpointing)) &&
        set("activation_offload", r.activation_offload, offload) &&
        set("optimizer_in_backward", r.optimizer_in_backward, placement.in_backward) &&
        set("optimizer_offload", r.optimizer_offload,
            std::string(placement.offload ? "cpu" : "none")) &&
        set("weight_streaming", r.weight_streaming, placement.streaming);
    if (!allowed || (r.optimizer_in_backward && r.precision == "16-mixed")) return;
    const bool may_delay = placement.offload && !placement.in_backward && !placement.streaming;
    if (r.delayed_parameter_update && !may_delay) return;
    if (r.optimizer_in_backward && r.train.on_oom == "split") return;
    for (const int64_t size : micro_batches()) {
      r.train.micro_batch_size = size;
      r.train.accumulate_grad_batches.reset();  // the global batch stays
      ++tried_;
      Candidate candidate;
      try {
        candidate = evaluate_neediest(model_, r, work_, device_);
      } catch (const UserError&) {
        return;  // the device has no way to run it
      }
      candidate.options = changes(r);
      candidate.prediction.timeline.clear();
      if (!fits(candidate, device_)) {
        const bool smaller = !smallest_ || candidate.prediction.peak_allocated <
                                               smallest_->prediction.peak_allocated;
        if (smaller) smallest_ = std::move(candidate);
        continue;
      }
      found_.push_back(std::move(candidate));
      return;
    }
  }

  std::vector<int64_t> micro_batches() const {
    if (recipe_.given("train.micro_batch_size")) return {recipe_.train.micro_batch_size};
    std::vector<int64_t> sizes;
    const int64_t samples =
        recipe_.train.global_batch_size / setup::named_strategy(recipe_).mesh.num_data_ranks();
    for (int64_t size = samples; size >= 1; --size)
      if (samples % size == 0) sizes.push_back(size);
    return sizes;
  }

  std::string changes(const config::Recipe& r) const {
    std::string text;
    const auto add = [&](bool changed, const std::string& option) {
      if (changed) text += (text.empty() ? "" : " ") + option;
    };
    add(r.strategy != recipe_.strategy, "--strategy " + r.strategy);
    add(r.train.micro_batch_size != recipe_.train.micro_batch_size,
        fmt::format("--train.micro_batch_size {}", r.train.micro_batch_size));
    add(r.activation_checkpointing != recipe_.activation_checkpointing,
        "--activation_checkpointing " + r.activation_checkpointing);
    add(r.activation_offload != recipe_.activation_offload,
        fmt::format("--activation_offload {}", r.activation_offload));
    add(r.optimizer_in_backward != recipe_.optimizer_in_backward,
        fmt::format("--optimizer_in_backward {}", r.optimizer_in_backward));
    add(r.optimizer_offload != recipe_.optimizer_offload,
        "--optimizer_offload " + r.optimizer_offload);
    add(r.weight_streaming != recipe_.weight_streaming,
        fmt::format("--weight_streaming {}", r.weight_streaming));
    return text;
  }

  const models::Model& model_;
  const config::Recipe& recipe_;
  const Workload& work_;
  const DeviceProfile& device_;
  std::vector<Candidate> found_;
  std::optional<Candidate> smallest_;
  int64_t tried_ = 0;
};

}  // namespace

Candidate evaluate(const models::Model& model, const config::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device, int rank) {
  const data::MicroBatch largest = largest_micro_batch(work, recipe, recipe.train.micro_batch_size);
  Candidate candidate{.recipe = recipe};
  const auto transport = device.kind == at::kCUDA ? dist::Transport::Nccl : dist::Transport::Mpi;
  candidate.prediction =
      predict(model, recipe, largest, work.max_seqlen,
              {.device = device.kind,
               .reserved_limit = device.usable_bytes(),
               .timeline = true,
               .mesh = dist::planned_mesh(setup::named_strategy(recipe).mesh, rank, transport)});
  const double tokens =
      static_cast<double>(work.samples.total_tokens()) / static_cast<double>(work.samples.count());
  const auto adapted = models::model_like(model);
  setup::choose_trained(*adapted, recipe);
  candidate.cost =
      step_cost(*adapted, recipe, device, candidate.prediction,
                tokens * static_cast<double>(recipe.train.micro_batch_size), tokens, rank);
  return candidate;
}

Candidate evaluate_neediest(const models::Model& model, const config::Recipe& recipe,
                            const Workload& work, const DeviceProfile& device) {
  const dist::MeshShape mesh = setup::named_strategy(recipe).mesh;
  const int stages = mesh[dist::Axis::Pipeline];
  Candidate neediest = evaluate(model, recipe, work, device);
  for (int stage = 1; stage < stages; ++stage) {
    Candidate candidate =
        evaluate(model, recipe, work, device, stage * (mesh.num_ranks() / stages));
    if (candidate.prediction.peak_allocated > neediest.prediction.peak_allocated)
      neediest = std::move(candidate);
  }
  return neediest;
}

bool fits(const Candidate& candidate, const DeviceProfile& device) {
  const Prediction& p = candidate.prediction;
  // On a cpu, device and host share one memory; and all processes of a machine share its host's.
  const int64_t in_host = (p.peak_host + (device.kind == at::kCPU ? p.peak_allocated : 0)) *
                          setup::named_ranks_per_node(candidate.recipe);
  const bool host_fits = device.host_bytes == 0 || in_host <= device.host_bytes;
  return p.peak_allocated <= device.usable_bytes() && p.fits_reserved && host_fits;
}

Fit fit(const models::Model& model, const config::Recipe& recipe, const Workload& work,
        const DeviceProfile& device) {
  return Search(model, recipe, work, device).run();
}

}  // namespace snug::plan
