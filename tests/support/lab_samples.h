// Lab runs made up for tests of the report: a planned suite beside another program's count, a
// measured one with every way to end, and one whose every text tries to be something else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "lab/result.h"

namespace snug::test {

// Categories add up to the peak; the timeline reaches it.
lab::Figures sample_figures(double weights_gib, double gradients_gib, double states_gib,
                            double activations_gib, double step_seconds);

// Adds a row and its result, both with this id; NotRun until the caller says otherwise.
lab::RowResult& add_row(lab::LabRun& run, const std::string& id, const std::string& from = "");
lab::Row& row_of(lab::LabRun& run, const std::string& id);

lab::LabRun planned_sample();   // ten rows, a sweep of five and a search
lab::LabRun measured_sample();  // ok, out of memory, crashed, timed out, not run
lab::LabRun hostile_sample();

// Where a sample's rows have their output.log; makes the folders.
void write_logs(const lab::LabRun& run);

}  // namespace snug::test
