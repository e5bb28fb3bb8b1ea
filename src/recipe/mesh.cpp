// SPDX-License-Identifier: Apache-2.0
#include "recipe/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "recipe/numbers.h"

namespace snug::recipe {
namespace {

constexpr std::array<const char*, kNumAxes> kAxes = {"pp", "dp", "fsdp", "ep", "cp", "tp"};
constexpr std::string_view kAxesInWords =
    "dp (copies), fsdp (shards), tp (tensor), pp (pipeline), cp (context) and ep (experts)";

std::optional<Axis> find_axis(std::string_view name) {
  const auto found = std::find(kAxes.begin(), kAxes.end(), name);
  if (found == kAxes.end()) return std::nullopt;
  return static_cast<Axis>(found - kAxes.begin());
}

std::string read_item(std::string_view item, std::set<std::string>& seen, MeshShape& shape) {
  const size_t equals = item.find('=');
  const std::string name(trimmed(item.substr(0, equals)));
  const std::optional<Axis> axis = find_axis(name);
  if (!axis)
    return fmt::format("there is no axis \"{}\"; the axes are {}, as in dp=2,fsdp=4", name,
                       kAxesInWords);
  if (!seen.insert(name).second) return fmt::format("{} is given twice; keep one", name);
  const std::string_view number = equals == std::string_view::npos ? "" : item.substr(equals + 1);
  const std::optional<int64_t> size = parse_int(trimmed(number));
  if (!size || *size < 1)
    return fmt::format(
        "{} = \"{}\" is not a whole number of devices from 1; leave out axes that are not used",
        name, trimmed(number));
  if (*size > kMaxRanks || shape.num_ranks() * *size > kMaxRanks)
    return fmt::format("asks for more than {} devices", kMaxRanks);
  shape[*axis] = static_cast<int>(*size);
  return {};
}

// How far apart two ranks are that differ by one in this coordinate: the axes are listed from the
// outermost to the innermost.
int stride(const MeshShape& shape, Axis axis) {
  int ranks = 1;
  for (size_t inner = static_cast<size_t>(axis) + 1; inner < kNumAxes; ++inner) {
    ranks *= shape.sizes[inner];
  }
  return ranks;
}

}  // namespace

const char* axis_name(Axis axis) { return kAxes[static_cast<size_t>(axis)]; }

int MeshShape::num_ranks() const {
  int ranks = 1;
  for (const int size : sizes) ranks *= size;
  return ranks;
}

int MeshShape::coordinate(Axis axis, int rank) const {
  return rank / stride(*this, axis) % (*this)[axis];
}

std::vector<int> MeshShape::members(Axis axis, int rank) const {
  const int step = stride(*this, axis);
  const int first = rank - coordinate(axis, rank) * step;
  std::vector<int> ranks;
  for (int i = 0; i < (*this)[axis]; ++i) ranks.push_back(first + i * step);
  return ranks;
}

std::vector<int> MeshShape::members(std::initializer_list<Axis> axes, int rank) const {
  std::vector<int> ranks{rank};
  for (const Axis axis : axes) {
    std::vector<int> more;
    for (const int known : ranks)
      for (const int other : members(axis, known)) more.push_back(other);
    ranks = std::move(more);
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::string read_mesh(std::string_view text, MeshShape& shape) {
  shape = {};
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string fault = read_item(text.substr(begin, end - begin), seen, shape);
    if (!fault.empty()) return fault;
    begin = end + 1;
  }
  return {};
}

std::string mesh_text(const MeshShape& shape) {
  std::string text;
  for (size_t i = 0; i < kNumAxes; ++i)
    if (shape.sizes[i] > 1)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", kAxes[i], shape.sizes[i]);
  return text;
}

}  // namespace snug::recipe
