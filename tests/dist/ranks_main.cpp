// SPDX-License-Identifier: Apache-2.0
#include "ranks_main.h"

#include <gtest/gtest.h>

#include "core/memory/ledger.h"
#include "support/drawn_cases.h"

namespace snug::test {
namespace {

std::shared_ptr<dist::World> joined_world;
std::shared_ptr<dist::Mesh> joined_row;

}  // namespace

dist::World& world() { return *joined_world; }
dist::Mesh& row() { return *joined_row; }

}  // namespace snug::test

int main(int argc, char** argv) {
  using namespace snug;
  testing::InitGoogleTest(&argc, argv);
  tests::draw_tests();
  memory::install_allocators();
  // A rank that fails a test leaves its collectives out; the others must not wait for long.
  test::joined_world = dist::World::join({.timeout_seconds = 60, .status_folder = {}});
  dist::MeshShape shape;
  shape[dist::Axis::Shard] = test::world().size();
  test::joined_row = test::world().make_mesh(shape, at::kCPU);
  const int result = RUN_ALL_TESTS();
  test::joined_row.reset();
  test::joined_world.reset();
  return result;
}
