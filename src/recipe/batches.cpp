// SPDX-License-Identifier: Apache-2.0
#include "recipe/batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipe/numbers.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {

std::optional<Layout> read_layout(const Recipe& r, std::vector<std::string>& faults) {
  const std::optional<int64_t> devices = parse_int(r.devices);
  if (!devices && r.devices != "auto") {
    faults.push_back(
        fmt::format("devices = {}: must be a whole number from 1, or auto", r.devices));
    return std::nullopt;
  }
  // Each is bounded too, so that huge numbers cannot overflow the product.
  const int64_t per_node = devices.value_or(1);
  if (per_node < 1 || per_node > kMaxRanks || r.num_nodes > kMaxRanks ||
      per_node * r.num_nodes > kMaxRanks) {
    faults.push_back(fmt::format("devices = {}, num_nodes = {}: from 1 to {} in all", r.devices,
                                 r.num_nodes, kMaxRanks));
    return std::nullopt;
  }
  Layout layout{.num_ranks = per_node * r.num_nodes, .is_auto = !devices};
  if (r.mesh.empty()) {
    layout.mesh[r.strategy == Strategy::Ddp ? Axis::Replicate : Axis::Shard] =
        static_cast<int>(layout.num_ranks);
    return layout;
  }
  if (const std::string fault = read_mesh(r.mesh, layout.mesh); !fault.empty()) {
    faults.push_back(fmt::format("mesh = {}: {}", r.mesh, fault));
    return std::nullopt;
  }
  return layout;
}

bool has_several_devices(const Recipe& recipe) {
  std::vector<std::string> said_elsewhere;
  const std::optional<Layout> layout = read_layout(recipe, said_elsewhere);
  return layout && (layout->num_ranks > 1 || layout->mesh.num_ranks() > 1);
}

int64_t micro_batches_of_step(const Recipe& recipe) {
  std::vector<std::string> said_elsewhere;
  const std::optional<Layout> layout = read_layout(recipe, said_elsewhere);
  const int64_t samples =
      recipe.train.global_batch_size / (layout ? layout->mesh.num_data_ranks() : 1);
  const int64_t micro = recipe.train.micro_batch_size;
  return std::max<int64_t>(1, (samples + micro - 1) / micro);
}

namespace {

void resolve_global_batch(Recipe& recipe) {
  TrainOptions& train = recipe.train;
  if (!train.accumulate_grad_batches || recipe.given("train.global_batch_size")) return;
  std::vector<std::string> said_elsewhere;
  const std::optional<Layout> layout = read_layout(recipe, said_elsewhere);
  if (!layout) return;
  // Each factor is bounded by its row, so the product does not overflow; check_batches bounds it.
  train.global_batch_size =
      train.micro_batch_size * *train.accumulate_grad_batches * layout->mesh.num_data_ranks();
}

}  // namespace

void resolve_batches(Recipe& recipe) {
  resolve_global_batch(recipe);
  for (const Technique& technique : techniques())
    if (technique.settle != nullptr) technique.settle(recipe);
}

int64_t BatchLimit::of(int64_t batches) const {
  if (count > 0) return std::min(count, batches);
  const auto some = static_cast<int64_t>(share * static_cast<double>(batches));
  return std::clamp<int64_t>(some, std::min<int64_t>(1, batches), batches);
}

std::optional<BatchLimit> batch_limit(std::string_view text) {
  if (const auto count = parse_int(text); count && text.find('.') == std::string_view::npos)
    return *count >= 1 ? std::optional<BatchLimit>({.count = *count}) : std::nullopt;
  const auto share = parse_float(text);
  if (!share || *share <= 0 || *share > 1) return std::nullopt;
  return BatchLimit{.share = *share};
}

}  // namespace snug::recipe
