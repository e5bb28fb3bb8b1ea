// What --fit chooses only where it is allowed to: states on disk where nothing fits without, and
// delayed updates; and that it keeps whatever a recipe gives.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "models/family.h"
#include "plan/fit.h"
#include "plan/search_space.h"
#include "recipe/batches.h"

namespace snug::plan {
namespace {

class FitAllowed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  FitAllowed() {
    recipe_.precision = "bf16-true";
    recipe_.fit = true;
    recipe_.train.micro_batch_size = 1;
    recipe_.train.global_batch_size = 1;
    const std::vector<int32_t> ids(128, 1);
    samples_.append({.ids = ids, .labels = ids});
  }

  double weights() const { return 2 * static_cast<double>(model_->num_parameters()); }
  // A device that holds `on_device` times the weights, and a host that holds `in_host` times.
  DeviceProfile device(double on_device, double in_host) const {
    DeviceProfile profile = find_profile("rtx-4090", 0);
    profile.memory_bytes = profile.context_bytes + static_cast<int64_t>(on_device * weights());
    profile.host_bytes = static_cast<int64_t>(in_host * weights());
    return profile;
  }
  Fit fit_into(const DeviceProfile& profile) const {
    return fit(*model_, recipe_, {samples_, 128}, profile);
  }
  void give(const std::string& key) { recipe_.given_keys.insert(key); }

  std::unique_ptr<models::Model> model_ = models::model_from_config(
      std::filesystem::path(SNUG_SOURCE_DIR) / "recipes/models/smollm2-135m.json");
  recipe::Recipe recipe_;
  data::SampleStore samples_;
};

// Weights, gradients and two states are four times the weights. A device of two and a half has room
// for the first two; a host of a little more has none for weights and states at once.
constexpr double kTight = 2.5, kScarce = 2.7, kPlenty = 8;

TEST_F(FitAllowed, AnAssumedHostIsPassedOnlyWhereNothingFitsWithin) {
  DeviceProfile open = device(kTight, 0);
  const Fit unlimited = fit_into(open);
  ASSERT_TRUE(unlimited.best);
  const int64_t taken = unlimited.best->prediction.peak_host;
  open.assumed_host_bytes = 1;
  const Fit beyond = fit_into(open);
  ASSERT_TRUE(beyond.best);
  EXPECT_GT(beyond_assumed_host(*beyond.best, open), 0);
  EXPECT_EQ(beyond.best->options, unlimited.best->options);
  // With room for something, but not for the fastest.
  for (const double share : {0.95, 0.8}) {
    open.assumed_host_bytes = static_cast<int64_t>(share * static_cast<double>(taken));
    DeviceProfile known = open;
    known.host_bytes = std::exchange(known.assumed_host_bytes, 0);
    const Fit within = fit_into(open), limited = fit_into(known);
    ASSERT_TRUE(within.best);
    EXPECT_EQ(beyond_assumed_host(*within.best, open) == 0, limited.best.has_value());
  }
}

TEST_F(FitAllowed, ADiskIsChosenOnlyWhereItIsAllowedAndNeeded) {
  const Fit refused = fit_into(device(kTight, kScarce));
  EXPECT_FALSE(refused.best);
  ASSERT_TRUE(refused.with_disk);
  EXPECT_NE(refused.with_disk->options.find("disk:FOLDER"), std::string::npos);
  EXPECT_FALSE(refused.smallest->recipe.offload_folder());

  recipe_.fit_disk = "/mnt/nvme";
  const DeviceProfile scarce = device(kTight, kScarce);
  const Fit allowed = fit_into(scarce);
  ASSERT_TRUE(allowed.best);
  EXPECT_TRUE(allowed.chose_disk(recipe_));
  EXPECT_EQ(allowed.best->recipe.optimizer_offload, "disk:/mnt/nvme");
  EXPECT_NE(allowed.best->options.find("--optimizer_offload disk:/mnt/nvme"), std::string::npos);
  EXPECT_TRUE(fits(*allowed.best, scarce));
  EXPECT_GT(allowed.best->prediction.on_disk, 0);
  EXPECT_LE(allowed.best->prediction.peak_host, scarce.host_bytes);
  EXPECT_DOUBLE_EQ(allowed.best->cost.seconds(), refused.with_disk->cost.seconds());
  EXPECT_FALSE(allowed.with_disk);

  for (const auto& [on_device, in_host] : {std::pair{kTight, kPlenty}, {kPlenty, kScarce}}) {
    const Fit roomy = fit_into(device(on_device, in_host));
    ASSERT_TRUE(roomy.best) << on_device << " " << in_host;
    for (const Candidate& candidate : roomy.front)
      EXPECT_FALSE(candidate.recipe.offload_folder()) << candidate.options;
    EXPECT_FALSE(roomy.with_disk);
  }
}

// A disk is no device memory, and what somebody has said about the states stays.
TEST_F(FitAllowed, ADiskIsNotOfferedWhereItDoesNotHelp) {
  EXPECT_FALSE(fit_into(device(0.01, kScarce)).with_disk);
  EXPECT_FALSE(fit_into(device(kTight, 0.1)).with_disk);
  recipe_.optimizer_offload = "cpu";
  give("optimizer_offload");
  recipe_.fit_disk = "/mnt/nvme";
  const Fit found = fit_into(device(kTight, kScarce));
  EXPECT_FALSE(found.best);
  EXPECT_FALSE(found.with_disk);
}

TEST_F(FitAllowed, ADiskThatIsTooSmallIsNotChosen) {
  recipe_.fit_disk = "/mnt/nvme";
  DeviceProfile profile = device(kTight, kScarce);
  profile.disk_bytes = static_cast<int64_t>(1.9 * weights());
  const Fit found = fit_into(profile);
  EXPECT_FALSE(found.best);
  ASSERT_TRUE(found.smallest);
  profile.disk_bytes = static_cast<int64_t>(2.1 * weights());
  EXPECT_TRUE(fit_into(profile).best);
}

TEST_F(FitAllowed, ADiskThatIsGivenStays) {
  recipe_.optimizer_offload = "disk:/mnt/mine";
  give("optimizer_offload");
  recipe_.fit_disk = "/mnt/other";
  const Fit found = fit_into(device(kPlenty, kPlenty));
  ASSERT_TRUE(found.best);
  EXPECT_FALSE(found.chose_disk(recipe_));
  for (const Candidate& candidate : found.front)
    EXPECT_EQ(candidate.recipe.optimizer_offload, "disk:/mnt/mine");
}

// Room on the device and little beside it: what offloads most must not rule out what offloads
// nothing.
TEST_F(FitAllowed, ASmallHostDoesNotRuleOutTheDevice) {
  const Fit found = fit_into(device(kPlenty, 0.1));
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->recipe.optimizer_offload, "none");
}

