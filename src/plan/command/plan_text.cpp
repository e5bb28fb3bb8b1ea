// The text of a plan, for the terminal and the page.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "engine/adapters/trained_parts.h"
#include "engine/run_length.h"
#include "engine/strategy.h"
#include "models/whole_model.h"
#include "plan/command/planned.h"
#include "plan/out_of_memory.h"
#include "plan/suggest.h"
#include "recipe/hub_models.h"
#include "recipe/techniques/technique.h"
#include "report/close.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::plan {
namespace {

struct Lines {
  std::vector<std::string> all;

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    all.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
};

std::string rate_text(double bytes_per_second) {
  return fmt::format("{:.2g}", bytes_per_second / 1e9);
}

std::string whose_peak(const Planned& p) {
  if (!p.has_many_devices()) return "";
  if (p.stages.size() == 1) return fmt::format("each of {} ranks: ", engine::named_ranks(p.recipe));
  const auto most = std::find_if(p.stages.begin(), p.stages.end(), [&](const Candidate& candidate) {
    return candidate.prediction.peak_allocated == p.prediction().peak_allocated;
  });
  return fmt::format("stage {} of {}, the largest: ", most - p.stages.begin(), p.stages.size());
}

std::string stages_text(const Planned& p) {
  report::Table table({{"stage"}, {"weights"}, {"optimizer"}, {"peak allocated"}, {"reserved"}});
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const Prediction& stage = p.stages[i].prediction;
    const auto resident = [&](memory::Category category) {
      return format_bytes(stage.resident[static_cast<size_t>(category)]);
    };
    table.add_row({std::to_string(i), resident(memory::Category::Parameters),
                   resident(memory::Category::Optimizer), format_bytes(stage.peak_allocated),
                   format_bytes(stage.peak_reserved)});
  }
  return table.render();
}

// What comes below the timeline for several devices.
std::string devices_text(const Planned& p) {
  std::string text;
  if (p.stages.size() > 1) text += "\nRanks of each stage of the pipeline\n\n" + stages_text(p);
  if (const std::string links = links_text(p.wanted, p.device); !links.empty())
    text += "\n" + links;
  if (p.scaling) text += "\n" + p.scaling->text();
  return text;
}

std::string parameters(const Planned& p) {
  const engine::ParameterCount count = p.count_parameters();
  return fmt::format("{} parameters, {} trained", with_commas(count.total),
                     count.trained == count.total ? "all" : with_commas(count.trained));
}

std::string missing_text(int64_t bytes) {
  return bytes == 0 ? "" : fmt::format(": does not fit, {} missing", format_bytes(bytes));
}

void add_host(const Planned& p, Lines& lines, int64_t lacking) {
  const std::string there = format_bytes(p.device.host_bytes);
  if (lacking > 0)
    lines.add("Host     {} of host memory{}: does not fit into {}, {} missing",
              format_bytes(p.prediction().peak_host),
              p.device.kind == at::kCPU ? ", shared with the device" : "", there,
              format_bytes(lacking));
  else if (const int64_t assumed = p.device.assumed_host_bytes; assumed > 0)
    lines.add("Host     {}{} {} {} assumed (set --host_memory to change it)",
              format_bytes(p.prediction().peak_host),
              p.has_many_devices() ? " for each process" : "",
              beyond_assumed_host(p.wanted, p.device) > 0 ? "of host memory, more than the" : "of",
              format_bytes(assumed));
  else
    lines.add("Host     {}{}", format_bytes(p.prediction().peak_host),
              p.device.host_bytes == 0 ? " of host memory" : " of " + there);
}

