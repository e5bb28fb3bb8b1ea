// What must hold for any training: how a global batch is cut, packed or padded changes nothing.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "engine/batch.h"
#include "engine/parallel/context_parallel.h"
#include "recipe/techniques/technique.h"
#include "support/case_sample.h"
#include "support/fixed_order.h"
#include "support/techniques.h"
#include "support/tiny_training.h"

namespace snug {
namespace training_test {

using tests::eight_in;
using tests::kTechniques;
using tests::random_samples;
using tests::Technique;
using tests::tiny_recipe;
using tests::TinyRun;

// Said at the end of this program, since runs are what its time goes to.
class CountOfRuns : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf("[  TRAINED ] %lld tiny models\n", static_cast<long long>(TinyRun::num_made));
  }
};
const ::testing::Environment* const kCountOfRuns =
    ::testing::AddGlobalTestEnvironment(new CountOfRuns);

class Training : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
  const data::SampleStore samples_ = random_samples(8, 40, 5);
  const data::SampleStore pairs_ =
      tests::random_answers(8, 40, 5, recipe::objective_defaults("dpo"));
  const data::SampleStore rated_ =
      tests::random_answers(8, 40, 5, recipe::objective_defaults("kto"));
  const data::SampleStore texts_ =
      tests::random_answers(8, 40, 5, recipe::objective_defaults("classification"));
  const data::SampleStore taught_ = tests::random_answers(8, 40, 5, distillation());
  static recipe::ObjectiveOptions distillation() {
    recipe::ObjectiveOptions options = recipe::objective_defaults("distill");
    options.top_k = 5;
    return options;
  }
  const data::SampleStore& samples_of(const recipe::Recipe& recipe) const {
    if (recipe::learns_labels(recipe.objective.name)) return texts_;
    if (recipe::has_teacher(recipe.objective.name)) return taught_;
    return recipe.objective.name == recipe::ObjectiveName::Sft   ? samples_
           : recipe.objective.name == recipe::ObjectiveName::Kto ? rated_
                                                                 : pairs_;
  }
};

// Losses of `steps` steps over the same eight samples.
std::vector<double> train(TinyRun& run, const engine::SampleIndices& micro_batches, int steps,
                          double lr = 1e-2) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(run.step(micro_batches, lr).loss);
  return losses;
}

void expect_same_weights(const TinyRun& a, const TinyRun& b, double tolerance) {
  for (size_t i = 0; i < a.engine.parameters.size(); ++i) {
    const at::Tensor& expected = a.engine.parameters[i].tensor;
    // A float32 master at home, as the weight that it rounds to.
    const at::Tensor actual = b.engine.parameters[i].tensor.to(expected.options());
    const at::Tensor difference = (expected - actual).abs();
    EXPECT_LE(difference.max().item<double>(), tolerance) << a.engine.parameters[i].name;
  }
}

void expect_same_losses(const std::vector<double>& a, const std::vector<double>& b,
                        double tolerance) {
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * a[i]) << "step " << i;
}

TEST_F(Training, AnyCutOfTheGlobalBatchTrainsTheSame) {
  TinyRun whole(tiny_recipe(), samples_);
  const std::vector<double> expected = train(whole, eight_in(8), 5);
  EXPECT_LT(expected.back(), expected.front());
  for (const int64_t size : {1, 2, 4}) {
    TinyRun cut(tiny_recipe(), samples_);
    expect_same_losses(expected, train(cut, eight_in(size), 5), 1e-5);
    expect_same_weights(whole, cut, 1e-4);
  }
}

