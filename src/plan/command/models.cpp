// SPDX-License-Identifier: Apache-2.0
#include "plan/command/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "base/text.h"
#include "core/memory/allocators.h"
#include "models/family.h"
#include "plan/command/planned.h"
#include "plan/devices/device_profile.h"
#include "recipe/parse.h"
#include "report/close.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

using nlohmann::json;
using recipe::HubModel;

constexpr const char* kNeeds = "recipes/models/needs.json";
// The device that is planned for: others need as much, but for some workspace.
constexpr const char* kDevice = "h100-80";
constexpr const char* kTokens = "2048";

json config_of(const HubModel& model) { return json::parse(model.config); }

// Whether snug trains only the language model of it.
bool is_text_alone(const HubModel& model) { return models::named_model(model)->whole() != nullptr; }

// "8.2B", "135M".
std::string short_count(double parameters) {
  return parameters < 1e9 ? fmt::format("{:.0f}M", parameters / 1e6)
                          : fmt::format("{:.1f}B", parameters / 1e9);
}

Needs needs_of(const HubModel& model, const std::map<std::string, Needs>& kept) {
  const auto found = kept.find(model.id());
  return found == kept.end() ? Needs{} : found->second;
}

int64_t need(const HubModel& model, const std::vector<std::string>& options) {
  std::vector<std::string> words = {"plan",  "--model.config", model.id(), "--max_seq_length",
                                    kTokens, "--device",       kDevice};
  words.insert(words.end(), options.begin(), options.end());
  recipe::ParsedCommand parsed = recipe::parse_command_line(words);
  // As from the checkpoint: the shape alone decides.
  parsed.recipe.model.config.clear();
  parsed.recipe.checkpoint_dir = "checkpoints/" + model.id();
  try {
    Planned p{.recipe = parsed.recipe};
    plan_recipe(p, parsed.plan);
    return p.need();
  } catch (const UserError&) {
    return 0;
  }
}

std::string gib(int64_t bytes) {
  return bytes == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 30));
}

// The first of the ways that fits, from the one that trains most.
std::string best_way(const Needs& needs, const DeviceProfile& device) {
  const std::pair<int64_t, const char*> ways[] = {
      {needs.all_weights, "all weights"}, {needs.lora, "LoRA"}, {needs.qlora, "QLoRA"}};
  for (const auto& [bytes, name] : ways)
    if (bytes > 0 && bytes <= device.usable_bytes())
      return fmt::format(
          "{}{}", name, report::close_text(bytes, device.usable_bytes()).empty() ? "" : " (close)");
  return needs.qlora > 0 ? "no" : "-";  // nothing is known of a model that is new to the table
}

std::string list_text(const std::vector<const HubModel*>& models,
                      const std::optional<DeviceProfile>& device) {
  const std::map<std::string, Needs> kept = kept_needs();
  std::vector<report::Table::Column> columns = {
      {"model", report::Align::Left}, {"parameters"}, {"QLoRA"}, {"LoRA"}, {"all weights"}};
  if (device) columns.push_back({device->name, report::Align::Left});
  report::Table table(columns);
  for (const HubModel* model : models) {
    const Needs needs = needs_of(*model, kept);
    std::vector<std::string> row = {recipe::short_name(model->id()), short_count(model->size()),
                                    gib(needs.qlora), gib(needs.lora), gib(needs.all_weights)};
    if (device) row.push_back(best_way(needs, *device));
    table.add_row(row);
  }
  return table.render();
}

std::string details_text(const std::vector<const HubModel*>& models) {
  std::string text;
  for (const HubModel* model : models)
    text += fmt::format("\n{}: {} parameters, {}{}\n  {}\n", fmt::join(model->ids, ", "),
                        model->parameters > 0 ? with_commas(model->parameters) : model->published,
                        config_of(*model).value("model_type", ""),
                        is_text_alone(*model) ? ", whose language model is trained" : "",
                        model->source);
  return text;
}

json list_json(const std::vector<const HubModel*>& models,
               const std::optional<DeviceProfile>& device) {
  const std::map<std::string, Needs> kept = kept_needs();
  json list = json::array();
  for (const HubModel* model : models) {
    const Needs needs = needs_of(*model, kept);
    list.push_back({{"ids", model->ids},
                    {"name", recipe::short_name(model->id())},
                    {"family", config_of(*model).value("model_type", "")},
                    {"published", model->published},
                    {"parameters", model->parameters},
                    {"source", model->source},
                    {"qlora", needs.qlora},
                    {"lora", needs.lora},
                    {"all_weights", needs.all_weights}});
    if (device) list.back()[device->name] = best_way(needs, *device);
  }
  return list;
}

}  // namespace

Needs plan_needs(const HubModel& model) {
  memory::install_allocators();
  return {.qlora = need(model, {"--full", "false", "--quantize", "bnb.nf4"}),
          .lora = need(model, {"--full", "false"}),
          .all_weights = need(model, {"--full"})};
}

std::map<std::string, Needs> kept_needs() {
  std::map<std::string, Needs> needs;
  const json kept = json::parse(read_file(shipped_file(kNeeds)));
  for (const auto& [id, row] : kept.items())
    needs[id] = {.qlora = row.at(0), .lora = row.at(1), .all_weights = row.at(2)};
  return needs;
}

std::string text_of(const std::map<std::string, Needs>& needs) {
  std::vector<std::string> rows;
  rows.reserve(needs.size());
  for (const auto& [id, each] : needs)
    rows.push_back(
        fmt::format("  \"{}\": [{}, {}, {}]", id, each.qlora, each.lora, each.all_weights));
  return fmt::format("{{\n{}\n}}\n", fmt::join(rows, ",\n"));
}

void list_models(const recipe::ModelsOptions& options) {
  const std::vector<const HubModel*> models = recipe::hub_models_like(options.name);
  if (models.empty()) {
    const std::string near =
        nearest_name(recipe::short_name(options.name), recipe::hub_short_names());
    throw UserError("no model in the table has {} in its name{}; snug models lists all",
                    options.name, near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  std::optional<DeviceProfile> device;
  if (!options.device.empty()) device = find_profile(options.device, 0);
  if (options.json) {
    print_plan(list_json(models, device).dump(2) + "\n", true);
    return;
  }
  size_t ids = 0;
  for (const HubModel* model : models) ids += model->ids.size();
  const std::string few = options.name.empty() ? "" : details_text(models);
  print_plan(
      fmt::format(
          "{} models by name, of {} shapes; GiB of GPU memory for one sample of {} tokens\n\n{}{}\n"
          "snug plan NAME plans one without a download; snug models NAME shows its ids on the "
          "hub.\n"
          "Of any other id there, snug plan ORG/NAME fetches the config and the tokenizer.\n",
          ids, models.size(), with_commas(std::stoll(kTokens)), list_text(models, device), few),
      false);
}

}  // namespace snug::plan
