// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace snug {
namespace {

struct Suffix {
  const char* name;
  double factor;
};
constexpr std::array<Suffix, 14> kSuffixes{{{"", 1},
                                            {"b", 1},
                                            {"k", 1024.0},
                                            {"kib", 1024.0},
                                            {"kb", 1e3},
                                            {"m", 1048576.0},
                                            {"mib", 1048576.0},
                                            {"mb", 1e6},
                                            {"g", 1073741824.0},
                                            {"gib", 1073741824.0},
                                            {"gb", 1e9},
                                            {"t", 1099511627776.0},
                                            {"tib", 1099511627776.0},
                                            {"tb", 1e12}}};

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view what) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  std::string suffix;
  for (const char* c = end; *c != '\0'; ++c)
    if (!std::isspace(static_cast<unsigned char>(*c)))
      suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  if (end != copy.c_str() && std::isfinite(value) && value >= 0)
    for (const Suffix& known : kSuffixes)
      if (suffix == known.name && value * known.factor < 9e18)
        return static_cast<int64_t>(std::llround(value * known.factor));
  throw UserError("{} = \"{}\" is not a size in bytes; write for example 2GiB, 512MiB or 1.5GB",
                  what, text);
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace snug
