// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "engine/exec/pipeline_schedule.h"
#include "engine/strategy.h"
#include "plan/search_space.h"
#include "recipe/batches.h"
#include "recipe/selection.h"

namespace snug::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The share of the forward's work that a backward repeats, at least.
double least_repeated(const recipe::Recipe& recipe) {
  return recipe::checkpointing_of(recipe) == recipe::Checkpointing::All ? 1 : 0;
}

// The share of the forward in a step's products; frozen weights have no gradient.
double share_of_forward(const recipe::Recipe& recipe) {
  return recipe.lora.enabled ? 1.0 / 2 : 1.0 / 3;
}

bool is_faster(const Candidate& a, const Candidate& b) {
  return a.cost.seconds() < b.cost.seconds();
}

// The Pareto front: the fastest, then always the fastest of those that take less memory.
std::vector<Candidate> front_of(std::vector<Candidate> candidates, at::DeviceType kind) {
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.cost.seconds() < b.cost.seconds(); });
  std::vector<Candidate> front;
  for (Candidate& candidate : candidates)
    if (front.empty() || bytes_on_device(candidate.prediction, kind) <
                             bytes_on_device(front.back().prediction, kind))
      front.push_back(std::move(candidate));
  return front;
}

class FitSearch {
 public:
  FitSearch(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
            const DeviceProfile& device)
      : model_(model),
        recipe_(recipe),
        work_(work),
        device_(device),
        techniques_(recipe, /*on_gpu=*/device.kind == at::kCUDA,
                    /*has_experts=*/model.routing().num_experts > 0) {}

  Fit run() {
    const std::vector<Layout> all = layouts(model_, recipe_);
    has_layouts_ = all.size() > 1;
    std::vector<Layout> divided;
    for (const Layout& layout : all) {
      if (has_layouts_ && layout.divides_the_model())
        divided.push_back(layout);
      else
        with_techniques(layout, techniques_.all());
    }
    consider(divided);
    Fit result;
    const bool disk_helps = found_.empty() && host_was_missing_ && techniques_.may_place_states();
    if (disk_helps && folder_.empty())
      result.with_disk = fastest_with_disk(all);
    else if (disk_helps)
      with_states_on_disk(all);
    result.tried = tried_;
    result.smallest = std::move(smallest_);
    set_front(result);
    return result;
  }

 private:
  // The result, by time and memory.
  void set_front(Fit& result) {
    std::stable_sort(found_.begin(), found_.end(), is_faster);
    for (Candidate& candidate : found_) {
      const bool is_smaller =
          result.front.empty() || bytes_on_device(candidate.prediction, device_.kind) <
                                      bytes_on_device(result.front.back().prediction, device_.kind);
      if (is_smaller && holds(candidate, /*is_chosen=*/result.front.empty()))
        result.front.push_back(std::move(candidate));
    }
    // Sketches have become plans, whose times and peaks differ a little from theirs.
    result.front = front_of(std::move(result.front), device_.kind);
    // The first one now may be another.
    while (!result.front.empty() && !holds(result.front.front(), /*is_chosen=*/true))
      result.front.erase(result.front.begin());
    if (!result.front.empty()) result.best = result.front.front();
  }

  // --- states on disk ---

  void with_states_on_disk(const std::vector<Layout>& all) {
    for (const Layout& layout : all) {
      const bool divides = has_layouts_ && layout.divides_the_model();
      with_techniques(
          layout, Techniques::on_disk(divides ? techniques_.few() : techniques_.all(), folder_));
    }
  }

  // The same if fit_disk names no folder.
  std::optional<Candidate> fastest_with_disk(const std::vector<Layout>& all) {
    folder_ = "FOLDER";
    const std::optional<Candidate> smallest = smallest_;
    with_states_on_disk(all);
    smallest_ = smallest;
    const std::vector<Candidate> found = std::exchange(found_, {});
    const auto fastest = std::min_element(found.begin(), found.end(), is_faster);
    if (fastest == found.end()) return std::nullopt;
    return *fastest;
  }

