// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/cpu_features.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "testing.h"

namespace snug::kernels::cpu {
namespace {

TEST(CpuFeatures, SummaryNamesThreadsAndInstructionSet) {
  const std::string text = cpu_summary();
  EXPECT_NE(text.find(std::to_string(omp_get_max_threads()) + " thread"), std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with(isa_name(best_isa()))) << text;
}

// How the two compare is the processor's own and its neighbours': only that each is a rate at all
// is said here.
TEST(CpuFeatures, PeakIsPlausible) {
  for (const Scalar type : {Scalar::F32, Scalar::BF16}) {
    const double per_thread = cpu_peak_flops_estimate(type) / omp_get_max_threads();
    EXPECT_GT(per_thread, 1e8);
    EXPECT_LT(per_thread, 1e13);
  }
}

TEST(CpuFeatures, TheBestTableIsActive) {
  EXPECT_EQ(&active_kernels(), &kernels_for(best_isa()));
  EXPECT_EQ(multiplies_bf16(), best_isa() >= Isa::Avx512Bf16);
}

}  // namespace
}  // namespace snug::kernels::cpu
