// Every technique is an option, and is refused in its own words.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/technique.h"

#include <fmt/format.h>

#include "recipe/check.h"
#include "recipe/options/rows.h"
#include "support.h"

namespace snug::recipe {
namespace {

// A recipe with this technique and what it needs.
Recipe with(const Technique& traits) {
  Recipe r;
  r.train.micro_batch_size = r.train.global_batch_size;
  EXPECT_TRUE(turn_on(traits, r)) << traits.key;
  return r;
}

std::string joined(const std::vector<std::string>& faults) {
  std::string all;
  for (const std::string& fault : faults) all += fault + "\n";
  return all;
}

TEST(Techniques, EachIsAnOptionThatTakesItsValues) {
  Recipe r, defaults;
  const std::vector<Row> rows = recipe_rows(r), fallback = recipe_rows(defaults);
  for (size_t i = 0; i < techniques().size(); ++i) {
    const Technique& traits = techniques()[i];
    EXPECT_EQ(&technique_of(traits.key), &traits);
    EXPECT_EQ(traits.option(r).key, traits.key);
    const Row* row = find_row(rows, traits.key);
    ASSERT_NE(row, nullptr) << traits.key;
    EXPECT_EQ(row->theme, "Memory") << row->key;
    EXPECT_EQ(value_of(traits, defaults), traits.values.front()) << row->key << " is on by default";
    for (const std::string_view value : traits.values) {
      const Value text{.kind = Value::Kind::Text, .text = std::string(value)};
      EXPECT_EQ(store(*row, text, *find_row(fallback, row->key)), "") << row->key;
      EXPECT_EQ(value_of(traits, r), value);
      std::vector<std::string> faults;
      if (traits.add_faults != nullptr) traits.add_faults(r, faults);
      EXPECT_EQ(joined(faults), "") << row->key;
    }
    set_value(traits, r, std::string(traits.values.front()));
  }
}

TEST(Techniques, EachCanBeTurnedOnAloneAndOnlyOnce) {
  for (const Technique& traits : techniques()) {
    Recipe r = with(traits);
    EXPECT_TRUE(is_on(traits, r)) << traits.key;
    EXPECT_EQ(joined(technique_faults(r)), "") << traits.key;
    EXPECT_FALSE(turn_on(traits, r)) << traits.key;
  }
}

// Every pair: refused in the words of the row that excludes it, by the command line too, or not at
// all.
TEST(Techniques, PairsAreRefusedInTheWordsOfTheTable) {
  int num_refused = 0;
  for (const Technique& first : techniques())
    for (const Technique& second : techniques()) {
      if (first.key == second.key) continue;
      Recipe both = with(first);
      for (const Beside& need : second.needs) turn_on(technique_of(need.other), both);
      set_value(second, both, std::string(second.values.back()));
      std::string words;
      for (const auto* pair : {&first, &second})
        for (const Beside& beside : pair->excludes)
          if (beside.other == (pair == &first ? second : first).key) words = beside.words;
      const std::string faults = joined(technique_faults(both));
      EXPECT_EQ(can_be_combined(both), words.empty()) << first.key << ", " << second.key;
      EXPECT_EQ(faults.empty(), words.empty()) << faults;
      EXPECT_CONTAINS(faults, words);
      EXPECT_CONTAINS(joined(recipe_faults(Command::Plan, both)), words);
      num_refused += !words.empty();
    }
  EXPECT_EQ(num_refused, 24) << "each of twelve pairs, from both sides";
}

TEST(Techniques, WhatATechniqueNeedsIsAskedFor) {
  for (const Technique& traits : techniques())
    for (const Beside& need : traits.needs) {
      Recipe r = with(traits);
      const Technique& needed = technique_of(need.other);
      set_value(needed, r, std::string(needed.values.front()));
      EXPECT_FALSE(can_be_combined(r)) << traits.key;
      EXPECT_CONTAINS(joined(recipe_faults(Command::Plan, r)),
                      fmt::format("{}; add --{} {}", need.words, needed.key, needed.values.back()));
    }
}

}  // namespace
}  // namespace snug::recipe
