// SPDX-License-Identifier: Apache-2.0
#include "train/plan.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "models/family.h"
#include "plan/fit.h"
#include "plan/suggest.h"
#include "report/plan_page.h"
#include "report/tables.h"
#include "setup/adapters.h"
#include "setup/reading.h"
#include "setup/strategy.h"
#include "setup/trained_parts.h"
#include "setup/vocabulary.h"
#include "train/open_data.h"
#include "train/out_of_memory.h"
#include "train/plan_devices.h"
#include "train/plan_like.h"

namespace snug::train {
namespace {

using nlohmann::json;

std::map<std::string, int64_t> named(const memory::ByCategory& bytes) {
  std::map<std::string, int64_t> result;
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    result[memory::name(static_cast<memory::Category>(c))] = bytes[c];
  return result;
}

// A sample of `length` tokens; for an encoder, of as many on either side. A picture's places come
// first and leave the rest to the text.
data::Sample full_length_sample(int64_t length, const data::Reading& reading) {
  data::Sample sample;
  const auto add = [&](int64_t count, int32_t id, int32_t label) {
    sample.ids.insert(sample.ids.end(), static_cast<size_t>(count), id);
    sample.labels.insert(sample.labels.end(), static_cast<size_t>(count), label);
  };
  const int32_t ignored = data::SampleOptions().ignore_index;
  const int64_t places = reading.image_size > 0 ? reading.num_picture_tokens : 0;
  add(places, reading.picture_token, ignored);
  if (reading.source) {
    add(places > 0 ? 1 : length, 1, ignored);  // no prompt but the end of the sequence
    sample.source_tokens = std::ssize(sample.ids);
  }
  add(length - places, 1, 1);
  return sample;
}

// Enough of them for a global batch.
data::SampleStore full_length_samples(int64_t count, int64_t length, const data::Reading& reading) {
  data::SampleStore samples;
  for (int64_t i = 0; i < count; ++i) samples.append(full_length_sample(length, reading));
  return samples;
}

std::string seconds_text(double seconds) {
  return seconds < 100 ? fmt::format("{:.3g}", seconds) : fmt::format("{:.0f}", seconds);
}

class Plan {
 public:
  Plan(const config::Recipe& recipe, const config::PlanOptions& options)
      : recipe_(recipe), options_(options) {}

  void run() {
    memory::install_allocators();
    if (recipe_.num_threads > 0) at::set_num_threads(static_cast<int>(recipe_.num_threads));
    check_page_folder();
    const int64_t budget =
        recipe_.memory_budget.empty() ? 0 : parse_bytes(recipe_.memory_budget, "memory_budget");
    device_ = plan::find_profile(options_.device, budget);
    open_model();
    open_samples();
    plan_ranks();
    if (recipe_.fit) fit_ = plan::fit(*checkpoint_.model, recipe_, workload(), device_);
    if (options_.scaling) scaling_.emplace(*checkpoint_.model, recipe_, workload(), device_);
    if (!options_.like.empty())
      like_ = make_like(options_.like, *checkpoint_.model, wanted_, samples_, device_);
    describe();
    if (options_.json)
      std::printf("%s\n", as_json().dump(2).c_str());
    else
      print();
    if (!options_.html.empty()) {
      write_file_atomically(options_.html, report::plan_html(page()));
      if (!options_.json) std::printf("\nThe page is %s\n", options_.html.c_str());
    }
    const bool found = fit_ && fit_->best;
    if (!wanted_fits() && !found)
      throw OutOfMemory(
          fmt::format("this recipe does not fit into {}",
                      recipe_.memory_budget.empty()
                          ? device_.name
                          : fmt::format("the memory_budget of {}", recipe_.memory_budget)));
  }

 private:
  // Before the work, not after it.
  void check_page_folder() const {
    if (options_.html.empty()) return;
    const std::filesystem::path folder = std::filesystem::absolute(options_.html).parent_path();
    if (!std::filesystem::is_directory(folder))
      throw UserError("--html {}: there is no folder {}", options_.html, folder.string());
  }

