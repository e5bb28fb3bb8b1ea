// Each memory technique by itself over a chain of small units: the gradients of plain execution to
// the bit, what is where between forward and backward to the byte, and nothing left by a failure.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/dist/mesh.h"
#include "core/optim/optimizer.h"
#include "engine/exec/policies/activation_checkpointing.h"
#include "engine/exec/policies/activation_offload.h"
#include "engine/exec/policies/number_watch.h"
#include "engine/exec/policies/optimizer_in_backward.h"
#include "engine/exec/policies/optimizer_offload.h"
#include "engine/exec/policies/sharding.h"
#include "engine/exec/policies/weight_streaming.h"
#include "unit/engine/exec/chain.h"

namespace snug::exec {
namespace {

using memory::Category;
using memory::cpu_host_ledger;
using memory::cpu_ledger;
using tests::Chain;
using tests::live;
using tests::policies;
using tests::Probe;

using Bytes = std::vector<int64_t>;

constexpr size_t kUnits = 4;

// A chain whose weights are where a policy wants them, and the policy.
struct Placed {
  Chain chain;
  ops::CopyStream copies{at::kCPU};
  std::unique_ptr<Policy> policy;
};

std::vector<std::vector<nn::Parameter*>> by_unit(const Chain& chain) {
  std::vector<std::vector<nn::Parameter*>> all;
  for (nn::Unit* unit : chain.units) all.push_back(unit->parameters());
  return all;
}

void leave_home(const Chain& chain) {
  for (const nn::Parameter* parameter : chain.parameters()) memory::vacate(parameter->value);
}

void checkpoint(Placed& s, bool checkpoint_all) {
  s.chain.fill();
  s.policy = checkpoint_all ? std::unique_ptr<Policy>(std::make_unique<ActivationCheckpointing>(
                                  std::vector<bool>(kUnits, true)))
                            : std::make_unique<SelectiveCheckpointing>();
}
void offload_activations(Placed& s, bool prefetch) {
  s.chain.fill();
  s.policy = std::make_unique<ActivationOffload>(s.copies, prefetch);
}
void offload_gradients(Placed& s, bool overlap) {
  s.chain.fill(/*home=*/true);
  s.policy = std::make_unique<OptimizerOffload>(by_unit(s.chain), s.copies, overlap);
}
void stream_weights(Placed& s, bool prefetch) {
  s.chain.fill(/*home=*/true);
  leave_home(s.chain);
  s.policy = std::make_unique<WeightStreaming>(s.chain.units, s.copies, prefetch);
}

struct PolicyCase {
  const char* name;
  void (*make)(Placed&);
};
constexpr PolicyCase kCases[] = {
    {"checkpointing", [](Placed& s) { checkpoint(s, true); }},
    {"selective", [](Placed& s) { checkpoint(s, false); }},
    {"activation_offload", [](Placed& s) { offload_activations(s, false); }},
    {"activation_offload_ahead", [](Placed& s) { offload_activations(s, true); }},
    {"optimizer_offload", [](Placed& s) { offload_gradients(s, false); }},
    {"optimizer_offload_overlapped", [](Placed& s) { offload_gradients(s, true); }},
    {"weight_streaming", [](Placed& s) { stream_weights(s, false); }},
    {"weight_streaming_ahead", [](Placed& s) { stream_weights(s, true); }},
};

class EachPolicy : public ::testing::TestWithParam<PolicyCase> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

std::vector<at::Tensor> plain_gradients(int64_t micro_batches) {
  Chain chain;
  chain.fill();
  Executor(chain.units, {}, cpu_ledger()).forward_backward(chain.micro_batches(micro_batches));
  return chain.gradients();
}

void expect_plain_gradients(const Chain& chain, int64_t micro_batches) {
  const auto wanted = plain_gradients(micro_batches), got = chain.gradients();
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_TRUE(got[i].defined()) << i;
    EXPECT_TRUE(at::equal(got[i], wanted[i])) << chain.parameters()[i]->name;
  }
}

// Copies are late: whoever reads one before waiting for it reads rubbish.
TEST_P(EachPolicy, GradientsArePlainOnes) {
  Placed setup;
  GetParam().make(setup);
  setup.copies.set_late(true);
  Executor executor(setup.chain.units, policies(std::move(setup.policy)), cpu_ledger());
  executor.forward_backward(setup.chain.micro_batches(3));
  expect_plain_gradients(setup.chain, 3);
}

// Every allocation of two micro-batches is refused once.
TEST_P(EachPolicy, ARefusalLeavesNothing) {
  Placed setup;
  GetParam().make(setup);
  Executor executor(setup.chain.units, policies(std::move(setup.policy)), cpu_ledger());
  const int64_t before = cpu_ledger().allocated(), host_before = cpu_host_ledger().allocated();
  int64_t refused = 0;
  for (bool fails = true; fails && refused < 1000;) {
    cpu_ledger().refuse_allocation(refused + 1);
    fails = false;
    try {
      executor.forward_backward(setup.chain.micro_batches(2));
    } catch (const OutOfMemory&) {
      fails = true;
      ++refused;
      setup.chain.drop_gradients();
      ASSERT_EQ(cpu_ledger().allocated(), before) << "after refusing allocation " << refused;
      ASSERT_EQ(cpu_host_ledger().allocated(), host_before) << "refused allocation " << refused;
    }
  }
  cpu_ledger().refuse_allocation(0);
  EXPECT_GT(refused, 40);
  expect_plain_gradients(setup.chain, 2);
}

INSTANTIATE_TEST_SUITE_P(Policies, EachPolicy, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

class PolicyMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

// One micro-batch; `look` at the given hook of each unit, `done` between forward and backward. A
// probe stands inside the policy at a forward and outside at a backward, so that it sees what the
// unit itself sees.
void run(Placed& setup, Probe::At at, const std::function<void(size_t)>& look,
         const std::function<void()>& done = {}) {
  const bool first = at == Probe::At::BeforeBackward || at == Probe::At::AfterBackward;
  auto probe = std::make_unique<Probe>(at, look);
  Executor executor(setup.chain.units,
                    first ? policies<Policy>(std::move(probe), std::move(setup.policy))
                          : policies<Policy>(std::move(setup.policy), std::move(probe)),
                    cpu_ledger());
  executor.on_forward_done(done);
  executor.forward_backward(setup.chain.batch, setup.chain.pass);
}
void run(Placed& setup, const std::function<void()>& done) {
  run(
      setup, Probe::At::AfterForward, [](size_t) {}, done);
}

Bytes activations() {
  Bytes bytes;
  for (int64_t i = 0; i < 3; ++i) bytes.push_back(live(cpu_ledger(), Category::Activations, i));
  return bytes;
}

// Made by the first unit and passed on to the last.
constexpr int64_t kAside = Chain::kRowBytes;

TEST_F(PolicyMemory, CheckpointingKeepsWhatTheNextUnitReads) {
  Placed setup;
  setup.chain.fill();
  setup.policy = std::make_unique<ActivationCheckpointing>(std::vector{true, false, true, true});
  run(setup, [] {
    EXPECT_EQ(activations(),
              (Bytes{Chain::output_bytes(0) + kAside,
                     Chain::norm_bytes(1) + Chain::kRowBytes + Chain::output_bytes(1),
                     Chain::output_bytes(2)}));
  });
  Bytes forwards;
  for (const auto& layer : setup.chain.layers) forwards.push_back(layer->num_forwards);
  EXPECT_EQ(forwards, (Bytes{2, 1, 2, 1})) << "the last unit's backward follows at once";
}

TEST_F(PolicyMemory, SelectiveCheckpointingDropsNorms) {
  Placed setup;
  checkpoint(setup, /*checkpoint_all=*/false);
  run(setup, [] {
    Bytes wanted{kAside, 0, 0};
    for (size_t i = 0; i < 3; ++i) wanted[i] += Chain::kRowBytes + Chain::output_bytes(i);
    EXPECT_EQ(activations(), wanted);
  });
  for (const auto& layer : setup.chain.layers) EXPECT_EQ(layer->num_forwards, 1);
}

// What a unit keeps by itself; the batch is not the policy's to move.
int64_t kept_bytes(size_t i) {
  return Chain::norm_bytes(i) + Chain::kRowBytes + (i > 0 ? Chain::output_bytes(i - 1) : 0);
}

TEST_F(PolicyMemory, OffloadedActivationsAreOnTheHost) {
  for (const bool prefetch : {false, true}) {
    SCOPED_TRACE(prefetch ? "ahead" : "at once");
    Placed setup;
    offload_activations(setup, prefetch);
    setup.copies.set_late(true);
    const auto on_device = [] { return live(cpu_ledger(), Category::Activations); };
    Bytes after;
    run(
        setup, Probe::At::AfterForward, [&](size_t) { after.push_back(on_device()); },
        [] {
          // The device has what the last unit reads.
          EXPECT_EQ(activations(), (Bytes{kAside, 0, Chain::output_bytes(2)}));
          for (size_t i = 0; i < 3; ++i)
            EXPECT_EQ(live(cpu_host_ledger(), Category::Activations, static_cast<int64_t>(i)),
                      kept_bytes(i))
                << i;
        });
    Bytes wanted;
    for (size_t i = 0; i < 3; ++i)
      wanted.push_back(kAside + Chain::output_bytes(i) + (prefetch ? kept_bytes(i) : 0));
    after.pop_back();
    EXPECT_EQ(after, wanted) << "after each forward";
    EXPECT_EQ(live(cpu_host_ledger(), Category::Activations), 0);
  }
}

TEST_F(PolicyMemory, StreamedWeightsAreThereForTheirUnit) {
  for (const bool prefetch : {false, true}) {
    SCOPED_TRACE(prefetch ? "ahead" : "at once");
    const auto weights = [](size_t i) { return i < kUnits ? Chain::weight_bytes(i) : 0; };
    Bytes forward, backward;  // wanted
    for (size_t i = 0; i < kUnits; ++i) {
      forward.push_back(weights(i) + (prefetch ? weights(i + 1) : 0));
      backward.push_back(weights(3 - i) + (prefetch ? weights(2 - i) : 0));
    }
    for (const auto at : {Probe::At::BeforeForward, Probe::At::BeforeBackward}) {
      Placed setup;
      stream_weights(setup, prefetch);
      Bytes seen;
      run(
          setup, at, [&](size_t) { seen.push_back(live(cpu_ledger(), Category::Parameters)); },
          [&] {
            EXPECT_EQ(live(cpu_ledger(), Category::Parameters), weights(3))
                << "the last unit's backward follows at once";
          });
      EXPECT_EQ(seen, at == Probe::At::BeforeForward ? forward : backward);
      EXPECT_EQ(live(cpu_ledger(), Category::Parameters), 0);
    }
  }
}

TEST_F(PolicyMemory, OffloadedGradientsAreOneUnitsOnTheDevice) {
  for (const bool overlap : {false, true}) {
    SCOPED_TRACE(overlap ? "overlapped" : "at once");
    Placed setup;
    offload_gradients(setup, overlap);
    setup.copies.set_late(true);
    Bytes device, host, device_wanted, host_wanted;
    int64_t sum = 0;
    for (size_t i = kUnits; i-- > 0;) {
      sum += Chain::weight_bytes(i);
      device_wanted.push_back(overlap ? Chain::weight_bytes(i) : 0);
      host_wanted.push_back(sum);
    }
    run(setup, Probe::At::AfterBackward, [&](size_t) {
      device.push_back(live(cpu_ledger(), Category::Gradients));
      host.push_back(live(cpu_host_ledger(), Category::Gradients));
    });
    EXPECT_EQ(device, device_wanted);
    EXPECT_EQ(host, host_wanted);
    EXPECT_EQ(live(cpu_ledger(), Category::Gradients), 0);
  }
}

// --- optimizer in backward ---

struct Updating : Placed {
  Updating() {
    chain.fill();
    std::vector<optim::NamedTensor> tensors;
    std::vector<optim::Range> ranges;
    for (nn::Unit* unit : chain.units) {
      ranges.push_back({tensors.size(), tensors.size() + unit->parameters().size()});
      for (const nn::Parameter* p : unit->parameters()) tensors.push_back({p->name, p->value});
    }
    recipe::OptimizerOptions options;
    options.name = "sgd";
    optimizer = optim::make_optimizer(options, tensors);
    auto made = std::make_unique<OptimizerInBackward>(
        *optimizer, tensors, std::vector(tensors.size(), true), ranges, /*on_host=*/false,
        OptimizerInBackward::Publish{.unit = [this](int64_t unit) { updated.push_back(unit); },
                                     .all = [this] { updated.push_back(-1); }});
    in_backward = made.get();
    policy = std::move(made);
  }
  std::unique_ptr<optim::Optimizer> optimizer;
  OptimizerInBackward* in_backward;
  Bytes updated;
};

std::vector<at::Tensor> weights_of(const Chain& chain) {
  std::vector<at::Tensor> all;
  for (const nn::Parameter* p : chain.parameters()) all.push_back(p->value.detach().clone());
  return all;
}

TEST_F(PolicyMemory, UpdatesInBackwardHoldOneUnitsGradients) {
  Updating plain, ours;
  Executor by_step(plain.chain.units, {}, cpu_ledger());
  by_step.forward_backward(plain.chain.micro_batches(1));
  const double squares = ops::sum_of_squares(plain.chain.gradients());
  plain.optimizer->step({.lr = 0.1, .gradient_scale = 0.5});
  plain.chain.drop_gradients();

  Bytes live_gradients, wanted;
  for (size_t i = kUnits; i-- > 0;) wanted.push_back(Chain::weight_bytes(i));
  OptimizerInBackward& policy = *ours.in_backward;
  // At a backward the probe is inside: it looks before the policy frees anything.
  Executor executor(
      ours.chain.units,
      policies<Policy>(
          std::move(ours.policy),
          std::make_unique<Probe>(
              Probe::At::AfterBackward,
              [&](size_t) { live_gradients.push_back(live(cpu_ledger(), Category::Gradients)); })),
      cpu_ledger());
  const auto before = weights_of(ours.chain);
  policy.begin_sweep(Sweep::Measure, {});
  executor.forward_backward(ours.chain.micro_batches(1));
  policy.end_sweep();
  EXPECT_DOUBLE_EQ(policy.sum_of_squares(), squares);
  EXPECT_TRUE(ours.updated.empty());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(weights_of(ours.chain)[i], before[i])) << "only measured";

  policy.begin_sweep(Sweep::Update, {.lr = 0.1, .gradient_scale = 0.5});
  executor.forward_backward(ours.chain.micro_batches(1));
  policy.end_sweep();
  EXPECT_EQ(ours.updated, (Bytes{3, 2, 1, 0, -1}));
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(weights_of(ours.chain)[i], weights_of(plain.chain)[i])) << i;
  wanted.insert(wanted.end(), wanted.begin(), wanted.begin() + kUnits);
  EXPECT_EQ(live_gradients, wanted);
}

