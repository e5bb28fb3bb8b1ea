// Every row of the table of techniques is an option, and is refused in the table's words.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/tables/techniques.h"

#include <fmt/format.h>

#include "recipe/check.h"
#include "recipe/options/rows.h"
#include "support.h"

namespace snug::recipe {
namespace {

// A recipe with this technique and what it needs.
Recipe with(const TechniqueTraits& traits) {
  Recipe r;
  r.train.micro_batch_size = r.train.global_batch_size;
  EXPECT_TRUE(turn_on(traits, r)) << key_of(traits);
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
    const TechniqueTraits& traits = techniques()[i];
    EXPECT_EQ(traits_of(static_cast<Technique>(i)).technique, static_cast<Technique>(i));
    const Row* row = find_row(rows, key_of(traits));
    ASSERT_NE(row, nullptr) << key_of(traits);
    EXPECT_EQ(row->theme, "Memory") << row->key;
    EXPECT_EQ(value_of(traits, defaults), traits.values.front()) << row->key << " is on by default";
    for (const std::string_view value : traits.values) {
      const Value text{.kind = Value::Kind::Text, .text = std::string(value)};
      EXPECT_EQ(store(*row, text, *find_row(fallback, row->key)), "") << row->key;
      EXPECT_EQ(value_of(traits, r), value);
      EXPECT_TRUE(traits.value_fault == nullptr || traits.value_fault(r).empty()) << row->key;
    }
    set_value(traits, r, std::string(traits.values.front()));
  }
}

TEST(Techniques, EachCanBeTurnedOnAloneAndOnlyOnce) {
  for (const TechniqueTraits& traits : techniques()) {
    Recipe r = with(traits);
    EXPECT_TRUE(is_on(traits, r)) << key_of(traits);
    EXPECT_EQ(joined(technique_faults(r)), "") << key_of(traits);
    EXPECT_FALSE(turn_on(traits, r)) << key_of(traits);
  }
}

// Every pair: refused in the words of the row that excludes it, by the command line too, or not at
// all.
TEST(Techniques, PairsAreRefusedInTheWordsOfTheTable) {
  int num_refused = 0;
  for (const TechniqueTraits& first : techniques())
    for (const TechniqueTraits& second : techniques()) {
      if (first.technique == second.technique) continue;
      Recipe both = with(first);
      for (const Beside& need : second.needs) turn_on(traits_of(need.other), both);
      set_value(second, both, std::string(second.values.back()));
      std::string words;
      for (const auto* pair : {&first, &second})
        for (const Beside& beside : pair->excludes)
          if (beside.other == (pair == &first ? second : first).technique) words = beside.words;
      const std::string faults = joined(technique_faults(both));
      EXPECT_EQ(can_be_combined(both), words.empty()) << key_of(first) << ", " << key_of(second);
      EXPECT_EQ(faults.empty(), words.empty()) << faults;
      EXPECT_CONTAINS(faults, words);
      EXPECT_CONTAINS(joined(recipe_faults(Command::Plan, both)), words);
      num_refused += !words.empty();
    }
  EXPECT_EQ(num_refused, 24) << "each of twelve pairs, from both sides";
}

TEST(Techniques, WhatATechniqueNeedsIsAskedFor) {
  for (const TechniqueTraits& traits : techniques())
    for (const Beside& need : traits.needs) {
      Recipe r = with(traits);
      const TechniqueTraits& needed = traits_of(need.other);
      set_value(needed, r, std::string(needed.values.front()));
      EXPECT_FALSE(can_be_combined(r)) << key_of(traits);
      EXPECT_CONTAINS(
          joined(recipe_faults(Command::Plan, r)),
          fmt::format("{}; add --{} {}", need.words, key_of(needed), needed.values.back()));
    }
}

}  // namespace
}  // namespace snug::recipe
