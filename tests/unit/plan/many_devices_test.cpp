// What a plan says of many devices: what each rank holds, against the formulas of ZeRO's paper,
// what travels, and what it costs.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "base/bytes.h"
#include "engine/exec/flat_unit.h"
#include "models/family.h"
#include "plan/fit.h"
#include "plan/suggest.h"

namespace snug::plan {
namespace many_devices_test {

using dist::Axis;
using dist::Operation;
using memory::Category;

const std::filesystem::path kRoot = SNUG_SOURCE_DIR;

data::SampleStore samples_of(int64_t count, int64_t length) {
  data::SampleStore samples;
  const std::vector<int32_t> ids(static_cast<size_t>(length), 1);
  for (int64_t i = 0; i < count; ++i) samples.append({.ids = ids, .labels = ids});
  return samples;
}

class ManyDevices : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  ManyDevices() : model_(models::model_from_config(kRoot / "recipes/models/tiny-llama.json")) {
    recipe_.precision = "bf16-true";
    recipe_.train.global_batch_size = 64;
    recipe_.train.micro_batch_size = 1;
  }

  Candidate plan(const std::string& strategy, int64_t devices, int64_t nodes = 1, int rank = 0) {
    return plan(recipe_, strategy, devices, nodes, rank);
  }
  Candidate plan(recipe::Recipe r, const std::string& strategy, int64_t devices, int64_t nodes,
                 int rank) {
    r.strategy = strategy;
    r.devices = std::to_string(devices);
    r.num_nodes = nodes;
    return evaluate(*model_, r, {samples_of(64, kLength), kLength}, profile_, rank);
  }

  double num_parameters() const { return static_cast<double>(model_->num_parameters()); }

