// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "engine/strategy.h"
#include "plan/command/planned.h"
#include "plan/command/prices.h"
#include "plan/command/sweep_output.h"
#include "recipe/check.h"
#include "recipe/parse.h"

namespace snug::plan {
namespace {

constexpr size_t kMostCells = 1024;

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  if (text.ends_with(by)) parts.emplace_back();
  return parts;
}

// 1:16 is 1, 2, 4, 8, 16; any other text is itself.
std::vector<std::string> values_of(const std::string& text, const std::string& whole) {
  const std::vector<std::string> ends = split(text, ':');
  if (ends.size() != 2) return {text};
  const auto first = number_in(ends[0]), last = number_in(ends[1]);
  if (!first || !last) return {text};
  if (!(*first >= 1) || !(*last >= *first) || !(*last <= 1e15) || *first != std::floor(*first))
    throw UserError(
        "--sweep {}: {} is no range; 1:16 is 1, 2, 4, 8, 16 (whole numbers from 1, the second not "
        "below the first)",
        whole, text);
  std::vector<std::string> values;
  for (double value = *first; value <= *last; value *= 2)
    values.push_back(fmt::format("{:.0f}", value));
  return values;
}

// Runs like this one that `devices` of one machine hold at once. Each process has a context of its
// own on its device, and several may share one; the host's memory is all runs'.
int64_t runs_side_by_side(const Planned& p, int64_t devices) {
  if (devices == 0 || !p.wanted_fits()) return 0;
  if (p.device.kind != at::kCUDA)
    throw UserError("--machine_devices counts GPUs: say which, as in --device h100-80");
  const int64_t ranks = engine::named_ranks(p.recipe);
  const int64_t on_device = p.device.memory_bytes / (p.need() + p.device.context_bytes);
  const int64_t host =
      p.device.host_bytes > 0 ? p.device.host_bytes : p.device.host_bytes_per_device * devices;
  const int64_t each = ranks * p.prediction().peak_host;
  const int64_t in_host = host > 0 && each > 0 ? host / each : std::numeric_limits<int64_t>::max();
  return std::min(devices / ranks * on_device, in_host);
}

// The recipe of one combination, planned. Like the command line's own, but for faults, which are
// the cell's.
SweepCell cell_of(const std::vector<std::string>& words, const std::vector<SweepAxis>& axes,
                  std::vector<std::string> values) {
  std::vector<std::string> all = words;
  for (size_t a = 0; a < axes.size(); ++a)
    for (const std::string& key : axes[a].keys) {
      all.push_back("--" + key);
      all.push_back(values[a]);
    }
  SweepCell cell{.values = std::move(values)};
  try {
    const recipe::ParsedCommand parsed = recipe::parse_command_line(all);
    recipe::check_recipe(parsed.command, parsed.recipe);
    Planned p{.recipe = parsed.recipe};
    plan_recipe(p, parsed.plan);
    const StepCost& cost = p.wanted.cost;
    cell.fits = p.wanted_fits();
    cell.bytes = p.need();
    cell.device_bytes = p.device.usable_bytes();
    cell.device = p.device.name;
    cell.side_by_side = runs_side_by_side(p, parsed.plan.machine_devices);
    cell.tokens_per_second = cost.tokens_per_second();
    cell.step_seconds = cost.seconds();
    cell.currency = p.price.currency;
    if (p.price.per_hour > 0 && cell.tokens_per_second > 0)
      cell.million_tokens_price =
          p.price.of(1e6 / cell.tokens_per_second, engine::named_ranks(p.recipe));
  } catch (const UserError& error) {
    cell.refused = error.what();
  }
  return cell;
}

}  // namespace

std::string SweepAxis::name() const {
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(key.substr(key.rfind('.') + 1));
  return fmt::format("{}", fmt::join(names, "+"));
}

std::vector<SweepAxis> read_sweep(const std::string& text) {
  std::vector<SweepAxis> axes;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const size_t equals = word.find('=');
    SweepAxis axis;
    if (equals != std::string::npos) {
      axis.keys = split(word.substr(0, equals), '+');
      for (const std::string& part : split(word.substr(equals + 1), ','))
        for (std::string& value : values_of(part, text)) axis.values.push_back(std::move(value));
    }
    const auto is_empty = [](const std::string& part) { return part.empty(); };
    if (axis.keys.empty() || axis.values.empty() || std::ranges::any_of(axis.keys, is_empty) ||
        std::ranges::any_of(axis.values, is_empty))
      throw UserError(
          "--sweep {}: {} is no KEY=VALUE,VALUE,…; as in --sweep \"train.micro_batch_size=1,2,4 "
          "train.max_seq_length=512:4096\"",
          text, word);
    // Plans of one recipe, and what is shown of them.
    static constexpr std::string_view kOnes[] = {"sweep", "config",  "html",    "json",      "fit",
                                                 "like",  "largest", "scaling", "operations"};
    for (const std::string& key : axis.keys)
      if (std::ranges::find(kOnes, key) != std::end(kOnes))
        throw UserError("--sweep {}: {} is not an option that can run through values", text, key);
    axes.push_back(std::move(axis));
  }
  if (axes.empty() || axes.size() > 2)
    throw UserError("--sweep {}: one option or two can run through values, not {}", text,
                    axes.size());
  const size_t cells = axes[0].values.size() * (axes.size() > 1 ? axes[1].values.size() : 1);
  if (cells > kMostCells)
    throw UserError("--sweep {}: {} combinations; {} at most", text, cells, kMostCells);
  return axes;
}

void plan_sweep(const recipe::PlanOptions& options, const std::vector<std::string>& words) {
  Sweep sweep{.axes = read_sweep(options.sweep),
              .prices_can_differ = is_price_list(options.price_per_hour),
              .machine_devices = options.machine_devices};
  if (sweep.machine_devices > 0 && sweep.axes.size() > 1)
    throw UserError("--machine_devices is a column of a sweep over one option; leave one out");
  for (const std::string& first : sweep.axes[0].values)
    if (sweep.axes.size() == 1)
      sweep.cells.push_back(cell_of(words, sweep.axes, {first}));
    else
      for (const std::string& second : sweep.axes[1].values)
        sweep.cells.push_back(cell_of(words, sweep.axes, {first, second}));
  if (std::ranges::none_of(sweep.cells, [](const SweepCell& c) { return c.refused.empty(); }))
    throw UserError("{}", sweep.cells.front().refused);
  const std::string text = options.json ? sweep_json(sweep).dump(2) + "\n" : sweep_text(sweep);
  print_plan(text, options.json);
  if (!options.html.empty()) {
    write_file_atomically(options.html, sweep_html(sweep));
    if (!options.json) std::printf("\nThe page is %s\n", options.html.c_str());
  }
  if (std::ranges::none_of(sweep.cells, &SweepCell::fits))
    throw OutOfMemory("none of these combinations fits");
}

}  // namespace snug::plan
