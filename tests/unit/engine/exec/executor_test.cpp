// The executor over a chain of small units: libtorch's gradients, the order of the hooks, what a
// frozen unit spares, and that a failure anywhere leaves no bytes.
// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/executor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/exec/stage_links.h"
#include "unit/engine/exec/chain.h"

namespace snug::exec {
namespace {

using tests::Chain;
using tests::live;
using tests::policies;

class ExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

// The chain written out for libtorch's autograd; gradients by the chain's parameters, undefined
// where frozen.
std::pair<double, std::vector<at::Tensor>> by_libtorch(const Chain& chain) {
  std::vector<at::Tensor> leaves;
  at::Tensor x = chain.batch.pixels, aside;
  for (const auto& layer : chain.layers) {
    std::vector<at::Tensor> own;
    for (const nn::Parameter* p : layer->parameters())
      own.push_back(p->value.detach().clone().set_requires_grad(p->trained));
    x = x * at::rsqrt(x.square().mean(1, /*keepdim=*/true) + 1e-6) * own[0];
    x = at::linear(x, own[1], own[2]);
    if (!aside.defined()) aside = x.narrow(1, 0, 1) * 3;
    leaves.insert(leaves.end(), own.begin(), own.end());
  }
  const at::Tensor sum = (x + aside).square().sum();
  (sum * chain.pass.gradient_scale).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return {sum.item<double>(), gradients};
}

void freeze(Chain& chain, size_t unit) {
  for (nn::Parameter* p : chain.units[unit]->parameters()) p->trained = false;
}

TEST_F(ExecutorTest, GradientsAreLibtorchs) {
  for (const std::vector<size_t>& frozen :
       std::vector<std::vector<size_t>>{{}, {0}, {0, 1}, {1}, {3}}) {
    Chain chain;
    for (const size_t unit : frozen) freeze(chain, unit);
    chain.fill();
    SCOPED_TRACE(::testing::PrintToString(frozen));
    const auto [sum, wanted] = by_libtorch(chain);
    Executor executor(chain.units, {}, memory::cpu_ledger());
    const auto sums = executor.forward_backward(chain.micro_batches(3));
    ASSERT_EQ(sums.size(), 3U);
    for (const Sums& each : sums) EXPECT_NEAR(each.front(), sum, 1e-5 * sum);
    EXPECT_NEAR(executor.objective(chain.batch, chain.pass), sum, 1e-5 * sum);
    const auto got = chain.gradients();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::string& name = chain.parameters()[i]->name;
      ASSERT_EQ(got[i].defined(), wanted[i].defined()) << name;
      if (!wanted[i].defined()) continue;
      const double scale = wanted[i].abs().max().item<double>();
      EXPECT_LT((got[i] / 3 - wanted[i]).abs().max().item<double>(), 2e-5 * scale) << name;
    }
  }
}

// Writes the name of each hook, policy and unit in the order of the calls.
class Diary final : public Policy {
 public:
  Diary(std::string name, std::vector<std::string>& lines)
      : name_(std::move(name)), lines_(lines) {}
  void before_forward(UnitRun& run) override { note("(f", run); }
  void after_forward(UnitRun& run) override { note("f)", run); }
  void before_backward(UnitRun& run) override { note("(b", run); }
  void after_backward(UnitRun& run) override { note("b)", run); }
  void after_micro_batch() override { lines_.push_back(name_ + " end"); }
  void abandon() override { lines_.push_back(name_ + " abandon"); }

