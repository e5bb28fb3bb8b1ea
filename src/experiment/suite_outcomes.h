// What a row is expected to do and what was published of it, as a suite's file says it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/yaml.h"
#include "experiment/suite.h"
#include "experiment/suite_faults.h"

namespace snug::experiment {

// "oom", or {outcome: ok, memory: {less_than: ls03, …}, time: {…}}.
void read_expected(const config::YamlNode& node, Row& row, Faults& faults);
// Whether `node` is one expectation, rather than one for each of several rows.
bool is_one_expectation(const config::YamlNode& node);

Published read_published(const config::YamlNode& node, Faults& faults);

}  // namespace snug::experiment
