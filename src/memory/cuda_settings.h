// How libtorch's allocator of device memory is set up, on the machine that has a GPU and on the one
// that plans for it. Expandable segments let blocks of all sizes come from the same memory: without
// them what is freed in one size is of little use for another, and several percent of a GPU are
// reserved and not used. Who sets PYTORCH_ALLOC_CONF (or PYTORCH_CUDA_ALLOC_CONF) has the last
// word.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace snug::memory {

// What a person has set in the environment; empty: nothing.
std::string allocator_settings_in_environment();

// The settings that are used, given a person's.
std::string allocator_settings(const std::string& given);
// Whether segments expand with these.
bool segments_expand(std::string_view settings);

}  // namespace snug::memory
