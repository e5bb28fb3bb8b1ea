// What must hold for updates on the host: wherever the states lie, a run may be stopped there and
// go on elsewhere; and a delayed update is plain execution's, one step late.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "core/ops/device/copy_stream.h"
#include "data/micro_batch.h"
#include "engine/batch.h"
#include "engine/updaters.h"
#include "files/checkpoint/training_checkpoint.h"
#include "support/fixed_order.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"

namespace snug {
namespace offload_test {

using tests::eight_in;
using tests::random_samples;
using tests::tiny_recipe;
using tests::TinyRun;

class Offload : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
  const data::SampleStore samples_ = random_samples(8, 40, 5);
};

std::vector<double> train(TinyRun& run, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(run.step(eight_in(8), 1e-2).loss);
  return losses;
}

std::vector<at::Tensor> copies_of(const std::vector<optim::NamedTensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& [name, tensor] : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

void expect_same_weights(const TinyRun& a, const TinyRun& b) {
  for (size_t i = 0; i < a.engine.parameters.size(); ++i) {
    const at::Tensor& expected = a.engine.parameters[i].tensor;
    EXPECT_TRUE(at::equal(expected, b.engine.parameters[i].tensor.to(expected.options())))
        << a.engine.parameters[i].name;
  }
}

// A run that goes on where `first`, whose checkpoint after two steps is `saved`, goes on.
void resume(TinyRun& run, const TinyRun& first, const std::filesystem::path& saved) {
  run.engine.copies->wait_for_all_on_host();  // the first weights', which are written over
  checkpoint::load_tensors(saved, run.engine.training_tensors());
  run.engine.optimizer->set_num_steps(2);
  run.engine.weights_changed();
  checkpoint::load_late_weights(saved, run.engine.training_tensors());
  run.run.scaler().restore(first.run.scaler().scale(), first.run.scaler().good_steps());
}

std::vector<std::string> places() { return {"none", "cpu", tests::on_disk()}; }

struct MastersCase {
  const char* precision;
  bool masters;
};

// Float32 masters are at home for cpu, beside the moments otherwise: a checkpoint bridges that.
TEST_F(Offload, ACheckpointGoesOnInAnotherPlace) {
  const tests::FixedOrder fixed_order;
  for (const MastersCase& c : {MastersCase{"32-true", false}, MastersCase{"bf16-true", true},
                               MastersCase{"16-true", true}}) {
    for (const std::string& first : places()) {
      for (const std::string& second : places()) {
        SCOPED_TRACE(std::string(c.precision) + " from " + first + " to " + second);
        recipe::Recipe recipe = tiny_recipe();
        recipe.precision = c.precision;
        recipe.optimizer.master_weights = c.masters;
        recipe.optimizer_offload = first;
        TinyRun unbroken(recipe, samples_);
        const test::TempFolder folder;
        train(unbroken, 2);
        const auto saved =
            checkpoint::save(folder.path(), {.step = 2}, unbroken.engine.training_tensors(), "");
        recipe.optimizer_offload = second;
        TinyRun resumed(recipe, samples_);
        resume(resumed, unbroken, saved);
        EXPECT_EQ(train(unbroken, 3), train(resumed, 3));
      }
    }
  }
}

// Without masters a run in another precision is still another recipe.
TEST_F(Offload, AnotherPrecisionIsRefused) {
  const test::TempFolder folder;
  TinyRun whole(tiny_recipe(), samples_);
  const auto saved =
      checkpoint::save(folder.path(), {.step = 0}, whole.engine.training_tensors(), "");
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = "bf16-true";
  const TinyRun other(recipe, samples_);
  EXPECT_THROW(checkpoint::load_tensors(saved, other.engine.training_tensors()), UserError);
}

engine::DelayedUpdate& delayed(TinyRun& run) {
  return dynamic_cast<engine::DelayedUpdate&>(*run.engine.updater);
}

// What a delayed update has to equal: plain execution whose forward and backward run, from the
// second step on, with the weights from before the last update.
class Withheld {
 public:
  Withheld(const recipe::Recipe& recipe, const data::SampleStore& samples)
      : run_(recipe, samples), samples_(samples), late_(copies_of(run_.engine.parameters)) {}

  double step(const engine::SampleIndices& micro_batches) {
    const std::vector<at::Tensor> newest = copies_of(run_.engine.parameters);
    put(late_);
    const double loss = forward_backward(micro_batches);
    put(newest);
    late_ = newest;
    exec::Updater& updater = *run_.engine.updater;
    const double scale = run_.run.scaler().scale();
    const double norm = run_.engine.global_norm(updater.sum_of_squares());
    if (run_.run.scaler().update(norm)) {
      const double most = run_.recipe.train.max_norm.value_or(0);
      const double clip = most > 0 ? std::min(1.0, most / (norm / scale + 1e-6)) : 1;
      updater.update({.lr = 1e-2, .gradient_scale = clip / scale});
    }
    run_.engine.drop_gradients();
    return loss;
  }

  TinyRun& run() { return run_; }

 private:
  void put(const std::vector<at::Tensor>& weights) {
    for (size_t i = 0; i < weights.size(); ++i)
      run_.engine.parameters[i].tensor.detach().copy_(weights[i]);
  }

  double forward_backward(const engine::SampleIndices& micro_batches) {
    std::vector<data::MicroBatch> batches;
    int64_t tokens = 0;
    for (const auto& indices : micro_batches) {
      batches.push_back(data::make_micro_batch(samples_, indices, {}));
      tokens += batches.back().loss_tokens;
    }
    double sum = 0;
    for (const data::MicroBatch& batch : batches)
      sum += run_.engine.executor->forward_backward(
                 engine::to_device(batch, run_.engine.device),
                 {.compute = run_.engine.precision.compute,
                  .gradient_scale = run_.run.scaler().scale() / static_cast<double>(tokens),
                  .last_micro_batch = &batch == &batches.back()}) /
             static_cast<double>(tokens);
    return sum;
  }

  TinyRun run_;
  const data::SampleStore& samples_;
  std::vector<at::Tensor> late_;
};

struct DelayCase {
  const char* name;
  void (*change)(recipe::Recipe&);
  // What a GPU may differ by that updates with sums in an order of its own: the clipping factor
  // in its last bit, as in training_test.cpp; Adafactor's factors by 2^-24 a term of rows of 100.
  double on_a_gpu = 0;
};

constexpr DelayCase kDelayCases[] = {
    {"alone", [](recipe::Recipe&) {}},
    {"bf16", [](recipe::Recipe& r) { r.precision = "bf16-true"; }},
    {"bf16 with masters",
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.optimizer.master_weights = true;
     }},
    {"16-mixed", [](recipe::Recipe& r) { r.precision = "16-mixed"; }},
    {"clipped", [](recipe::Recipe& r) { r.train.max_norm = 0.5; }, 1e-6},
    {"adafactor", [](recipe::Recipe& r) { r.optimizer.name = "adafactor"; }, 1e-5},
    {"to disk", [](recipe::Recipe& r) { r.optimizer_offload = tests::on_disk(); }},
    {"checkpointing and activation offload",
     [](recipe::Recipe& r) {
       r.activation_checkpointing = "every:2";
       r.activation_offload = true;
     }},
};

recipe::Recipe delayed_recipe(const DelayCase& c) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.optimizer_offload = "cpu";
  recipe.delayed_parameter_update = true;
  c.change(recipe);
  return recipe;
}