// As transformers' hook for NEFTune draws it: uniform up to alpha / sqrt(tokens * width), for each
// document by its own tokens, as the paper has it.
TEST_F(Training, NoiseIsAsWideAsTheDocumentSays) {
  for (const char* const shape : {"llama", "gpt2", "opt-after"}) {
    SCOPED_TRACE(shape);
    TinyRun run(tiny_recipe(), samples_, shape);
    const std::vector<int64_t> two = {0, 1};
    const auto batch = run.batches->make(two);
    nn::Batch own = engine::own_tokens(*batch, run.engine.device, *run.engine.mesh,
                                       engine::noise_of(*batch, 6));
    nn::Pass pass{.dropout_key = 11};
    const auto hidden_with = [&] {
      return run.engine.units.front()->forward({}, own, pass).at("hidden").cpu().to(at::kDouble);
    };
    const at::NoGradGuard no_gradients;
    const at::Tensor noisy = hidden_with();
    EXPECT_TRUE(at::equal(noisy, hidden_with())) << "the key's alone";
    pass.dropout_key = 12;
    EXPECT_FALSE(at::equal(noisy, hidden_with()));
    pass.dropout_key = 11;
    own.noise = at::Tensor();
    const at::Tensor drawn = noisy - hidden_with();
    if (std::string(shape) != "llama") continue;  // dropout and products come behind
    for (size_t document = 0; document < 2; ++document) {
      const int64_t begin = batch->cu_seqlens[document], end = batch->cu_seqlens[document + 1];
      const at::Tensor rows = drawn.slice(0, begin, end);
      const double bound = 6 / std::sqrt(static_cast<double>(rows.numel()));
      const auto count = static_cast<double>(rows.numel());
      EXPECT_LE(rows.abs().max().item<double>(), bound * 1.0001);
      EXPECT_NEAR(rows.mean().item<double>(), 0, 6 * bound / std::sqrt(3 * count));
      EXPECT_NEAR(rows.square().mean().item<double>(), bound * bound / 3,
                  6 * 0.3 * bound * bound / std::sqrt(count));
    }
  }
}

TEST_F(Training, NoiseIsForTrainingAlone) {
  recipe::Recipe recipe = tiny_recipe();
  TinyRun plain(recipe, samples_);
  recipe.train.neftune_noise_alpha = 5;
  TinyRun noisy(recipe, samples_), again(recipe, samples_);
  const auto held_out = [&](TinyRun& run) { return run.run.evaluate(*run.batches, 4).loss; };
  EXPECT_EQ(held_out(noisy), held_out(plain));
  const std::vector<double> losses = train(noisy, eight_in(4), 5);
  EXPECT_EQ(train(again, eight_in(4), 5), losses);
  EXPECT_NE(losses.front(), train(plain, eight_in(4), 5).front());
  EXPECT_LT(held_out(noisy), losses.front());
  recipe.train.neftune_noise_alpha = 0;
  TinyRun none(recipe, samples_), bare(tiny_recipe(), samples_);
  EXPECT_EQ(train(none, eight_in(4), 2), train(bare, eight_in(4), 2));
  recipe.train.neftune_noise_alpha = 5;
  EXPECT_THROW(TinyRun(recipe, random_samples(8, 40, 5, tests::tiny_model("t5")->reads()), "t5"),
               UserError);
}

