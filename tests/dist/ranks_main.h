// Every rank of a test program runs the same tests in the same order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dist/world.h"

namespace snug::test {

// Joined before the first test, left after the last.
dist::World& world();
// Its processes in one row: the shard axis.
dist::Mesh& row();

}  // namespace snug::test
