// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_largest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/adapters/trained_parts.h"
#include "engine/labels.h"
#include "engine/more_tokens.h"
#include "engine/strategy.h"
#include "plan/command/plan_devices.h"
#include "recipe/hub_models.h"
#include "recipe/mesh.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

using nlohmann::json;

// What config.json of different families call the same.
struct Keys {
  const char *layers, *heads, *width;
};
constexpr std::array<Keys, 2> kKeys = {
    {{"num_hidden_layers", "num_attention_heads", "hidden_size"}, {"n_layer", "n_head", "n_embd"}}};
// That grow with the heads, too; those of MLPs in steps of 64.
constexpr std::array kKvHeads = {"num_key_value_heads"};
constexpr std::array kWidths = {"word_embed_proj_dim"};
constexpr std::array kInner = {"intermediate_size", "moe_intermediate_size", "n_inner", "ffn_dim"};
constexpr int64_t kInnerStep = 64;

// Shapes that are tried at most, in either direction.
constexpr int64_t kMostHeads = 1024, kMostLayers = 1024;
// Layers that a width may have, as parts of those in the recipe's proportion.
constexpr double kFewestLayers = 0.5, kMostOfProportion = 2;

const Keys& keys_of(const json& config) {
  for (const Keys& keys : kKeys)
    if (config.contains(keys.layers) && config.contains(keys.heads) && config.contains(keys.width))
      return keys;
  throw UserError(
      "--largest does not know how to resize a {}: its config has no num_hidden_layers, "
      "num_attention_heads and hidden_size at its top",
      config.value("model_type", "model like this"));
}

bool is_number(const json& config, const char* key) {
  return config.contains(key) && config[key].is_number_integer();
}

// A model in a recipe of the plan's workload and device. Throws UserError where the recipe cannot
// be applied to it.
struct InRecipe {
  int64_t parameters = 0;  // the adapters' too
  Candidate candidate;
  int64_t lacking = 0;  // bytes, beyond assumed host memory too; 0: it fits
};
InRecipe plan_in(const recipe::Recipe& recipe, const models::Model& model, const Planned& p) {
  const auto twin = models::model_like(model);
  engine::choose_trained(*twin, recipe);
  Candidate candidate = evaluate_neediest(model, recipe, p.workload(), p.device);
  const int64_t lacking =
      missing(candidate, p.device).sum() + beyond_assumed_host(candidate, p.device);
  return {engine::count_parameters(*twin).total, std::move(candidate), lacking};
}

struct Sized : InRecipe {
  ModelShape shape;
  int64_t width = 0;
  json config;
};

// Models of one kind in one recipe.
class Search {
 public:
  Search(const Planned& p, recipe::Recipe recipe)
      : p_(p),
        recipe_(std::move(recipe)),
        config_(p.checkpoint.model->hugging_face_config()),
        keys_(keys_of(config_)),
        base_{.heads = config_[keys_.heads], .layers = config_[keys_.layers]} {
    const int64_t kv =
        is_number(config_, kKvHeads[0]) ? config_[kKvHeads[0]].get<int64_t>() : base_.heads;
    // Whole groups of heads for each key-value head; pairs at least, for ranks of tensor
    // parallelism.
    heads_step_ = std::max<int64_t>(1, base_.heads / std::max<int64_t>(1, kv));
  }

  // One for each width near the largest, with as many layers as fit.
  std::vector<Sized> near_the_largest() {
    const int64_t steps = most(kMostHeads / heads_step_, [this](int64_t n) {
      return fits({.heads = n * heads_step_, .layers = proportion(n * heads_step_)});
    });
    std::vector<Sized> found;
    // Wider ones with fewer layers may have more parameters: until two in a row have not.
    int64_t most_parameters = 0, widest = steps + 2;
    for (int64_t n = std::max<int64_t>(1, steps - 2);
         n <= std::min(widest, kMostHeads / heads_step_); ++n) {
      const int64_t heads = n * heads_step_;
      const auto limit = [&](double part) {
        return std::clamp<int64_t>(std::llround(part * static_cast<double>(proportion(heads))), 1,
                                   kMostLayers);
      };
      const int64_t layers = most(limit(kMostOfProportion), [&](int64_t l) {
        return fits({heads, l});
      });
      if (layers == 0 || layers < limit(kFewestLayers)) continue;
      found.push_back(*plan({heads, layers}));
      if (found.back().parameters > most_parameters) widest = std::max(widest, n + 2);
      most_parameters = std::max(most_parameters, found.back().parameters);
    }
    return found;
  }

