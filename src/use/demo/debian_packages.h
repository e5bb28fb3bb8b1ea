// What this machine's Debian or Ubuntu package index says of its packages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace snug::demo {

// The index as text (apt-cache dumpavail); empty where there is none.
std::string package_index();

// Name -> one-line description, of packages that stand for themselves: not parts of others, whose
// descriptions repeat those of the whole, nor libraries.
std::map<std::string, std::string> described_packages(std::string_view index);

}  // namespace snug::demo
