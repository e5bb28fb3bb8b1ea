// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "data/synthetic.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/trained_parts.h"
#include "engine/export/vocabulary.h"
#include "engine/host.h"
#include "engine/open_data.h"
#include "engine/run_length.h"
#include "engine/strategy.h"
#include "models/family.h"
#include "plan/command/plan_devices.h"
#include "plan/command/plan_json.h"
#include "plan/command/plan_like.h"
#include "plan/fit.h"
#include "plan/out_of_memory.h"
#include "plan/suggest.h"
#include "recipe/tables/techniques.h"
#include "report/run_page.h"
#include "report/tables.h"
#include "train/launch/command.h"

namespace snug::plan {
namespace {

using nlohmann::json;

// Enough of them for a global batch.
data::SampleStore full_length_samples(int64_t count, int64_t length, const data::Reading& reading) {
  data::SampleStore samples;
  samples.append(data::full_length_sample(length, reading, [] { return 1; }));
  samples.repeat_to(count);
  return samples;
}

std::string rate_text(double bytes_per_second) {
  return fmt::format("{:.2g}", bytes_per_second / 1e9);
}

namespace fs = std::filesystem;

bool is_shape_alone(const fs::path& folder) {
  if (!fs::is_directory(folder) || !fs::exists(folder / "config.json")) return false;
  return std::ranges::none_of(fs::directory_iterator(folder), [](const auto& entry) {
    const std::string ending = entry.path().extension().string();
    return ending == ".safetensors" || ending == ".bin" || ending == ".pth" || ending == ".gguf";
  });
}

// A plan needs no weights: a model's shape is enough, as a file or in a folder, and whoever has
// neither is told so.
models::Checkpoint open_present(const fs::path& checkpoint) {
  models::Checkpoint shape;
  if (is_shape_alone(checkpoint)) {
    shape.path = checkpoint;
    shape.model = models::model_from_config(checkpoint / "config.json");
    return shape;
  }
  if (checkpoint.extension() == ".json" && fs::is_regular_file(checkpoint)) {
    shape.path = checkpoint.parent_path();
    shape.model = models::model_from_config(checkpoint);
    return shape;
  }
  if (fs::exists(checkpoint)) return models::open_checkpoint(checkpoint);
  const std::string name = checkpoint.filename().string();
  const std::string config = fmt::format("recipes/models/{}.json", name);
  throw UserError(
      "{} does not exist. A plan needs only the model's config: --checkpoint_dir none "
      "--model.config {}. Or download it: snug download {}/{}",
      checkpoint.string(),
      fs::exists(shipped_file(config)) ? config : "recipes/models/….json, or a config.json",
      checkpoint.has_parent_path() ? checkpoint.parent_path().filename().string() : "ORG", name);
}

// Tokens of a sample where neither data nor recipe say how many, and the model takes more than
// anybody trains on.
constexpr int64_t kUsualLength = 2048, kLongestUsual = 8192;

class Plan {
 public:
  Plan(const recipe::Recipe& recipe, const recipe::PlanOptions& options)
      : recipe_(recipe), options_(options) {}

  void run() {
    memory::install_allocators();
    engine::use_threads(recipe_.num_threads);
    check_page_folder();
    const int64_t budget =
        recipe_.memory_budget.empty() ? 0 : parse_bytes(recipe_.memory_budget, "memory_budget");
    const plan::DeviceProfile device = plan::find_profile(options_.device, budget);
    // Its own file may say more of a cpu than this machine can.
    const bool is_here = options_.device == "cpu";
    device_ =
        plan::with_host(device, recipe_, is_here ? plan::Machine::Here : plan::Machine::Elsewhere);
    share_cores();
    open_model();
    open_samples();
    plan_ranks();
    if (recipe_.fit) fit_ = plan::fit(*checkpoint_.model, recipe_, workload(), device_);
    if (options_.scaling) scaling_.emplace(*checkpoint_.model, recipe_, workload(), device_);
    if (!options_.like.empty())
      like_.emplace(options_.like, *checkpoint_.model, wanted_, samples_, device_);
    describe();
    warn_of_assumed_host();
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
      throw OutOfMemory(fmt::format("this recipe does not fit into {}", what_is_too_small()));
  }

