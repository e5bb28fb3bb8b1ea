// What copies, updates on the host and states on disk add to a step: bounds that hold whatever the
// figures are.
// SPDX-License-Identifier: Apache-2.0
#include "plan/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "base/bytes.h"
#include "models/family.h"
#include "plan/candidate.h"

namespace snug::plan {
namespace {

using memory::Category;

constexpr double kRounding = 1 + 1e-9;

struct Case {
  recipe::Recipe recipe;
  DeviceProfile device;
  Prediction prediction;
  StepSize size;
  Compute compute;

  UpdateCost update() const { return update_cost(recipe, device, prediction, size, compute); }
  double step_seconds() const {
    const UpdateCost cost = update();
    return compute.seconds() + cost.exposed_optimizer_seconds + cost.exposed_disk_seconds +
           host_copies(recipe, device, prediction, size).exposed(compute);
  }
};

// An offloaded recipe with figures of any size beside each other.
Case random_case(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
  };
  Case c;
  c.device = {.kind = random() % 3 ? at::kCUDA : at::kCPU,
              .bytes_per_second = between(1e10, 1e12),
              .link_bytes_per_second = between(1e9, 1e11),
              .host_bytes_per_second = between(1e9, 1e11),
              .disk_read_bytes_per_second = between(1e8, 1e10),
              .disk_write_bytes_per_second = between(1e8, 1e10)};
  c.recipe.precision = "bf16-true";
  c.recipe.optimizer_offload = random() % 2 ? "cpu" : "disk:/mnt";
  c.recipe.optimizer.master_weights = random() % 2;
  c.recipe.optimizer_in_backward = random() % 2;
  c.recipe.weight_streaming = random() % 2;
  c.recipe.delayed_parameter_update =
      !c.recipe.optimizer_in_backward && !c.recipe.weight_streaming && random() % 2;
  c.recipe.activation_offload = random() % 2;
  const double weights = between(1e8, 1e10);
  c.prediction.weight_bytes = weights;
  c.prediction.host_activations = static_cast<int64_t>(between(1e6, 1e10));
  const auto states = static_cast<int64_t>(2 * weights);
  if (c.recipe.offload_folder())
    c.prediction.on_disk = states;
  else
    c.prediction.host_by_category[static_cast<size_t>(Category::Optimizer)] = states;
  c.size = {.micro_batches = static_cast<double>(1 + random() % 8), .trained_bytes = weights};
  c.compute = {.forward = between(1e-2, 1e2), .backward = between(1e-2, 1e2)};
  return c;
}

TEST(Beside, AStepIsNoShorterThanItsDiskNorItsCopies) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const Case c = random_case(random);
    const auto bytes = static_cast<double>(c.prediction.on_disk);
    const double disk =
        bytes / c.device.disk_read_bytes_per_second + bytes / c.device.disk_write_bytes_per_second;
    EXPECT_NEAR(c.update().disk_seconds, disk, 1e-9 * disk);
    EXPECT_GE(c.step_seconds() * kRounding, disk) << i;
    EXPECT_GE(c.step_seconds() * kRounding, c.update().optimizer_seconds) << i;
    EXPECT_GE(c.step_seconds() * kRounding,
              host_copies(c.recipe, c.device, c.prediction, c.size).seconds())
        << i;
    // Nor longer than all of them, one after another.
    EXPECT_LE(c.step_seconds(),
              kRounding * (c.compute.seconds() + c.update().optimizer_seconds + disk +
                           host_copies(c.recipe, c.device, c.prediction, c.size).seconds()))
        << i;
    EXPECT_GE(c.update().exposed_disk_seconds, 0) << i;
  }
}

TEST(Beside, FasterDisksAndLinksMakeNoStepLonger) {
  std::mt19937 random(4);
  for (int i = 0; i < 500; ++i) {
    const Case slow = random_case(random);
    for (double DeviceProfile::*rate :
         {&DeviceProfile::disk_read_bytes_per_second, &DeviceProfile::disk_write_bytes_per_second,
          &DeviceProfile::link_bytes_per_second, &DeviceProfile::host_bytes_per_second}) {
      Case fast = slow;
      fast.device.*rate *= 1.5;
      EXPECT_LE(fast.step_seconds(), kRounding * slow.step_seconds()) << i;
    }
  }
}

