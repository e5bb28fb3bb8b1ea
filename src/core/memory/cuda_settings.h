// Settings of libtorch's CUDA allocator, the same where a run is planned and where it runs.
// Expandable segments let blocks of all sizes share memory; without them fragmentation leaves
// several percent of a GPU reserved but unused. PYTORCH_ALLOC_CONF (or PYTORCH_CUDA_ALLOC_CONF) in
// the environment takes precedence.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace snug::memory {

// The user's settings from the environment; empty if there are none.
std::string allocator_settings_in_environment();

// The settings to use, given the user's.
std::string allocator_settings(const std::string& given);
// Whether these settings make segments expandable.
bool segments_expand(std::string_view settings);

}  // namespace snug::memory
