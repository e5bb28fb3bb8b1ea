// SPDX-License-Identifier: Apache-2.0
#include "plan/counted_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/bytes.h"
#include "core/memory/guards.h"
#include "core/nn/precision.h"
#include "engine/adapters/trained_parts.h"
#include "engine/strategy.h"
#include "models/family.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

double sum(const std::vector<Operation>& operations, double Operation::*member) {
  return std::accumulate(operations.begin(), operations.end(), 0.0,
                         [&](double all, const Operation& each) { return all + each.*member; });
}

double seconds_of(const ops::Work& work, const DeviceProfile& device,
                  const recipe::Recipe& recipe) {
  const double moving = (work.bytes_read + work.bytes_written) / device.bytes_per_second;
  const double computing =
      work.flops > 0 ? work.flops / device.flops(work.type, recipe.matmul_precision) : 0;
  return std::max({moving, computing, work.link_bytes / device.link_bytes_per_second});
}

std::set<std::string> block_names(const models::Model& model) {
  std::set<std::string> names;
  const auto twin = models::model_like(model);
  for (nn::Unit* unit : twin->units())
    if (unit->kind() == nn::UnitKind::Block) names.insert(unit->name());
  return names;
}

}  // namespace

double CountedStep::launches() const { return sum(operations, &Operation::launches); }
double CountedStep::bytes() const {
  return sum(operations, &Operation::bytes_read) + sum(operations, &Operation::bytes_written);
}

CountedStep count_step(const models::Model& model, const recipe::Recipe& recipe,
                       const Workload& work, const DeviceProfile& device) {
  const engine::Strategy strategy = engine::named_strategy(recipe);
  const std::set<std::string> blocks = block_names(model);
  const auto micro_batches =
      static_cast<double>(engine::micro_batches_of_step(recipe, strategy.mesh));
  std::map<std::string, Operation> by_name;
  CountedStep result;
  const auto note = [&](const ops::Work& one, double times) {
    Operation& all = by_name[one.name];
    all.name = one.name;
    all.launches += times * one.launches;
    if (memory::current_tag.recorded) {
      result.recorded_launches += times * one.launches;
      result.graphs = micro_batches;
    }
    all.bytes_read += times * one.bytes_read;
    all.bytes_written += times * one.bytes_written;
    all.link_bytes += times * one.link_bytes;
    all.flops += times * one.flops;
    all.seconds += times * seconds_of(one, device, recipe);
    const memory::Phase phase = memory::current_tag.phase;
    const bool passes = phase == memory::Phase::Forward || phase == memory::Phase::Backward;
    if (passes && blocks.contains(memory::unit_name(memory::current_tag.unit)))
      result.block_launches +=
          times * one.launches / micro_batches / static_cast<double>(blocks.size());
  };
  const Prediction prediction =
      predict(model, recipe, largest_micro_batch(work, recipe, recipe.train.micro_batch_size),
              work.max_seqlen,
              {.device = device.kind,
               .flash_attention = device.flash_attention,
               .on_work = note,
               .mesh = dist::planned_mesh(strategy.mesh, 0, dist::Transport::Nccl)});
  for (auto& [name, operation] : by_name) result.operations.push_back(operation);
  std::ranges::stable_sort(result.operations, std::ranges::greater{}, &Operation::seconds);
  result.tokens = static_cast<double>(prediction.tokens) * micro_batches;
  result.host_waits = prediction.host_waits;
  const auto seqlen = static_cast<double>(work.max_seqlen);
  const at::ScalarType compute = nn::parse_precision(recipe.precision).compute;
  const auto adapted = models::model_like(model);
  engine::choose_trained(*adapted, recipe);
  result.product_seconds = adapted->flops_per_token(seqlen, work.samples.mean_pictures()) *
                           result.tokens / device.flops(compute, recipe.matmul_precision);
  result.device_seconds = sum(result.operations, &Operation::seconds);
  result.host_seconds = result.host_launches() * kSecondsPerLaunch;
  return result;
}

std::string operations_text(const CountedStep& step) {
  using report::Align;
  report::Table table({{"operation", Align::Left},
                       {"launches"},
                       {"read"},
                       {"written"},
                       {"Tflop"},
                       {"ms"},
                       {"share"}});
  const auto bytes = [](double count) { return format_bytes(static_cast<int64_t>(count)); };
  for (const Operation& o : step.operations)
    table.add_row({o.name, fmt::format("{:.0f}", o.launches),
                   bytes(o.link_bytes > 0 ? o.link_bytes : o.bytes_read), bytes(o.bytes_written),
                   o.flops > 0 ? fmt::format("{:.3f}", o.flops / 1e12) : "",
                   fmt::format("{:.3f}", o.seconds * 1e3),
                   fmt::format("{:.1f} %", 100 * o.seconds / step.device_seconds)});
  const std::string graphs =
      step.graphs == 0 ? std::string()
                       : fmt::format(
                             "{:.0f} of the launches are in {:.0f} CUDA graph{}, for each of "
                             "which the host makes one call\n",
                             step.recorded_launches, step.graphs, step.graphs == 1 ? "" : "s");
  return fmt::format(
      "Operations of one step on one GPU, each at the device's full rates: the larger of bytes / "
      "bandwidth and\n"
      "arithmetic / peak. No kernel is faster; real ones reach a part of these rates.\n\n{}\n"
      "{:.0f} launches, {:.1f} a block (forward and backward); {:.0f} bytes moved a token; the "
      "host "
      "waits {} times\n"
      "{}"
      "{:.3f} ms on the device, {:.3f} ms of the host to launch them at {:.0f} us each: {}\n"
      "{:.3f} ms of that are the model's own products at the peak: at most {:.0f} % of it, {:.0f} "
      "tokens/s\n",
      table.render(), step.launches(), step.block_launches, step.bytes() / step.tokens,
      step.host_waits, graphs, step.device_seconds * 1e3, step.host_seconds * 1e3,
      kSecondsPerLaunch * 1e6,
      step.host_seconds > step.device_seconds ? "the host is the slower"
                                              : "the device is the slower",
      step.product_seconds * 1e3, 100 * step.share_of_peak(), step.tokens / step.seconds());
}

nlohmann::json operations_json(const CountedStep& step) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Operation& o : step.operations)
    rows.push_back({{"name", o.name},
                    {"launches", o.launches},
                    {"bytes_read", o.bytes_read},
                    {"bytes_written", o.bytes_written},
                    {"link_bytes", o.link_bytes},
                    {"flops", o.flops},
                    {"seconds", o.seconds}});
  return {{"tokens", step.tokens},
          {"launches", step.launches()},
          {"launches_per_block", step.block_launches},
          {"host_launches", step.host_launches()},
          {"bytes_per_token", step.bytes() / step.tokens},
          {"host_waits", step.host_waits},
          {"device_seconds", step.device_seconds},
          {"host_seconds", step.host_seconds},
          {"product_seconds", step.product_seconds},
          {"share_of_peak", step.share_of_peak()},
          {"operations", rows}};
}

}  // namespace snug::plan
