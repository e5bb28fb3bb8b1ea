// `snug data show`: rows as training reads them, and what there is of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::train {

void show_data(const config::ShowDataOptions& options);

}  // namespace snug::train
