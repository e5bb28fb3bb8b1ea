// The library as somebody who uses it without reading: every misuse is a UserError that says what
// to give instead. What it does when used rightly: tests/build/library.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "snug/engine.h"
#include "support/pairs.h"
#include "support/temp_folder.h"

namespace snug {
namespace {

constexpr int64_t kVocabulary = 96, kMostTokens = 128;

recipe::Recipe recipe_with(std::vector<std::string> options = {}) {
  const std::string config = SNUG_SOURCE_DIR "/tests/data/parity/llama/config.json";
  options.insert(options.begin(), {"--model.config", config, "--precision", "32-true"});
  return read_recipe(options, /*full=*/true);
}

at::Tensor rows(int64_t samples, int64_t tokens) {
  return at::arange(samples * tokens, at::kLong).remainder(kVocabulary).view({samples, tokens});
}

void expect_refused(const std::function<void()>& use, const std::string& part) {
  try {
    use();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Trainer, RefusesTensorsThatAreNoSamples) {
  Trainer trainer(recipe_with());
  const at::Tensor good = rows(2, 8);
  const auto expect = [&](const at::Tensor& ids, const at::Tensor& labels, const char* part) {
    expect_refused([&] { trainer.step(ids, labels); }, part);
    expect_refused([&] { trainer.evaluate(ids, labels); }, part);
  };
  expect(good.to(at::kFloat), good, "must be integers");
  expect(good, good.to(at::kBool), "must be integers");
  expect(good, good.to(at::kComplexFloat), "must be integers");
  expect(good.to(at::kMeta), good, "in memory");
  expect(at::Tensor(), good, "must be integers");
  expect(good[0], good[0], "(samples, tokens)");
  expect(rows(2, 0), rows(2, 0), "at least one");
  expect(good, rows(2, 9), "same shape");
  expect(rows(1, kMostTokens + 1), rows(1, kMostTokens + 1), "takes 128");
  const at::Tensor other = good.clone();
  other[1][3] = kVocabulary;
  expect(other, other, "sample 1, token 3: id 96, but the model's vocabulary has 96");
  other[1][3] = -1;
  expect(other, other, "id -1");
  other[1][3] = good[1][3].item<int64_t>() + (int64_t{1} << 32);  // the same id in 32 bits
  expect(other, other, "id 4294967307");
  expect(good, other, "label 4294967307");
  {
    const c10::InferenceMode inference;
    expect(good, good, "InferenceMode");
  }
  EXPECT_GT(trainer.step(good.to(at::kInt), good.to(at::kByte)).loss, 0);
}

class NothingToLearn final : public nn::Objective {
 public:
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& /*head*/, const nn::Batch& /*batch*/,
                 const nn::Pass& /*pass*/) const override {
    return hidden.sum().reshape({1});
  }
  int64_t terms(const nn::BatchCounts& /*counts*/) const override { return 0; }
};

TEST(Trainer, RefusesWhatItCannotDo) {
  const auto train = [](const std::vector<std::string>& options) {
    return [options] { const Trainer trainer(recipe_with(options)); };
  };
  expect_refused(train({"--devices", "2"}), "use the program for 2");
  expect_refused(train({"--fit"}), "snug plan --fit");
  expect_refused([] { const Trainer trainer(recipe_with(), {.longest = 0}); }, "longest = 0");
  const TrainerOptions none{.policies = {[] { return nullptr; }}};
  expect_refused([&] { const Trainer trainer(recipe_with(), none); }, "null");
  expect_refused([&] { predict(recipe_with(), 8, none); }, "null");
  for (const int64_t tokens : {int64_t{-1}, int64_t{0}, int64_t{1}, kMostTokens + 1})
    expect_refused([&] { predict(recipe_with(), tokens); }, "give from 2 tokens");
  const TrainerOptions empty{.policies = {{}}};
  expect_refused([&] { const Trainer trainer(recipe_with(), empty); }, "make_shared");
  const TrainerOptions nothing{.objective = std::make_shared<const NothingToLearn>()};
  expect_refused([&] { predict(recipe_with(), 8, nothing); }, "counts terms");
  expect_refused([] { predict(recipe_with({"--devices", "2"}), 8); }, "use the program for 2");
}

TEST(Trainer, KeepsItsBudgetBesideOthers) {
  Trainer small(recipe_with({"--memory_budget", "1MiB", "--train.micro_batch_size", "64",
                             "--train.global_batch_size", "64"}),
                {.longest = 64});
  const Trainer large(recipe_with());
  predict(recipe_with(), 64);
  const at::Tensor many = rows(64, 64);
  EXPECT_THROW(small.step(many, many), OutOfMemory);
  const at::Tensor own = at::empty({2 << 20}, at::kByte);  // is not in its way, nor refused
  const at::Tensor few = rows(1, 4);
  EXPECT_TRUE(small.step(few, few).updated) << "after a refusal it goes on";
}

TEST(Trainer, TakesWhatWasPredicted) {
  for (const char* packing : {"true", "false"}) {
    const recipe::Recipe recipe =
        recipe_with({"--data.packing", packing, "--train.micro_batch_size", "4",
                     "--train.global_batch_size", "8"});
    const int64_t predicted = predict(recipe, 32).peak_allocated;
    Trainer trainer(recipe, {.longest = 32});
    EXPECT_EQ(trainer.step(rows(8, 32), rows(8, 32)).peak_bytes, predicted) << packing;
  }
}

// Makes all logits, as losses do that are written without regard to memory.
class SquaredLogits final : public nn::Objective {
 public:
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& /*batch*/,
                 const nn::Pass& pass) const override {
    return head.logits(hidden, pass).to(at::kFloat).square().sum().reshape({1});
  }
};

// Holds memory of its own from a unit's forward to its backward.
class Holds final : public exec::Policy {
 public:
  void after_forward(exec::UnitRun& run) override {
    held_[run.key()] = at::empty({1 << 16}, run.unit->parameters().front()->value.options());
  }
  void after_backward(exec::UnitRun& run) override { held_.erase(run.key()); }
  void abandon() override { held_.clear(); }

