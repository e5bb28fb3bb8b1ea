// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "core/nn/unit.h"

namespace snug::nn {

const at::Tensor& State::at(const std::string& name) const {
  for (const auto& [key, tensor] : entries_)
    if (key == name) return tensor;
  throw InternalError(fmt::format("the state has no tensor \"{}\"", name));
}

bool State::has(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

void State::set(std::string name, at::Tensor tensor) {
  for (auto& [key, value] : entries_)
    if (key == name) {
      value = std::move(tensor);
      return;
    }
  entries_.emplace_back(std::move(name), std::move(tensor));
}

bool State::shares_storage(const at::Tensor& tensor) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.storage().is_alias_of(tensor.storage());
  });
}

}  // namespace snug::nn
