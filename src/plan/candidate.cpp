// SPDX-License-Identifier: Apache-2.0
#include "plan/candidate.h"

#include <algorithm>

#include "engine/adapters/trained_parts.h"
#include "engine/strategy.h"
#include "models/family.h"

namespace snug::plan {

Candidate evaluate(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device, int rank, Detail detail) {
  const data::MicroBatch largest = largest_micro_batch(work, recipe, recipe.train.micro_batch_size);
  Candidate candidate{.recipe = recipe};
  const auto transport = device.kind == at::kCUDA ? dist::Transport::Nccl : dist::Transport::Mpi;
  candidate.prediction =
      predict(model, recipe, largest, work.max_seqlen,
              {.device = device.kind,
               .reserved_limit = device.usable_bytes(),
               .timeline = true,
               .sketch = detail == Detail::Sketch,
               .mesh = dist::planned_mesh(engine::named_strategy(recipe).mesh, rank, transport)});
  const double tokens =
      static_cast<double>(work.samples.total_tokens()) / static_cast<double>(work.samples.count());
  const auto adapted = models::model_like(model);
  engine::choose_trained(*adapted, recipe);
  candidate.cost =
      step_cost(*adapted, recipe, device, candidate.prediction,
                tokens * static_cast<double>(recipe.train.micro_batch_size), tokens, rank);
  return candidate;
}

Candidate evaluate_neediest(const models::Model& model, const recipe::Recipe& recipe,
                            const Workload& work, const DeviceProfile& device, Detail detail) {
  const dist::MeshShape mesh = engine::named_strategy(recipe).mesh;
  const std::vector<int> ranks = first_of_stages(mesh);
  std::vector<Candidate> stages;
  for (size_t stage = 0; stage < ranks.size(); ++stage) {
    // Those between are much alike, and the ones in front have most under way.
    if (detail == Detail::Sketch && stage > 1 && stage + 1 < ranks.size()) continue;
    stages.push_back(evaluate(model, recipe, work, device, ranks[stage], detail));
    // A search need not know what the others take.
    if (detail == Detail::Sketch && !fits(stages.back(), device)) return stages.back();
  }
  return neediest_of(stages, device);
}

Candidate neediest_of(const std::vector<Candidate>& stages, const DeviceProfile& device) {
  const auto needs_less = [&](const Candidate& a, const Candidate& b) {
    const bool a_fits = fits(a, device), b_fits = fits(b, device);
    return a_fits != b_fits ? a_fits : a.prediction.peak_allocated < b.prediction.peak_allocated;
  };
  Candidate neediest = *std::max_element(stages.begin(), stages.end(), needs_less);
  neediest.cost =
      std::max_element(stages.begin(), stages.end(), [](const Candidate& a, const Candidate& b) {
        return a.cost.seconds() < b.cost.seconds();
      })->cost;
  return neediest;
}

Missing missing(const Candidate& candidate, const DeviceProfile& device) {
  const Prediction& p = candidate.prediction;
  const int64_t ranks = engine::named_ranks_per_node(candidate.recipe);
  const auto beyond = [](int64_t needed, int64_t there) {
    return std::max<int64_t>(0, needed - there);
  };
  Missing result{.on_device = beyond(p.peak_allocated, device.usable_bytes())};
  // What an allocator that cannot get through would have reserved.
  if (!p.fits_reserved)
    result.on_device = std::max<int64_t>(1, beyond(p.peak_reserved, device.usable_bytes()));
  if (device.host_bytes > 0)
    result.in_host = beyond(host_bytes_needed(p, device.kind, ranks), device.host_bytes);
  if (device.disk_bytes > 0) result.on_disk = beyond(p.on_disk * ranks, device.disk_bytes);
  return result;
}

int64_t host_bytes_needed(const Prediction& prediction, at::DeviceType kind, int64_t ranks) {
  const int64_t of_device = kind == at::kCPU ? prediction.peak_allocated : 0;
  return (prediction.peak_host + of_device) * ranks;
}

int64_t beyond_assumed_host(const Candidate& candidate, const DeviceProfile& device) {
  if (device.assumed_host_bytes == 0) return 0;
  const int64_t needed = host_bytes_needed(candidate.prediction, device.kind,
                                           engine::named_ranks_per_node(candidate.recipe));
  return std::max<int64_t>(0, needed - device.assumed_host_bytes);
}

bool fits(const Candidate& candidate, const DeviceProfile& device) {
  return missing(candidate, device).sum() == 0;
}

std::vector<int> first_of_stages(const dist::MeshShape& mesh) {
  std::vector<int> ranks;
  const int stages = mesh[dist::Axis::Pipeline];
  for (int stage = 0; stage < stages; ++stage) ranks.push_back(stage * (mesh.num_ranks() / stages));
  return ranks;
}

std::vector<int> different_ranks(const dist::MeshShape& mesh) {
  constexpr int kMany = 32;
  const std::vector<int> firsts = first_of_stages(mesh);
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
    if (mesh.coordinate(dist::Axis::Replicate, rank) > 0) continue;
    const bool is_first = std::ranges::find(firsts, rank) != firsts.end();
    const bool is_outer = rank < kMany / 2 || mesh.num_ranks() - rank <= kMany / 2;
    if (mesh.num_ranks() <= kMany || is_first || is_outer) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace snug::plan
