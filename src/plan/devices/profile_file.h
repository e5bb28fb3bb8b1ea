// A device's profile from a YAML file of one's own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/devices/device_profile.h"

namespace snug::plan {

// What the file does not say is as in `otherwise`; the link between devices is then the one to the
// host. Throws UserError that names the file.
DeviceProfile read_profile(const std::string& path, DeviceProfile otherwise);

}  // namespace snug::plan
