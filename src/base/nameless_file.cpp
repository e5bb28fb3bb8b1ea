// SPDX-License-Identifier: Apache-2.0
#include "base/nameless_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace snug {
namespace {

// A file system that knows no files without a name gets one with a name for a moment.
int open_named(const std::filesystem::path& folder) {
  std::string name = (folder / ".snug-XXXXXX").string();
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0) ::unlink(name.c_str());
  return file;
}

}  // namespace

int open_nameless_file(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const bool knows_none = file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
  return knows_none ? open_named(folder) : file;
}

}  // namespace snug