TEST_F(Training, AnyCutOfAnswersTrainsTheSame) {
  for (const char* const name : {"dpo", "ipo", "hinge", "cpo", "simpo", "orpo", "kto",
                                 "classification", "reward", "distill"}) {
    SCOPED_TRACE(name);
    recipe::Recipe recipe = tiny_recipe();
    recipe.objective = recipe::objective_defaults(name);
    if (recipe::has_teacher(name)) recipe.objective.top_k = 5;
    const data::SampleStore pairs = tests::random_answers(8, 40, 5, recipe.objective);
    TinyRun whole(recipe, pairs), cut(recipe, pairs);
    recipe.objective.share_prompt = false;
    const data::SampleStore whole_pairs = tests::random_answers(8, 40, 5, recipe.objective);
    TinyRun apart(recipe, whole_pairs);
    if (pairs.documents_per_sample() == 2) {
      EXPECT_LT(pairs.total_tokens(), whole_pairs.total_tokens());
    }
    recipe.data.packing = false;
    TinyRun padded(recipe, pairs);
    // Rewards are far apart after a large step: of gradients that are nearly none AdamW would
    // make steps of their roundings.
    const double lr = recipe.objective.name == recipe::ObjectiveName::Reward ? 1e-3 : 1e-2;
    const std::vector<double> expected = train(whole, eight_in(8), 5, lr);
    EXPECT_LT(expected.back(), expected.front());
    expect_same_losses(expected, train(cut, eight_in(2), 5, lr), 1e-5);
    expect_same_losses(expected, train(padded, eight_in(4), 5, lr), 1e-5);
    expect_same_losses(expected, train(apart, eight_in(4), 5, lr), 1e-5);
    expect_same_weights(whole, cut, 1e-4);
    expect_same_weights(whole, apart, 1e-4);
    expect_same_weights(whole, padded, 1e-4);
  }
}

// Of the same documents, each seen by itself.
TEST_F(Training, BlocksTrainAsTheirDocuments) {
  data::SampleStore blocks = samples_;
  std::vector<int64_t> numbers(8);
  blocks.cut_into_blocks({.length = blocks.total_tokens(), .joins = true}, numbers);
  ASSERT_EQ(blocks.count(), 1);
  TinyRun whole(tiny_recipe(), samples_), joined(tiny_recipe(), blocks);
  const std::vector<double> expected = train(whole, eight_in(8), 5);
  EXPECT_EQ(expected, train(joined, {{0}}, 5));
  expect_same_weights(whole, joined, 0);
}

TEST_F(Training, UnevenMicroBatchesCountByTokens) {
  TinyRun whole(tiny_recipe(), samples_);
  TinyRun uneven(tiny_recipe(), samples_);
  expect_same_losses(train(whole, eight_in(8), 3), train(uneven, {{0}, {1, 2, 3, 4, 5}, {6, 7}}, 3),
                     1e-5);
}

// LitGPT's mean of means differs from the mean over all tokens when lengths differ.
TEST_F(Training, MicroNormalizationIsTheMeanOfMeans) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.loss_normalization = "micro";
  TinyRun micro(recipe, samples_);
  double mean_of_means = 0;
  for (int64_t i = 0; i < 8; ++i) {
    TinyRun one(tiny_recipe(), samples_);
    mean_of_means += one.step({{i}}, 0).loss / 8;
  }
  const double loss = micro.step(eight_in(1), 0).loss;
  EXPECT_NEAR(loss, mean_of_means, 1e-5 * loss);
  TinyRun global(tiny_recipe(), samples_);
  EXPECT_GT(std::abs(global.step(eight_in(1), 0).loss - loss), 1e-4);
}

TEST_F(Training, PackedEqualsPadded) {
  TinyRun packed(tiny_recipe(), samples_);
  recipe::Recipe recipe = tiny_recipe();
  recipe.data.packing = false;
  TinyRun padded(recipe, samples_);
  expect_same_losses(train(packed, eight_in(4), 5), train(padded, eight_in(4), 5), 1e-5);
  expect_same_weights(packed, padded, 1e-4);
}

TEST_F(Training, RepeatsToTheBit) {
  const tests::FixedOrder fixed_order;
  TinyRun a(tiny_recipe(), samples_);
  TinyRun b(tiny_recipe(), samples_);
  train(a, eight_in(4), 4);
  train(b, eight_in(4), 4);
  expect_same_weights(a, b, 0);
}

// What trains: all weights, or adapters beside frozen ones.
struct Trained {
  const char* name;
  void (*set_up)(recipe::Recipe&);
};

