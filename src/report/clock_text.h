// A stretch of time as a clock shows it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug::report {

// 151 -> "2:31", 3751 -> "1:02:31", from a day on "2d 03:04". Less than nothing, or no number:
// "0:00".
std::string clock_text(double seconds);

}  // namespace snug::report