  void open_model() {
    const bool from_scratch = !recipe_.model.config.empty();
    if (from_scratch)
      checkpoint_.path = recipe_.checkpoint_dir;  // may hold a tokenizer
    else
      checkpoint_ = models::open_checkpoint(recipe_.checkpoint_dir);
    if (from_scratch) checkpoint_.model = models::model_from_config(recipe_.model.config);
  }

  void open_samples() {
    const models::Model& model = *checkpoint_.model;
    const bool names_data = !recipe_.data.json_path.empty() || !recipe_.data.path.empty();
    from_data_ = names_data && !recipe_.checkpoint_dir.empty();
    recipe_.train.max_seq_length = longest_sample(recipe_, model);
    if (from_data_) {
      data::Dataset dataset =
          open_data(recipe_, model, recipe_.checkpoint_dir, *setup::open_tokenizer(checkpoint_));
      reading_ = dataset.batch_options.reading;
      samples_ = std::move(dataset.train);
      if (samples_.count() == 0)
        throw UserError("{} has no samples",
                        recipe_.data.path.empty() ? recipe_.data.json_path : recipe_.data.path);
    } else {
      reading_ = setup::reading_of(model);
      samples_ = full_length_samples(recipe_.train.global_batch_size, *recipe_.train.max_seq_length,
                                     reading_);
    }
    longest_ = samples_.longest();
  }
  plan::Workload workload() const {
    return {.samples = samples_, .max_seqlen = longest_, .reading = reading_};
  }

  // Ranks differ by their stage of the pipeline: the plan shows the one that needs most.
  void plan_ranks() {
    const dist::MeshShape mesh = setup::named_strategy(recipe_).mesh;
    const int stages = mesh[dist::Axis::Pipeline];
    for (int stage = 0; stage < stages; ++stage)
      stages_.push_back(plan::evaluate(*checkpoint_.model, recipe_, workload(), device_,
                                       stage * (mesh.num_ranks() / stages)));
    wanted_ = *std::max_element(stages_.begin(), stages_.end(),
                                [](const plan::Candidate& a, const plan::Candidate& b) {
                                  return a.prediction.peak_allocated < b.prediction.peak_allocated;
                                });
  }
  bool has_many_devices() const { return setup::named_ranks(recipe_) > 1; }

  const plan::Prediction& prediction() const { return wanted_.prediction; }
  bool wanted_fits() const {
    return std::all_of(stages_.begin(), stages_.end(),
                       [&](const plan::Candidate& c) { return plan::fits(c, device_); });
  }
  int64_t need() const {
    return device_.kind == at::kCUDA ? prediction().peak_reserved : prediction().peak_allocated;
  }

