// What an hour of a device costs (--price_per_hour): one price, or one for each kind of device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "recipe/numbers.h"

namespace snug::plan {

// "2.49", "2.49 USD", or "l4=0.80,h100-80=2.49 USD", whose currency is that of all. A price of 0
// where the list does not have the device. Throws UserError.
recipe::Price read_price(const std::string& text, const std::string& device);

// Whether each kind of device has a price of its own.
bool is_price_list(const std::string& text);

}  // namespace snug::plan
