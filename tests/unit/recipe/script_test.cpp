// Scripts that are edited in a dictionary and run: read as data.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <random>

#include "base/files.h"
#include "recipe/import/script.h"
#include "recipe/print.h"
#include "support.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;

// The keys of a recipe of recipes/blip2 above its `data`, which are those of the original scripts,
// as Python writes them.
std::string script_of(const fs::path& recipe) {
  std::istringstream lines(read_file(recipe, size_t{1} << 20));
  std::string script = "import torch\n\ncfg = {  # edit here\n";
  for (std::string line; std::getline(lines, line) && line != "data:";) {
    line = line.substr(0, line.find("  #"));
    const size_t colon = line.find(": ");
    const std::string key = line.substr(0, colon);
    if (line.starts_with("#") || key == "out_dir" || key == "full" || key == "lora_target_modules")
      continue;
    std::string value = line.substr(colon + 2);
    if (value == "true" || value == "false")
      value[0] = static_cast<char>(std::toupper(value[0]));
    else if (value.find_first_not_of("0123456789.e+-") != std::string::npos)
      value = "'" + value.substr(value.starts_with("checkpoints/") ? 12 : 0) + "'";
    script += fmt::format("    \"{}\": {},  # {}\n", key, value, value);
  }
  return script + "}\n\ndef main():\n    model = cfg[\"model_name\"]\n";
}

TEST(Scripts, OfTheCourseAreItsRecipes) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SNUG_SOURCE_DIR) / "recipes/blip2")) {
    SCOPED_TRACE(entry.path().string());
    const bool adapts = entry.path().filename().string().starts_with("bp");
    const Command command = adapts ? Command::FinetuneLora : Command::FinetuneFull;
    Recipe wanted = recipe_of_file(entry.path(), {}, command);
    const TemporaryFile script(script_of(entry.path()), "fine-tune-blip.py");
    Recipe found = recipe_of_file(script.path(), {}, command);
    found.out_dir = wanted.out_dir;
    EXPECT_EQ(print_recipe_yaml(found), print_recipe_yaml(wanted)) << read_file(script.path());
    ++count;
  }
  EXPECT_EQ(count, 18);
}

TEST(Scripts, GiveTheirLiterals) {
  const YamlNode tree = read_script(
      "x = {}\nCONFIG: dict = {\n  'a': 'it\\'s', \"b\": (0.9, 0.95,), # two\n  'c': {'d': None},\n"
      "  'e': -1, 'f': 1_000, 'g': 5e-6,\n  'h': 'one '\n       'text', 'i': "
      "[],\n}\nprint(CONFIG)\n",
      "x.py");
  const auto& entries = tree.entries;
  ASSERT_EQ(entries.size(), 8U);
  EXPECT_EQ(entries[0].second.text, "it's");
  EXPECT_TRUE(entries[0].second.quoted);
  ASSERT_EQ(entries[1].second.items.size(), 2U);
  EXPECT_EQ(entries[1].second.items[1].text, "0.95");
  EXPECT_EQ(entries[2].second.entries[0].second.kind, YamlNode::Kind::Null);
  EXPECT_EQ(entries[3].second.text, "-1");
  EXPECT_EQ(entries[4].second.text, "1000");
  EXPECT_EQ(entries[5].second.text, "5e-6");
  EXPECT_EQ(entries[6].second.text, "one text");
  EXPECT_TRUE(entries[7].second.items.empty());
  EXPECT_EQ(entries[2].second.line, 4);
}