  // What terminal and page both say.
  void describe() {
    const config::TrainOptions& t = recipe_.train;
    add("Model    {}: {}, {}{}, {}",
        recipe_.model.config.empty() ? recipe_.checkpoint_dir : recipe_.model.config, parameters(),
        recipe_.precision,
        recipe_.quantize.empty() ? "" : ", frozen weights in " + recipe_.quantize,
        recipe_.optimizer.name);
    const int64_t micro_batches =
        setup::micro_batches_of_step(recipe_, setup::named_strategy(recipe_).mesh);
    add("Batch    {}, {} micro-batch{} a step{}",
        from_data_
            ? fmt::format("{} samples of up to {} tokens ({} in all: the longest of the data)",
                          t.micro_batch_size, longest_, with_commas(prediction().tokens))
            : fmt::format("{} x {} tokens (train.max_seq_length, no data read)", t.micro_batch_size,
                          longest_),
        micro_batches, micro_batches == 1 ? "" : "es", has_many_devices() ? " on each device" : "");
    add("Device   {}: {}{}{}", device_.name, format_bytes(device_.memory_bytes),
        recipe_.memory_budget.empty() ? "" : " (memory_budget)",
        device_.context_bytes > 0 ? fmt::format(", of which driver and libraries take {}",
                                                format_bytes(device_.context_bytes))
                                  : "");
    if (has_many_devices()) add("Devices  {}", devices_line(recipe_));
    const int64_t margin = device_.usable_bytes() - need();
    add("Plan     {}peak {}{}: {}", whose_peak(), format_bytes(prediction().peak_allocated),
        device_.kind == at::kCUDA
            ? fmt::format(" allocated, {} reserved", format_bytes(prediction().peak_reserved))
            : "",
        wanted_fits()
            ? fmt::format("fits, {} to spare", format_bytes(margin))
            : fmt::format("does not fit, {} missing",
                          format_bytes(std::max<int64_t>(
                              -margin, prediction().peak_allocated - device_.usable_bytes()))));
    if (prediction().peak_host > 0)
      add("Host     {} beside it{}", format_bytes(prediction().peak_host),
          device_.host_bytes == 0 ? "" : fmt::format(" of {}", format_bytes(device_.host_bytes)));
    if (prediction().on_disk > 0)
      add("Disk     {} in {}", format_bytes(prediction().on_disk),
          recipe_.offload_folder().value_or(""));
    const plan::StepCost& c = wanted_.cost;
    add("Time     about {} s a step{}, {:.0f} tokens/s (products {:.0f} %, activations {:.0f} %, "
        "optimizer {:.0f} %, transfers {:.0f} %{}){}",
        seconds_text(c.seconds()), from_data_ ? " of average samples" : "", c.tokens_per_second(),
        100 * c.products_seconds / c.seconds(), 100 * c.memory_seconds / c.seconds(),
        100 * c.optimizer_seconds / c.seconds(), 100 * c.transfer_seconds / c.seconds(),
        has_many_devices() ? fmt::format(", waiting for other devices {:.0f} %",
                                         100 * (c.exposed_seconds + c.idle_seconds) / c.seconds())
                           : "",
        prediction().on_disk > 0 ? "; what the disk takes comes on top" : "");
  }

  std::string whose_peak() const {
    if (!has_many_devices()) return "";
    if (stages_.size() == 1) return fmt::format("each of {} ranks: ", setup::named_ranks(recipe_));
    const auto most =
        std::find_if(stages_.begin(), stages_.end(), [&](const plan::Candidate& candidate) {
          return candidate.prediction.peak_allocated == prediction().peak_allocated;
        });
    return fmt::format("stage {} of {}, which takes most: ", most - stages_.begin(),
                       stages_.size());
  }

  std::string stages_text() const {
    report::Table table({{"stage"}, {"weights"}, {"optimizer"}, {"peak allocated"}, {"reserved"}});
    for (size_t i = 0; i < stages_.size(); ++i) {
      const plan::Prediction& p = stages_[i].prediction;
      const auto resident = [&](memory::Category category) {
        return format_bytes(p.resident[static_cast<size_t>(category)]);
      };
      table.add_row({std::to_string(i), resident(memory::Category::Parameters),
                     resident(memory::Category::Optimizer), format_bytes(p.peak_allocated),
                     format_bytes(p.peak_reserved)});
    }
    return table.render();
  }

  // Under the timeline: what there is to say of several devices.
  std::string devices_text() const {
    std::string text;
    if (stages_.size() > 1) text += "\nRanks of each stage of the pipeline\n\n" + stages_text();
    if (const std::string links = links_text(wanted_, device_); !links.empty())
      text += "\n" + links;
    if (scaling_) text += "\n" + scaling_->text();
    return text;
  }

