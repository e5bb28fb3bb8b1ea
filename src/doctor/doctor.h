// snug doctor: what this machine has, what it lacks, and the command that mends it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::doctor {

// The exit code: 2 where something that snug needs is missing.
int doctor(const config::DoctorOptions& options);

}  // namespace snug::doctor
