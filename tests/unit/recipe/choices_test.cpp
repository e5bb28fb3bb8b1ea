// Words and the enums behind them, and the table of optimizers, which is in the enum's order.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/tables/choices.h"

#include <set>

#include "recipe/tables/optimizers.h"
#include "support.h"

namespace snug::recipe {
namespace {

TEST(Choices, AWordIsATextThatComparesWithItsEnum) {
  Recipe r;
  EXPECT_EQ(r.precision, "bf16-mixed");
  EXPECT_EQ(r.precision, Precision::MixedBFloat16);
  r.precision = "16-true";
  EXPECT_EQ(r.precision.value(), Precision::Float16);
  EXPECT_TRUE(r.has_16_bit_weights());
  r.precision = Precision::Float32;
  EXPECT_EQ(r.precision, "32-true");
  EXPECT_EQ(r.quantize.value(), Quantize::None);
  r.strategy = "megatron";
  EXPECT_CONTAINS(error_of([&] { r.strategy.value(); }),
                  "\"megatron\" is not one of auto, ddp, zero1, zero2, fsdp, hybrid");
}

TEST(Choices, OptimizersAreInTheOrderOfTheirNames) {
  std::set<std::string_view> spellings;
  for (size_t i = 0; i < kWords<OptimizerName>.size(); ++i) {
    const auto name = static_cast<OptimizerName>(i);
    const OptimizerTraits& traits = optimizer_traits(name);
    EXPECT_EQ(traits.defaults.name, name);
    EXPECT_EQ(normalise_optimizer(word_of(name)), word_of(name));
    EXPECT_EQ(optimizer_defaults(word_of(name)), traits.defaults);
    for (const std::string_view spelling : traits.spellings)
      EXPECT_TRUE(spellings.insert(spelling).second) << spelling << " means two optimizers";
  }
}

// What stands for another one is gone once a recipe is resolved.
TEST(Choices, OtherProgramsNamesBecomeOneOfOurs) {
  for (const std::string_view word : kWords<OptimizerName>) {
    Recipe r;
    r.optimizer = optimizer_defaults(word);
    resolve_optimizer(r);
    const OptimizerTraits& traits = optimizer_traits(r.optimizer.name.value());
    EXPECT_FALSE(traits.stands_for) << word;
    if (const auto smaller = traits.with_smaller_states) {
      EXPECT_FALSE(optimizer_traits(*smaller).stands_for) << word;
      for (const std::string_view argument : optimizer_traits(*smaller).arguments)
        EXPECT_TRUE(optimizer_takes(word_of(traits.defaults.name.value()), argument)) << argument;
    }
  }
}

}  // namespace
}  // namespace snug::recipe
