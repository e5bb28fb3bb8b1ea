// SPDX-License-Identifier: Apache-2.0
#include "plan/candidate.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "engine/adapters/trained_parts.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"
#include "models/family.h"
#include "recipe/tables/objectives.h"

namespace snug::plan {
namespace {

// One with this source, one with that target.
data::Sample joined(const data::SampleStore& store, int64_t source, int64_t target) {
  data::Sample result = store.sample(source);
  const data::Sample other = store.sample(target);
  result.ids.resize(static_cast<size_t>(result.source_tokens));
  result.labels.resize(result.ids.size());
  result.ids.insert(result.ids.end(), other.ids.begin() + other.source_tokens, other.ids.end());
  result.labels.insert(result.labels.end(), other.labels.begin() + other.source_tokens,
                       other.labels.end());
  return result;
}

// The samples with most tokens. An encoder's and its decoder's may be of different samples, and
// then no micro-batch of the data has as much of both as this one.
data::SampleStore largest_samples(const data::SampleStore& store, int64_t count) {
  const std::vector<int64_t> sources = store.longest_sources(count);
  const std::vector<int64_t> targets = store.longest_targets(count);
  return data::SampleStore::build(
      std::ssize(sources), store.ignore_index(),
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        return joined(store, sources[at], targets[at]);
      },
      /*num_workers=*/1);
}

int64_t sum(const data::SampleStore& store, const std::vector<int64_t>& samples,
            int64_t (data::SampleStore::*tokens)(int64_t) const) {
  return std::accumulate(
      samples.begin(), samples.end(), int64_t{0},
      [&](int64_t so_far, int64_t sample) { return so_far + (store.*tokens)(sample); });
}

// Whether these, the longest as a whole, have the longest sources too, and with them the longest
// targets.
bool have_most_of_both(const data::SampleStore& store, const std::vector<int64_t>& samples) {
  const auto count = std::ssize(samples);
  const auto length = &data::SampleStore::length, source = &data::SampleStore::source_tokens;
  const std::vector<int64_t> targets = store.longest_targets(count);
  return sum(store, samples, source) == sum(store, store.longest_sources(count), source) &&
         sum(store, samples, length) - sum(store, samples, source) ==
             sum(store, targets, length) - sum(store, targets, source);
}

// The samples with most pictures may be others than the longest. The latter have no fewer tokens,
// any of which can stand for a place of a picture, since a plan knows only how many there are.
void add_pictures(data::MicroBatch& batch, const Workload& work, int64_t num_samples) {
  if (work.reading.image_size == 0) return;
  batch.num_pictures = std::max(batch.num_pictures, work.samples.most_pictures(num_samples));
  batch.picture_rows.resize(
      static_cast<size_t>(batch.num_pictures * work.reading.num_picture_tokens));
}

// A micro-batch has no more samples than the run reads. A step goes on into the next epoch.
int64_t samples_together(const Workload& work, const recipe::Recipe& recipe,
                         int64_t micro_batch_size) {
  const recipe::TrainOptions& train = recipe.train;
  const int64_t count = work.samples.count();
  const int64_t epochs = train.epochs.value_or(train.max_steps || train.max_tokens ? 0 : 1);
  const bool reads_more = epochs == 0 || count == 0 || epochs > micro_batch_size / count;
  return reads_more ? micro_batch_size : std::min(micro_batch_size, epochs * count);
}

data::MicroBatchOptions batch_options(const Workload& work, const recipe::Recipe& recipe) {
  return {.packing = recipe.data.packing,
          .ignore_index = static_cast<int32_t>(recipe.data.ignore_index),
          .padding_in_loss = recipe.data.padding_in_loss,
          .reading = work.reading};
}

// The same of the samples' other documents.
std::optional<Workload> of_others(const Workload& work) {
  if (work.others == nullptr || work.others->empty()) return std::nullopt;
  return Workload{.samples = *work.others,
                  .max_seqlen = work.max_seqlen,
                  .reading = work.reading,
                  .made_up = work.made_up,
                  .validation = work.validation_others};
}

ShownPlans* shown_plans = nullptr;

}  // namespace

bool is_too_large(const Workload& work, const recipe::Recipe& recipe, int64_t micro_batch_size) {
  return samples_together(work, recipe, micro_batch_size) >
         kMostTokensAtOnce / std::max<int64_t>(1, work.samples.most_tokens_of_sample());
}