  // --- tensor and pipeline parallelism ---

  // First each layout alone, the most promising first; then, if it does not fit, with techniques.
  void consider(const std::vector<Layout>& divided) {
    const std::vector<Setting> settings = techniques_.few();
    if (settings.empty()) return;
    struct Try {
      size_t layout;
      int64_t size;
      double seconds;  // at least
    };
    std::vector<Try> tries;
    for (size_t i = 0; i < divided.size(); ++i)
      for (const int64_t size : micro_batches(divided[i])) {
        recipe::Recipe r = laid_out(recipe_, divided[i]);
        r.train.micro_batch_size = size;
        tries.push_back({i, size, least_seconds(r)});
      }
    std::stable_sort(tries.begin(), tries.end(),
                     [](const Try& a, const Try& b) { return a.seconds < b.seconds; });
    std::vector<double> best(divided.size(), kNever);  // by layout, whether it fits or not
    std::vector<bool> is_done(divided.size());
    std::vector<size_t> too_large;  // in the order of what they promise
    for (const Try& t : tries) {
      if (!is_worth(t.seconds)) break;
      if (is_done[t.layout]) continue;
      const Outcome outcome = try_one(divided[t.layout], settings.front(), t.size);
      if (outcome == Outcome::Refused) continue;
      best[t.layout] = std::min(best[t.layout], last_seconds_);
      if (outcome == Outcome::TooLarge && std::ranges::find(too_large, t.layout) == too_large.end())
        too_large.push_back(t.layout);
      // Without a pipeline smaller micro-batches only take longer.
      is_done[t.layout] = stages_of(divided[t.layout]) == 1 &&
                          (outcome == Outcome::Fits || !is_worth(last_seconds_));
    }
    for (const size_t i : too_large)
      if (is_worth(best[i]))
        // More of them only take longer.
        with_techniques(divided[i], {settings.begin() + 1, settings.end()});
  }

  // Settings from what takes most memory to what takes least.
  void with_techniques(const Layout& layout, const std::vector<Setting>& settings) {
    if (may_fit(layout, settings))
      for (const Setting& setting : settings) try_setting(layout, setting);
  }

  // A layout that fits neither with the last setting nor with the last one that updates after the
  // backward, with the smallest micro-batch, fits with none. Updates in the backward save most
  // where a step has one micro-batch, the largest.
  bool may_fit(const Layout& layout, const std::vector<Setting>& settings) {
    const std::vector<int64_t> sizes = micro_batches(layout);
    if (sizes.empty()) return false;
    struct Leanest {
      bool in_backward;
      int64_t size;
    };
    for (const auto [in_backward, size] :
         {Leanest{true, sizes.back()}, {true, sizes.front()}, {false, sizes.back()}})
      for (auto leanest = settings.rbegin(); leanest != settings.rend(); ++leanest) {
        if (leanest->is_on(recipe::Technique::OptimizerInBackward) != in_backward) continue;
        const Outcome outcome = try_one(layout, *leanest, size);
        if (outcome == Outcome::Refused) continue;
        // Only the host has too little memory: a setting that offloads less may fit.
        if (outcome == Outcome::TooLarge && last_missing_.on_device == 0) return true;
        if (outcome == Outcome::TooLarge) break;
        found_.pop_back();  // it comes again, with the largest micro-batch that fits
        return true;
      }
    return false;
  }

  // A lower bound of a step's time: products, most memory traffic, and the pipeline's bubble.
  double least_seconds(const recipe::Recipe& r) const {
    const dist::MeshShape mesh = engine::named_strategy(r).mesh;
    const int stages = mesh[dist::Axis::Pipeline];
    const exec::PipelineShape pipeline{.stages = stages,
                                       .chunks = stages > 1 ? r.pipeline_interleave : 1,
                                       .micro_batches = engine::micro_batches_of_step(r, mesh),
                                       .order = engine::pipeline_order(r)};
    return (least_products_ * (1 + least_repeated(r) * share_of_forward(r)) + least_memory_) *
           exec::pipeline_length(pipeline);
  }