// Where the disk is all that takes time, twice its rate is half the step.
TEST(Beside, ADiskThatIsSlowerThanAllElseIsTheStep) {
  Case c;
  c.device = {.bytes_per_second = 1e15,
              .link_bytes_per_second = 1e15,
              .host_bytes_per_second = 1e15,
              .disk_read_bytes_per_second = 4e9,
              .disk_write_bytes_per_second = 1e9};
  c.recipe.optimizer_offload = "disk:/mnt";
  c.prediction.on_disk = int64_t{8'000'000'000};
  EXPECT_NEAR(c.step_seconds(), 2 + 8, 1e-3);
  // Read while gradients are computed, which a delayed update and one in the backward do.
  c.compute = {.forward = 1, .backward = 3};
  EXPECT_NEAR(c.step_seconds(), 4 + 10, 1e-3);
  c.recipe.optimizer_in_backward = true;
  EXPECT_NEAR(c.step_seconds(), 1 + 10, 1e-3);
  c.recipe.optimizer_in_backward = false;
  c.recipe.delayed_parameter_update = true;
  EXPECT_NEAR(c.step_seconds(), 10, 1e-3);
  c.device.kind = at::kCPU;  // whose processors are busy; the disk waits for nobody else's
  EXPECT_NEAR(c.step_seconds(), 4 + 10, 1e-3);
}

class BesideOfModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  BesideOfModel() {
    recipe_.precision = "bf16-true";
    recipe_.train.micro_batch_size = 4;
    recipe_.train.global_batch_size = 16;
    const std::vector<int32_t> ids(256, 1);
    for (int i = 0; i < 16; ++i) samples_.append({.ids = ids, .labels = ids});
  }
  StepCost cost(void (*change)(recipe::Recipe&), const DeviceProfile& device) const {
    recipe::Recipe recipe = recipe_;
    change(recipe);
    return evaluate(*model_, recipe, {samples_, 256}, device).cost;
  }
  StepCost cost(void (*change)(recipe::Recipe&)) const { return cost(change, gpu_); }

  std::unique_ptr<models::Model> model_ = models::model_from_config(
      std::filesystem::path(SNUG_SOURCE_DIR) / "recipes/models/smollm2-135m.json");
  recipe::Recipe recipe_;
  data::SampleStore samples_;
  DeviceProfile gpu_ = find_profile("rtx-4090", 0);
};

void offload(recipe::Recipe& r) { r.optimizer_offload = "cpu"; }
void stream(recipe::Recipe& r) {
  offload(r);
  r.weight_streaming = true;
}
void stream_without_prefetch(recipe::Recipe& r) {
  stream(r);
  r.offload_prefetch = "false";
}
void delay(recipe::Recipe& r) {
  offload(r);
  r.delayed_parameter_update = true;
}
void to_disk(recipe::Recipe& r) { r.optimizer_offload = "disk:/mnt/nvme"; }

TEST_F(BesideOfModel, APrefetchedCopyCostsWhatItIsLonger) {
  const StepCost ahead = cost(stream), late = cost(stream_without_prefetch);
  EXPECT_NEAR(ahead.transfer_seconds, late.transfer_seconds, 1e-9);
  EXPECT_LT(ahead.exposed_transfer_seconds, late.exposed_transfer_seconds);
  EXPECT_NEAR(late.exposed_transfer_seconds, late.transfer_seconds, 1e-9);
  const double compute = ahead.products_seconds + ahead.attention_seconds + ahead.memory_seconds;
  EXPECT_GE(ahead.exposed_transfer_seconds, ahead.transfer_seconds - compute - 1e-9);
  // A link so fast that all of it hides, and one so slow that nothing else counts.
  DeviceProfile fast = gpu_, slow = gpu_;
  fast.link_bytes_per_second = fast.host_bytes_per_second = 1e15;
  slow.link_bytes_per_second = 1e6;
  const StepCost all_hidden = cost(stream, fast), nothing_else = cost(stream, slow);
  EXPECT_NEAR(all_hidden.seconds(), compute, 0.01 * compute);
  EXPECT_NEAR(nothing_else.seconds() / nothing_else.transfer_seconds, 1, 0.01);
}

TEST_F(BesideOfModel, ADelayedUpdateHidesBehindTheNextStep) {
  const StepCost now = cost(offload), late = cost(delay);
  EXPECT_NEAR(now.optimizer_seconds, late.optimizer_seconds, 1e-9);
  EXPECT_EQ(now.exposed_optimizer_seconds, now.optimizer_seconds);
  EXPECT_LT(late.exposed_optimizer_seconds, late.optimizer_seconds);
  EXPECT_LT(late.seconds(), now.seconds());
}