 private:
  void note(const char* hook, const UnitRun& run) {
    lines_.push_back(name_ + " " + hook + std::to_string(run.index));
  }
  std::string name_;
  std::vector<std::string>& lines_;
};

struct Diaries {
  explicit Diaries(Chain& c)
      : executor(c.units,
                 policies(std::make_unique<Diary>("x", lines), std::make_unique<Diary>("y", lines)),
                 memory::cpu_ledger()) {
    executor.on_forward_done([this] { lines.push_back("forward done"); });
  }
  std::vector<std::string> lines;
  Executor executor;
};

// Frozen at the start, so two of the four units have a backward.
TEST_F(ExecutorTest, PoliciesNest) {
  Chain chain;
  freeze(chain, 0);
  freeze(chain, 1);
  chain.fill();
  Diaries all(chain);
  std::vector<std::string> wanted;
  for (const char* unit : {"0", "1", "2", "3"})
    for (const char* hook : {"x (f", "y (f", "x f)", "y f)"})
      wanted.push_back(std::string(hook) + unit);
  const std::vector<std::string> forward = wanted;
  wanted.emplace_back("forward done");
  for (const char* unit : {"3", "2"})
    for (const char* hook : {"y (b", "x (b", "y b)", "x b)"})
      wanted.push_back(std::string(hook) + unit);
  wanted.emplace_back("y end");
  wanted.emplace_back("x end");
  all.executor.forward_backward(chain.batch, chain.pass);
  EXPECT_EQ(all.lines, wanted);
  all.lines.clear();
  all.executor.objective(chain.batch, chain.pass);
  EXPECT_EQ(all.lines, forward) << "without gradients";
}

TEST_F(ExecutorTest, AFailureAbandonsOnceAndEndsTheStep) {
  Chain chain;
  chain.fill();
  Diaries all(chain);
  chain.layers[1]->before_forward = [] { throw UserError("no"); };
  EXPECT_THROW(all.executor.forward_backward(chain.micro_batches(2)), UserError);
  EXPECT_EQ(all.lines, (std::vector<std::string>{"x (f0", "y (f0", "x f)0", "y f)0", "x (f1",
                                                 "y (f1", "x abandon", "y abandon"}));
}

TEST_F(ExecutorTest, AMicroBatchThatCannotBeMadeAbandonsTheStep) {
  Chain chain;
  chain.fill();
  Diaries all(chain);
  MicroBatches micro_batches = chain.micro_batches(2);
  micro_batches.make = [make = micro_batches.make](int64_t number) {
    return number == 0 ? make(number) : throw UserError("no");
  };
  EXPECT_THROW(all.executor.forward_backward(micro_batches), UserError);
  ASSERT_GT(all.lines.size(), 2U);
  EXPECT_EQ(std::vector<std::string>(all.lines.end() - 2, all.lines.end()),
            (std::vector<std::string>{"x abandon", "y abandon"}));
}

// Between forward and backward: what a trained unit keeps, under its name; of a frozen one before
// it nothing but the state that the next unit reads.
TEST_F(ExecutorTest, ActivationsAreCountedByUnit) {
  for (const bool frozen : {false, true}) {
    Chain chain;
    if (frozen) freeze(chain, 0);
    chain.fill();
    Executor executor(chain.units, {}, memory::cpu_ledger());
    std::vector<int64_t> bytes;
    executor.on_forward_done([&] {
      for (int64_t i = 0; i < 3; ++i)
        bytes.push_back(live(memory::cpu_ledger(), memory::Category::Activations, i));
      EXPECT_EQ(live(memory::cpu_ledger(), memory::Category::Workspace), 0);
      EXPECT_EQ(live(memory::cpu_ledger(), memory::Category::Gradients), 0);
    });
    executor.forward_backward(chain.batch, chain.pass);
    const auto kept = [](size_t i) { return Chain::norm_bytes(i) + Chain::kRowBytes; };
    EXPECT_EQ(bytes,
              (std::vector<int64_t>{
                  (frozen ? 0 : kept(0)) + Chain::output_bytes(0) + /*aside*/ Chain::kRowBytes,
                  kept(1) + Chain::output_bytes(1), kept(2) + Chain::output_bytes(2)}));
    EXPECT_EQ(live(memory::cpu_ledger(), memory::Category::Activations), 0);
    int64_t weights = 0;
    for (size_t i = frozen ? 1 : 0; i < chain.units.size(); ++i) weights += Chain::weight_bytes(i);
    EXPECT_EQ(live(memory::cpu_ledger(), memory::Category::Gradients), weights);
  }
}

TEST_F(ExecutorTest, OneStretchHandsItsGradientsToTheOneBefore) {
  Chain chain;
  chain.fill();
  Executor whole(chain.units, {}, memory::cpu_ledger());
  whole.forward_backward(chain.batch, chain.pass);
  std::vector<at::Tensor> wanted;
  for (const at::Tensor& gradient : chain.gradients()) wanted.push_back(gradient.clone());
  chain.drop_gradients();
  const UnitRange first{.begin = 0, .end = 2, .ends_model = false};
  const UnitRange second{.begin = 2, .end = 4, .begins_model = false, .gradient_leaves = true};
  Executor cut(chain.units, {}, memory::cpu_ledger(), {first, second}, nullptr);
  const MicroBatch micro_batch{chain.batch, chain.pass, 0};
  Executor::Flight one, two;
  nn::State state = cut.forward(one, first, {}, micro_batch);
  cut.forward(two, second, std::move(state), micro_batch);
  nn::State gradients = cut.backward(two, Executor::begin_backward(two, chain.pass), micro_batch);
  EXPECT_TRUE(gradients.has("hidden"));
  EXPECT_TRUE(gradients.has("aside"));
  cut.backward(one, std::move(gradients), micro_batch);
  const auto got = chain.gradients();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

}  // namespace
}  // namespace snug::exec
