// `snug convert`: a checkpoint in another layout, one tensor in memory at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::train {

void convert(const config::ConvertOptions& options);

}  // namespace snug::train