TEST_F(FitAllowed, ADelayIsChosenOnlyWhereItIsAllowedAndGainsTime) {
  const DeviceProfile gpu = device(kTight, kPlenty);
  const auto delays = [](const Fit& found) {
    return std::ranges::any_of(
        found.front, [](const Candidate& c) { return c.recipe.delayed_parameter_update; });
  };
  recipe_.optimizer_offload = "cpu";
  give("optimizer_offload");
  const Fit at_once = fit_into(gpu);
  ASSERT_TRUE(at_once.best);
  EXPECT_FALSE(delays(at_once));

  recipe_.fit_delay = true;
  const Fit late = fit_into(gpu);
  ASSERT_TRUE(late.best);
  EXPECT_TRUE(late.best->recipe.delayed_parameter_update);
  EXPECT_NE(late.best->options.find("--delayed_parameter_update true"), std::string::npos);
  EXPECT_LT(late.best->cost.seconds(), at_once.best->cost.seconds());

  DeviceProfile cpu = gpu;
  cpu.kind = at::kCPU;
  EXPECT_FALSE(delays(fit_into(cpu)));
  give("delayed_parameter_update");  // as false
  EXPECT_FALSE(delays(fit_into(gpu)));
}

// Several devices rule out a delay, whatever fit may do.
TEST_F(FitAllowed, ADelayIsForOneDevice) {
  recipe_.fit_delay = true;
  const auto delays = [&] {
    return std::ranges::any_of(Techniques(recipe_, true, true).all(), [](const Setting& setting) {
      return setting.is_on("delayed_parameter_update");
    });
  };
  EXPECT_TRUE(delays());
  recipe_.devices = "4";
  EXPECT_FALSE(delays());
}

// Nor is copying experts one by one, on which the search would stop with an internal error.
TEST_F(FitAllowed, AMixtureFitsOnSeveralDevices) {
  model_ = models::model_from_config(std::filesystem::path(SNUG_SOURCE_DIR) /
                                     "tests/data/parity/mixtral/config.json");
  recipe_.train.global_batch_size = 2;
  samples_.append(samples_.sample(0));
  for (const char* devices : {"1", "2"}) {
    recipe_.devices = devices;
    const Fit found = fit(*model_, recipe_, {samples_, 128}, find_profile("rtx-4090", 0));
    ASSERT_TRUE(found.best) << devices;
    for (const Candidate& candidate : found.front)
      EXPECT_FALSE(recipe_.devices == "2" && candidate.recipe.expert_streaming);
  }
}

// What the recipe leaves to snug is the search's to choose, and stays chosen.
TEST_F(FitAllowed, AnAutomaticUpdateInBackwardIsChosen) {
  recipe_.optimizer_in_backward_is_auto = true;
  give("optimizer_in_backward");
  const Techniques techniques(recipe_, true, true);
  for (const bool in_backward : {true, false}) {
    const std::vector<Setting> all = techniques.all();
    const auto found = std::ranges::find(all, in_backward, [](const Setting& setting) {
      return setting.is_on("optimizer_in_backward");
    });
    ASSERT_NE(found, all.end()) << in_backward;
    recipe::Recipe chosen = Techniques::applied(recipe_, *found);
    recipe::resolve_batches(chosen);
    EXPECT_EQ(chosen.optimizer_in_backward, in_backward);
  }
}

