// How long the OpenMP runtime's threads look again and again for one another before they sleep.
// The program puts this into its own environment, see cli/short_waits.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug {

inline constexpr const char* kShortWaits = "GOMP_SPINCOUNT=3000";

}  // namespace snug
