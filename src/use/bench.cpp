// SPDX-License-Identifier: Apache-2.0
#include "use/commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "core/dist/measure.h"
#include "core/dist/world.h"
#include "engine/cuda_device.h"
#include "engine/host.h"
#include "report/tables.h"
#include "train/launch/launch.h"
#include "train/launch/rank_record.h"

namespace snug::use {
namespace {

using dist::Measurement;
using dist::Operation;

// Neighbours first: the others are compared with their bandwidth.
constexpr Operation kOperations[] = {Operation::Send, Operation::AllReduce, Operation::AllGather,
                                     Operation::ReduceScatter, Operation::Broadcast};
constexpr double kGigabyte = 1e9;  // as in nccl-tests, and as links are sold

const char* title_of(Operation operation) {
  return operation == Operation::Send ? "send and receive, between neighbours"
                                      : dist::name(operation);
}

at::ScalarType type_named(const std::string& name) {
  if (name == "bfloat16") return at::kBFloat16;
  return name == "float16" ? at::kHalf : at::kFloat;
}

std::vector<int64_t> sizes_of(const recipe::BenchOptions& options) {
  const int64_t least = parse_bytes(options.min_bytes, "min_bytes");
  const int64_t most = parse_bytes(options.max_bytes, "max_bytes");
  if (least < 1 || least > most) {
    throw UserError(
        "min_bytes = {}, max_bytes = {}: min_bytes must be at least 1 and at most max_bytes",
        options.min_bytes, options.max_bytes);
  }
  std::vector<int64_t> sizes;
  for (int64_t size = least; size <= most; size *= options.factor) sizes.push_back(size);
  return sizes;
}

// Measures all sizes of each operation and compares them with the bandwidth between neighbours.
class Bench {
 public:
  Bench(const recipe::BenchOptions& options, dist::Group& group, at::Device device)
      : options_(options),
        group_(group),
        device_(device),
        measure_options_{.type = type_named(options.dtype), .device = device} {}

  void run() {
    const std::vector<int64_t> sizes = sizes_of(options_);
    for (const Operation operation : kOperations) {
      std::vector<Measurement> measured;
      for (const int64_t size : sizes) {
        measured.push_back(dist::measure(group_, operation, size, measure_options_));
      }
      if (operation == Operation::Send) neighbours_ = measured;
      if (group_.rank() == 0 && !options_.json) print(operation, measured);
      for (size_t i = 0; i < measured.size(); ++i) add_to_json(measured[i], neighbours_[i]);
    }
    if (group_.rank() != 0) return;
    if (options_.json) {
      const nlohmann::json all{{"devices", group_.size()},
                               {"device", device_.str()},
                               {"transport", transport()},
                               {"dtype", options_.dtype},
                               {"measurements", rows_}};
      std::printf("%s\n", all.dump(2).c_str());
    } else {
      print_convention();
    }
  }

 private:
  const char* transport() const { return device_.is_cuda() ? "NCCL" : "MPI"; }

  double bus_bandwidth(const Measurement& m) const {
    return m.algorithm_bandwidth() * dist::bus_factor(m.operation, group_.size());
  }
  double share_of_link(const Measurement& m, const Measurement& neighbours) const {
    return bus_bandwidth(m) / bus_bandwidth(neighbours);
  }

  void print(Operation operation, const std::vector<Measurement>& measured) const {
    report::Table table({{"size"}, {"elements"}, {"time"}, {"algorithm"}, {"bus"}, {"of link"}});
    for (size_t i = 0; i < measured.size(); ++i) {
      const Measurement& m = measured[i];
      table.add_row({format_bytes(m.bytes), fmt::format("{}", m.count),
                     fmt::format("{:.1f} us", m.seconds * 1e6),
                     fmt::format("{:.3f} GB/s", m.algorithm_bandwidth() / kGigabyte),
                     fmt::format("{:.3f} GB/s", bus_bandwidth(m) / kGigabyte),
                     fmt::format("{:.0f} %", share_of_link(m, neighbours_[i]) * 100)});
    }
    std::printf("%s, %d devices, %s over %s\n%s\n", title_of(operation), group_.size(),
                options_.dtype.c_str(), transport(), table.render().c_str());
    std::fflush(stdout);
  }

  void add_to_json(const Measurement& m, const Measurement& neighbours) {
    rows_.push_back(
        {{"operation", m.operation == Operation::Send ? "send-receive" : dist::name(m.operation)},
         {"bytes", m.bytes},
         {"elements", m.count},
         {"iterations", m.iterations},
         {"seconds", m.seconds},
         {"algorithm_bytes_per_second", m.algorithm_bandwidth()},
         {"bus_factor", dist::bus_factor(m.operation, group_.size())},
         {"bus_bytes_per_second", bus_bandwidth(m)},
         {"share_of_link", share_of_link(m, neighbours)}});
  }

  void print_convention() const {
    const int n = group_.size();
    std::printf(
        "Times are means over the iterations, of the slowest device. As in nccl-tests, algorithm = "
        "size / time, and\n"
        "bus = algorithm x 2(N-1)/N = %.3g for all-reduce, x (N-1)/N = %.3g for all-gather and "
        "reduce-scatter, x 1 otherwise:\n"
        "the load on each device's link, which limits it for any N. \"of link\" is the share of "
        "the bandwidth that neighbours\n"
        "reach when each sends to the next at the same time; within one machine caches may raise "
        "it above 100 %%.\n",
        dist::bus_factor(Operation::AllReduce, n), dist::bus_factor(Operation::AllGather, n));
  }

  const recipe::BenchOptions& options_;
  dist::Group& group_;
  at::Device device_;
  dist::MeasureOptions measure_options_;
  std::vector<Measurement> neighbours_;
  nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace

int bench(const recipe::BenchOptions& options, const std::vector<std::string>& words) {
  recipe::Recipe run;  // only its devices are used
  run.devices = options.devices;
  run.num_nodes = options.num_nodes;
  run.hosts = options.hosts;
  run.accelerator = options.accelerator;
  run.out_dir = options.out_dir;
  const auto check = [&] { sizes_of(options); };
  if (const auto exit_code = launch::start(run, words, check, engine::cuda::count))
    return *exit_code;
  const auto world = dist::World::join({.status_folder = launch::logs_folder(options.out_dir)});
  if (world->size() == 1) {
    throw UserError("devices = {}: collectives need at least two devices; use --devices 2",
                    options.devices);
  }
  const engine::Host host = engine::prepare_host("", run.num_threads, options.accelerator);
  dist::MeshShape shape;
  shape[dist::Axis::Shard] = world->size();
  const auto mesh = world->make_mesh(shape, host.device);
  Bench(options, mesh->world(), host.device).run();
  return 0;
}

}  // namespace snug::use