  std::string parameters() const {
    const auto twin = models::model_like(*checkpoint_.model);
    setup::choose_trained(*twin, recipe_);
    const setup::ParameterCount count = setup::count_parameters(*twin);
    return fmt::format("{} parameters, {} trained", with_commas(count.total),
                       count.trained == count.total ? "all" : with_commas(count.trained));
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    lines_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void print() const {
    for (const std::string& line : lines_) std::printf("%s\n", line.c_str());
    std::vector<int64_t> course;
    for (const plan::Moment& moment : prediction().timeline) course.push_back(moment.allocated);
    std::printf("\nMemory over one step, from nothing to %s\n  %s\n",
                format_bytes(prediction().peak_allocated).c_str(),
                report::sparkline(course, 76).c_str());
    const auto peak = std::max_element(
        prediction().timeline.begin(), prediction().timeline.end(),
        [](const plan::Moment& a, const plan::Moment& b) { return a.allocated < b.allocated; });
    std::printf("\nAt the peak (%s, %s)\n\n%s", peak->unit.c_str(), memory::name(peak->phase),
                report::memory_bars(named(prediction().by_category)).c_str());
    std::printf("%s", devices_text().c_str());
    if (like_) std::printf("\n%s", like_->text().c_str());
    if (fit_) std::printf("\n%s", fit_text().c_str());
    if (!wanted_fits() && !fit_) std::printf("\n%s", suggestions().c_str());
  }

  std::string suggestions() const {
    const auto found = plan::suggest(*checkpoint_.model, recipe_, workload(), device_);
    return found.empty() ? "Nothing this version can change makes it fit.\n"
                         : "What would fit (--fit finds the fastest):" +
                               suggestion_lines(suggestion_records(found, "")) + "\n";
  }

  std::string fit_text() const {
    if (!fit_->best)
      return fmt::format("Fit: none of {} combinations fits into {}.{}\n", fit_->tried,
                         format_bytes(device_.usable_bytes()), nearest_miss());
    report::Table table(
        {{"peak"}, {"host"}, {"s a step"}, {"tokens/s"}, {"options", report::Align::Left}});
    for (const plan::Candidate& c : fit_->front)
      table.add_row({format_bytes(c.prediction.peak_allocated),
                     c.prediction.peak_host > 0 ? format_bytes(c.prediction.peak_host) : "-",
                     seconds_text(c.cost.seconds()),
                     fmt::format("{:.0f}", c.cost.tokens_per_second()),
                     c.options.empty() ? "(as the recipe is)" : c.options});
    std::string text = fmt::format(
        "Fit: the fastest first, each further row the fastest of those that take less "
        "({} combinations tried)\n\n{}",
        fit_->tried, table.render());
    return text + "\nThe first row's options, as YAML:\n" + yaml();
  }

  std::string nearest_miss() const {
    if (!fit_->smallest) return "";
    const plan::Prediction& p = fit_->smallest->prediction;
    std::string host;
    if (p.peak_host > 0) host = fmt::format(" and {} of host memory", format_bytes(p.peak_host));
    return fmt::format("\nThe smallest takes {}{}: {}",
                       format_bytes(device_.kind == at::kCUDA ? p.peak_reserved : p.peak_allocated),
                       host, fit_->smallest->options);
  }

  std::string yaml() const {
    const config::Recipe& r = fit_->best->recipe;
    const std::string strategy =
        has_many_devices() ? fmt::format("strategy: {}\n", r.strategy) : "";
    return strategy +
           fmt::format(
               "train:\n  micro_batch_size: {}\nactivation_checkpointing: {}\nactivation_offload: "
               "{}\n"
               "optimizer_in_backward: {}\noptimizer_offload: {}\nweight_streaming: {}\n",
               r.train.micro_batch_size, r.activation_checkpointing, r.activation_offload,
               r.optimizer_in_backward, r.optimizer_offload, r.weight_streaming);
  }

  static json cost_json(const plan::StepCost& c) {
    return {{"step_seconds", c.seconds()},
            {"tokens_per_second", c.tokens_per_second()},
            {"products_seconds", c.products_seconds},
            {"activations_seconds", c.memory_seconds},
            {"optimizer_seconds", c.optimizer_seconds},
            {"transfer_seconds", c.transfer_seconds},
            {"collective_seconds", c.collective_seconds},
            {"exposed_collective_seconds", c.exposed_seconds},
            {"idle_seconds", c.idle_seconds}};
  }

  json candidate_json(const plan::Candidate& c) const {
    return {{"options", c.options},
            {"fits", plan::fits(c, device_)},
            {"micro_batch_size", c.recipe.train.micro_batch_size},
            {"strategy", c.recipe.strategy},
            {"peak_allocated", c.prediction.peak_allocated},
            {"peak_reserved", c.prediction.peak_reserved},
            {"offloaded_to_host", c.prediction.peak_host},
            {"time", cost_json(c.cost)}};
  }

  json as_json() const {
    json timeline = json::array();
    for (const plan::Moment& moment : prediction().timeline)
      timeline.push_back({{"unit", moment.unit},
                          {"phase", memory::name(moment.phase)},
                          {"allocated", moment.allocated},
                          {"by_category", named(moment.by_category)}});
    json out{{"schema", 1},
             {"model", {{"parameters", checkpoint_.model->num_parameters()}}},
             {"device",
              {{"name", device_.name},
               {"memory_bytes", device_.memory_bytes},
               {"context_bytes", device_.context_bytes}}},
             {"batch",
              {{"micro_batch_size", recipe_.train.micro_batch_size},
               {"tokens_per_sample", longest_},
               {"global_batch_size", recipe_.train.global_batch_size}}},
             {"fits", wanted_fits()},
             {"margin_bytes", device_.usable_bytes() - need()},
             {"memory",
              {{"peak_allocated", prediction().peak_allocated},
               {"peak_reserved", prediction().peak_reserved},
               {"offloaded_to_host", prediction().peak_host},
               {"on_disk", prediction().on_disk},
               {"by_category", named(prediction().by_category)},
               {"host_by_category", named(prediction().host_by_category)}}},
             {"time", cost_json(wanted_.cost)},
             {"timeline", timeline}};
    if (has_many_devices()) {
      out["ranks"] = setup::named_ranks(recipe_);
      out["links"] = links_json(wanted_, device_);
      for (const plan::Candidate& stage : stages_)
        out["stages"].push_back({{"peak_allocated", stage.prediction.peak_allocated},
                                 {"peak_reserved", stage.prediction.peak_reserved}});
    }
    if (scaling_) out["scaling"] = scaling_->json();
    if (like_) out["like"] = like_->json();
    if (fit_) {
      json front = json::array();
      for (const plan::Candidate& c : fit_->front) front.push_back(candidate_json(c));
      out["fit"] = {{"tried", fit_->tried}, {"front", front}};
      if (fit_->best) out["fit"]["best"] = candidate_json(*fit_->best);
    }
    return out;
  }

  report::PlanPage page() const {
    report::PlanPage page{.title = "Plan: " + (recipe_.model.config.empty() ? recipe_.checkpoint_dir
                                                                            : recipe_.model.config),
                          .lines = lines_,
                          .categories = {},
                          .moments = {},
                          .limit_bytes = device_.usable_bytes(),
                          .table = fit_ ? fit_text() : "",
                          .beside = devices_text() + (like_ ? like_->text() : "")};
    for (size_t c = 0; c < memory::kNumCategories; ++c)
      page.categories.emplace_back(memory::name(static_cast<memory::Category>(c)));
    for (const plan::Moment& moment : prediction().timeline)
      page.moments.push_back({fmt::format("{}, {}", moment.unit, memory::name(moment.phase)),
                              memory::name(moment.phase),
                              {moment.by_category.begin(), moment.by_category.end()}});
    return page;
  }

  config::Recipe recipe_;
  const config::PlanOptions& options_;
  plan::DeviceProfile device_;
  models::Checkpoint checkpoint_;
  data::SampleStore samples_;
  data::Reading reading_;
  int64_t longest_ = 0;
  bool from_data_ = false;
  std::vector<plan::Candidate> stages_;  // one a stage of the pipeline
  plan::Candidate wanted_;               // the one that takes most
  std::optional<plan::Fit> fit_;
  std::optional<Scaling> scaling_;
  std::unique_ptr<Like> like_;
  std::vector<std::string> lines_;
};

}  // namespace

void plan(const config::Recipe& recipe, const config::PlanOptions& options) {
  Plan(recipe, options).run();
}

}  // namespace snug::train