 private:
  std::map<std::pair<int64_t, int64_t>, at::Tensor> held_;
};

TEST(Trainer, PredictsItsObjectiveAndPoliciesToo) {
  const recipe::Recipe recipe =
      recipe_with({"--train.micro_batch_size", "32", "--train.global_batch_size", "64"});
  const int64_t plain = predict(recipe, 32).peak_allocated;
  const auto objective = std::make_shared<const SquaredLogits>();
  const std::vector<std::function<std::shared_ptr<exec::Policy>()>> policies = {
      [] { return std::make_shared<Holds>(); }};
  for (const TrainerOptions& options :
       {TrainerOptions{.longest = 32, .objective = objective},
        TrainerOptions{.longest = 32, .policies = policies},
        TrainerOptions{.longest = 32, .objective = objective, .policies = policies}}) {
    const int64_t predicted = predict(recipe, 32, options).peak_allocated;
    EXPECT_GT(predicted, plain);
    Trainer trainer(recipe, options);
    EXPECT_EQ(trainer.step(rows(64, 32), rows(64, 32)).peak_bytes, predicted);
  }
}

// Rows are pairs, columns are found by name, and the plan has both.
TEST(Trainer, TakesPairsAndTheirNumbers) {
  const recipe::Recipe recipe =
      recipe_with({"--train.micro_batch_size", "4", "--train.global_batch_size", "8"});
  const TrainerOptions options{.longest = 32, .objective = std::make_shared<tests::Pairs>()};
  const int64_t predicted = predict(recipe, 32, options).peak_allocated;
  Trainer trainer(recipe, options);
  const at::Tensor ids = rows(16, 32);
  const Columns columns = {{"reference", at::arange(16, at::kInt)}, {"weight", at::ones({16, 32})}};
  const Step step = trainer.step(ids, ids, std::nullopt, columns);
  EXPECT_EQ(step.peak_bytes, predicted);
  EXPECT_TRUE(step.updated);
  const Columns swapped = {{"reference", -columns.at("reference")}, {"weight", at::ones({16, 32})}};
  EXPECT_NE(trainer.evaluate(ids, ids, columns), trainer.evaluate(ids, ids, swapped));

  const at::Tensor answers = trainer.log_probs(ids, ids);
  EXPECT_EQ(answers.sizes(), at::IntArrayRef({16}));
  EXPECT_TRUE(answers.lt(0).all().item<bool>());
  expect_refused([&] { trainer.log_probs(at::Tensor(), ids); }, "integers in memory");

  const auto expect = [&](const at::Tensor& given, const Columns& with, const std::string& words) {
    expect_refused([&] { trainer.step(given, given, std::nullopt, with); }, words);
  };
  expect(rows(15, 32), columns, "15 rows: a sample of this objective has 2");
  expect(ids, {{"weight", at::ones({16, 32})}}, "wants a column reference");
  expect(ids, {{"reference", at::ones({8})}, {"weight", at::ones({16, 32})}},
         "column reference: [8] numbers");
  expect(ids, {{"reference", at::ones({16})}, {"weight", at::ones({16})}},
         "the objective wants [16, 32]");
  Columns more = columns;
  more["margin"] = at::ones({16});
  expect(ids, more, "3 columns, but the objective wants 2");
  Trainer plain(recipe, {.longest = 32});
  expect_refused([&] { plain.step(ids, ids, std::nullopt, columns); }, "wants 0");
}

// Programs refuse to train what their out_dir holds, which they would overwrite.
TEST(Trainer, GoesOnFromWhatItSaved) {
  const test::TempFolder folder;
  const std::string kData = SNUG_SOURCE_DIR "/tests/data/system/tiny";
  recipe::Recipe recipe = read_recipe({kData, "--model.config", kData + "/config.json",
                                       "--precision", "32-true", "--out_dir", folder.path()},
                                      true);
  const at::Tensor ids = rows(2, 8).remainder(16);
  Trainer first(recipe);
  first.step(ids, ids, 1e-2);
  first.save(folder / "final");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    if (std::filesystem::exists(kData + "/" + file))
      std::filesystem::copy(kData + "/" + file, folder / "final",
                            std::filesystem::copy_options::skip_existing);
  Trainer second(
      read_recipe({folder / "final", "--precision", "32-true", "--out_dir", folder.path()}, true));
  EXPECT_NEAR(second.evaluate(ids, ids), first.evaluate(ids, ids), 1e-6);
}

// Nothing is learnt from samples without labels: not even decay changes the weights.
TEST(Trainer, LeavesTheWeightsWhereNoLabelCounts) {
  const at::Tensor ids = rows(2, 8);
  Trainer trainer(recipe_with({"--optimizer.weight_decay", "0.5", "--optimizer.lr", "0.1"}));
  trainer.step(ids, ids);
  const double before = trainer.evaluate(ids, ids);
  const Step none = trainer.step(ids, at::full_like(ids, -100));
  EXPECT_FALSE(none.updated);
  EXPECT_TRUE(std::isnan(none.loss));
  EXPECT_EQ(none.loss_tokens, 0);
  EXPECT_EQ(trainer.evaluate(ids, ids), before);
  EXPECT_TRUE(trainer.step(ids, ids).updated);
}

TEST(Trainer, CountsOnlyMicroBatchesWithLabels) {
  const std::vector<std::string> options{"--train.micro_batch_size", "1",
                                         "--train.loss_normalization", "micro"};
  const at::Tensor ids = rows(3, 8), labels = ids.clone();
  labels[1].fill_(-100);
  const at::Tensor with_labels = at::stack({ids[0], ids[2]});
  Trainer all(recipe_with(options)), some(recipe_with(options));
  const Step mixed = all.step(ids, labels), alone = some.step(with_labels, with_labels);
  EXPECT_DOUBLE_EQ(mixed.loss, alone.loss);
  EXPECT_DOUBLE_EQ(mixed.grad_norm, alone.grad_norm);
}

TEST(Trainer, TellsOfAStepThatWasNotTaken) {
  Trainer trainer(recipe_with());
  const at::Tensor ids = rows(2, 8);
  EXPECT_TRUE(trainer.step(ids, ids).updated);
  trainer.parameters().front()->value.mutable_data_ptr<float>()[1] =
      std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(trainer.step(ids, ids).updated);
}

TEST(Trainer, GoesOnWhereItWasMoved) {
  std::vector<Trainer> trainers;
  trainers.emplace_back(recipe_with({"--seed", "1"}));
  trainers.emplace_back(recipe_with({"--seed", "1"}));
  Trainer moved = std::move(trainers.back());
  const at::Tensor ids = rows(2, 8);
  const double first = trainers.front().step(ids, ids, 1e-2).loss;
  EXPECT_EQ(moved.step(ids, ids, 1e-2).loss, first);
  EXPECT_LT(moved.step(ids, ids, 1e-2).loss, first);
}

}  // namespace
}  // namespace snug
