// What a row is expected to do and what was published of it, as a suite's file says it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lab/suite/suite.h"
#include "lab/suite/suite_faults.h"
#include "recipe/yaml.h"

namespace snug::lab {

// "oom", or {outcome: ok, memory: {less_than: ls03, …}, time: {…}}.
void read_expected(const recipe::YamlNode& node, Row& row, Faults& faults);
// Whether `node` is one expectation, rather than one for each of several rows.
bool is_one_expectation(const recipe::YamlNode& node);

Published read_published(const recipe::YamlNode& node, Faults& faults);

}  // namespace snug::lab