TEST_F(PolicyMemory, UpdatesWaitForTheLastMicroBatch) {
  Updating plain, ours;
  Executor(plain.chain.units, {}, cpu_ledger()).forward_backward(plain.chain.micro_batches(3));
  plain.optimizer->step({.lr = 0.1});
  ours.in_backward->begin_sweep(Sweep::Update, {.lr = 0.1});
  Executor executor(ours.chain.units, policies(std::move(ours.policy)), cpu_ledger());
  executor.forward_backward(ours.chain.micro_batches(3));
  EXPECT_EQ(ours.updated, (Bytes{3, 2, 1, 0}));
  for (size_t i = 0; i < weights_of(plain.chain).size(); ++i)
    EXPECT_TRUE(at::equal(weights_of(ours.chain)[i], weights_of(plain.chain)[i])) << i;
}

// --- sharding ---

struct Sharded : Placed {
  Sharded(at::Device device, int ranks, const ShardingOptions& options) {
    chain.batch.pixels = chain.batch.pixels.to(device);
    Sharding::FlatUnits flats;
    for (nn::Unit* unit : chain.units) {
      const memory::UnitGuard tag(memory::unit_id(unit->name()));
      auto flat = std::make_unique<FlatUnit>(unit->parameters(), device, at::kFloat, 0, ranks);
      if (device.is_cpu())
        for (const nn::Parameter* p : unit->parameters()) p->value.detach().normal_(0.2, 1);
      part_bytes.push_back(flat->new_part(Category::Workspace).nbytes());
      const at::Tensor values = flat->values().clone();
      if (options.stage == ShardingStage::Weights) {
        flat->keep_part_apart(/*on_device=*/true, at::kFloat);
        flat->part().copy_(flat->own_part_of(values));
      }
      flats.emplace_back().push_back(std::move(flat));
    }
    recipe::MeshShape shape;
    shape[recipe::Axis::Shard] = ranks;
    auto made = std::make_unique<Sharding>(chain.units, std::move(flats), dist::planned_mesh(shape),
                                           options);
    sharding = made.get();
    policy = std::move(made);
  }
  Bytes part_bytes;
  Sharding* sharding = nullptr;
};

