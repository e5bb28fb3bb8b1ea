// snug doctor: what this machine has, what it lacks, and the command that mends it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/options/commands.h"

namespace snug::doctor {

// The exit code: 2 where something that snug needs is missing.
int doctor(const recipe::DoctorOptions& options);

}  // namespace snug::doctor
