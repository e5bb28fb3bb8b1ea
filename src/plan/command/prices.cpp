// SPDX-License-Identifier: Apache-2.0
#include "plan/command/prices.h"

#include <sstream>

#include "base/error.h"
#include "plan/devices/device_profile.h"

namespace snug::plan {
namespace {

// The device of a known profile's name or of a profile's file.
std::string device_named(const std::string& name) { return find_profile(name, 0).name; }

}  // namespace

bool is_price_list(const std::string& text) { return text.find('=') != std::string::npos; }

recipe::Price read_price(const std::string& text, const std::string& device) {
  if (text.empty()) return {};
  const auto price_in = [&](const std::string& part) {
    if (const auto price = recipe::parse_price(part)) return *price;
    throw UserError(
        "--price_per_hour {}: give a number above 0, with or without a currency: 2.49, or \"2.49 "
        "USD\"; or one for each device: \"l4=0.80,h100-80=2.49 USD\"",
        text);
  };
  if (!is_price_list(text)) return price_in(text);
  recipe::Price found;
  const size_t space = text.find(' ');
  const std::string currency = space == std::string::npos ? "" : text.substr(space);
  std::istringstream list(text.substr(0, space));
  for (std::string part; std::getline(list, part, ',');) {
    const size_t equals = part.find('=');
    const recipe::Price price =
        price_in(equals == std::string::npos ? "" : part.substr(equals + 1) + currency);
    if (device_named(part.substr(0, equals)) == device) found = price;
  }
  return found;
}

}  // namespace snug::plan
