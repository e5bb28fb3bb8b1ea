// The mpirun command, and what is passed on of mpirun's own words.
// SPDX-License-Identifier: Apache-2.0
#include "train/launch/layout.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "base/error.h"
#include "support/temp_folder.h"

namespace snug::launch {
namespace {

std::optional<std::string> nothing(const std::string&) { return std::nullopt; }

// A machine whose PATH is one folder, with an ssh in it or empty.
class Path {
 public:
  explicit Path(bool has_ssh) {
    if (!has_ssh) return;
    std::ofstream(folder_ / "ssh") << "#!/bin/sh\n";
    std::filesystem::permissions(folder_ / "ssh", std::filesystem::perms::owner_all);
  }
  std::optional<std::string> operator()(const std::string& name) const {
    return name == "PATH" ? std::optional(folder_.path().string()) : std::nullopt;
  }

 private:
  test::TempFolder folder_;
};

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

TEST(MpirunCommand, OnOneMachine) {
  const MpirunOptions options{.mpirun = "/usr/bin/mpirun",
                              .program = "/opt/snug",
                              .words = {"finetune", "m"},
                              .devices = 4};
  const std::string start =
      "/usr/bin/mpirun --oversubscribe --bind-to none -np 4 --map-by ppr:4:node ";
  const Path with_ssh(true), without_ssh(false);
  EXPECT_EQ(joined(mpirun_command(options, std::cref(with_ssh))), start + "/opt/snug finetune m");
  EXPECT_EQ(joined(mpirun_command(options, std::cref(without_ssh))),
            start + "--mca plm isolated /opt/snug finetune m");
}

TEST(MpirunCommand, OnSeveralMachines) {
  const MpirunOptions options{.mpirun = "mpirun",
                              .program = "snug",
                              .devices = 2,
                              .num_nodes = 3,
                              .hosts = "a,b:2,c",
                              .variables = {"SNUG_JOB", "HF_HOME"},
                              .is_root = true};
  EXPECT_EQ(joined(mpirun_command(options, nothing)),
            "mpirun --allow-run-as-root --oversubscribe --bind-to none -np 6 --map-by ppr:2:node "
            "-H a:2,b:2,c:2 --mca plm_rsh_args -o BatchMode=yes -o ConnectTimeout=20 -x SNUG_JOB "
            "-x HF_HOME snug");
  const auto own_agent = [](const std::string& name) {
    return name == "OMPI_MCA_plm_rsh_agent" ? std::optional<std::string>("agent") : std::nullopt;
  };
  EXPECT_EQ(joined(mpirun_command(options, own_agent)).find("plm_rsh_args"), std::string::npos);
}

TEST(MpirunCommand, TakesTheHostFile) {
  const MpirunOptions options{
      .mpirun = "mpirun", .program = "snug", .devices = 1, .num_nodes = 2, .hostfile = "hosts.txt"};
  EXPECT_NE(joined(mpirun_command(options, nothing)).find("--hostfile hosts.txt"),
            std::string::npos);
}

TEST(Variables, GoWithTheRunWhereTheyMatter) {
  const char* variables[] = {
      "HOME=/home/a",           "HF_TOKEN=secret",   "NCCL_DEBUG=INFO", "SNUG_JOB=a-1",
      "CUDA_VISIBLE_DEVICES=3", "OMP_NUM_THREADS=2", "PATH=/usr/bin",   nullptr};
  EXPECT_EQ(variables_to_export(const_cast<char**>(variables)),
            (std::vector<std::string>{"HF_TOKEN", "NCCL_DEBUG", "OMP_NUM_THREADS", "SNUG_JOB"}));
}

TEST(FindMpirun, NamesThePackageWhereThereIsNone) {
  const auto empty_path = [](const std::string&) { return std::optional<std::string>("/nowhere"); };
  try {
    find_mpirun(4, empty_path);
    FAIL() << "there is no mpirun in /nowhere";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("openmpi-bin"), std::string::npos) << error.what();
  }
}

TEST(Threads, AreSharedOut) {
  EXPECT_GE(threads_each(1), 1);
  EXPECT_GE(threads_each(1), threads_each(2));
  EXPECT_EQ(threads_each(100000), 1);
}

// As mpirun 4.1.4 and ssh say them.
TEST(Condensed, LeavesWhatSaysWhy) {
  EXPECT_EQ(condensed(R"(ssh: Could not resolve hostname nosuchhost: Name or service not known
--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH
--------------------------------------------------------------------------
)"),
            "ssh: Could not resolve hostname nosuchhost: Name or service not known");
  EXPECT_EQ(condensed(R"(--------------------------------------------------------------------------
mpirun was unable to launch the specified application as it could not access
or execute an executable:

Executable: /nonexist
Node: vm

while attempting to start process rank 0.
--------------------------------------------------------------------------
)"),
            "mpirun was unable to launch the specified application as it could not access or "
            "execute an executable: Executable: /nonexist Node: vm");
  EXPECT_EQ(condensed("mpirun: Error: unknown option \"--nosuchoption\"\nType 'mpirun --help' for "
                      "usage.\n"),
            "mpirun: Error: unknown option \"--nosuchoption\"");
  EXPECT_EQ(condensed("mpirun: Forwarding signal 10 to job\n"), "");
}

}  // namespace
}  // namespace snug::launch
