// The sources of a mix as a run's record and its tables have them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "data/dataset.h"
#include "report/run_record.h"

namespace snug::use {

// Empty where the data set is no mix.
std::vector<report::SourceRecord> source_records(const data::Dataset& dataset);

}  // namespace snug::use