  // Learns the least times of a step's parts from candidates, which all have the same devices.
  void learn(const Candidate& candidate) {
    const recipe::Recipe& r = candidate.recipe;
    const bool is_alike = recipe_.given("activation_checkpointing");  // in all candidates
    if (recipe::checkpointing_of(r) != recipe::Checkpointing::None && !is_alike) return;
    constexpr double kCertain = 0.9;  // dividing a model changes what is written a little
    const auto least = [](double& so_far, double seconds) {
      so_far = so_far == 0 ? seconds : std::min(so_far, seconds);
    };
    least(least_products_,
          candidate.cost.products_seconds / (1 + least_repeated(r) * share_of_forward(r)));
    least(least_memory_, kCertain * candidate.cost.memory_seconds);
  }

  bool is_worth(double least_seconds) const { return least_seconds < best_seconds_; }

  // --- one combination ---

  // The largest micro-batch that fits, and of a single layout the smaller ones too, if they are
  // few: they take less memory, perhaps at less time than other techniques would. In a pipeline
  // smaller ones wait less: each is tried, from the smallest, until it takes longer again.
  void try_setting(const Layout& layout, const Setting& setting) {
    std::vector<int64_t> sizes = micro_batches(layout);
    constexpr size_t kFew = 6;  // a global batch of 32
    const bool tries_all = !has_layouts_ && sizes.size() <= kFew;
    const bool is_pipeline = stages_of(layout) > 1;
    if (is_pipeline) std::reverse(sizes.begin(), sizes.end());
    double before = kNever;
    for (const int64_t size : sizes) {
      const Outcome outcome = try_one(layout, setting, size);
      if (outcome == Outcome::Refused) return;
      if (outcome == Outcome::Fits && !is_pipeline && !tries_all) return;
      if (!is_pipeline) continue;
      if (outcome != Outcome::Fits || found_.back().cost.seconds() > before) return;
      before = found_.back().cost.seconds();
    }
  }

  enum class Outcome { Refused, TooLarge, Fits };

  Outcome try_one(const Layout& layout, const Setting& setting, int64_t micro_batch_size) {
    recipe::Recipe recipe = Techniques::applied(laid_out(recipe_, layout), setting);
    recipe.train.micro_batch_size = micro_batch_size;
    if (layout.divides_the_model() && !is_worth(least_seconds(recipe))) return Outcome::Refused;
    ++tried_;
    Candidate candidate;
    try {
      candidate = evaluate_neediest(model_, recipe, work_, device_, Detail::Sketch);
    } catch (const UserError&) {
      return Outcome::Refused;  // the device has no way to run it
    }
    candidate.options = changes(recipe);
    candidate.prediction.timeline.clear();
    last_seconds_ = candidate.cost.seconds();
    last_missing_ = missing(candidate, device_);
    if (last_missing_.sum() > 0) {
      host_was_missing_ |= last_missing_.on_device == 0 && last_missing_.in_host > 0;
      remember_smallest(std::move(candidate));
      return Outcome::TooLarge;
    }
    learn(candidate);
    best_seconds_ = std::min(best_seconds_, last_seconds_);
    found_.push_back(std::move(candidate));
    return Outcome::Fits;
  }

  void remember_smallest(Candidate candidate) {
    learn(candidate);
    const bool smaller =
        !smallest_ || missing(candidate, device_).sum() < missing(*smallest_, device_).sum();
    if (smaller) smallest_ = std::move(candidate);
  }