data::MicroBatch largest_micro_batch(const Workload& work, const recipe::Recipe& recipe,
                                     int64_t micro_batch_size) {
  const int64_t most_tokens = work.samples.most_tokens_of_sample();
  if (is_too_large(work, recipe, micro_batch_size))
    throw UserError(
        "train.micro_batch_size = {}: with samples of up to {} tokens a micro-batch may have more "
        "than {} tokens, the most that snug takes; use {} at most, or a shorter "
        "train.max_seq_length",
        micro_batch_size, most_tokens, kMostTokensAtOnce,
        std::max<int64_t>(1, kMostTokensAtOnce / most_tokens));
  const int64_t num_samples = samples_together(work, recipe, micro_batch_size);
  const data::MicroBatchOptions options = batch_options(work, recipe);
  const std::vector<int64_t> longest =
      work.samples.longest_samples(num_samples, recipe.data.packing);
  data::MicroBatch batch = data::make_micro_batch(work.samples, longest, options);
  const bool picks_rows = batch.picks_rows;
  if (work.reading.source && !have_most_of_both(work.samples, longest)) {
    const data::SampleStore largest = largest_samples(work.samples, num_samples);
    batch = data::make_micro_batch(largest, largest.longest_samples(num_samples), options);
  }
  const bool pairs = work.samples.documents_per_sample() > 1;
  const bool compares = recipe::compares_answers(recipe.objective.name);
  // A shorter pair may have the longest answer, and any block the longest document; others may have
  // more documents, for which a plan has empty ones.
  if (pairs || work.samples.is_in_blocks()) batch.max_seqlen = work.samples.longest();
  if (work.samples.is_in_blocks())
    batch.cu_seqlens.resize(1 + static_cast<size_t>(work.samples.most_documents(num_samples)),
                            batch.cu_seqlens.back());
  add_pictures(batch, work, num_samples);
  // In real data, masked prompts will have no loss.
  batch.picks_rows = picks_rows || (work.made_up && !work.reading.scores_documents &&
                                    recipe.data.mask_prompt.value_or(compares));
  constexpr int32_t kAnyToken = 0;
  const int64_t most = work.samples.most_targets(num_samples);
  for (int32_t& target : batch.targets) {
    if (batch.loss_tokens >= most) break;
    if (target != options.ignore_index) continue;
    target = kAnyToken;
    ++batch.loss_tokens;
  }
  SNUG_CHECK(batch.loss_tokens >= most, "{} targets in a micro-batch that can have only {}",
             batch.loss_tokens, most);
  return batch;
}

std::vector<data::MicroBatch> larger_of_validation(const Workload& work,
                                                   const recipe::Recipe& recipe,
                                                   const data::MicroBatch& largest) {
  if (work.validation == nullptr) return {};
  const data::SampleStore& store = *work.validation;
  // As engine::validate takes them: one after the other, the last with what is left. The largest by
  // each of what a batch's memory grows with: tokens, the longest sample's, targets, pictures,
  // documents, and of an encoder and its decoder the tokens and the most of one sample.
  struct Group {
    int64_t first = 0, count = 0;
    std::array<int64_t, 9> sizes = {};
  };
  std::array<Group, 9> most;
  const int64_t size = recipe.train.micro_batch_size, limit = recipe.eval.max_iters;
  for (int64_t first = 0; first < store.count() && (limit == 0 || first / size < limit);
       first += size) {
    Group group{.first = first, .count = std::min(size, store.count() - first)};
    auto& [tokens, longest, targets, pictures, source, longest_source, decoded, longest_decoded,
           documents] = group.sizes;
    for (int64_t i = first; i < first + group.count; ++i) {
      tokens += store.length(i);
      longest = std::max(longest, store.longest_document(i));
      targets += store.num_targets(i);
      documents += store.num_documents(i);
      pictures += store.num_pictures(i);
      source += store.source_tokens(i);
      longest_source = std::max(longest_source, store.source_tokens(i));
      decoded += store.length(i) - store.source_tokens(i);
      longest_decoded = std::max(longest_decoded, store.length(i) - store.source_tokens(i));
    }
    if (!recipe.data.packing) tokens = group.count * store.documents_per_sample() * longest;
    for (size_t i = 0; i < most.size(); ++i)
      if (group.sizes[i] > most[i].sizes[i]) most[i] = group;
  }
  const bool every = engine::simulation_of(recipe).every_validation;
  std::vector<data::MicroBatch> larger;
  std::set<int64_t> taken;
  for (const Group& group : most) {
    if (group.count == 0 || group.sizes.front() > kMostTokensAtOnce) continue;
    if (!taken.insert(group.first).second) continue;
    std::vector<int64_t> samples(static_cast<size_t>(group.count));
    std::iota(samples.begin(), samples.end(), group.first);
    data::MicroBatch batch = data::make_micro_batch(store, samples, batch_options(work, recipe));
    if (every || batch.input_ids.size() > largest.input_ids.size() ||
        batch.source_ids.size() > largest.source_ids.size() ||
        batch.cu_seqlens.size() > largest.cu_seqlens.size() ||
        batch.max_seqlen > largest.max_seqlen || batch.most_keys > largest.most_keys ||
        batch.source_max_seqlen > largest.source_max_seqlen ||
        batch.loss_tokens > largest.loss_tokens || batch.num_pictures > largest.num_pictures)
      larger.push_back(std::move(batch));
  }
  return larger;
}

