// SPDX-License-Identifier: Apache-2.0
#include "config/mesh_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/text.h"
#include "config/numbers.h"

namespace snug::config {
namespace {

struct Axis {
  std::string_view name;
  int64_t MeshSizes::*size;
};

constexpr std::array kAxes = {
    Axis{"pp", &MeshSizes::pipeline}, Axis{"dp", &MeshSizes::replicate},
    Axis{"fsdp", &MeshSizes::shard},  Axis{"cp", &MeshSizes::context},
    Axis{"tp", &MeshSizes::tensor},
};
constexpr std::string_view kNames =
    "dp (copies), fsdp (shards), tp (tensor), pp (pipeline) and cp (context)";
constexpr int64_t kMaxRanks = int64_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

const Axis* find_axis(std::string_view name) {
  const auto found =
      std::find_if(kAxes.begin(), kAxes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == kAxes.end() ? nullptr : &*found;
}

std::string read_item(std::string_view item, std::set<std::string>& seen, MeshSizes& sizes) {
  const size_t equals = item.find('=');
  const std::string name(trimmed(item.substr(0, equals)));
  const Axis* axis = find_axis(name);
  if (axis == nullptr)
    return fmt::format("has no axis \"{}\"; the axes are {}, as in dp=2,fsdp=4", name, kNames);
  if (!seen.insert(name).second) return fmt::format("gives {} twice; keep one", name);
  const std::string_view number = equals == std::string_view::npos ? "" : item.substr(equals + 1);
  const std::optional<int64_t> size = parse_int(trimmed(number));
  if (!size || *size < 1)
    return fmt::format(
        "{} = \"{}\" is not a whole number of devices from 1; leave an axis out that "
        "is not used",
        name, trimmed(number));
  if (*size > kMaxRanks || sizes.num_ranks() * *size > kMaxRanks)
    return fmt::format("lays out more than {} devices", kMaxRanks);
  sizes.*(axis->size) = *size;
  return {};
}

}  // namespace

std::string read_mesh(std::string_view text, MeshSizes& sizes) {
  sizes = {};
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string fault = read_item(text.substr(begin, end - begin), seen, sizes);
    if (!fault.empty()) return fault;
    begin = end + 1;
  }
  return {};
}

std::string mesh_text(const MeshSizes& sizes) {
  std::string text;
  for (const Axis& axis : kAxes)
    if (sizes.*(axis.size) > 1)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, sizes.*(axis.size));
  return text;
}

}  // namespace snug::config