  // The search has planned one rank of each stage, and only a sketch of pipelines. The chosen
  // candidate, and those with little room, are planned for all different ranks; false if one does
  // not fit.
  bool holds(Candidate& candidate, bool is_chosen) const {
    const dist::MeshShape mesh = engine::named_strategy(candidate.recipe).mesh;
    const bool is_sketch = mesh[dist::Axis::Pipeline] > 1;
    const bool all = mesh.num_ranks() > 1 && (is_chosen || is_tight(candidate, device_));
    if (!all && !is_sketch) return true;
    Candidate whole = evaluate_ranks(model_, candidate.recipe, work_, device_,
                                     all ? different_ranks(mesh) : first_of_stages(mesh));
    whole.options = candidate.options;
    whole.prediction.timeline.clear();
    candidate = std::move(whole);
    return fits(candidate, device_);
  }

  int stages_of(const Layout& layout) const {
    return engine::named_strategy(laid_out(recipe_, layout)).mesh[dist::Axis::Pipeline];
  }

  // Largest first.
  std::vector<int64_t> micro_batches(const Layout& layout) const {
    if (recipe_.given("train.micro_batch_size")) return {recipe_.train.micro_batch_size};
    std::vector<int64_t> sizes;
    const int64_t samples = recipe_.train.global_batch_size /
                            engine::named_strategy(laid_out(recipe_, layout)).mesh.num_data_ranks();
    for (int64_t size = samples; size >= 1; --size)
      if (samples % size == 0 && (size == 1 || !is_too_large(work_, recipe_, size)))
        sizes.push_back(size);
    return sizes;
  }

  std::string changes(const recipe::Recipe& r) const {
    std::string text;
    const auto add = [&](bool changed, const std::string& option) {
      if (changed) text += (text.empty() ? "" : " ") + option;
    };
    add(r.strategy != recipe_.strategy, "--strategy " + r.strategy);
    add(r.mesh != recipe_.mesh, "--mesh " + r.mesh);
    add(r.pipeline_interleave != recipe_.pipeline_interleave,
        fmt::format("--pipeline_interleave {}", r.pipeline_interleave));
    add(r.train.micro_batch_size != recipe_.train.micro_batch_size,
        fmt::format("--train.micro_batch_size {}", r.train.micro_batch_size));
    // The global batch stays.
    if (const auto accumulated = recipe_.train.accumulate_grad_batches) {
      const int64_t now = recipe::micro_batches_of_step(r);
      add(now != *accumulated, fmt::format("--train.accumulate_grad_batches {}", now));
    }
    const std::string techniques = technique_options(recipe_, r);
    add(!techniques.empty(), techniques);
    return text;
  }

  const models::Model& model_;
  const recipe::Recipe& recipe_;
  const Workload& work_;
  const DeviceProfile& device_;
  const Techniques techniques_;
  std::string folder_ = recipe_.fit_disk;  // for states on disk
  std::vector<Candidate> found_;
  std::optional<Candidate> smallest_;
  double best_seconds_ = kNever;   // of those that fit
  double last_seconds_ = 0;        // of the one that was tried last
  Missing last_missing_;           // for it
  bool host_was_missing_ = false;  // and nothing else, for one that was tried
  bool has_layouts_ = false;       // more than one
  double least_products_ = 0, least_memory_ = 0;
  int64_t tried_ = 0;
};

}  // namespace

bool Fit::chose_disk(const recipe::Recipe& asked) const {
  return best && best->recipe.offload_folder() && !asked.given("optimizer_offload");
}

Fit fit(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
        const DeviceProfile& device) {
  if (device.assumed_host_bytes == 0) return FitSearch(model, recipe, work, device).run();
  // Stay within assumed host memory if possible.
  DeviceProfile within = device;
  within.host_bytes = device.assumed_host_bytes;
  Fit found = FitSearch(model, recipe, work, within).run();
  if (found.best) return found;
  Fit beyond = FitSearch(model, recipe, work, device).run();
  beyond.tried += found.tried;
  return beyond;
}

}  // namespace snug::plan