ShownPlans::ShownPlans() { shown_plans = this; }
ShownPlans::~ShownPlans() { shown_plans = nullptr; }
void ShownPlans::count() {
  const std::lock_guard lock(mutex_);
  line_.show(++made_);
}
void ShownPlans::hide() {
  if (shown_plans != nullptr) shown_plans->line_.clear();
}

Candidate evaluate(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device, int rank, Detail detail, const Most& most) {
  if (shown_plans != nullptr) shown_plans->count();
  const data::MicroBatch largest = largest_micro_batch(work, recipe, recipe.train.micro_batch_size);
  Candidate candidate{.recipe = recipe};
  const std::optional<Workload> others = of_others(work);
  std::optional<data::MicroBatch> largest_of_others;
  if (others)
    largest_of_others = largest_micro_batch(*others, recipe, recipe.train.micro_batch_size);
  const auto transport = device.kind == at::kCUDA ? dist::Transport::Nccl : dist::Transport::Mpi;
  candidate.prediction = predict(
      model, recipe, largest, work.max_seqlen,
      {.device = device.kind,
       .flash_attention = device.flash_attention,
       .reserved_limit = device.usable_bytes(),
       .timeline = true,
       .most = most,
       .sketch = detail == Detail::Sketch,
       .validation = larger_of_validation(work, recipe, largest),
       .others = largest_of_others,
       .validation_others = others ? larger_of_validation(*others, recipe, *largest_of_others)
                                   : std::vector<data::MicroBatch>(),
       .mesh = dist::planned_mesh(engine::named_strategy(recipe).mesh, rank, transport)});
  const double tokens =
      static_cast<double>(work.samples.total_tokens()) / static_cast<double>(work.samples.count());
  const auto adapted = models::model_like(model);
  engine::choose_trained(*adapted, recipe);
  candidate.cost = step_cost(
      *adapted, recipe, device, candidate.prediction,
      tokens * static_cast<double>(recipe.train.micro_batch_size),
      {.tokens = work.samples.mean_document(), .pictures = work.samples.mean_pictures()}, rank);
  return candidate;
}

Candidate evaluate_neediest(const models::Model& model, const recipe::Recipe& recipe,
                            const Workload& work, const DeviceProfile& device, Detail detail,
                            const Most& most) {
  const dist::MeshShape mesh = engine::named_strategy(recipe).mesh;
  const std::vector<int> ranks = first_of_stages(mesh);
  std::vector<Candidate> stages;
  for (size_t stage = 0; stage < ranks.size(); ++stage) {
    // Those between are much alike, and the ones in front have most under way.
    if (detail == Detail::Sketch && stage > 1 && stage + 1 < ranks.size()) continue;
    stages.push_back(evaluate(model, recipe, work, device, ranks[stage], detail, most));
    // A search need not know what the others take.
    if (detail == Detail::Sketch && !fits(stages.back(), device)) return stages.back();
  }
  Candidate neediest = neediest_of(stages, device);
  const bool is_sure = detail == Detail::Sketch || mesh.num_ranks() == std::ssize(ranks) ||
                       !fits(neediest, device) || !is_tight(neediest, device);
  if (is_sure) return neediest;
  return evaluate_ranks(model, recipe, work, device, different_ranks(mesh));
}

Candidate evaluate_ranks(const models::Model& model, const recipe::Recipe& recipe,
                         const Workload& work, const DeviceProfile& device,
                         const std::vector<int>& ranks) {
  std::vector<Candidate> planned;
  planned.reserve(ranks.size());
  for (const int rank : ranks) planned.push_back(evaluate(model, recipe, work, device, rank));
  return neediest_of(planned, device);
}

bool is_tight(const Candidate& candidate, const DeviceProfile& device) {
  constexpr double kRoom = 0.95;  // ranks differ by less
  DeviceProfile smaller = device;
  const auto less = [](int64_t bytes) {
    return static_cast<int64_t>(kRoom * static_cast<double>(bytes));
  };
  smaller.memory_bytes = smaller.context_bytes + less(device.usable_bytes());
  smaller.host_bytes = less(device.host_bytes);
  return !fits(candidate, smaller) || candidate.prediction.peak_reserved > smaller.usable_bytes();
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
  // What the allocator would have reserved without the limit.
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
    if (mesh.coordinate(dist::Axis::Replicate, rank) > 0 ||
        mesh.coordinate(dist::Axis::Expert, rank) > 0)
      continue;
    const bool is_first = std::ranges::find(firsts, rank) != firsts.end();
    const bool is_outer = rank < kMany / 2 || mesh.num_ranks() - rank <= kMany / 2;
    if (mesh.num_ranks() <= kMany || is_first || is_outer) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace snug::plan
