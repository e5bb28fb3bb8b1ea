// System calls on files that a signal may interrupt, made again until they are not. On a network
// or user-space file system even open and fsync are among them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace snug {

template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace snug
