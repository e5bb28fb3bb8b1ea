// How long OpenMP threads spin before they sleep. The program sets this in its own environment:
// cli/short_waits.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug {

inline constexpr const char* kShortWaits = "GOMP_SPINCOUNT=500";

}  // namespace snug
