// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace snug
