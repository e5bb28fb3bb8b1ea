// Which launch, or what before it, an error of CUDA's is blamed on.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/launch_errors.h"

#include <gtest/gtest.h>

namespace snug::kernels::cuda {
namespace {

constexpr int kIllegalAddress = 700, kInvalidConfiguration = 9;

std::string text_for(int before, int after, bool launch_blocks = false) {
  return launch_fault_text(launch_fault(before, after, launch_blocks), "rope_apply",
                           before != 0 ? before : after, "its words");
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(LaunchErrors, NoErrorIsNobodysFault) {
  EXPECT_EQ(launch_fault(0, 0, false), LaunchFault::None);
  EXPECT_EQ(text_for(0, 0), "");
}

// The kernel that is launched has hardly begun: the fault is one of those still running.
TEST(LaunchErrors, AFaultOfRunningWorkIsAnEarlierKernels) {
  for (const bool noticed_before : {false, true}) {
    const std::string text =
        noticed_before ? text_for(kIllegalAddress, kIllegalAddress) : text_for(0, kIllegalAddress);
    EXPECT_TRUE(has(text, "launched before rope_apply failed: its words")) << text;
    EXPECT_TRUE(has(text, "CUDA_LAUNCH_BLOCKING=1")) << text;
    EXPECT_FALSE(has(text, "not launched")) << text;
  }
}

TEST(LaunchErrors, WhereLaunchesWaitItIsThisKernels) {
  EXPECT_EQ(text_for(0, kIllegalAddress, true), "CUDA kernel rope_apply failed: its words");
  EXPECT_EQ(launch_fault(kIllegalAddress, kIllegalAddress, true), LaunchFault::EarlierKernel);
}

TEST(LaunchErrors, ARefusedLaunchIsItsOwnFault) {
  for (const bool launch_blocks : {false, true})
    EXPECT_EQ(text_for(0, kInvalidConfiguration, launch_blocks),
              "CUDA kernel rope_apply was not launched: its words");
  EXPECT_TRUE(has(text_for(0, kCudaNoKernelImage), "snug doctor"));
  EXPECT_TRUE(has(text_for(0, kCudaOutOfMemory), "--memory_budget"));
}

TEST(LaunchErrors, ACallThatNobodyCheckedIsNotTheLaunchs) {
  const std::string text = text_for(kInvalidConfiguration, kInvalidConfiguration);
  EXPECT_EQ(launch_fault(kInvalidConfiguration, 0, false), LaunchFault::EarlierCall);
  EXPECT_TRUE(has(text, "a CUDA call before kernel rope_apply was refused")) << text;
}

}  // namespace
}  // namespace snug::kernels::cuda
