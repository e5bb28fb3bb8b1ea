// What --fit chooses runs within the memory that it was chosen for: device, host and disk, each
// counted by its ledger while a tiny model trains.
// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/memory/disk_file.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

using tests::random_samples;
using tests::tiny_model;
using tests::tiny_recipe;
using tests::TinyRun;

class FitRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (tests::test_device().type() != at::kCPU) GTEST_SKIP() << "device and host share a memory";
  }

  // A device and a host that hold these shares of what the tiny model takes as it is.
  plan::DeviceProfile profile(double of_device, double of_both) const {
    const plan::Prediction whole =
        plan::predict(*tiny_model(), recipe_, plan::largest_micro_batch(work(), recipe_, 8), 128);
    const auto share = [&](double part) {
      return static_cast<int64_t>(part * static_cast<double>(whole.peak_allocated));
    };
    return {.name = "shares",
            .kind = at::kCPU,
            .memory_bytes = share(of_device),
            .host_bytes = share(of_both),
            .flops_16bit = 1e12,
            .flops_32bit = 1e11,
            .bytes_per_second = 1e10,
            .link_bytes_per_second = 5e9,
            .host_bytes_per_second = 1e10};
  }
  plan::Workload work() const { return {.samples = samples_, .max_seqlen = 128}; }

  // Trains two steps of the longest samples.
  void run_within(const recipe::Recipe& recipe, const plan::DeviceProfile& limits) const {
    memory::Ledger &device = tests::test_ledger(), &host = memory::cpu_host_ledger(),
                   &disk = memory::cpu_disk_ledger();
    const int64_t before = device.allocated(), host_before = host.allocated();
    device.reset_peak();
    host.reset_peak();
    int64_t on_disk = 0;
    {
      TinyRun run(recipe, samples_);
      const std::vector<int64_t> longest = samples_.longest_samples(recipe.train.micro_batch_size);
      const auto count = static_cast<size_t>(8 / recipe.train.micro_batch_size);
      for (int step = 0; step < 2; ++step) run.step(engine::SampleIndices(count, longest), 1e-2);
      on_disk = disk.allocated();
    }
    const int64_t on_device = device.at_peak().allocated - before,
                  in_host = host.at_peak().allocated - host_before;
    EXPECT_LE(on_device, limits.usable_bytes());
    EXPECT_LE(on_device + in_host, limits.host_bytes);
    EXPECT_EQ(on_disk > 0, recipe.offload_folder().has_value());
  }

  recipe::Recipe recipe_ = tiny_recipe();
  data::SampleStore samples_ = random_samples(16, 60, 5);
};

TEST_F(FitRuns, WithinDeviceHostAndDisk) {
  recipe_.fit = true;
  recipe_.fit_disk = std::filesystem::temp_directory_path().string();
  std::set<std::string> places;
  for (const double of_device : {1.2, 0.7, 0.4, 0.25})
    for (const double of_both : {2.0, 1.0, 0.7, 0.6, 0.5, 0.4, 0.3}) {
      SCOPED_TRACE(fmt::format("{} of the device, {} of both", of_device, of_both));
      const plan::DeviceProfile limits = profile(of_device, of_both);
      const plan::Fit found = plan::fit(*tiny_model(), recipe_, work(), limits);
      if (!found.best) continue;
      SCOPED_TRACE(found.best->options);
      run_within(found.best->recipe, limits);
      places.insert(found.best->recipe.optimizer_offload);
    }
  EXPECT_TRUE(places.contains("none"));
  EXPECT_TRUE(places.contains("disk:" + recipe_.fit_disk));
}

}  // namespace
}  // namespace snug