  static constexpr int64_t kLength = 64;
  std::unique_ptr<models::Model> model_;
  recipe::Recipe recipe_;
  DeviceProfile profile_ = find_profile("a100-80", 0);
};

double highest(const Prediction& prediction, Category category) {
  int64_t most = 0;
  for (const Moment& moment : prediction.timeline)
    most = std::max(most, moment.by_category[static_cast<size_t>(category)]);
  return static_cast<double>(most);
}

// Psi parameters, K = 12 bytes of float32 master, momentum and variance (ZeRO, section 3.1): 16 Psi
// with replicas; 4 Psi + 12 Psi / N, 2 Psi + 14 Psi / N, 16 Psi / N.
TEST_F(ManyDevices, HoldWhatTheFormulasOfZeroSay) {
  recipe_.optimizer.master_weights = true;
  recipe_.optimizer.state_dtype = "float32";
  struct Row {
    const char* strategy;
    double whole, part;  // bytes a parameter
  };
  constexpr Row kRows[] = {{"ddp", 16, 0}, {"zero1", 4, 12}, {"zero2", 2, 14}, {"fsdp", 0, 16}};
  for (const Row& row : kRows) {
    for (const int64_t n : {2, 4, 8}) {
      const Candidate candidate = plan(row.strategy, n);
      const Prediction& p = candidate.prediction;
      // Weights and states between steps; gradients at the end of the last backward.
      const double resident =
          static_cast<double>(p.resident[static_cast<size_t>(Category::Parameters)] +
                              p.resident[static_cast<size_t>(Category::Optimizer)]);
      double gradients = 0;
      for (const Moment& moment : p.timeline)
        if (moment.phase == memory::Phase::Step)
          gradients = std::max(
              gradients,
              static_cast<double>(moment.by_category[static_cast<size_t>(Category::Gradients)]));
      const double formula = (row.whole + row.part / static_cast<double>(n)) * num_parameters();
      EXPECT_NEAR((resident + gradients) / formula, 1, 0.01) << row.strategy << " " << n;
    }
  }
}

// Weights that are gathered for one unit, and the next, are all that comes on top of the parts.
TEST_F(ManyDevices, GatherNoMoreThanAUnitAhead) {
  const Candidate whole = plan("ddp", 8), cut = plan("fsdp", 8);
  double largest = 0;
  for (nn::Unit* unit : model_->units()) {
    double bytes = 0;
    for (const nn::Parameter* parameter : unit->parameters())
      bytes += 2.0 * static_cast<double>(parameter->num_elements());
    largest = std::max(largest, bytes);
  }
  const double all = highest(whole.prediction, Category::Parameters);
  EXPECT_NEAR(all, 2 * num_parameters(), 0.01 * all);
  EXPECT_LE(highest(cut.prediction, Category::Parameters), 1.01 * (all / 8 + 2 * largest));
}

// In each layer keys and values are gathered for the forward and for the backward, and their
// gradients summed back; activations, and nothing else without shards, are an N-th.
TEST_F(ManyDevices, AlongCpTokensAreSharedAndKeysTravel) {
  const models::Dimensions d = model_->dimensions();
  const int64_t of_keys = 2 * kLength * d.num_kv_heads * d.head_dim;  // bytes in bfloat16
  const Candidate alone = plan("auto", 1);
  recipe_.mesh = "cp=4";
  const Candidate copies = plan("ddp", 4), shards = plan("fsdp", 4);
  for (const Candidate* c : {&copies, &shards}) {
    const auto& along_cp = c->prediction.traffic[static_cast<size_t>(Axis::Context)];
    // All 64 micro-batches on each of the four ranks.
    EXPECT_EQ(along_cp[static_cast<size_t>(Operation::AllGather)].bytes,
              64 * d.num_layers * 4 * of_keys);
    EXPECT_EQ(along_cp[static_cast<size_t>(Operation::ReduceScatter)].bytes,
              64 * d.num_layers * 2 * of_keys);
    EXPECT_NEAR(highest(c->prediction, Category::Activations) * 4 /
                    highest(alone.prediction, Category::Activations),
                1, 0.05);
    EXPECT_NEAR(c->cost.products_seconds * 4 / alone.cost.products_seconds, 1, 1e-6);
    EXPECT_EQ(c->cost.tokens, alone.cost.tokens);
  }
  const auto parameters = [](const Candidate& c) {
    return static_cast<double>(c.prediction.resident[static_cast<size_t>(Category::Parameters)]);
  };
  EXPECT_EQ(parameters(copies), parameters(alone));
  EXPECT_NEAR(parameters(shards) * 4 / parameters(alone), 1, 0.01);
}

TEST_F(ManyDevices, WhatTravelsIsWhatTheStrategiesPromise) {
  const double weights = 2 * num_parameters();
  const auto bytes = [&](const Candidate& c, Axis axis, Operation operation) {
    return static_cast<double>(
               c.prediction.traffic[static_cast<size_t>(axis)][static_cast<size_t>(operation)]
                   .bytes) /
           weights;
  };
  constexpr double kPadding = 0.02;
  // 64 samples, one a micro-batch: 16 micro-batches on each of four ranks.
  const Candidate ddp = plan("ddp", 4);
  EXPECT_NEAR(bytes(ddp, Axis::Replicate, Operation::AllReduce), 1, kPadding);
  for (const char* name : {"zero1", "zero2"}) {
    const Candidate zero = plan(name, 4);
    const double sums = std::string(name) == "zero1" ? 1 : 16;
    EXPECT_NEAR(bytes(zero, Axis::Shard, Operation::ReduceScatter), sums, kPadding * sums) << name;
    EXPECT_NEAR(bytes(zero, Axis::Shard, Operation::AllGather), 1, kPadding) << name;
  }
  const Candidate fsdp = plan("fsdp", 4);
  EXPECT_NEAR(bytes(fsdp, Axis::Shard, Operation::ReduceScatter), 16, kPadding * 16);
  EXPECT_NEAR(bytes(fsdp, Axis::Shard, Operation::AllGather), 32, 3);
  EXPECT_EQ(bytes(fsdp, Axis::Replicate, Operation::AllReduce), 0);
  // Float32 weights and gradients have twice the bytes; gathered is what products read, in
  // bfloat16.
  recipe::Recipe recipe = recipe_;
  recipe.precision = "bf16-mixed";
  const Candidate mixed = plan(recipe, "fsdp", 4, 1, 0);
  EXPECT_NEAR(bytes(mixed, Axis::Shard, Operation::ReduceScatter), 32, kPadding * 32);
  EXPECT_NEAR(bytes(mixed, Axis::Shard, Operation::AllGather), 32, 3);
  // Between machines a part of the gradients, once a step.
  const Candidate hybrid = plan("hybrid", 4, 2);
  EXPECT_NEAR(bytes(hybrid, Axis::Replicate, Operation::AllReduce), 0.25, kPadding);
  EXPECT_GT(hybrid.cost.sent.between, 0);
  EXPECT_LT(hybrid.cost.sent.between, plan("fsdp", 4, 2).cost.sent.between / 4);
}

TEST_F(ManyDevices, EveryStageTakesLessThanTheOneBefore) {
  int64_t before = INT64_MAX;
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    const int64_t peak = plan(strategy, 4).prediction.peak_allocated;
    EXPECT_LT(peak, before) << strategy;
    before = peak;
  }
  for (const char* strategy : {"zero1", "zero2", "fsdp"})
    EXPECT_LT(plan(strategy, 8).prediction.peak_allocated,
              plan(strategy, 2).prediction.peak_allocated)
        << strategy;
}

