// `snug merge`: an adapter folded into its base, as a model that needs no adapter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::train {

void merge(const config::MergeOptions& options);

}  // namespace snug::train