 private:
  std::string what_is_too_small() const {
    const plan::Missing lacking = missing();
    if (lacking.on_device > 0)
      return recipe_.memory_budget.empty()
                 ? device_.name
                 : fmt::format("the memory_budget of {}", recipe_.memory_budget);
    if (lacking.in_host > 0)
      return fmt::format("the {} of host memory", format_bytes(device_.host_bytes));
    return fmt::format("the {} that is free on the disk", format_bytes(device_.disk_bytes));
  }

  // Before the work, not after it.
  void check_page_folder() const {
    if (options_.html.empty()) return;
    const std::filesystem::path folder = std::filesystem::absolute(options_.html).parent_path();
    if (!std::filesystem::is_directory(folder))
      throw UserError("--html {}: there is no folder {}", options_.html, folder.string());
  }

  // On a CPU the kernels' scratch grows with their threads: ranks of one machine have a share each.
  void share_cores() const {
    const int64_t ranks = engine::named_ranks_per_node(recipe_);
    if (device_.kind == at::kCPU && ranks > 1 && recipe_.num_threads == 0)
      at::set_num_threads(launch::threads_each(static_cast<int>(ranks)));
  }

  void open_model() {
    const bool from_scratch = !recipe_.model.config.empty();
    if (from_scratch)
      checkpoint_.path = recipe_.checkpoint_dir;  // may hold a tokenizer
    else
      checkpoint_ = open_present(recipe_.checkpoint_dir);
    if (from_scratch) checkpoint_.model = models::model_from_config(recipe_.model.config);
  }

  void open_samples() {
    const models::Model& model = *checkpoint_.model;
    const bool names_data = !recipe_.data.json_path.empty() || !recipe_.data.path.empty();
    const bool synthetic = engine::is_synthetic(recipe_.data);
    from_data_ = synthetic || (names_data && !recipe_.checkpoint_dir.empty());
    engine::tell_of_shorter_samples(recipe_, model);
    const int64_t longest = engine::longest_sample(recipe_, model);
    length_is_usual_ = !from_data_ && !recipe_.train.max_seq_length && longest > kLongestUsual;
    recipe_.train.max_seq_length = length_is_usual_ ? kUsualLength : longest;
    if (from_data_) {
      const auto tokenizer = synthetic ? nullptr : engine::open_tokenizer(checkpoint_);
      data::Dataset dataset =
          engine::open_data(recipe_, model, recipe_.checkpoint_dir, tokenizer.get());
      reading_ = dataset.batch_options.reading;
      samples_ = std::move(dataset.train);
      if (samples_.count() == 0)
        throw UserError("{} has no samples",
                        recipe_.data.path.empty() ? recipe_.data.json_path : recipe_.data.path);
      length_ = engine::run_length(recipe_, samples_,
                                   engine::named_strategy(recipe_).mesh.num_data_ranks());
    } else {
      reading_ = model.reads();
      samples_ = full_length_samples(recipe_.train.global_batch_size, *recipe_.train.max_seq_length,
                                     reading_);
    }
    longest_ = samples_.longest();
  }
  plan::Workload workload() const {
    return {
        .samples = samples_, .max_seqlen = longest_, .reading = reading_, .made_up = !from_data_};
  }

  // Ranks differ by their stage of the pipeline: the plan shows the one that needs most.
  void plan_ranks() {
    const dist::MeshShape mesh = engine::named_strategy(recipe_).mesh;
    for (const int rank : plan::first_of_stages(mesh))
      stages_.push_back(plan::evaluate(*checkpoint_.model, recipe_, workload(), device_, rank));
    wanted_ = plan::neediest_of(stages_, device_);
  }
  bool has_many_devices() const { return engine::named_ranks(recipe_) > 1; }

  const plan::Prediction& prediction() const { return wanted_.prediction; }
  // Of each kind what the neediest stage lacks.
  plan::Missing missing() const {
    plan::Missing most;
    for (const plan::Candidate& stage : stages_) {
      const plan::Missing of = plan::missing(stage, device_);
      most.on_device = std::max(most.on_device, of.on_device);
      most.in_host = std::max(most.in_host, of.in_host);
      most.on_disk = std::max(most.on_disk, of.on_disk);
    }
    return most;
  }
  bool wanted_fits() const { return missing().sum() == 0; }
  int64_t need() const { return plan::bytes_on_device(prediction(), device_.kind); }

