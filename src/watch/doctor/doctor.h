// snug doctor: what this machine has, what is missing, and the commands that install or fix it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/options/commands.h"

namespace snug::doctor {

// Returns the exit code: 2 if something that snug needs is missing.
int doctor(const recipe::DoctorOptions& options);

}  // namespace snug::doctor