void add_disk(const Planned& p, Lines& lines, int64_t lacking) {
  const int64_t all = p.prediction().on_disk, weights = p.prediction().weights_on_disk;
  const std::string reads = rate_text(p.device.disk_read_bytes_per_second);
  std::string uses;
  if (weights > 0)
    uses = fmt::format(", {} read in every pass at {} GB/s",
                       weights < all ? "weights of " + format_bytes(weights) : "weights", reads);
  if (weights < all)
    uses += fmt::format(", {}read and written once a step at {} and {} GB/s",
                        weights > 0 ? "states " : "", reads,
                        rate_text(p.device.disk_write_bytes_per_second));
  lines.add(
      "Disk     {} in {}{}{}{}", format_bytes(all), p.recipe.disk_folder().value_or(""),
      p.device.disk_bytes == 0 ? "" : fmt::format(" of {} free", format_bytes(p.device.disk_bytes)),
      missing_text(lacking), uses);
}

// The parts of copies, updates and the disk that overlap; collectives have a line of their own.
std::string hidden_text(const StepCost& c) {
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

void add_cost(const Planned& p, Lines& lines) {
  const int64_t devices = engine::named_ranks(p.recipe);
  const auto cost_of = [&](double tokens) {
    const double seconds = tokens / p.wanted.cost.tokens_per_second();
    return fmt::format("{} s, cost {}", seconds_text(seconds),
                       recipe::money_text(p.price.of(seconds, devices), p.price.currency));
  };
  std::string epoch;
  if (p.from_data)
    epoch =
        fmt::format("; an epoch: {}",
                    cost_of(static_cast<double>(engine::tokens_per_epoch(p.length, p.samples))));
  lines.add("Cost     1M tokens: {}{} (at {} per hour{})", cost_of(1e6), epoch,
            recipe::money_text(p.price.per_hour, p.price.currency),
            devices > 1 ? fmt::format(" for each of {} devices", devices) : "");
}

void add_time(const Planned& p, Lines& lines) {
  const StepCost& c = p.wanted.cost;
  const auto share = [&](double seconds) { return 100 * seconds / c.seconds(); };
  std::string parts =
      fmt::format("products {:.0f} %, activations {:.0f} %, optimizer {:.0f} %, transfers {:.0f} %",
                  share(c.products_seconds + c.attention_seconds), share(c.memory_seconds),
                  share(c.exposed_optimizer_seconds), share(c.exposed_transfer_seconds));
  if (c.disk_seconds > 0) parts += fmt::format(", disk {:.0f} %", share(c.exposed_disk_seconds));
  if (p.has_many_devices())
    parts += fmt::format(", waiting for other devices {:.0f} %",
                         share(c.exposed_collective_seconds + c.idle_seconds));
  lines.add("Time     about {} s/step{}, {:.0f} tokens/s ({})", seconds_text(c.seconds()),
            p.from_data ? " of average samples" : "", c.tokens_per_second(), parts);
  if (p.device.kind == at::kCUDA)
    lines.add(
        "Fitted   times use data-sheet rates, scaled to what published runs of other programs "
        "reached: products {:.0f} %, attention {:.0f} %, memory {:.0f} %",
        100 * p.device.product_efficiency, 100 * p.device.attention_efficiency,
        100 * p.device.memory_efficiency);
  if (const std::string hidden = hidden_text(c); !hidden.empty())
    lines.add("Hidden   {}: overlapped with the rest of the step", hidden);
  if (const int64_t retries = p.prediction().driver_calls.retries; retries > 0)
    lines.add(
        "Retries  memory is so nearly full that the allocator gives cached memory back {} time{} a "
        "step to get what it needs: about {} s; a smaller micro-batch may be faster",
        retries, retries == 1 ? "" : "s", seconds_text(c.retry_seconds));
  if (p.price.per_hour > 0 && c.tokens_per_second() > 0) add_cost(p, lines);
  if (const double seconds = p.run_seconds(); seconds > 0) {
    std::string cost;
    if (p.price.per_hour > 0)
      cost = fmt::format(
          ", cost {}",
          recipe::money_text(p.price.of(seconds, engine::named_ranks(p.recipe)), p.price.currency));
    lines.add("Run      {} step{}: about {} without validation{}", with_commas(p.length.steps),
              p.length.steps == 1 ? "" : "s", report::clock_text(seconds), cost);
  }
}

int64_t bytes_of(const Planned& p, const Candidate& c) {
  return bytes_on_device(c.prediction, p.device.kind);
}

// Less than a twentieth is left.
bool is_close(const Planned& p, const Candidate& c) {
  return !report::close_text(bytes_of(p, c), p.device.usable_bytes()).empty();
}

bool is_alike(const Planned& p, const Candidate& a, const Candidate& b) {
  const auto near = [](double x, double y) {
    constexpr double kAlike = 0.01;
    return std::abs(x - y) < kAlike * std::max(x, y);
  };
  return near(static_cast<double>(bytes_of(p, a)), static_cast<double>(bytes_of(p, b))) &&
         near(a.cost.seconds(), b.cost.seconds());
}

// Candidates that differ by less than a percent in peak and time share a row.
report::Table fit_table(const Planned& p) {
  const bool many = p.has_many_devices(), on_gpu = p.device.kind == at::kCUDA;
  const auto any = [&](auto is_it) { return std::ranges::any_of(p.fit->front, is_it); };
  const bool any_disk = any([](const auto& c) { return c.prediction.on_disk > 0; });
  const bool any_close = any([&](const auto& c) { return is_close(p, c); });
  std::vector<report::Table::Column> columns{{on_gpu ? "reserved" : "peak"}};
  if (any_close) columns.push_back({"", report::Align::Left});
  columns.push_back({"host", report::Align::Right, /*spare=*/true});
  if (any_disk) columns.push_back({"disk", report::Align::Right, /*spare=*/true});
  columns.push_back({"s/step"});
  columns.push_back({"tokens/s", report::Align::Right, /*spare=*/true});
  if (many) columns.push_back({"mesh", report::Align::Left});
  columns.push_back({"options", report::Align::Left});
  report::Table table(columns);
  const Candidate* before = nullptr;
  for (const Candidate& c : p.fit->front) {
    if (before != nullptr && is_alike(p, *before, c)) continue;
    before = &c;
    const auto or_none = [](int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
    std::vector<std::string> row{format_bytes(bytes_of(p, c))};
    if (any_close) row.emplace_back(is_close(p, c) ? "close" : "");
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

std::string yaml(const Planned& p) {
  const recipe::Recipe& r = p.fit->best->recipe;
  std::string layout;
  if (p.has_many_devices()) layout = fmt::format("strategy: {}\n", r.strategy);
  if (!r.mesh.empty()) layout += fmt::format("mesh: {}\n", r.mesh);
  if (r.pipeline_interleave != p.recipe.pipeline_interleave)
    layout += fmt::format("pipeline_interleave: {}\n", r.pipeline_interleave);
  std::string text =
      layout + fmt::format("train:\n  micro_batch_size: {}\n", r.train.micro_batch_size);
  if (p.recipe.train.accumulate_grad_batches)
    text += fmt::format("  accumulate_grad_batches: {}\n",
                        engine::micro_batches_of_step(r, engine::named_strategy(r).mesh));
  // Techniques that a fit needs permission for, or few models have a use for, are listed only if
  // they are on.
  for (const recipe::Technique& technique : recipe::techniques())
    if ((technique.may_try == nullptr && !technique.for_experts) || is_on(technique, r))
      text += fmt::format("{}: {}\n", technique.key, value_of(technique, r));
  return text;
}

std::string fit_head(const Planned& p) {
  const int64_t assumed = p.device.assumed_host_bytes;
  return fmt::format(
      "Fit: fastest first; each further row is the fastest that takes less memory ({} "
      "combinations tried{})",
      p.fit->tried,
      assumed > 0
          ? fmt::format("; {} of host memory assumed, see --host_memory", format_bytes(assumed))
          : "");
}

std::string fit_tail(const Planned& p) {
  std::string text;
  if (const std::string reasons = choice_reasons(*p.fit, p.recipe, p.device); !reasons.empty())
    text = reasons + "\n";
  text += "\nThe first row's options, as YAML:\n" + yaml(p);
  if (!p.other_training.empty())
    text += "\nBeyond what --fit tries:" + suggestion_lines(p.other_training) + "\n";
  return text;
}

std::string fit_text(const Planned& p) {
  if (!p.fit->best)
    return fmt::format("Fit: none of {} combinations fits into {}.{}\n", p.fit->tried,
                       format_bytes(p.device.usable_bytes()), why_none_fits(*p.fit, p.device));
  return fit_head(p) + "\n\n" + fit_table(p).render() + fit_tail(p);
}

std::string model_name(const Planned& p) {
  if (!p.hub_id.empty()) return p.asked_id;
  return p.recipe.model.config.empty() ? p.recipe.checkpoint_dir : p.recipe.model.config;
}

std::string suggestions(const Planned& p) {
  const auto found = suggest(*p.checkpoint.model, p.recipe, p.workload(), p.device);
  return found.empty() || !found.front().fits
             ? smallest_plan_text(found) + "\n"
             : (p.fit ? "What would fit, beyond the techniques that --fit tries:"
                      : "What would fit (--fit finds the fastest):") +
                   suggestion_lines(found) + "\n";
}

}  // namespace

std::vector<std::string> plan_lines(const Planned& p) {
  Lines lines;
  const recipe::TrainOptions& t = p.recipe.train;
  const bool has_frozen = p.recipe.lora.enabled || p.recipe.model.train_parts != "all";
  const auto held = has_frozen ? engine::frozen_type(p.recipe) : std::nullopt;
  std::string frozen = p.recipe.quantize;
  if (frozen.empty() && held) frozen = *held == at::kHalf ? "float16" : "bfloat16";
  lines.add("Model    {}: {}, {}{}, {}", model_name(p), parameters(p), p.recipe.precision,
            frozen.empty() ? "" : ", frozen weights in " + frozen, p.recipe.optimizer.name);
  if (!p.hub_id.empty()) {
    const bool is_copy = recipe::hub_id_of(p.asked_id).empty();
    lines.add("         its shape is {}; to train it: snug download {}",
              is_copy ? fmt::format("taken from {}, a model of its name", p.hub_id)
                      : "from snug's table of models",
              p.asked_id);
  }
  if (const models::WholeModel* whole = p.checkpoint.model->whole())
    lines.add("         {}", models::words_on(*whole));
  if (p.fetched)
    lines.add("         its config and tokenizer were fetched to {}, without the weights",
              p.recipe.checkpoint_dir);
  if (p.asked)
    lines.add(
        "{:<9}{}: {} of weights while it is asked about all rows, before this model is loaded{}",
        p.asked->role, p.asked->path, format_bytes(p.asked->weights),
        missing_text(std::max<int64_t>(0, p.asked->weights - p.device.usable_bytes())));
  const int64_t micro_batches =
      engine::micro_batches_of_step(p.recipe, engine::named_strategy(p.recipe).mesh);
  const bool pairs = p.samples.documents_per_sample() > 1;
  lines.add(
      "Batch    {}, {} micro-batch{} a step{}",
      p.from_data
          ? fmt::format("{} {} of up to {} tokens{} ({} in all: the longest in the data{})",
                        t.micro_batch_size,
                        pairs                      ? "pairs"
                        : p.samples.is_in_blocks() ? "blocks"
                                                   : "samples",
                        pairs ? p.samples.longest() : p.samples.most_tokens_of_sample(),
                        pairs ? " an answer" : "", with_commas(p.prediction().tokens),
                        p.samples.shares_prompts() ? ", prompts once" : "")
          : fmt::format("{} x {}{} tokens ({}, no data read)", t.micro_batch_size,
                        pairs ? "2 x " : "", p.longest,
                        p.length_is_usual ? "a common length; set --max_seq_length N for another"
                                          : "train.max_seq_length"),
      micro_batches, micro_batches == 1 ? "" : "es", p.has_many_devices() ? " on each device" : "");
  lines.add("Device   {}: {}{}{}", p.device.name, format_bytes(p.device.memory_bytes),
            p.recipe.memory_budget.empty() ? "" : " (memory_budget)",
            p.device.context_bytes > 0 ? fmt::format(", of which driver and libraries take {}",
                                                     format_bytes(p.device.context_bytes))
                                       : "");
  if (p.has_many_devices()) lines.add("Devices  {}", devices_line(p.recipe));
  const int64_t margin = p.device.usable_bytes() - p.need();
  const Missing lacking = p.missing();
  const std::string close = report::close_text(p.need(), p.device.usable_bytes());
  lines.add(
      "Plan     {}peak {}{}: {}", whose_peak(p), format_bytes(p.prediction().peak_allocated),
      p.device.kind == at::kCUDA
          ? fmt::format(" allocated, {} reserved", format_bytes(p.prediction().peak_reserved))
          : "",
      lacking.on_device > 0
          ? fmt::format("does not fit, {} missing",
                        format_bytes(std::max<int64_t>(
                            -margin, p.prediction().peak_allocated - p.device.usable_bytes())))
          : fmt::format("fits{}, {} to spare{}{}", p.wanted_fits() ? "" : " the device",
                        format_bytes(margin), close.empty() ? "" : ", ", close));
  if (p.prediction().peak_host > 0 || lacking.in_host > 0) add_host(p, lines, lacking.in_host);
  if (p.prediction().on_disk > 0) add_disk(p, lines, lacking.on_disk);
  add_time(p, lines);
  if (!p.length.note.empty()) lines.add("Steps    {}", p.length.note);
  return std::move(lines.all);
}

std::string plan_text(const Planned& p, const std::vector<std::string>& lines) {
  constexpr int kWidest = 80, kNarrowest = 40;
  const auto terminal = static_cast<int>(report::shown_columns());
  const int width = terminal == 0 ? kWidest : std::clamp(terminal, kNarrowest, kWidest);
  std::vector<int64_t> course;
  for (const Moment& moment : p.prediction().timeline) course.push_back(moment.allocated);
  const Moment& peak = *std::ranges::max_element(p.prediction().timeline, {}, &Moment::allocated);
  std::string text = fmt::format(
      "{}\n\nMemory over one step, from nothing to {}\n  {}\n\nAt the peak ({}, {})\n\n{}{}",
      fmt::join(lines, "\n"), format_bytes(p.prediction().peak_allocated),
      report::sparkline(course, width - 4), peak.unit, memory::name(peak.phase),
      report::memory_bars(named(p.prediction().by_category), {.width = width}), devices_text(p));
  if (p.counted) text += "\n" + operations_text(*p.counted);
  if (p.like) text += "\n" + p.like->text();
  if (p.fit) text += "\n" + fit_text(p);
  if (!p.wanted_fits() && !(p.fit && p.fit->best)) text += "\n" + suggestions(p);
  return text;
}

void print_plan(const std::string& text, bool as_json) {
  ShownPlans::hide();
  std::fputs(report::folded(text, as_json ? 0 : report::shown_columns()).c_str(), stdout);
}

report::PlanPage plan_page(const Planned& p, const std::vector<std::string>& lines) {
  report::PlanPage page{.title = "Plan: " + model_name(p),
                        .lines = lines,
                        .categories = {},
                        .moments = {},
                        .limit_bytes = p.device.usable_bytes(),
                        .fit = {},
                        .sections = {{"Devices", devices_text(p)},
                                     {"Operations", p.counted ? operations_text(*p.counted) : ""},
                                     {"Beside another program", p.like ? p.like->text() : ""}}};
  if (p.fit && p.fit->best)
    page.fit = {.above = fit_head(p), .table = fit_table(p).html(), .below = fit_tail(p)};
  else if (p.fit)
    page.fit.above = fit_text(p);
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    page.categories.emplace_back(memory::name(static_cast<memory::Category>(c)));
  for (const Moment& moment : p.prediction().timeline)
    page.moments.push_back({fmt::format("{}, {}", moment.unit, memory::name(moment.phase)),
                            memory::name(moment.phase),
                            {moment.by_category.begin(), moment.by_category.end()}});
  return page;
}

}  // namespace snug::plan