constexpr Trained kTrained[] = {
    {"Full32", [](recipe::Recipe& r) { r.precision = "32-true"; }},
    {"Full16", [](recipe::Recipe& r) { r.precision = "bf16-true"; }},
    {"LoraWithDropout",
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.lora = {.enabled = true, .r = 3, .dropout = 0.2, .mlp = true, .head = true};
     }},
    // The first block trains nothing, and has no backward.
    {"LoraOfTheSecondBlock",
     [](recipe::Recipe& r) {
       r.precision = "bf16-mixed";
       r.lora = {.enabled = true, .target_modules = R"(.*layers\.1\..*_proj)", .use_rslora = true};
     }},
    {"LoraWithMasters",
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.optimizer.master_weights = true;
       r.lora = {.enabled = true, .r = 4, .mlp = true};
     }},
    {"Preferences",
     [](recipe::Recipe& r) {
       r.precision = "bf16-mixed";
       r.objective = recipe::objective_defaults("dpo");
       r.objective.sft_weight = 0.2;
       r.lora = {.enabled = true, .r = 4, .mlp = true};
     }},
    {"Ratings",
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.objective = recipe::objective_defaults("kto");
     }},
    {"Distillation",
     [](recipe::Recipe& r) {
       r.precision = "bf16-mixed";
       r.objective = {
           .name = recipe::ObjectiveName::Distill, .beta = 0.5, .sft_weight = 0.2, .top_k = 5};
     }},
    {"Scores",
     [](recipe::Recipe& r) {
       r.precision = "bf16-mixed";
       r.objective = recipe::objective_defaults("classification");
       r.lora = {.enabled = true, .r = 4, .mlp = true};
     }},
    {"QuantizedDora",
     [](recipe::Recipe& r) {
       r.quantize = "bnb.nf4-dq";
       r.lora = {.enabled = true, .target_modules = "all-linear", .use_dora = true};
     }},
};

// Each technique, and each pair, against plain execution: the arithmetic is the same in the same
// order, so the bits are; a GPU's optimizer gives the host's bits on purpose
// (core/kernels/optimizers.h). Two units and a half are enough to have a first, a middle
// and a last one.
class Techniques : public Training, public ::testing::WithParamInterface<Trained> {};

using Pair = std::pair<const Technique*, const Technique*>;

// Each technique beside itself, which is alone, and pairs of two; a sample of those on a GPU.
std::vector<Pair> pairs_of_techniques(uint32_t seed) {
  std::vector<Pair> pairs, of_two;
  for (const Technique& first : kTechniques)
    for (const Technique& second : kTechniques)
      (&first == &second ? pairs : of_two).emplace_back(&first, &second);
  for (const size_t i :
       tests::sample_of(of_two.size(), fmt::format("pairs of two techniques {}", seed)))
    pairs.push_back(of_two[i]);
  return pairs;
}

// Delayed updates change what is learnt; offload_test.cpp looks at them, and recorded_test.cpp at
// graphs, which take more steps.
TEST(TechniquesOfTheTable, AreAllComparedWithPlainExecution) {
  for (const recipe::Technique& traits : recipe::techniques()) {
    const bool is_compared = std::ranges::any_of(kTechniques, [&](const Technique& technique) {
      recipe::Recipe recipe;
      technique.turn_on(recipe);
      return is_on(traits, recipe);
    });
    const bool is_elsewhere =
        traits.key == "delayed_parameter_update" || traits.key == "cuda_graphs";
    EXPECT_EQ(is_compared, !is_elsewhere) << traits.key;
  }
}

// Whether the norm is added up in plain execution's order: not unit by unit in backward, nor on the
// host beside a GPU that adds up in an order of its own.
bool adds_norm_like_plain(const recipe::Recipe& recipe) {
  if (!recipe.train.max_norm) return true;
  const bool on_the_host = recipe.optimizer_offload != "none" && !tests::test_device().is_cpu();
  return !recipe.optimizer_in_backward && !on_the_host;
}

// Otherwise the clipping factor may differ in its last bit. That changes a step of a weight w by
// about 8 * 2^-24 lr, and rounding by 2^-24 w: with lr = 0.01, |w| < 2 and 4 steps 5e-7.
constexpr double kOtherNorm = 1e-6;