TEST_F(Offload, ADelayedUpdateIsPlainOneStepLate) {
  const tests::FixedOrder fixed_order;
  for (const DelayCase& c : kDelayCases) {
    const double tolerance = tests::test_device().is_cpu() ? 0 : c.on_a_gpu;
    for (const bool in_background : {false, true}) {
      SCOPED_TRACE(std::string(c.name) + (in_background ? ", in the background" : ""));
      TinyRun run(delayed_recipe(c), samples_);
      delayed(run).set_in_background(in_background);
      // Float32 homes are drawn finer than 16-bit weights: both runs start from the same ones.
      for (const auto& [name, home] : run.engine.parameters)
        home.copy_(home.to(run.engine.precision.parameters));
      recipe::Recipe plain = run.recipe;
      plain.optimizer_offload = "none";
      plain.delayed_parameter_update = false;
      plain.activation_checkpointing = "none";
      plain.activation_offload = false;
      Withheld expected(plain, samples_);
      std::vector<double> losses;
      for (int i = 0; i < 5; ++i) {
        losses.push_back(expected.step(eight_in(8)));
        EXPECT_NEAR(run.step(eight_in(8), 1e-2).loss, losses.back(), tolerance * losses.back())
            << "step " << i + 1;
      }
      EXPECT_EQ(losses[0], losses[1]) << "nothing has been applied yet";
      EXPECT_NE(losses[1], losses[2]);
      run.run.finish();
      for (size_t i = 0; i < run.engine.parameters.size(); ++i)
        EXPECT_TRUE(
            at::allclose(run.engine.parameters[i].tensor.to(run.engine.precision.parameters).cpu(),
                         expected.run().engine.parameters[i].tensor.cpu(), 0, tolerance))
            << run.engine.parameters[i].name;
    }
  }
}

