// SPDX-License-Identifier: Apache-2.0
#include "core/memory/cuda_settings.h"

#include <cstdlib>

namespace snug::memory {
namespace {

constexpr std::string_view kExpandable = "expandable_segments";

bool is_said_of(std::string_view settings, std::string_view what) {
  return settings.find(what) != std::string_view::npos;
}

}  // namespace

std::string allocator_settings_in_environment() {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (const char* value = std::getenv(name)) return value;
  return {};
}

// The backend cudaMallocAsync has no segments.
std::string allocator_settings(const std::string& given) {
  if (is_said_of(given, kExpandable) || is_said_of(given, "cudaMallocAsync")) return given;
  return given + (given.empty() ? "" : ",") + std::string(kExpandable) + ":True";
}

bool segments_expand(std::string_view settings) {
  const size_t at = settings.find(kExpandable);
  if (at == std::string_view::npos) return false;
  const size_t value = settings.find_first_not_of(": ", at + kExpandable.size());
  return value != std::string_view::npos && settings.substr(value).starts_with("True");
}

}  // namespace snug::memory
