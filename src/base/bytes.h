// Parses and formats byte sizes. GiB = 2^30 everywhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace snug {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// "2GiB", "512 MiB", "1.5GB" (decimal units allowed), "1000000". Throws UserError naming `what`.
int64_t parse_bytes(std::string_view text, std::string_view what);

// 1536 -> "1.50 KiB". Two decimals from KiB on.
std::string format_bytes(int64_t bytes);

}  // namespace snug