  // What terminal and page both say.
  void describe() {
    const recipe::TrainOptions& t = recipe_.train;
    add("Model    {}: {}, {}{}, {}",
        recipe_.model.config.empty() ? recipe_.checkpoint_dir : recipe_.model.config, parameters(),
        recipe_.precision,
        recipe_.quantize.empty() ? "" : ", frozen weights in " + recipe_.quantize,
        recipe_.optimizer.name);
    const int64_t micro_batches =
        engine::micro_batches_of_step(recipe_, engine::named_strategy(recipe_).mesh);
    add("Batch    {}, {} micro-batch{} a step{}",
        from_data_
            ? fmt::format("{} samples of up to {} tokens ({} in all: the longest in the data)",
                          t.micro_batch_size, longest_, with_commas(prediction().tokens))
            : fmt::format("{} x {} tokens ({}, no data read)", t.micro_batch_size, longest_,
                          length_is_usual_ ? "a common length; set --max_seq_length N for another"
                                           : "train.max_seq_length"),
        micro_batches, micro_batches == 1 ? "" : "es", has_many_devices() ? " on each device" : "");
    add("Device   {}: {}{}{}", device_.name, format_bytes(device_.memory_bytes),
        recipe_.memory_budget.empty() ? "" : " (memory_budget)",
        device_.context_bytes > 0 ? fmt::format(", of which driver and libraries take {}",
                                                format_bytes(device_.context_bytes))
                                  : "");
    if (has_many_devices()) add("Devices  {}", devices_line(recipe_));
    const int64_t margin = device_.usable_bytes() - need();
    const plan::Missing lacking = missing();
    add("Plan     {}peak {}{}: {}", whose_peak(), format_bytes(prediction().peak_allocated),
        device_.kind == at::kCUDA
            ? fmt::format(" allocated, {} reserved", format_bytes(prediction().peak_reserved))
            : "",
        lacking.on_device > 0
            ? fmt::format("does not fit, {} missing",
                          format_bytes(std::max<int64_t>(
                              -margin, prediction().peak_allocated - device_.usable_bytes())))
            : fmt::format("fits{}, {} to spare", wanted_fits() ? "" : " the device",
                          format_bytes(margin)));
    if (prediction().peak_host > 0 || lacking.in_host > 0) add_host(lacking.in_host);
    if (prediction().on_disk > 0)
      add("Disk     {} in {}{}{}, read and written once a step at {} and {} GB/s",
          format_bytes(prediction().on_disk), recipe_.offload_folder().value_or(""),
          device_.disk_bytes == 0 ? ""
                                  : fmt::format(" of {} free", format_bytes(device_.disk_bytes)),
          missing_text(lacking.on_disk), rate_text(device_.disk_read_bytes_per_second),
          rate_text(device_.disk_write_bytes_per_second));
    add_time();
    if (!length_.note.empty()) add("Steps    {}", length_.note);
  }

  void add_host(int64_t lacking) {
    const std::string there = format_bytes(device_.host_bytes);
    if (lacking > 0)
      add("Host     {} of host memory{}: does not fit into {}, {} missing",
          format_bytes(prediction().peak_host),
          device_.kind == at::kCPU ? ", shared with the device" : "", there, format_bytes(lacking));
    else if (const int64_t assumed = device_.assumed_host_bytes; assumed > 0)
      add("Host     {}{} {} {} assumed (set --host_memory to change it)",
          format_bytes(prediction().peak_host), has_many_devices() ? " for each process" : "",
          plan::beyond_assumed_host(wanted_, device_) > 0 ? "of host memory, more than the" : "of",
          format_bytes(assumed));
    else
      add("Host     {}{}", format_bytes(prediction().peak_host),
          device_.host_bytes == 0 ? " of host memory" : " of " + there);
  }

  void warn_of_assumed_host() const {
    const plan::Candidate& chosen = fit_ && fit_->best ? *fit_->best : wanted_;
    if (const int64_t beyond = plan::beyond_assumed_host(chosen, device_); beyond > 0)
      warn(
          "the plan takes {} more host memory than the {} that a machine with this device is "
          "assumed to have; set --host_memory to the memory of yours",
          format_bytes(beyond), format_bytes(device_.assumed_host_bytes));
  }

