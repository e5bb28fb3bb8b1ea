// A row's own section on the report's page: everything there is to know of it, folded away.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lab/report/row_view.h"

namespace snug::lab {

std::string row_section(const LabRun& run, const RowView& view);

// "<span class="chip good">✓ fits</span>", and behind it whether that is close.
std::string outcome_chip(const RowView& view);
// The verdict, and behind it how near the figures are; empty where nothing was expected.
std::string verdict_chip(const RowView& view);

// The end of a row's output.log as it would stand on a terminal: no escape sequences, of a line
// that was redrawn the last state. Empty where there is none.
std::string log_tail(const LabRun& run, const RowView& view);

}  // namespace snug::lab