TEST_P(Techniques, EveryPairTrainsToTheSameBitsAsPlain) {
  const tests::FixedOrder fixed_order;
  recipe::Recipe base = tiny_recipe();
  GetParam().set_up(base);
  uint32_t seed = static_cast<uint32_t>(std::string(GetParam().name).size());
  for (const std::optional<double> max_norm : {std::optional<double>(), std::optional(0.5)}) {
    base.train.max_norm = max_norm;
    TinyRun plain(base, samples_of(base));
    const std::vector<double> expected = train(plain, eight_in(8), 4);
    for (const auto& [first, second] : pairs_of_techniques(++seed)) {
      SCOPED_TRACE(std::string(first->name) + " and " + second->name +
                   (max_norm ? ", clipped" : ""));
      recipe::Recipe recipe = base;
      first->turn_on(recipe);
      second->turn_on(recipe);
      TinyRun run(recipe, samples_of(recipe));
      run.engine.copies->set_late(true);
      const double tolerance = adds_norm_like_plain(recipe) ? 0 : kOtherNorm;
      expect_same_losses(expected, train(run, eight_in(8), 4), tolerance);
      expect_same_weights(plain, run, tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trained, Techniques, ::testing::ValuesIn(kTrained),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Training, DropoutIsOfTrainingAndTheSeed) {
  const tests::FixedOrder fixed_order;
  recipe::Recipe recipe = tiny_recipe();
  recipe.lora = {.enabled = true, .r = 4, .dropout = 0.5, .mlp = true};
  TinyRun first(recipe, samples_), again(recipe, samples_);
  recipe.seed += 1;
  TinyRun other(recipe, samples_);
  recipe.lora.dropout = 0;
  TinyRun without(recipe, samples_);
  const std::vector<double> losses = train(first, eight_in(8), 4);
  EXPECT_EQ(losses, train(again, eight_in(8), 4));
  EXPECT_NE(losses, train(other, eight_in(8), 4));
  EXPECT_NE(losses, train(without, eight_in(8), 4));
}

TEST_F(Training, TheSeedReachesStochasticRounding) {
  const tests::FixedOrder fixed_order;
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = "bf16-true";
  recipe.optimizer.stochastic_rounding = true;
  TinyRun first(recipe, samples_), again(recipe, samples_);
  recipe.seed += 1;
  TinyRun other(recipe, samples_);
  const std::vector<double> losses = train(first, eight_in(8), 4);
  EXPECT_EQ(losses, train(again, eight_in(8), 4));
  EXPECT_NE(losses, train(other, eight_in(8), 4));
}

// Gradients that leave the device after every micro-batch are added up on the host: one rounding
// more.
TEST_F(Training, TechniquesAccumulateLikePlain) {
  TinyRun plain(tiny_recipe(), samples_);
  const std::vector<double> expected = train(plain, eight_in(2), 4);
  for (const Technique& technique : kTechniques) {
    SCOPED_TRACE(technique.name);
    recipe::Recipe recipe = tiny_recipe();
    technique.turn_on(recipe);
    TinyRun run(recipe, samples_);
    expect_same_losses(expected, train(run, eight_in(2), 4), 1e-6);
    expect_same_weights(plain, run, 1e-5);
  }
}

// Several micro-batches and steps, each technique beside itself with kept copies: one that an
// update left behind would show.
TEST_F(Training, KeptCastsTrainToTheSameBits) {
  const tests::FixedOrder fixed_order;
  const size_t num_techniques = std::size(kTechniques);
  for (const size_t i : tests::sample_of(std::size(kTrained) * num_techniques, "techniques")) {
    const Trained& trained = kTrained[i / num_techniques];
    const Technique& technique = kTechniques[i % num_techniques];
    recipe::Recipe recipe = tiny_recipe();
    trained.set_up(recipe);
    technique.turn_on(recipe);
    if (recipe.weight_streaming) continue;
    SCOPED_TRACE(std::string(trained.name) + ", " + technique.name);
    recipe.precision = "bf16-mixed";
    recipe.cast_cache = false;
    TinyRun plain(recipe, samples_of(recipe));
    recipe.cast_cache = true;
    TinyRun kept(recipe, samples_of(recipe));
    expect_same_losses(train(plain, eight_in(4), 3), train(kept, eight_in(4), 3), 0);
    expect_same_weights(plain, kept, 0);
  }
}

TEST_F(Training, ClippingScalesToTheNorm) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.optimizer = {.name = "sgd", .lr = 1.0, .weight_decay = 0.0};
  recipe.train.max_norm = 0.5;
  TinyRun run(recipe, samples_);
  std::vector<at::Tensor> before;
  for (const auto& parameter : run.engine.parameters) before.push_back(parameter.tensor.clone());
  const double norm = run.step(eight_in(8), 1.0).grad_norm;
  ASSERT_GT(norm, 0.5);
  double moved = 0;
  for (size_t i = 0; i < before.size(); ++i)
    moved += (run.engine.parameters[i].tensor - before[i]).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(moved), 0.5, 1e-3);
}

// To the bit on a cpu, whatever libtorch's own setting of that name would do there. A GPU rounds
// the factors of products to 11 bits.
TEST_F(Training, MatmulPrecisionChangesGpusAlone) {
  TinyRun exact(tiny_recipe(), samples_);
  const std::vector<double> expected = train(exact, eight_in(8), 3);
  for (const char* precision : {"high", "medium", "highest"}) {
    SCOPED_TRACE(precision);
    engine::choose_matmul_precision(tests::test_device(), precision);
    TinyRun run(tiny_recipe(), samples_);
    const bool same = tests::test_device().is_cpu() || std::string(precision) == "highest";
    expect_same_losses(expected, train(run, eight_in(8), 3), same ? 0 : 4 * 0x1p-11);
  }
}

struct PrecisionCase {
  const char* name;
  double epsilon;  // of the type that products read
};

class Precision : public Training, public ::testing::WithParamInterface<PrecisionCase> {};

// A loss near ln(96) = 4.6 from roundings of relative size epsilon, through two blocks.
TEST_P(Precision, FirstLossIsThatOfFloat32) {
  TinyRun exact(tiny_recipe(), samples_);
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = GetParam().name;
  TinyRun rounded(recipe, samples_);
  const double expected = exact.step(eight_in(8), 1e-2).loss;
  EXPECT_NEAR(rounded.step(eight_in(8), 1e-2).loss, expected, 4 * GetParam().epsilon * expected);
}

TEST_P(Precision, Learns) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = GetParam().name;
  TinyRun run(recipe, samples_);
  const std::vector<double> losses = train(run, eight_in(4), 30);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

INSTANTIATE_TEST_SUITE_P(Modes, Precision,
                         ::testing::Values(PrecisionCase{"bf16-true", 1.0 / 256},
                                           PrecisionCase{"16-true", 1.0 / 2048},
                                           PrecisionCase{"bf16-mixed", 1.0 / 256},
                                           PrecisionCase{"16-mixed", 1.0 / 2048}));

TEST_F(Training, OverflowedStepIsSkippedAndTheScaleHalved) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = "16-mixed";
  TinyRun run(recipe, samples_);
  run.run.scaler().restore(1e30, 0);
  const at::Tensor before = run.engine.parameters[0].tensor.clone();
  EXPECT_FALSE(run.step(eight_in(8), 1e-2).updated);
  EXPECT_TRUE(at::equal(run.engine.parameters[0].tensor, before));
  EXPECT_EQ(run.run.scaler().scale(), 5e29);
}

}  // namespace training_test
}  // namespace snug