// One rank, whose collectives are copies: the shards are everything.
TEST_F(PolicyMemory, ShardsOfOneRankHavePlainGradients) {
  for (const auto stage :
       {ShardingStage::OptimizerStates, ShardingStage::Gradients, ShardingStage::Weights})
    for (const bool ahead : {false, true}) {
      Sharded setup(at::kCPU, 1,
                    {.stage = stage,
                     .forward_prefetch = ahead,
                     .backward_prefetch = ahead,
                     .overlap_reduction = ahead});
      Executor executor(setup.chain.units, policies(std::move(setup.policy)), cpu_ledger());
      executor.forward_backward(setup.chain.micro_batches(3));
      const auto wanted = plain_gradients(3);
      size_t i = 0;
      for (const auto& own : setup.sharding->flats())
        for (const auto& piece : own[0]->pieces()) {
          EXPECT_TRUE(at::equal(piece->parameter.value.grad(), wanted[i].flatten())) << i;
          ++i;
        }
      EXPECT_EQ(i, wanted.size());
      setup.sharding->drop_gradients();
    }
}

// One rank of two, on meta: its shards, and of whole weights those of the unit that runs.
TEST_F(PolicyMemory, ShardedWeightsAreWholeForTheirUnit) {
  for (const bool ahead : {false, true}) {
    Sharded setup(
        at::kMeta, 2,
        {.stage = ShardingStage::Weights, .forward_prefetch = ahead, .backward_prefetch = ahead});
    const memory::Ledger& ledger = memory::meta_ledger();
    int64_t shards = 0;
    for (const int64_t bytes : setup.part_bytes) shards += bytes;
    EXPECT_EQ(live(ledger, Category::Parameters), shards);
    Bytes seen, wanted;
    for (size_t i = 0; i < kUnits; ++i)
      wanted.push_back(shards + 2 * setup.part_bytes[i] +
                       (ahead && i + 1 < kUnits ? 2 * setup.part_bytes[i + 1] : 0));
    Executor executor(
        setup.chain.units,
        policies<Policy>(std::move(setup.policy),
                         std::make_unique<Probe>(
                             Probe::At::BeforeForward,
                             [&](size_t) { seen.push_back(live(ledger, Category::Parameters)); })),
        memory::meta_ledger());
    executor.forward_backward(setup.chain.micro_batches(1));
    EXPECT_EQ(seen, wanted);
    EXPECT_EQ(live(ledger, Category::Parameters), shards);
    EXPECT_EQ(live(ledger, Category::Gradients), shards) << "summed gradients are shards too";
  }
}

