// How often a step holds up the program until its GPU has come so far: counted in a plan, which
// runs the true step. A wait a layer or a unit would leave the GPU idle that often.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "plan/candidate.h"
#include "plan/predict.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

using tests::random_samples;
using tests::tiny_model;
using tests::tiny_recipe;

class HostWaitsOfAStep : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

// The host waits of a step on a GPU, planned with the largest micro-batch of sixteen samples.
int64_t waits_of(const recipe::Recipe& recipe, const std::string& shape = "llama") {
  const auto model = tiny_model(shape);
  const data::SampleStore samples = random_samples(16, 60, 3, model->reads());
  const auto largest = plan::largest_micro_batch({.samples = samples, .reading = model->reads()},
                                                 recipe, recipe.train.micro_batch_size);
  return plan::predict(*model, recipe, largest, 128, {.device = at::kCUDA}).host_waits;
}

recipe::Recipe recipe_of(int64_t micro_batches, const std::string& precision = "bf16-true") {
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = precision;
  recipe.train.micro_batch_size = recipe.train.global_batch_size / micro_batches;
  return recipe;
}

// One for each micro-batch's loss, one for the gradients' norm.
TEST_F(HostWaitsOfAStep, AreTheLossesAndTheNorm) {
  for (const char* precision : {"32-true", "bf16-true", "bf16-mixed", "16-mixed"})
    for (const int64_t count : {1, 2, 8})
      EXPECT_EQ(waits_of(recipe_of(count, precision)), count + 1) << precision;
}

// And one for what each micro-batch adds to the reference point.
TEST_F(HostWaitsOfAStep, AreOneMoreForEachMicroBatchOfRatings) {
  for (const int64_t count : {1, 2, 8}) {
    recipe::Recipe recipe = recipe_of(count);
    recipe.objective = recipe::objective_defaults("kto");
    EXPECT_EQ(waits_of(recipe), 2 * count + 1);
  }
}

// float32 and T5 take the way of plain products, which cuts documents on the host; T5 has biases.
TEST_F(HostWaitsOfAStep, AreNoMoreForAnyModel) {
  for (const char* shape :
       {"llama", "gpt2", "opt", "qwen2", "t5", "blip2-opt", "blip2-t5", "idefics3"})
    for (const char* precision : {"32-true", "bf16-true"})
      EXPECT_EQ(waits_of(recipe_of(1, precision), shape), 2) << shape << ", " << precision;
}

TEST_F(HostWaitsOfAStep, AreNoMoreWithTechniquesOfTheDevice) {
  recipe::Recipe recipe = recipe_of(1);
  recipe.optimizer_in_backward = true;
  EXPECT_EQ(waits_of(recipe), 2) << "the norm is added up there, and read once";
  recipe.train.max_norm = 1.0;
  EXPECT_EQ(waits_of(recipe), 4) << "everything runs twice";
  recipe = recipe_of(1);
  recipe.activation_checkpointing = "all";
  recipe.activation_offload = true;
  EXPECT_EQ(waits_of(recipe), 2);
}

// Gradients come home, once a micro-batch; the norm is added up there. What is added to others
// there is waited for unit by unit, behind the backward of the next unit.
TEST_F(HostWaitsOfAStep, WithUpdatesOnTheHostAreForGradients) {
  for (const bool masters : {false, true})
    for (const bool streaming : {false, true}) {
      recipe::Recipe recipe = recipe_of(1);
      recipe.optimizer_offload = "cpu";
      recipe.optimizer.master_weights = masters;
      recipe.weight_streaming = streaming;
      EXPECT_EQ(waits_of(recipe), 2) << "masters " << masters << ", streaming " << streaming;
    }
  const auto units = static_cast<int64_t>(tiny_model()->units().size());
  for (const int64_t count : {2, 4}) {
    recipe::Recipe recipe = recipe_of(count);
    recipe.optimizer_offload = "cpu";
    EXPECT_EQ(waits_of(recipe), 2 * count + (count - 1) * (units - 1));
  }
}

// Each unit's gradients are waited for before the next unit's backward.
TEST_F(HostWaitsOfAStep, WithoutPrefetchAreForEachUnitsGradients) {
  recipe::Recipe recipe = recipe_of(1);
  recipe.optimizer_offload = "cpu";
  recipe.offload_prefetch = "false";
  const auto units = static_cast<int64_t>(tiny_model()->units().size());
  EXPECT_EQ(waits_of(recipe), 1 + units);
}

// Before a buffer that weights from a file go through is filled, the copies that read it, two ago.
// All units are copied in the forward; in the backward neither the last one, which is still there,
// nor the embedding, which has none. The first two of a micro-batch find them done: the gradients
// before have been waited for.
TEST_F(HostWaitsOfAStep, WithWeightsOnDiskAreForTheirBuffers) {
  recipe::Recipe recipe = recipe_of(1);
  recipe.optimizer_offload = "cpu";
  recipe.weight_streaming = true;
  recipe.lora = {.enabled = true, .r = 4};
  EXPECT_EQ(waits_of(recipe), 2);
  recipe.weight_offload = tests::on_disk();
  const auto units = static_cast<int64_t>(tiny_model()->units().size());
  EXPECT_EQ(waits_of(recipe), 2 + units + (units - 2) - 2);
}

// The update writes homes beside the next step, so the copies that read them are waited for.
TEST_F(HostWaitsOfAStep, WithADelayedUpdateAreOneMore) {
  recipe::Recipe recipe = recipe_of(1);
  recipe.optimizer_offload = "cpu";
  recipe.delayed_parameter_update = true;
  EXPECT_EQ(waits_of(recipe), 3);
}

}  // namespace
}  // namespace snug