TEST_F(ManyDevices, ComputeTogetherWhatOneComputesAlone) {
  const Candidate one = plan("auto", 1), four = plan("ddp", 4);
  EXPECT_DOUBLE_EQ(one.cost.tokens, four.cost.tokens);
  EXPECT_NEAR(one.cost.products_seconds / four.cost.products_seconds, 4, 1e-6);
  EXPECT_EQ(one.cost.collective_seconds, 0);
  EXPECT_EQ(one.cost.sent.sum(), 0);
  EXPECT_GT(four.cost.collective_seconds, four.cost.exposed_collective_seconds);
  EXPECT_LE(four.cost.seconds(), one.cost.seconds());
}

TEST_F(ManyDevices, PrefetchHidesWhatTravels) {
  const double ahead = plan("fsdp", 4).cost.exposed_collective_seconds;
  recipe_.forward_prefetch = recipe_.backward_prefetch = false;
  EXPECT_GT(plan("fsdp", 4).cost.exposed_collective_seconds, ahead);
}

// The strategy is chosen where nobody has chosen one, and never one that does not fit.
TEST_F(ManyDevices, FitChoosesTheStrategy) {
  recipe_.devices = "4";
  const auto samples = samples_of(64, kLength);
  const auto best = [&](int64_t budget) {
    return fit(*model_, recipe_, {samples, kLength}, find_profile("a100-80", budget));
  };
  const Fit roomy = best(0);
  ASSERT_TRUE(roomy.best);
  EXPECT_NE(roomy.best->recipe.strategy, "fsdp");  // weights need not travel where there is room
  const int64_t little = 5 * kGiB;
  const Fit tight = best(little);
  ASSERT_TRUE(tight.best);
  EXPECT_NE(tight.best->recipe.strategy, "ddp");
  EXPECT_TRUE(fits(*tight.best, find_profile("a100-80", little)));
  recipe_.strategy = "zero1";
  recipe_.given_keys.insert("strategy");
  for (const Candidate& candidate : best(0).front) EXPECT_EQ(candidate.recipe.strategy, "zero1");
}

TEST_F(ManyDevices, LeaveNothingBehind) {
  const int64_t before = memory::meta_ledger().allocated();
  plan("fsdp", 4, 2, 5);
  EXPECT_EQ(memory::meta_ledger().allocated(), before);
}

}  // namespace many_devices_test
}  // namespace snug::plan
