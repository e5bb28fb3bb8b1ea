// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "core/nn/unit.h"
#include "core/ops/device/device.h"

namespace snug::nn {

kernels::MaskKey mask_key(const Pass& pass, const std::string& site) {
  const uint64_t place = hash_name(site);
  if (pass.recorded_key.defined()) return {place, ops::read_pointer<uint64_t>(pass.recorded_key)};
  return kernels::mix64(*pass.dropout_key ^ place);
}

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

at::Tensor State::take(const std::string& name) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](auto& entry) { return entry.first == name; });
  SNUG_CHECK(found != entries_.end(), "the state has no tensor \"{}\" to take", name);
  at::Tensor taken = std::move(found->second);
  entries_.erase(found);
  return taken;
}

bool State::shares_storage(const at::Tensor& tensor) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.storage().is_alias_of(tensor.storage());
  });
}

}  // namespace snug::nn
