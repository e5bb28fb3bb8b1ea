// How many devices there are, by the recipe, by the machine, and by whoever started the processes.
// SPDX-License-Identifier: Apache-2.0
#include "train/launch/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/program.h"

namespace snug::launch {
namespace {

recipe::Recipe recipe_with(const std::string& devices) {
  recipe::Recipe recipe;
  recipe.devices = devices;
  recipe.given_keys.insert("devices");
  return recipe;
}

TEST(Alone, AutoIsAllGpus) {
  recipe::Recipe recipe = recipe_with("auto");
  resolve_alone(recipe, 8);
  EXPECT_EQ(recipe.devices, "8");
  recipe = recipe_with("auto");
  resolve_alone(recipe, 0);
  EXPECT_EQ(recipe.devices, "1");
  EXPECT_TRUE(is_single(recipe));
}

TEST(Alone, MoreDevicesThanGpusAreRefused) {
  recipe::Recipe recipe = recipe_with("4");
  EXPECT_THROW(resolve_alone(recipe, 2), UserError);
  resolve_alone(recipe, 0);  // processes on a CPU
  EXPECT_FALSE(is_single(recipe));
  recipe = recipe_with("65536");
  EXPECT_THROW(resolve_alone(recipe, 0), UserError) << "a process each";
}

TEST(Alone, HostsSayHowMany) {
  recipe::Recipe recipe;
  recipe.hosts = "a:4,b:4";
  resolve_alone(recipe, 0);
  EXPECT_EQ(recipe.devices, "4");
  EXPECT_EQ(recipe.num_nodes, 2);
  recipe = recipe_with("2");
  recipe.hosts = "a,b,c";
  resolve_alone(recipe, 0);
  EXPECT_EQ(recipe.devices, "2");
  EXPECT_EQ(recipe.num_nodes, 3);
  recipe.given_keys.insert("num_nodes");
  recipe.num_nodes = 2;
  EXPECT_THROW(resolve_alone(recipe, 0), UserError);
  recipe.hosts.clear();
  recipe.hostfile = "/there/is/none";
  EXPECT_THROW(resolve_alone(recipe, 0), UserError);
}

TEST(Alone, HostsAreNamesWithNumbersOfDevices) {
  for (const char* hosts : {"localhost:x", "a b", "a:0", "a:-1", "a;rm:1", ":4", "a,,b", "-x"}) {
    recipe::Recipe recipe = recipe_with("2");
    recipe.hosts = hosts;
    EXPECT_THROW(resolve_alone(recipe, 0), UserError) << hosts;
  }
}

TEST(Alone, ASingleProcessIsOnThisMachine) {
  recipe::Recipe recipe = recipe_with("1");
  recipe.hosts = "some-other-machine";
  EXPECT_THROW(resolve_alone(recipe, 0), UserError);
  recipe = recipe_with("2");
  recipe.hosts = "some-other-machine";
  EXPECT_NO_THROW(resolve_alone(recipe, 0));  // mpirun goes there
  for (const std::string& here :
       {std::string("localhost"), std::string("127.0.0.1"), host_name(), "me@" + host_name()}) {
    recipe = recipe_with("1");
    recipe.hosts = here;
    EXPECT_NO_THROW(resolve_alone(recipe, 0)) << here;
  }
}

TEST(Under, WhatTheRecipeLeavesOpenIsAsTheProcessesAre) {
  recipe::Recipe recipe;
  resolve_under(recipe, "srun", {.rank = 5, .size = 8, .local_rank = 1, .local_size = 4});
  EXPECT_EQ(recipe.devices, "4");
  EXPECT_EQ(recipe.num_nodes, 2);
  recipe = recipe_with("4");
  resolve_under(recipe, "srun", {.rank = 5, .size = 8, .local_rank = 1, .local_size = 4});
  EXPECT_EQ(recipe.num_nodes, 2);
}

TEST(Under, OtherNumbersAreRefused) {
  recipe::Recipe recipe = recipe_with("3");
  try {
    resolve_under(recipe, "mpirun", {.rank = 0, .size = 2, .local_rank = 0, .local_size = 2});
    FAIL() << "3 are not 2";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("mpirun started 2"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace snug::launch
