// The table of techniques, as the search for a fit and the engine have it.
// SPDX-License-Identifier: Apache-2.0
#include "plan/search_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "plan/candidate.h"
#include "plan/predict.h"
#include "support/tiny_training.h"

namespace snug::plan {
namespace {

using recipe::Technique;

bool excludes(const Technique& a, const Technique& b) {
  return std::ranges::any_of(a.excludes, [&](const recipe::Beside& x) { return x.other == b.key; });
}

// Values, and pairs of them, that nothing refuses; not of what the table leaves to the user.
TEST(TechniquesTried, AreAllThatTheTableAllows) {
  recipe::Recipe r;
  r.fit_delay = true;
  const std::vector<Setting> all = Techniques(r, /*on_gpu=*/true, /*has_experts=*/true).all();
  const auto is_tried = [&](const auto&... values) {
    return std::ranges::any_of(all, [&](const Setting& setting) {
      return (... && (setting[values.first] == values.second));
    });
  };
  const auto is_left_out = [&](const Technique& traits) {
    return traits.may_try != nullptr && !traits.may_try(r);
  };
  for (const Technique& first : recipe::techniques())
    for (const std::string_view value : first.values) {
      if (is_left_out(first)) continue;
      EXPECT_TRUE(is_tried(std::pair(first.key, value))) << first.key << " " << value;
      for (const Technique& second : recipe::techniques()) {
        if (first.key == second.key || value == first.values.front()) continue;
        if (is_left_out(second)) continue;
        EXPECT_EQ(
            is_tried(std::pair(first.key, value), std::pair(second.key, second.values.back())),
            !excludes(first, second) && !excludes(second, first))
            << first.key << ", " << second.key;
      }
    }
  for (const Setting& setting : all)
    EXPECT_TRUE(recipe::can_be_combined(Techniques::applied(r, setting)));
}

// What fits not even with the last one fits with none: the search asks that first.
TEST(TechniquesTried, EndWithTheLeanest) {
  recipe::Recipe r;
  r.fit_delay = true;
  for (const recipe::Precision precision :
       {recipe::Precision::MixedBFloat16, recipe::Precision::BFloat16}) {
    r.precision = precision;
    const Techniques techniques(r, /*on_gpu=*/true, /*has_experts=*/true);
    const Setting last = techniques.all().back();
    EXPECT_EQ(last, techniques.few().back());
    for (const Technique& traits : recipe::techniques())
      EXPECT_EQ(last.is_on(traits.key), !traits.takes_memory()) << traits.key;
  }
}

TEST(TechniquesTried, AreWhatTheRecipeLeavesOpen) {
  recipe::Recipe r;
  for (const Technique& given : recipe::techniques()) {
    recipe::Recipe with;
    turn_on(given, with);
    for (const recipe::Beside& need : given.needs) with.given_keys.insert(std::string(need.other));
    with.given_keys.insert(std::string(given.key));
    const std::vector<Setting> all = Techniques(with, true, true).all();
    EXPECT_FALSE(all.empty()) << given.key;
    for (const Setting& setting : all)
      EXPECT_EQ(setting[given.key], value_of(given, with)) << given.key;
  }
  const std::string_view delayed = "delayed_parameter_update";
  for (const Setting& setting : Techniques(r, true, true).all())
    EXPECT_FALSE(setting.is_on(delayed));
  r.fit_delay = true;
  for (const Setting& setting : Techniques(r, false, true).all())
    EXPECT_FALSE(setting.is_on(delayed));
}

// A row that nothing in the engine acts on would plan as if it were off. One short sample, so that
// gradients are most of the memory.
TEST(TechniquesTried, EachChangesWhatTheEngineDoes) {
  memory::install_allocators();
  const auto dense = tests::tiny_model(), mixture = tests::tiny_model("qwen3-moe");
  const data::SampleStore samples = tests::random_samples(8, 4, 5);
  const auto planned = [&](const models::Model& model, const recipe::Recipe& r) {
    const Prediction p =
        predict(model, r, largest_micro_batch({.samples = samples, .max_seqlen = 4}, r, 1), 40,
                {.device = at::kCUDA});
    return std::tuple(p.peak_allocated, p.after_forward, p.peak_host, p.host_waits);
  };
  for (const Technique& traits : recipe::techniques()) {
    recipe::Recipe without = tests::tiny_recipe();
    without.precision = "bf16-mixed";
    without.train.micro_batch_size = without.train.global_batch_size = 1;
    for (const recipe::Beside& need : traits.needs)
      turn_on(recipe::technique_of(need.other), without);
    recipe::Recipe with = without;
    ASSERT_TRUE(turn_on(traits, with)) << traits.key;
    const models::Model& model = traits.for_experts ? *mixture : *dense;
    EXPECT_NE(planned(model, with), planned(model, without)) << traits.key;
  }
}

}  // namespace
}  // namespace snug::plan
