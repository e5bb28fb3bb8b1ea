// `snug evaluate`: loss and perplexity of a model on a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::train {

void evaluate(const config::EvaluateOptions& options);

}  // namespace snug::train
