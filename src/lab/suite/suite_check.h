// Whether the words that a suite's rows become are ones that the program takes: each row's command,
// read whole, in every mode that it can be used in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lab/suite/suite.h"
#include "lab/suite/suite_faults.h"

namespace snug::lab {

// `line` is the row's in the file.
void check_words(const Suite& suite, const Row& row, int line, Faults& faults);

}  // namespace snug::lab