 private:
  int64_t proportion(int64_t heads) const {
    return std::max<int64_t>(1, base_.layers * heads / base_.heads);
  }

  // The largest number from 1 to `limit` for which it holds, which it does for all below; 0: none.
  template <typename Holds>
  static int64_t most(int64_t limit, const Holds& holds) {
    int64_t low = 0, high = 1;
    while (high <= limit && holds(high)) {
      low = high;
      high *= 2;
    }
    high = std::min(high, limit + 1);
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (holds(middle) ? low : high) = middle;
    }
    return low;
  }

  bool fits(const ModelShape& shape) {
    const std::optional<Sized>& sized = plan(shape);
    return sized && sized->lacking == 0;
  }

  // Nothing where such a model cannot be made, or the recipe not be applied to it.
  const std::optional<Sized>& plan(const ModelShape& shape) {
    auto [found, is_new] = planned_.try_emplace({shape.heads, shape.layers});
    if (!is_new) return found->second;
    try {
      const json config = resized_config(config_, shape);
      const auto model = models::model_like(*p_.checkpoint.model, config);
      found->second = Sized{plan_in(recipe_, *model, p_), shape, config[keys_.width], config};
    } catch (const UserError&) {
    }
    return found->second;
  }

  const Planned& p_;
  recipe::Recipe recipe_;
  json config_;
  Keys keys_;
  ModelShape base_;
  int64_t heads_step_ = 1;
  std::map<std::pair<int64_t, int64_t>, std::optional<Sized>> planned_;
};

const Sized* largest_of(const std::vector<Sized>& found) {
  const auto largest = std::ranges::max_element(found, {}, &Sized::parameters);
  return largest == found.end() ? nullptr : &*largest;
}

struct OnDevices {
  int64_t devices = 1;
  std::string mesh;
  std::optional<Sized> largest;
};

std::vector<OnDevices> on_more_devices(const Planned& p) {
  std::vector<OnDevices> rows;
  for (const int64_t devices : {1, 2, 4, 8}) {
    recipe::Recipe recipe = p.recipe;
    if (devices > 1 && recipe.strategy == recipe::Strategy::Auto && recipe.mesh.empty())
      recipe.strategy = "fsdp";
    if (!scale_to(recipe, devices)) continue;
    const std::vector<Sized> found = Search(p, recipe).near_the_largest();
    const Sized* largest = largest_of(found);
    rows.push_back({devices, recipe::mesh_text(engine::named_strategy(recipe).mesh),
                    largest == nullptr ? std::nullopt : std::optional(*largest)});
  }
  return rows;
}

// A model that people know, planned in this recipe.
struct Known : InRecipe {
  std::string id;
};

// Those of the table near the limit, the largest first: the last few that fit and the first few
// that do not. The table is searched by size, as larger ones need more by and large.
class KnownModels {
 public:
  explicit KnownModels(const Planned& p) : p_(p) {
    for (const recipe::HubModel& model : recipe::hub_models()) by_size_.push_back(&model);
    std::ranges::stable_sort(by_size_, {}, &recipe::HubModel::size);
  }

