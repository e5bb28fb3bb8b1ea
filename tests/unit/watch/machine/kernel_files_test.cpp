// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/kernel_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/bytes.h"
#include "support/temp_folder.h"

namespace snug::machine {
namespace {

namespace fs = std::filesystem;

class ControlGroupTest : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  ControlGroup read() const { return control_group(root_.path()); }

  test::TempFolder root_;
};

TEST_F(ControlGroupTest, Version2TakesTheSmallestLimitOnTheWayUp) {
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  put("sys/fs/cgroup/user.slice/job/memory.current", "1048576\n");
  put("sys/fs/cgroup/user.slice/job/memory.events",
      "low 0\nhigh 3\nmax 7\noom 2\noom_kill 1\noom_group_kill 9\n");
  put("sys/fs/cgroup/user.slice/memory.max", "8589934592\n");
  put("sys/fs/cgroup/user.slice/memory.current", "2097152\n");
  put("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  const ControlGroup group = read();
  EXPECT_EQ(group.limit, 8 * kGiB);
  EXPECT_EQ(group.in_use, 2 * kMiB) << "of the group that has the limit";
  EXPECT_EQ(group.out_of_memory_kills, 1);
  EXPECT_EQ(group.processors, 1.5);
}

TEST_F(ControlGroupTest, InAContainerTheMountIsTheGroup) {
  put("proc/self/cgroup", "0::/../../docker/abc\n");
  put("sys/fs/cgroup/memory.max", "4294967296\n");
  put("sys/fs/cgroup/memory.current", "4096\n");
  put("sys/fs/cgroup/memory.events", "oom_kill 5\n");
  const ControlGroup group = read();
  EXPECT_EQ(group.limit, 4 * kGiB);
  EXPECT_EQ(group.in_use, 4096);
  EXPECT_EQ(group.out_of_memory_kills, 5);
  EXPECT_FALSE(group.processors.has_value());
}

TEST_F(ControlGroupTest, Version1) {
  put("proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/slurm/job_1\n1:name=systemd:/x\n0::/y\n");
  put("sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes", "2147483648\n");
  put("sys/fs/cgroup/memory/slurm/job_1/memory.usage_in_bytes", "65536\n");
  put("sys/fs/cgroup/memory/slurm/job_1/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const ControlGroup group = read();
  EXPECT_EQ(group.limit, 2 * kGiB);
  EXPECT_EQ(group.in_use, 65536);
  EXPECT_EQ(group.out_of_memory_kills, 3) << "not oom_kill_disable";
  EXPECT_EQ(group.processors, 2.5);
}

TEST_F(ControlGroupTest, NoLimitIsNone) {
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  const ControlGroup group = read();
  EXPECT_FALSE(group.limit.has_value());
  EXPECT_FALSE(group.out_of_memory_kills.has_value());
  EXPECT_FALSE(group.processors.has_value());
}

TEST_F(ControlGroupTest, NothingThere) {
  const ControlGroup group = read();
  EXPECT_FALSE(group.limit.has_value());
  EXPECT_FALSE(group.in_use.has_value());
}

}  // namespace
}  // namespace snug::machine