// Not only what the search would have tried itself.
TEST_F(FitAllowed, WhateverIsGivenStays) {
  recipe_.activation_checkpointing = "0,2,5";
  recipe_.delayed_parameter_update = true;
  give("activation_checkpointing");
  give("delayed_parameter_update");
  const Fit found = fit_into(device(kPlenty, kPlenty));
  ASSERT_TRUE(found.best);
  for (const Candidate& candidate : found.front) {
    EXPECT_EQ(candidate.recipe.activation_checkpointing, "0,2,5");
    EXPECT_TRUE(candidate.recipe.delayed_parameter_update);
    EXPECT_EQ(candidate.recipe.optimizer_offload, "cpu");
  }
}

// All that the techniques and the micro-batch allow, one by one: the search leaves out what it need
// not try, and its front must be that of all.
TEST_F(FitAllowed, TheFrontIsThatOfTryingAll) {
  nlohmann::json config = model_->hugging_face_config();
  config["num_hidden_layers"] = 4;
  config["vocab_size"] = 4096;
  model_ = models::model_like(*model_, config);
  for (int i = 0; i < 3; ++i) samples_.append(samples_.sample(0));
  recipe_.train.global_batch_size = 4;
  const Workload work{samples_, 128};
  const auto planned = [&](const recipe::Recipe& r, const DeviceProfile& profile) {
    return evaluate_neediest(*model_, r, work, profile, Detail::Sketch);
  };
  const auto bytes_of = [](const Candidate& c) { return bytes_on_device(c.prediction, at::kCUDA); };
  size_t fronts = 0, rows = 0;
  int64_t all = 0, tried = 0;
  // With clipping, updates in the backward take a second one, and save memory all the same.
  for (const char* precision : {"bf16-mixed", "bf16-true"})
    for (const bool may_offload : {true, false})
      for (const double share : {1.0, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2}) {
        SCOPED_TRACE(fmt::format("{}, {} {}", precision, may_offload, share));
        recipe_.precision = precision;
        recipe_.train.max_norm.reset();
        if (recipe_.precision == "bf16-true") recipe_.train.max_norm = 1;
        recipe_.given_keys.clear();
        if (!may_offload) give("optimizer_offload");
        recipe_.train.micro_batch_size = 4;
        DeviceProfile tight = device(100, 100);
        tight.memory_bytes =
            tight.context_bytes +
            static_cast<int64_t>(
                share * static_cast<double>(planned(recipe_, tight).prediction.peak_allocated));
        std::vector<Candidate> fitting;
        for (const Setting& setting : Techniques(recipe_, true, false).all())
          for (const int64_t size : {1, 2, 4}) {
            recipe::Recipe r = Techniques::applied(recipe_, setting);
            r.train.micro_batch_size = size;
            Candidate c = planned(r, tight);
            ++all;
            if (fits(c, tight)) fitting.push_back(std::move(c));
          }
        const Fit found = fit(*model_, recipe_, work, tight);
        for (const Candidate& row : found.front) {
          const auto fastest = std::ranges::min_element(
              fitting, {}, [](const Candidate& c) { return c.cost.seconds(); });
          ASSERT_NE(fastest, fitting.end()) << row.options;
          EXPECT_DOUBLE_EQ(row.cost.seconds(), fastest->cost.seconds())
              << row.options << ", not " << technique_options(recipe_, fastest->recipe);
          const int64_t bytes = bytes_of(row);
          std::erase_if(fitting, [&](const Candidate& c) { return bytes_of(c) >= bytes; });
          ++rows;
        }
        EXPECT_TRUE(fitting.empty());
        tried += found.tried;
        fronts += found.front.empty() ? 0 : 1;
      }
  EXPECT_GE(fronts, 12U);
  EXPECT_GE(rows, 40U);
  EXPECT_LE(tried, 2 * all / 3);
}

// Of many sizes of a micro-batch the largest that fits is found by halving.
TEST_F(FitAllowed, OfManySizesTheLargestThatFitsIsFound) {
  for (int i = 0; i < 127; ++i) samples_.append(samples_.sample(0));
  recipe_.train.global_batch_size = 128;
  recipe_.train.micro_batch_size = 1;
  const Workload work{samples_, 128};
  for (const recipe::Technique& traits : recipe::techniques()) give(std::string(traits.key));
  const auto need = [&](int64_t size) {
    recipe::Recipe r = recipe_;
    r.train.micro_batch_size = size;
    return evaluate_neediest(*model_, r, work, device(kPlenty, kPlenty), Detail::Sketch)
        .prediction.peak_reserved;
  };
  for (const int64_t size : {1, 4, 32, 64, 128}) {
    DeviceProfile tight = device(kPlenty, kPlenty);
    tight.memory_bytes = tight.context_bytes + need(size);
    const Fit found = fit(*model_, recipe_, work, tight);
    ASSERT_TRUE(found.best) << size;
    EXPECT_EQ(found.best->recipe.train.micro_batch_size, size);
    EXPECT_LE(found.tried, 9) << "three to see whether any fits, two ends, and three halves";
  }
}

}  // namespace
}  // namespace snug::plan