  std::vector<Known> near_the_limit() {
    const LogSinkGuard quiet([](const std::string&) {});  // what a model is warned of, if chosen
    constexpr int64_t kShown = 3;
    int64_t low = 0, high = static_cast<int64_t>(by_size_.size());
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const std::optional<Known>* known = nullptr;
      // One that cannot be trained so says nothing: the next smaller one does.
      int64_t at = middle;
      while (at >= low && !*(known = &plan(at))) --at;
      if (at < low || (*known)->lacking == 0)
        low = middle + 1;
      else
        high = at;
    }
    std::vector<Known> found;
    const auto take = [&](int64_t at) {
      if (const std::optional<Known>& known = plan(at)) found.push_back(*known);
    };
    const auto count = static_cast<int64_t>(by_size_.size());
    for (int64_t at = low; at < count && std::ssize(found) < kShown; ++at) take(at);
    std::ranges::reverse(found);
    const auto above = std::ssize(found);
    for (int64_t at = low - 1; at >= 0 && std::ssize(found) < above + kShown; --at) take(at);
    return found;
  }

 private:
  // Nothing where the recipe cannot be applied to it, or it reads other samples.
  const std::optional<Known>& plan(int64_t at) {
    auto [found, is_new] = planned_.try_emplace(at);
    if (!is_new) return found->second;
    const recipe::HubModel& named = *by_size_[static_cast<size_t>(at)];
    try {
      models::Checkpoint checkpoint{.path = named.id(), .model = models::named_model(named)};
      engine::add_tokens(checkpoint, p_.recipe, /*tokenizer=*/nullptr);
      engine::prepare_head(checkpoint, p_.recipe, /*tokenizer=*/nullptr);
      const auto& model = checkpoint.model;
      if (model->reads().image_size != p_.checkpoint.model->reads().image_size ||
          model->reads().source != p_.checkpoint.model->reads().source)
        return found->second;
      found->second = Known{plan_in(p_.recipe, *model, p_), named.id()};
    } catch (const UserError&) {
    }
    return found->second;
  }

  const Planned& p_;
  std::vector<const recipe::HubModel*> by_size_;
  std::map<int64_t, std::optional<Known>> planned_;
};

std::string known_text(const std::vector<Known>& known, const DeviceProfile& device) {
  report::Table table({{"model", report::Align::Left},
                       {"parameters"},
                       {"peak"},
                       {"tokens/s"},
                       {"", report::Align::Left}});
  for (const Known& each : known)
    table.add_row(
        {each.id, with_commas(each.parameters),
         format_bytes(bytes_on_device(each.candidate.prediction, device.kind)),
         with_commas(static_cast<long long>(each.candidate.cost.tokens_per_second())),
         each.lacking == 0 ? "fits" : fmt::format("lacks {}", format_bytes(each.lacking))});
  return table.render();
}

std::vector<std::string> cells_of(const Sized& s, const DeviceProfile& device) {
  return {std::to_string(s.shape.heads),
          std::to_string(s.width),
          std::to_string(s.shape.layers),
          with_commas(s.parameters),
          format_bytes(bytes_on_device(s.candidate.prediction, device.kind)),
          with_commas(static_cast<long long>(s.candidate.cost.tokens_per_second()))};
}

const std::vector<report::Table::Column> kShapeColumns = {{"heads"},      {"width"}, {"layers"},
                                                          {"parameters"}, {"peak"},  {"tokens/s"}};

std::string largest_text(const Planned& p, const std::vector<Known>& known,
                         const std::vector<Sized>& found, const std::vector<OnDevices>& devices) {
  report::Table shapes(kShapeColumns);
  for (const Sized& each : found) shapes.add_row(cells_of(each, p.device));
  std::vector<report::Table::Column> columns = {{"devices"}, {"mesh", report::Align::Left}};
  columns.insert(columns.end(), kShapeColumns.begin(), kShapeColumns.end());
  report::Table more(columns);
  for (const OnDevices& row : devices) {
    std::vector<std::string> cells = {std::to_string(row.devices), row.devices > 1 ? row.mesh : ""};
    if (row.largest) std::ranges::move(cells_of(*row.largest, p.device), std::back_inserter(cells));
    more.add_row(cells);
  }
  const Sized& largest = *largest_of(found);
  return fmt::format(
      "{}"
      "Largest  model like this one on {}, of which a run can use {}{}\n"
      "         {} layers of {} heads, width {}: {} parameters\n\n"
      "The most layers for each width\n\n{}\n"
      "On more devices, with as many samples for each; memory is each device's\n\n{}\n"
      "Tokens a second are an estimate. --json prints the configs.\n",
      known.empty() ? ""
                    : fmt::format("Models by name on {}, in this recipe\n\n{}\n", p.device.name,
                                  known_text(known, p.device)),
      p.device.name, format_bytes(p.device.usable_bytes()),
      p.device.assumed_host_bytes > 0 && largest.candidate.prediction.peak_host > 0
          ? fmt::format("; {} of host memory assumed, see --host_memory",
                        format_bytes(p.device.assumed_host_bytes))
          : "",
      largest.shape.layers, largest.shape.heads, largest.width, with_commas(largest.parameters),
      shapes.render(), more.render());
}

