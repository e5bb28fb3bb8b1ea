// SPDX-License-Identifier: Apache-2.0
#include "core/memory/cuda_settings.h"

#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

namespace snug::memory {
namespace {

TEST(AllocatorSettings, SegmentsExpandUnlessSomebodySaysOtherwise) {
  EXPECT_EQ(allocator_settings(""), "expandable_segments:True");
  EXPECT_EQ(allocator_settings("max_split_size_mb:64"),
            "max_split_size_mb:64,expandable_segments:True");
  for (const char* given :
       {"expandable_segments:False", "expandable_segments:True",
        "max_split_size_mb:64, expandable_segments: False", "backend:cudaMallocAsync"})
    EXPECT_EQ(allocator_settings(given), given);
}

// What plans take them for is what libtorch makes of them.
TEST(AllocatorSettings, AreReadAsLibtorchReadsThem) {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  const std::string before = c10::CachingAllocator::getAllocatorSettings();
  for (const char* given :
       {"", "expandable_segments:False", "expandable_segments:True",
        "max_split_size_mb:64,expandable_segments: False", "max_split_size_mb:64"}) {
    const std::string settings = allocator_settings(given);
    c10::CachingAllocator::setAllocatorSettings(settings);
    EXPECT_EQ(segments_expand(settings), Config::use_expandable_segments()) << settings;
  }
  EXPECT_FALSE(segments_expand("backend:cudaMallocAsync"));
  c10::CachingAllocator::setAllocatorSettings(before);
}

}  // namespace
}  // namespace snug::memory