// Each kind of place, in a chain of four whose other units hand the numbers on.
TEST_F(PolicyMemory, TheFirstNumberThatIsNotFiniteIsFound) {
  Chain chain;
  chain.fill();
  auto owned = std::make_unique<NumberWatch>();
  NumberWatch& watch = *owned;
  Executor executor(chain.units, {}, memory::cpu_ledger());
  executor.add_policy(std::move(owned));
  const auto what = [&] {
    watch.start();
    executor.forward_backward(chain.micro_batches(2));
    chain.drop_gradients();
    const auto found = watch.stop();
    return found ? fmt::format("{} {} {}", found->in_backward, found->index, found->what) : "";
  };
  EXPECT_EQ(what(), "");
  const nn::Parameter& parameter = *chain.units[1]->parameters()[1];
  const at::Tensor weight = parameter.value.detach();
  const at::Tensor before = weight.clone();
  weight.view({-1})[5].fill_(-INFINITY);
  EXPECT_EQ(what(), "false 1 the weight " + parameter.name);
  weight.fill_(3e38);  // overflows in the sum of a row
  EXPECT_EQ(what(), "false 1 the forward output \"hidden\" of chain.1");
  weight.copy_(before);
  EXPECT_EQ(what(), "");
  chain.pass.gradient_scale = 1e38;  // the objective is finite, its gradient is not
  EXPECT_EQ(what(), "true 3 the gradient of " + chain.layers[3]->norm.weight.name);
  Chain frozen;
  for (nn::Parameter* p : frozen.units[3]->parameters()) p->trained = false;
  frozen.fill();
  frozen.pass.gradient_scale = 1e38;
  auto other = std::make_unique<NumberWatch>();
  NumberWatch& second = *other;
  Executor of_frozen(frozen.units, {}, memory::cpu_ledger());
  of_frozen.add_policy(std::move(other));
  second.start();
  of_frozen.forward_backward(frozen.micro_batches(1));
  EXPECT_EQ(second.stop()->what, "the gradient of \"hidden\" from chain.3");
}

}  // namespace
}  // namespace snug::exec