  static std::string missing_text(int64_t bytes) {
    return bytes == 0 ? "" : fmt::format(": does not fit, {} missing", format_bytes(bytes));
  }

  void add_time() {
    const plan::StepCost& c = wanted_.cost;
    const auto share = [&](double seconds) { return 100 * seconds / c.seconds(); };
    std::string parts = fmt::format(
        "products {:.0f} %, activations {:.0f} %, optimizer {:.0f} %, transfers {:.0f} %",
        share(c.products_seconds), share(c.memory_seconds), share(c.exposed_optimizer_seconds),
        share(c.exposed_transfer_seconds));
    if (c.disk_seconds > 0) parts += fmt::format(", disk {:.0f} %", share(c.exposed_disk_seconds));
    if (has_many_devices())
      parts += fmt::format(", waiting for other devices {:.0f} %",
                           share(c.exposed_collective_seconds + c.idle_seconds));
    add("Time     about {} s/step{}, {:.0f} tokens/s ({})", seconds_text(c.seconds()),
        from_data_ ? " of average samples" : "", c.tokens_per_second(), parts);
    if (const std::string hidden = hidden_text(c); !hidden.empty())
      add("Hidden   {}: overlapped with the rest of the step", hidden);
  }

  // What of copies, updates and the disk costs no time; collectives have a line of their own.
  static std::string hidden_text(const plan::StepCost& c) {
    std::vector<std::string> parts;
    const auto part = [&](const char* name, double all, double exposed) {
      constexpr double kWorthAWord = 0.001;  // of the step
      if (all - exposed > kWorthAWord * c.seconds())
        parts.push_back(
            fmt::format("{} of {} s of {}", seconds_text(all - exposed), seconds_text(all), name));
    };
    part("transfers", c.transfer_seconds, c.exposed_transfer_seconds);
    part("the update", c.optimizer_seconds, c.exposed_optimizer_seconds);
    part("the disk", c.disk_seconds, c.exposed_disk_seconds);
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  std::string whose_peak() const {
    if (!has_many_devices()) return "";
    if (stages_.size() == 1) return fmt::format("each of {} ranks: ", engine::named_ranks(recipe_));
    const auto most =
        std::find_if(stages_.begin(), stages_.end(), [&](const plan::Candidate& candidate) {
          return candidate.prediction.peak_allocated == prediction().peak_allocated;
        });
    return fmt::format("stage {} of {}, the largest: ", most - stages_.begin(), stages_.size());
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

  engine::ParameterCount count_parameters() const {
    const auto twin = models::model_like(*checkpoint_.model);
    engine::choose_trained(*twin, recipe_);
    return engine::count_parameters(*twin);
  }

  std::string parameters() const {
    const engine::ParameterCount count = count_parameters();
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
    return found.empty() || !found.front().fits
               ? smallest_plan_text(found) + "\n"
               : "What would fit (--fit finds the fastest):" + suggestion_lines(found) + "\n";
  }

  // Of --fit: those that differ by less than a percent of peak and time are one row.
  report::Table fit_table() const {
    // Of one device there is no mesh to name.
    const bool many = has_many_devices(), on_gpu = device_.kind == at::kCUDA;
    const auto any = [&](auto is_it) { return std::ranges::any_of(fit_->front, is_it); };
    const bool any_disk = any([](const auto& c) { return c.prediction.on_disk > 0; });
    const bool any_close = any([&](const auto& c) { return is_close(c); });
    std::vector<report::Table::Column> columns{{on_gpu ? "reserved" : "peak"}};
    if (any_close) columns.push_back({"", report::Align::Left});
    columns.push_back({"host"});
    if (any_disk) columns.push_back({"disk"});
    columns.insert(columns.end(), {{"s/step"}, {"tokens/s"}});
    if (many) columns.push_back({"mesh", report::Align::Left});
    columns.push_back({"options", report::Align::Left});
    report::Table table(columns);
    const plan::Candidate* before = nullptr;
    for (const plan::Candidate& c : fit_->front) {
      if (before != nullptr && is_alike(*before, c)) continue;
      before = &c;
      const auto or_none = [](int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
      std::vector<std::string> row{format_bytes(bytes_of(c))};
      if (any_close) row.emplace_back(is_close(c) ? "close" : "");
      row.push_back(or_none(c.prediction.peak_host));
      if (any_disk) row.push_back(or_none(c.prediction.on_disk));
      row.push_back(seconds_text(c.cost.seconds()));
      row.push_back(fmt::format("{:.0f}", c.cost.tokens_per_second()));
      if (many) row.push_back(recipe::mesh_text(engine::named_strategy(c.recipe).mesh));
      row.push_back(c.options.empty() ? "(as the recipe is)" : c.options);
      table.add_row(row);
    }
    return table;
  }

  int64_t bytes_of(const plan::Candidate& c) const {
    return plan::bytes_on_device(c.prediction, device_.kind);
  }
  // Less than a twentieth is left.
  bool is_close(const plan::Candidate& c) const {
    return 20 * bytes_of(c) > 19 * device_.usable_bytes();
  }
  bool is_alike(const plan::Candidate& a, const plan::Candidate& b) const {
    const auto near = [](double x, double y) {
      constexpr double kAlike = 0.01;
      return std::abs(x - y) < kAlike * std::max(x, y);
    };
    return near(static_cast<double>(bytes_of(a)), static_cast<double>(bytes_of(b))) &&
           near(a.cost.seconds(), b.cost.seconds());
  }

  std::string fit_text() const {
    if (!fit_->best)
      return fmt::format("Fit: none of {} combinations fits into {}.{}\n", fit_->tried,
                         format_bytes(device_.usable_bytes()), why_none_fits(*fit_, device_));
    return fit_head() + "\n\n" + fit_table().render() + fit_tail();
  }

  std::string fit_head() const {
    return fmt::format(
        "Fit: fastest first; each further row is the fastest that takes less memory ({} "
        "combinations tried)",
        fit_->tried);
  }
  std::string fit_tail() const {
    std::string text;
    if (const std::string reasons = choice_reasons(*fit_, recipe_, device_); !reasons.empty())
      text = reasons + "\n";
    return text + "\nThe first row's options, as YAML:\n" + yaml();
  }

  std::string yaml() const {
    const recipe::Recipe& r = fit_->best->recipe;
    std::string layout;
    if (has_many_devices()) layout = fmt::format("strategy: {}\n", r.strategy);
    if (!r.mesh.empty()) layout += fmt::format("mesh: {}\n", r.mesh);
    if (r.pipeline_interleave != recipe_.pipeline_interleave)
      layout += fmt::format("pipeline_interleave: {}\n", r.pipeline_interleave);
    std::string text =
        layout + fmt::format("train:\n  micro_batch_size: {}\n", r.train.micro_batch_size);
    // Those that a fit chooses only if it may are not named as being off.
    for (const recipe::TechniqueTraits& traits : recipe::techniques())
      if (traits.may_try == nullptr || is_on(traits, r))
        text += fmt::format("{}: {}\n", key_of(traits), value_of(traits, r));
    return text;
  }

  static json cost_json(const plan::StepCost& c) {
    return {{"step_seconds", c.seconds()},
            {"tokens_per_second", c.tokens_per_second()},
            {"products_seconds", c.products_seconds},
            {"activations_seconds", c.memory_seconds},
            {"optimizer_seconds", c.optimizer_seconds},
            {"exposed_optimizer_seconds", c.exposed_optimizer_seconds},
            {"disk_seconds", c.disk_seconds},
            {"exposed_disk_seconds", c.exposed_disk_seconds},
            {"transfer_seconds", c.transfer_seconds},
            {"exposed_transfer_seconds", c.exposed_transfer_seconds},
            {"collective_seconds", c.collective_seconds},
            {"exposed_collective_seconds", c.exposed_collective_seconds},
            {"idle_seconds", c.idle_seconds},
            {"model_flops_per_second", c.seconds() > 0 ? c.model_flops / c.seconds() : 0},
            {"share_of_peak", c.seconds() > 0 && c.peak_flops_per_second > 0
                                  ? c.model_flops / c.seconds() / c.peak_flops_per_second
                                  : 0},
            {"busy_share", c.busy_share()}};
  }

  json candidate_json(const plan::Candidate& c) const {
    return {{"options", c.options},
            {"fits", plan::fits(c, device_)},
            {"micro_batch_size", c.recipe.train.micro_batch_size},
            {"strategy", c.recipe.strategy},
            {"mesh", recipe::mesh_text(engine::named_strategy(c.recipe).mesh)},
            {"pipeline_interleave", c.recipe.pipeline_interleave},
            {"peak_allocated", c.prediction.peak_allocated},
            {"peak_reserved", c.prediction.peak_reserved},
            {"offloaded_to_host", c.prediction.peak_host},
            {"on_disk", c.prediction.on_disk},
            {"time", cost_json(c.cost)}};
  }

  json as_json() const {
    json out{{"schema", 1},
             {"model",
              {{"parameters", checkpoint_.model->num_parameters()},
               {"trained", count_parameters().trained}}},
             {"device",
              {{"name", device_.name},
               {"kind", device_.kind == at::kCUDA ? "cuda" : "cpu"},
               {"memory_bytes", device_.memory_bytes},
               {"context_bytes", device_.context_bytes},
               {"usable_bytes", device_.usable_bytes()},
               {"host_bytes", device_.host_bytes},
               {"assumed_host_bytes", device_.assumed_host_bytes},
               {"disk_read_bytes_per_second", device_.disk_read_bytes_per_second},
               {"disk_write_bytes_per_second", device_.disk_write_bytes_per_second}}},
             {"batch",
              {{"micro_batch_size", recipe_.train.micro_batch_size},
               {"tokens_per_sample", longest_},
               {"global_batch_size", recipe_.train.global_batch_size}}},
             {"notes", length_.note.empty() ? json::array() : json::array({length_.note})},
             {"fits", wanted_fits()},
             {"margin_bytes", device_.usable_bytes() - need()},
             {"missing",
              {{"on_device", missing().on_device},
               {"in_host", missing().in_host},
               {"on_disk", missing().on_disk}}},
             {"memory",
              {{"peak_allocated", prediction().peak_allocated},
               {"peak_reserved", prediction().peak_reserved},
               {"offloaded_to_host", prediction().peak_host},
               {"on_disk", prediction().on_disk},
               {"after_forward", prediction().after_forward},
               {"parameter_bytes",
                prediction().resident[static_cast<size_t>(memory::Category::Parameters)]},
               {"by_category", named(prediction().by_category)},
               {"host_by_category", named(prediction().host_by_category)}}},
             {"time", cost_json(wanted_.cost)},
             {"timeline", timeline_json(prediction().timeline)}};
    if (has_many_devices()) {
      out["ranks"] = engine::named_ranks(recipe_);
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
      if (fit_->with_disk) out["fit"]["with_disk"] = candidate_json(*fit_->with_disk);
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
                          .fit = {},
                          .beside = devices_text() + (like_ ? like_->text() : "")};
    if (fit_ && fit_->best)
      page.fit = {.above = fit_head(), .table = fit_table().html(), .below = fit_tail()};
    else if (fit_)
      page.fit.above = fit_text();
    for (size_t c = 0; c < memory::kNumCategories; ++c)
      page.categories.emplace_back(memory::name(static_cast<memory::Category>(c)));
    for (const plan::Moment& moment : prediction().timeline)
      page.moments.push_back({fmt::format("{}, {}", moment.unit, memory::name(moment.phase)),
                              memory::name(moment.phase),
                              {moment.by_category.begin(), moment.by_category.end()}});
    return page;
  }

  recipe::Recipe recipe_;
  const recipe::PlanOptions& options_;
  plan::DeviceProfile device_;
  models::Checkpoint checkpoint_;
  data::SampleStore samples_;
  data::Reading reading_;
  int64_t longest_ = 0;
  bool from_data_ = false;
  bool length_is_usual_ = false;
  engine::RunLength length_;             // of data
  std::vector<plan::Candidate> stages_;  // one a stage of the pipeline
  plan::Candidate wanted_;               // the one that takes most
  std::optional<plan::Fit> fit_;
  std::optional<Scaling> scaling_;
  std::optional<Like> like_;
  std::vector<std::string> lines_;
};

}  // namespace

void plan(const recipe::Recipe& recipe, const recipe::PlanOptions& options) {
  Plan(recipe, options).run();
}

}  // namespace snug::plan