// The samples in another order, so that each step's gradients differ.
TEST_F(Offload, ADelayedUpdateAccumulatesAndSkipsLikePlain) {
  recipe::Recipe recipe = delayed_recipe({"", [](recipe::Recipe& r) { r.precision = "16-mixed"; }});
  TinyRun run(recipe, samples_);
  recipe.optimizer_offload = "none";
  recipe.delayed_parameter_update = false;
  Withheld expected(recipe, samples_);
  const std::vector<engine::SampleIndices> steps = {
      {{0, 1, 2}}, {{3, 4}}, {{5}, {6, 7}}, {{0, 4}}, {{1, 2}, {3}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == 1) {  // its gradients overflow: it is skipped
      run.run.scaler().restore(1e30, 0);
      expected.run().run.scaler().restore(1e30, 0);
    }
    const engine::StepResult result = run.step(steps[i], 1e-2);
    EXPECT_EQ(result.updated, i != 1);
    const double loss = expected.step(steps[i]);
    EXPECT_NEAR(result.loss, loss, 1e-4 * loss) << "step " << i + 1;
    if (i == 1) {
      run.run.scaler().restore(1024, 0);
      expected.run().run.scaler().restore(1024, 0);
    }
  }
}

TEST_F(Offload, CheckpointsAndTheEndWaitForADelayedUpdate) {
  TinyRun run(delayed_recipe({"", [](recipe::Recipe&) {}}), samples_);
  engine::DelayedUpdate& update = delayed(run);
  update.set_in_background(true);
  train(run, 1);
  EXPECT_TRUE(update.is_under_way());
  run.engine.training_tensors();
  EXPECT_FALSE(update.is_under_way());
  train(run, 1);
  run.run.finish();
  EXPECT_FALSE(update.is_under_way());
}

TEST_F(Offload, ADelayedRunGoesOnAsIfNeverStopped) {
  const tests::FixedOrder fixed_order;
  for (const DelayCase& c : kDelayCases) {
    SCOPED_TRACE(c.name);
    const recipe::Recipe recipe = delayed_recipe(c);
    TinyRun unbroken(recipe, samples_), resumed(recipe, samples_);
    delayed(unbroken).set_in_background(true);
    const test::TempFolder folder;
    train(unbroken, 2);
    resume(resumed, unbroken,
           checkpoint::save(folder.path(), {.step = 2}, unbroken.engine.training_tensors(), ""));
    EXPECT_EQ(train(unbroken, 3), train(resumed, 3));
    unbroken.run.finish();
    resumed.run.finish();
    expect_same_weights(unbroken, resumed);
  }
}

}  // namespace offload_test
}  // namespace snug