TEST(Scripts, AreNeverExecuted) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { read_script(text, "x.py"); });
  };
  EXPECT_CONTAINS(refusal("print(1)\n"), "x.py: no line begins with cfg = {");
  EXPECT_CONTAINS(refusal("cfg = {\n 'lr': 2 * 5e-6}"), "x.py:2: lr is computed; write its value");
  EXPECT_CONTAINS(refusal("cfg = {'lr': rate}"), "x.py:1: rate is no text, number");
  EXPECT_CONTAINS(refusal("cfg = {'a': f'x'}"), "f is no text");
  EXPECT_CONTAINS(refusal("cfg = {'a': 1, 'a': 2}"), "key a is given twice");
  EXPECT_CONTAINS(refusal("cfg = {'a': 1"), "does not end");
  EXPECT_CONTAINS(refusal("cfg = {'a': '''x\ny'''}"), "several lines");
  EXPECT_CONTAINS(refusal("cfg = {'a': 1}\ncfg['a'] = 2\n"),
                  "x.py:2: cfg is changed behind its dictionary");
  EXPECT_CONTAINS(refusal("cfg = " + std::string(100, '{')), "nested more than 16 deep");
  EXPECT_CONTAINS(refusal("cfg = {'a': " + std::string(100, '[')), "nested more than 16 deep");
}

TEST(Scripts, AreTheirDictionaryAlone) {
  const auto changed = [](const std::string& rest) {
    return error_of([&] { read_script("cfg = {'a': 1}" + rest, "x.py"); });
  };
  for (const char* rest :
       {" | {'a': 2}\n", "\ndef main():\n    cfg['a'] = 2\n", "\ncfg[\"a\"] *= 2\n",
        "\n  cfg.update(a=2)\n", "\ncfg |= {'a': 2}\n", "\ncfg = load()\n", "\ncfg.pop('a')\n"})
    EXPECT_CONTAINS(changed(rest), "cfg is changed behind its dictionary");
  const YamlNode tree = read_script(
      "config = {  \n 'a': ('x' \"y\"), 'b': (5e-6), 'c': (1,), 'd': 'q\\'\\\\',\n}  # end\n"
      "print(config['a'])\nif config['b'] == 3: pass\nconfig['f'](x=1)\nconfigs = {}\n"
      "x = config['a']\n",
      "x.py");
  EXPECT_EQ(tree.entries[0].second.text, "xy");
  EXPECT_EQ(tree.entries[1].second.text, "5e-6");
  EXPECT_EQ(tree.entries[2].second.kind, YamlNode::Kind::List);
  EXPECT_EQ(tree.entries[3].second.text, "q'\\");
  EXPECT_CONTAINS(error_of([] { read_script("cfg = {'a': 'C:\\new'}", "x.py"); }),
                  "\\n in a text is another character");
}

// The same pasted into another kind of file.
TEST(Scripts, MayBeTextOrYaml) {
  const std::string dictionary =
      "{\"model_name\": \"m\", \"lr\": 5e-6, 'act_ckpt': True, \"max_steps\": 7}\n";
  for (const auto& [text, name] :
       {std::pair("cfg = " + dictionary, "cfg.txt"), std::pair("cfg = " + dictionary, "cfg.py"),
        std::pair(dictionary, "cfg.yaml")}) {
    const Recipe recipe = recipe_of_file(TemporaryFile(text, name).path());
    EXPECT_EQ(recipe.optimizer.lr, 5e-6) << name;
    EXPECT_EQ(recipe.activation_checkpointing, "all") << name;
    EXPECT_EQ(recipe.train.max_steps, 7) << name;
  }
}

// Whatever is in it: a tree, or an error that says where.
TEST(Scripts, NoneIsTooStrange) {
  std::mt19937 random(4);
  const std::string whole =
      script_of(fs::path(SNUG_SOURCE_DIR) / "recipes/blip2/bs01-baseline.yaml");
  constexpr std::string_view kStrange = "{}[](),:'\"#\\\n =xT0-";
  for (int trial = 0; trial < 3000; ++trial) {
    std::string script = whole;
    for (int change = 0; change <= trial % 4; ++change) {
      const size_t at = random() % script.size();
      if (random() % 2 == 0)
        script[at] = kStrange[random() % kStrange.size()];
      else
        script.erase(at, 1 + random() % 40);
    }
    try {
      EXPECT_EQ(read_script(script, "x.py").kind, YamlNode::Kind::Map);
    } catch (const UserError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("x.py")) << error.what();
    }
  }
}

}  // namespace
}  // namespace snug::recipe
