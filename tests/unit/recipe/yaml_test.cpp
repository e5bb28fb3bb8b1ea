// Recipes that are damaged or mean harm: one clear error with the line, nothing worse.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/yaml.h"

#include <random>

#include "support.h"

namespace snug::recipe {
namespace {

std::string yaml_error(const std::string& text) {
  return error_of([&] { read_yaml(text, "recipe.yaml"); });
}

TEST(Yaml, TreeWithLines) {
  const YamlNode tree = read_yaml("a: 1\nb:\n  c: \"null\"\n  d: [x, 2]\ne:\n", "recipe.yaml");
  ASSERT_EQ(tree.entries.size(), 3u);
  EXPECT_EQ(tree.entries[0].second.text, "1");
  const YamlNode& b = tree.entries[1].second;
  EXPECT_EQ(b.line, 2);
  EXPECT_EQ(b.entries[0].second.text, "null");
  EXPECT_TRUE(b.entries[0].second.quoted);
  EXPECT_EQ(b.entries[1].second.items[1].text, "2");
  EXPECT_EQ(b.entries[1].second.line, 4);
  EXPECT_EQ(tree.entries[2].second.kind, YamlNode::Kind::Null);
  EXPECT_EQ(tree.entries[2].second.line, 5);
}

TEST(Yaml, DuplicateKeysNameBothLines) {
  const std::string message = yaml_error("a: 1\ntrain:\n  x: 1\n  y: 2\n  x: 3\n");
  EXPECT_CONTAINS(message, "recipe.yaml:5: key x is given twice (first in line 3)");
}

TEST(Yaml, TabsAreNamed) {
  EXPECT_CONTAINS(yaml_error("train:\n\tepochs: 1\n"),
                  "recipe.yaml:2: this line is indented with a tab");
}

TEST(Yaml, AnchorsAndAliasesAreRefused) {
  EXPECT_CONTAINS(yaml_error("a: &x 1\nb: *x\n"), "recipe.yaml:1: anchors and aliases");
  EXPECT_CONTAINS(yaml_error("a: &x [*x]\n"), "anchors and aliases");
  std::string bomb = "a0: &a0 [l, l, l, l, l, l, l, l, l]\n";
  for (int i = 1; i < 30; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int k = 0; k < 9; ++k) bomb += fmt::format("{}*a{}", k ? ", " : "", i - 1);
    bomb += "]\n";
  }
  EXPECT_CONTAINS(yaml_error(bomb), "anchors and aliases");
}

TEST(Yaml, DeepNestingIsRefused) {
  EXPECT_CONTAINS(yaml_error("a: " + std::string(5000, '[')), "recipe.yaml:1: ");
  EXPECT_CONTAINS(yaml_error("a: " + std::string(5000, '{')), "recipe.yaml:1: ");
  std::string steps;
  for (int i = 0; i < 400; ++i) steps += std::string(static_cast<size_t>(i), ' ') + "k:\n";
  EXPECT_CONTAINS(yaml_error(steps), "nested more than 16 deep");
}

TEST(Yaml, BytesThatAreNoText) {
  EXPECT_CONTAINS(yaml_error("a: 1\nb: \xff\xfe\n"), "recipe.yaml:2: byte 8 is not UTF-8");
  EXPECT_CONTAINS(yaml_error(std::string("a: \0b", 5)), "control character 0x00");
  EXPECT_CONTAINS(yaml_error("\x7f"
                             "ELF\x01\x02"),
                  "control character 0x01");
}

TEST(Yaml, BrokenSyntaxNamesTheLine) {
  EXPECT_CONTAINS(yaml_error("a: 1\nb: [1, 2\n"), "recipe.yaml:");
  EXPECT_CONTAINS(yaml_error("a: \"open\n"), "not valid YAML");
  EXPECT_CONTAINS(yaml_error("a: 1\n: 2\n"), "recipe.yaml:2: ");
  EXPECT_CONTAINS(yaml_error("? [a]\n: 2\n"), "found a list or mapping instead of a key");
  EXPECT_CONTAINS(yaml_error("a: 1\n---\nb: 2\n"), "recipe.yaml:3: a second document begins here");
  EXPECT_CONTAINS(yaml_error("a: 'open\nb: 1\n"), "a quote is never closed");
  EXPECT_CONTAINS(yaml_error("a: !!python/object/apply:os.system [ls]\n"), "the tag");
}

// yaml-cpp notices them a line late, and says what its scanner expected.
TEST(Yaml, CommonSlipsAreExplained) {
  EXPECT_CONTAINS(yaml_error("a:\n  b:2\n  c: 3\n"), "line 2 is \"b:2\": write a space behind b:");
  EXPECT_CONTAINS(yaml_error("a: 1\nb = 2\nc: 3\n"),
                  "line 2 is \"b = 2\": write b: in place of b =");
  EXPECT_CONTAINS(yaml_error("a: 1\nb\nc: 3\n"), "line 2 is \"b\": write a colon behind b");
  EXPECT_CONTAINS(yaml_error("a: 1\nb 2\nc: 3\n"), "line 2 is \"b 2\": write a colon behind b");
  EXPECT_CONTAINS(yaml_error("a:\n  b: 1\n c: 2\n"), "begin at the same column");
  EXPECT_CONTAINS(yaml_error("a: 1\rb: 2\r"), "carriage returns alone");
  yaml_error(":\n");
  yaml_error("-\n:");
}

// Any bytes at all end in a tree or a UserError.
TEST(Yaml, RandomDamageNeverCrashes) {
  const std::string whole =
      "checkpoint_dir: x\ntrain:\n  epochs: 1\n  max_steps:\noptimizer:\n  class_path: a\n  "
      "init_args:\n"
      "    betas: [0.9, 0.95]\n    lr: \"2e-5\"\n# comment\ndata: {class_path: JSON}\n";
  const std::string letters = ":-[]{}#&*!|>'\"%@`,? \n\t\\ax0\xc3";
  std::mt19937 random(11);
  int trees = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = whole;
    for (unsigned i = random() % 4 + 1; i > 0; --i)
      text[random() % text.size()] = letters[random() % letters.size()];
    if (random() % 3 == 0) text.resize(random() % text.size());
    try {
      read_yaml(text, "recipe.yaml");
      ++trees;
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(trees, 0);
}

}  // namespace
}  // namespace snug::recipe
