// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include <ATen/ThreadLocalState.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "core/memory/meta_count.h"
#include "data/each_index.h"
#include "engine/exec/pipeline_schedule.h"
#include "engine/strategy.h"
#include "plan/search_space.h"
#include "recipe/batches.h"
#include "recipe/techniques/checkpointing.h"
#include "watch/machine/machine.h"

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
    divide(divided);
    Fit result;
    const bool disk_helps = found_.empty() && host_was_missing_ && techniques_.may_use_disk();
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
  void divide(const std::vector<Layout>& divided) {
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
      const Trial trial = try_one(divided[t.layout], settings.front(), t.size);
      if (trial.outcome == Outcome::Refused) continue;
      const double seconds = trial.candidate.cost.seconds();
      best[t.layout] = std::min(best[t.layout], seconds);
      if (trial.outcome == Outcome::TooLarge &&
          std::ranges::find(too_large, t.layout) == too_large.end())
        too_large.push_back(t.layout);
      // Without a pipeline smaller micro-batches only take longer.
      is_done[t.layout] = stages_of(divided[t.layout]) == 1 &&
                          (trial.outcome == Outcome::Fits || !is_worth(seconds));
    }
    for (const size_t i : too_large)
      if (is_worth(best[i]))
        // More of them only take longer.
        with_techniques(divided[i], {settings.begin() + 1, settings.end()});
  }

  // Settings from what takes most memory to what takes least. They are planned side by side, and
  // considered one after the other, so that the result depends on no processor's speed.
  void with_techniques(const Layout& layout, const std::vector<Setting>& settings) {
    if (!may_fit(layout, settings)) return;
    const std::vector<int64_t> sizes = micro_batches(layout);
    std::vector<std::vector<Trial>> trials(settings.size());
    for_each_plan(settings.size(), [&](size_t i) {
      trials[i] = stages_of(layout) > 1 ? of_pipeline(layout, settings[i], sizes)
                  : tries_all(sizes)    ? ends(layout, settings[i], sizes)
                                        : largest_that_fits(layout, settings[i], sizes);
    });
    for (const std::vector<Trial>& of_setting : trials)
      for (const Trial& trial : of_setting) consider(trial);
    if (!tries_all(sizes) || stages_of(layout) > 1 || sizes.size() < 3) return;
    std::vector<Combination> between;
    for (size_t i = 0; i < settings.size(); ++i)
      if (trials[i].size() == 2 && may_be_on_front(trials[i].front(), trials[i].back()))
        for (size_t k = 1; k + 1 < sizes.size(); ++k)
          between.push_back({&layout, &settings[i], sizes[k]});
    std::vector<Trial> more(between.size());
    for_each_plan(between.size(), [&](size_t i) { more[i] = planned(between[i]); });
    for (const Trial& trial : more) consider(trial);
  }

  // A layout that fits neither with the last setting nor with the last one whose techniques all
  // save at any size, with the smallest micro-batch, fits with none. The others save most where a
  // step has one micro-batch, the largest.
  bool may_fit(const Layout& layout, const std::vector<Setting>& settings) {
    const std::vector<int64_t> sizes = micro_batches(layout);
    if (sizes.empty()) return false;
    struct Leanest {
      bool by_size;
      int64_t size;
    };
    for (const auto [by_size, size] :
         {Leanest{true, sizes.back()}, {true, sizes.front()}, {false, sizes.back()}})
      for (auto leanest = settings.rbegin(); leanest != settings.rend(); ++leanest) {
        if (leanest->saves_by_size() != by_size) continue;
        const Trial trial = try_one(layout, *leanest, size);
        if (trial.outcome == Outcome::Refused) continue;
        // Only the host has too little memory: a setting that offloads less may fit.
        if (trial.outcome == Outcome::TooLarge && trial.missing.on_device == 0) return true;
        if (trial.outcome == Outcome::TooLarge) break;
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
    for (const recipe::Technique& technique : recipe::techniques())
      if (technique.repeats_forward() && is_on(technique, r) &&
          !recipe_.given(std::string(technique.key)))  // else all candidates are alike
        return;
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

  struct Combination {
    const Layout* layout;
    const Setting* setting;
    int64_t micro_batch_size;
  };
  enum class Outcome { Refused, TooLarge, Fits };
  struct Trial {
    Outcome outcome = Outcome::Refused;
    int64_t plans = 0;    // that it took
    Candidate candidate;  // of the last of them
    Missing missing;
  };

  // On all processors, each plan with ledgers of its own.
  template <class Work>
  void for_each_plan(size_t count, const Work& work) const {
    const at::ThreadLocalState state;
    data::for_each_index(count, num_threads(), [&](size_t i) {
      const at::ThreadLocalStateGuard same_state(state);
      const memory::OwnMetaLedgers ledgers;
      work(i);
    });
  }

  int num_threads() const {
    const auto most = static_cast<int>(recipe_.num_threads);
    return most > 0 ? std::min(most, machine::usable_cores()) : machine::usable_cores();
  }

  // Whether a technique that is on here, but not in the given recipe, does nothing for this
  // micro-batch. With clipping it does: it takes less, at the price of a second backward, which is
  // why suggestions leave it out.
  bool saves_nothing(const recipe::Recipe& r) const {
    if (r.train.max_norm.value_or(0) > 0) return false;
    return std::ranges::any_of(recipe::techniques(), [&](const recipe::Technique& technique) {
      return technique.saves != nullptr && !technique.saves(r) && recipe::is_on(technique, r) &&
             !recipe::is_on(technique, recipe_);
    });
  }

  Trial planned(const Combination& tried) const {
    const Layout& layout = *tried.layout;
    recipe::Recipe recipe = Techniques::applied(laid_out(recipe_, layout), *tried.setting);
    recipe.train.micro_batch_size = tried.micro_batch_size;
    if (saves_nothing(recipe)) return {};
    if (layout.divides_the_model() && !is_worth(least_seconds(recipe))) return {};
    Trial trial{.plans = 1};
    try {
      trial.candidate = evaluate_neediest(model_, recipe, work_, device_, Detail::Sketch);
    } catch (const UserError&) {
      return trial;  // the device has no way to run it
    }
    trial.candidate.options = changes(recipe);
    trial.candidate.prediction.timeline.clear();
    trial.missing = missing(trial.candidate, device_);
    trial.outcome = trial.missing.sum() > 0 ? Outcome::TooLarge : Outcome::Fits;
    return trial;
  }

  void consider(const Trial& trial) {
    tried_ += trial.plans;
    if (trial.outcome == Outcome::Refused) return;
    learn(trial.candidate);
    if (trial.outcome == Outcome::TooLarge) {
      host_was_missing_ |= trial.missing.on_device == 0 && trial.missing.in_host > 0;
      remember_smallest(trial.candidate);
      return;
    }
    best_seconds_ = std::min(best_seconds_, trial.candidate.cost.seconds());
    found_.push_back(trial.candidate);
  }

  Trial try_one(const Layout& layout, const Setting& setting, int64_t micro_batch_size) {
    Trial trial = planned({&layout, &setting, micro_batch_size});
    consider(trial);
    return trial;
  }

  // --- the micro-batches of a setting ---

  // Of a single layout all are of interest, if they are few: smaller ones take less memory, perhaps
  // at less time than other techniques would.
  bool tries_all(const std::vector<int64_t>& sizes) const {
    constexpr size_t kFew = 6;  // a global batch of 32
    return !has_layouts_ && sizes.size() <= kFew;
  }

  std::vector<Trial> ends(const Layout& layout, const Setting& setting,
                          const std::vector<int64_t>& sizes) const {
    std::vector<Trial> trials{planned({&layout, &setting, sizes.front()})};
    if (trials.back().outcome != Outcome::Refused && sizes.size() > 1)
      trials.push_back(planned({&layout, &setting, sizes.back()}));
    return trials;
  }

  // Whether a micro-batch between these two could be faster than all that take no more memory: a
  // larger one takes no less memory and no more time, but for pipelines and for a step of one
  // micro-batch whose gradients the backward frees, which is always tried.
  bool may_be_on_front(const Trial& largest, const Trial& smallest) const {
    if (largest.outcome == Outcome::Refused || smallest.outcome != Outcome::Fits) return false;
    const StepCost& cost = largest.candidate.cost;
    const double seconds = cost.seconds() - cost.retry_seconds;
    const int64_t bytes = bytes_on_device(smallest.candidate.prediction, device_.kind);
    return std::ranges::none_of(found_, [&](const Candidate& found) {
      return found.cost.seconds() <= seconds &&
             bytes_on_device(found.prediction, device_.kind) <= bytes;
    });
  }

  // By halving; if none fits, the smallest.
  std::vector<Trial> largest_that_fits(const Layout& layout, const Setting& setting,
                                       const std::vector<int64_t>& sizes) const {
    std::vector<Trial> trials = ends(layout, setting, sizes);
    if (trials.front().outcome == Outcome::Fits) return {trials.front()};
    if (trials.back().outcome != Outcome::Fits) return trials;
    Trial best = std::move(trials.back());
    int64_t plans = trials.front().plans + best.plans;
    for (size_t too_large = 0, fits = sizes.size() - 1; fits - too_large > 1;) {
      const size_t middle = std::midpoint(too_large, fits);
      Trial trial = planned({&layout, &setting, sizes[middle]});
      plans += trial.plans;
      if (trial.outcome == Outcome::Fits) {
        fits = middle;
        best = std::move(trial);
      } else {
        too_large = middle;
      }
    }
    best.plans = plans;
    return {best};
  }

  // In a pipeline smaller ones wait less: each is tried, from the smallest, until it takes longer
  // again.
  std::vector<Trial> of_pipeline(const Layout& layout, const Setting& setting,
                                 const std::vector<int64_t>& sizes) const {
    std::vector<Trial> trials;
    double before = kNever;
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      trials.push_back(planned({&layout, &setting, *size}));
      if (trials.back().outcome != Outcome::Fits || trials.back().candidate.cost.seconds() > before)
        break;
      before = trials.back().candidate.cost.seconds();
    }
    return trials;
  }

  void remember_smallest(const Candidate& candidate) {
    if (!smallest_ || missing(candidate, device_).sum() < missing(*smallest_, device_).sum())
      smallest_ = candidate;
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
  bool host_was_missing_ = false;  // and nothing else, for one that was tried
  bool has_layouts_ = false;       // more than one
  double least_products_ = 0, least_memory_ = 0;
  int64_t tried_ = 0;
};

}  // namespace

bool Fit::chose_disk(const recipe::Recipe& asked) const {
  return best && best->recipe.offload_folder() && !asked.offload_folder();
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
