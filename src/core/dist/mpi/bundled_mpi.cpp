// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mpi/bundled_mpi.h"

#include <cstdlib>
#include <system_error>

#include "base/program.h"

namespace snug::dist {
namespace {

// As scripts/lib/package/bundle.py lays it out; scripts/lib/package/orted says the same for other
// machines, on which mpirun starts orted before the program.
constexpr const char* kPlaces[][2] = {
    {"OPAL_PREFIX", "."},           {"OPAL_PKGLIBDIR", "plugins"},
    {"OPAL_SYSCONFDIR", "etc"},     {"PMIX_PKGLIBDIR", "pmix"},
    {"PMIX_SYSCONFDIR", "etc"},     {"PMIX_PKGDATADIR", "share/pmix"},
    {"HWLOC_PLUGINS_PATH", "none"},  // the machine's may be of another version
};

}  // namespace

std::filesystem::path bundled_mpirun() {
  std::error_code error;
  std::filesystem::path mpirun = program_prefix() / "lib/openmpi/bin/mpirun";
  return std::filesystem::exists(mpirun, error) ? mpirun : std::filesystem::path();
}

void locate_bundled_mpi() {
  if (bundled_mpirun().empty()) return;
  const std::filesystem::path openmpi = program_prefix() / "lib/openmpi";
  for (const auto& [variable, place] : kPlaces)
    ::setenv(variable, (openmpi / place).lexically_normal().c_str(), /*overwrite=*/1);
}

}  // namespace snug::dist
