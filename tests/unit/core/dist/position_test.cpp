// What launchers' variables say.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/world.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace snug::dist {
namespace {

// Also rids it of what the one who runs the test was started with.
class PositionTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID",
          "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_NTASKS", "PMI_SIZE", "PMI_RANK",
          "RANK", "WORLD_SIZE", "MASTER_ADDR"}) {
      unsetenv(variable);
    }
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

void expect_position(int rank, int size, int local_rank, int local_size) {
  const Position position = position_in_environment();
  EXPECT_EQ(position.rank, rank);
  EXPECT_EQ(position.size, size);
  EXPECT_EQ(position.local_rank, local_rank);
  EXPECT_EQ(position.local_size, local_size);
}

TEST_F(PositionTest, AloneWithoutALauncher) {
  expect_position(0, 1, 0, 1);
  EXPECT_EQ(started_by(), "");
}

TEST_F(PositionTest, Mpirun) {
  set("OMPI_COMM_WORLD_SIZE", "8");
  set("OMPI_COMM_WORLD_RANK", "5");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  expect_position(5, 8, 1, 4);
  EXPECT_EQ(started_by(), "mpirun");
}

TEST_F(PositionTest, Srun) {
  set("SLURM_STEP_NUM_TASKS", "7");
  set("SLURM_PROCID", "6");
  set("SLURM_LOCALID", "0");
  set("SLURM_NODEID", "3");
  set("SLURM_STEP_TASKS_PER_NODE", "2(x3),1");
  expect_position(6, 7, 0, 1);
  set("SLURM_PROCID", "3");
  set("SLURM_LOCALID", "1");
  set("SLURM_NODEID", "1");
  expect_position(3, 7, 1, 2);
}

// A batch script's own process is no task of a step.
TEST_F(PositionTest, ABatchScriptIsAlone) {
  set("SLURM_NTASKS", "8");
  set("SLURM_PROCID", "0");
  expect_position(0, 1, 0, 1);
}

TEST_F(PositionTest, MpirunInsideSlurmCounts) {
  set("SLURM_STEP_NUM_TASKS", "1");
  set("SLURM_PROCID", "0");
  set("OMPI_COMM_WORLD_SIZE", "2");
  set("OMPI_COMM_WORLD_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  expect_position(1, 2, 1, 2);
}

TEST_F(PositionTest, ContradictionsAreRefused) {
  set("OMPI_COMM_WORLD_SIZE", "2");
  set("OMPI_COMM_WORLD_RANK", "2");
  EXPECT_THROW(position_in_environment(), UserError);
  set("OMPI_COMM_WORLD_RANK", "x");
  EXPECT_THROW(position_in_environment(), UserError);
  set("OMPI_COMM_WORLD_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "3");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  EXPECT_THROW(position_in_environment(), UserError);
}

TEST_F(PositionTest, TorchrunIsToldApart) {
  set("RANK", "1");
  set("WORLD_SIZE", "4");
  EXPECT_FALSE(is_started_by_torchrun());
  set("MASTER_ADDR", "127.0.0.1");
  EXPECT_TRUE(is_started_by_torchrun());
  EXPECT_THROW(World::join({}), UserError);
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_RANK", "1");
  EXPECT_FALSE(is_started_by_torchrun());
}

TEST_F(PositionTest, AProcessAloneNeedsNoMpi) {
  const auto world = World::join({});
  EXPECT_EQ(world->size(), 1);
  EXPECT_TRUE(world->make_mesh({}, at::kCPU)->is_single());
  MeshShape two;
  two[Axis::Shard] = 2;
  EXPECT_THROW(world->make_mesh(two, at::kCPU), UserError);
}

}  // namespace
}  // namespace snug::dist