// Whoever copies and updates on a cpu does not compute meanwhile.
TEST_F(BesideOfModel, OnACpuNothingButTheDiskHides) {
  DeviceProfile cpu = gpu_;
  cpu.kind = at::kCPU;
  for (const auto change : {offload, stream, delay}) {
    const StepCost c = cost(change, cpu);
    EXPECT_NEAR(c.exposed_transfer_seconds, c.transfer_seconds, 1e-9);
    EXPECT_EQ(c.exposed_optimizer_seconds, c.optimizer_seconds);
  }
}

TEST_F(BesideOfModel, StatesOnDiskAreNotInHostMemoryButTakeTime) {
  recipe::Recipe in_memory = recipe_, on_disk = recipe_;
  offload(in_memory);
  to_disk(on_disk);
  const Workload work{samples_, 256};
  const Candidate a = evaluate(*model_, in_memory, work, gpu_),
                  b = evaluate(*model_, on_disk, work, gpu_);
  const int64_t states = a.prediction.host_by_category[static_cast<size_t>(Category::Optimizer)];
  // Two states of two bytes; a file's are rounded up to 64.
  EXPECT_EQ(states, 4 * model_->num_parameters());
  EXPECT_EQ(b.prediction.host_by_category[static_cast<size_t>(Category::Optimizer)], 0);
  EXPECT_EQ(a.prediction.peak_host - b.prediction.peak_host, states);
  EXPECT_GE(b.prediction.on_disk, states);
  EXPECT_LT(b.prediction.on_disk, states + 2 * 64 * 1000);
  const auto bytes = static_cast<double>(b.prediction.on_disk);
  EXPECT_DOUBLE_EQ(b.cost.disk_seconds, bytes / 5e9 + bytes / 3e9);
  EXPECT_EQ(a.cost.disk_seconds, 0);
  EXPECT_GT(b.cost.seconds(), a.cost.seconds());
  EXPECT_GE(b.cost.seconds(), b.cost.disk_seconds);
}

void weights_to_disk(recipe::Recipe& r) {
  stream(r);
  r.lora = {.enabled = true, .r = 8};
  r.weight_offload = "disk:/mnt/nvme";
}

TEST_F(BesideOfModel, WeightsOnDiskAreReadWhereMemoryDoesNotKeepThem) {
  recipe::Recipe recipe = recipe_;
  weights_to_disk(recipe);
  DeviceProfile small = gpu_;
  small.disk_read_bytes_per_second = 1e6;  // so that nothing else counts
  small.host_bytes = 1;
  const Candidate candidate = evaluate(*model_, recipe, {samples_, 256}, small);
  const Prediction& p = candidate.prediction;
  EXPECT_EQ(p.on_disk, p.weights_on_disk);
  EXPECT_NEAR(static_cast<double>(p.weights_on_disk), 2.0 * 134515008, 64 * 300);
  EXPECT_EQ(candidate.cost.disk_seconds, 0) << "no states are there";
  // Four micro-batches of two passes.
  const double read = 8 * static_cast<double>(p.weights_on_disk) / 1e6;
  EXPECT_NEAR(candidate.cost.transfer_seconds, read, 0.01 * read);
  // Half of them stay in memory between a pass and the next.
  small.host_bytes = p.peak_host + p.weights_on_disk / 2;
  EXPECT_NEAR(cost(weights_to_disk, small).transfer_seconds, read / 2, 0.01 * read);
  small.host_bytes = p.peak_host + p.weights_on_disk;
  EXPECT_LT(cost(weights_to_disk, small).transfer_seconds, 0.01 * read);
}

// Processes of one machine share its disk.
TEST_F(BesideOfModel, RanksOfAMachineShareItsDisk) {
  const DeviceProfile alone = share_of(gpu_, 1), four = share_of(gpu_, 4);
  EXPECT_EQ(alone.disk_read_bytes_per_second, gpu_.disk_read_bytes_per_second);
  EXPECT_DOUBLE_EQ(four.disk_read_bytes_per_second, gpu_.disk_read_bytes_per_second / 4);
  EXPECT_DOUBLE_EQ(four.disk_write_bytes_per_second, gpu_.disk_write_bytes_per_second / 4);
  EXPECT_EQ(four.bytes_per_second, gpu_.bytes_per_second);
}

}  // namespace
}  // namespace snug::plan