json json_of(const Sized& s, const DeviceProfile& device) {
  return {{"heads", s.shape.heads},
          {"width", s.width},
          {"layers", s.shape.layers},
          {"parameters", s.parameters},
          {"peak", bytes_on_device(s.candidate.prediction, device.kind)},
          {"tokens_per_second", s.candidate.cost.tokens_per_second()},
          {"config", s.config}};
}

json largest_json(const Planned& p, const std::vector<Known>& known,
                  const std::vector<Sized>& found, const std::vector<OnDevices>& devices) {
  json names = json::array(), shapes = json::array(), more = json::array();
  for (const Known& each : known)
    names.push_back({{"id", each.id},
                     {"parameters", each.parameters},
                     {"peak", bytes_on_device(each.candidate.prediction, p.device.kind)},
                     {"tokens_per_second", each.candidate.cost.tokens_per_second()},
                     {"lacking", each.lacking}});
  for (const Sized& each : found) shapes.push_back(json_of(each, p.device));
  for (const OnDevices& row : devices)
    more.push_back({{"devices", row.devices},
                    {"mesh", row.mesh},
                    {"largest", row.largest ? json_of(*row.largest, p.device) : json()}});
  return {{"device", p.device.name}, {"usable", p.device.usable_bytes()},
          {"by_name", names},        {"largest", json_of(*largest_of(found), p.device)},
          {"by_width", shapes},      {"by_devices", more}};
}

}  // namespace

json resized_config(const json& config, const ModelShape& shape) {
  const Keys& keys = keys_of(config);
  const int64_t heads = config[keys.heads], layers = config[keys.layers];
  const auto grown = [&](int64_t value) { return value * shape.heads / heads; };
  json resized = config;
  resized[keys.heads] = shape.heads;
  resized[keys.layers] = shape.layers;
  resized[keys.width] = grown(config[keys.width]);
  for (const char* key : kKvHeads)
    if (is_number(config, key)) resized[key] = std::max<int64_t>(1, grown(config[key]));
  for (const char* key : kWidths)
    if (is_number(config, key)) resized[key] = grown(config[key]);
  for (const char* key : kInner)
    if (is_number(config, key))
      resized[key] = std::max(kInnerStep, grown(config[key]) / kInnerStep * kInnerStep);
  for (auto& [key, value] : resized.items())
    if (value.is_array() && layers > 1 && static_cast<int64_t>(value.size()) == layers) {
      const json pattern = value;
      value = json::array();
      for (int64_t i = 0; i < shape.layers; ++i) value.push_back(pattern[i % layers]);
    }
  return resized;
}

void plan_largest(const Planned& p, bool as_json) {
  const std::vector<Sized> found = Search(p, p.recipe).near_the_largest();
  if (found.empty())
    throw OutOfMemory(
        fmt::format("no model of this kind fits into {}, however small", p.device.name));
  const std::vector<OnDevices> devices = on_more_devices(p);
  const std::vector<Known> known = KnownModels(p).near_the_limit();
  print_plan(as_json ? largest_json(p, known, found, devices).dump(2) + "\n"
                     : largest_text(p, known, found, devices),
             as_json);
}

}  // namespace snug::plan
