// Recipes of other programs' own example folders, with a model of the family that each names,
// shrunk to two or three layers: planned, and trained for two steps; or refused with the reason
// that the guide gives. The recipes are those of tests/data/import/recipes
// (tests/oracles/import_recipes.py).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

struct TheirRecipe {
  std::string path;
  bool trains = false;
  std::string what;  // family or reason
  std::string text;
};

// Each recipe follows a line "# PATH trains FAMILY" or "# PATH refused REASON".
std::vector<TheirRecipe> recipes_of(const std::string& program) {
  static const std::regex kHead("# (\\S+) (trains|refused) (.+)");
  const fs::path file =
      fs::path(SNUG_SOURCE_DIR) / "tests" / "data" / "import" / "recipes" / (program + ".yaml");
  std::istringstream lines(read_file(file));
  std::vector<TheirRecipe> recipes;
  std::smatch head;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, head, kHead))
      recipes.push_back({head[1], head[2] == "trains", head[3], ""});
    else if (!recipes.empty())
      recipes.back().text += line + "\n";
  return recipes;
}

// A folder with a small model of the family, for the tokenizer of tiny_checkpoint() with the ends
// of sequences that recipes name.
fs::path write_model(const fs::path& folder, const std::string& family) {
  const fs::path made = folder / family;
  if (fs::exists(made)) return made;
  fs::create_directories(made);
  json config = json::parse(
      read_file(fs::path(SNUG_SOURCE_DIR) / "tests" / "data" / "parity" / family / "config.json"));
  config["vocab_size"] = 304;
  config["hidden_size"] = 64;  // for ranks up to 64
  config["intermediate_size"] = 128;
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) config.erase(token);
  std::ofstream(made / "config.json") << config;
  fs::copy_file(fs::path(tiny_checkpoint()) / "tokenizer_config.json",
                made / "tokenizer_config.json");
  json tokenizer = json::parse(read_file(fs::path(tiny_checkpoint()) / "tokenizer.json"));
  json mark = tokenizer["added_tokens"][0];
  mark["id"] = 300;
  for (const char* end : {"</s>", "<|endoftext|>", "<|eot_id|>"}) {
    mark["content"] = end;
    tokenizer["added_tokens"].push_back(mark);
    mark["id"] = mark["id"].get<int>() + 1;
  }
  std::ofstream(made / "tokenizer.json") << tokenizer;
  return made;
}

fs::path write_pairs(const fs::path& path) {
  std::ofstream out(path);
  for (int i = 0; i < 64; ++i)
    out << json{{"prompt", "say " + std::to_string(i % 7)},
                {"chosen", std::string(static_cast<size_t>(1 + i % 7), 'a' + i % 3)},
                {"rejected", std::string(static_cast<size_t>(1 + i % 5), 'e')}}
               .dump()
        << "\n";
  return path;
}

fs::path write_ratings(const fs::path& path) {
  std::ofstream out(path);
  for (int i = 0; i < 64; ++i)
    out << json{{"prompt", "say " + std::to_string(i % 7)},
                {"completion", std::string(static_cast<size_t>(1 + i % 7), 'a' + i % 3)},
                {"label", i % 3 > 0}}
               .dump()
        << "\n";
  return path;
}

class TheirRecipes : public ::testing::TestWithParam<std::string> {
 protected:
  Words words(const std::string& command, const TheirRecipe& recipe, Words more) {
    const fs::path file = folder_ / "recipe.yaml";
    std::ofstream(file) << recipe.text;
    const fs::path model = write_model(folder_ / "models", recipe.what);
    Words all{command, file, "--model.config", model / "config.json", "--checkpoint_dir", model};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void expect_plan(const TheirRecipe& recipe) {
    const Result result = run(words("plan", recipe, {"--device", "a100-80", "--json"}));
    ASSERT_EQ(result.exit_code, 0) << recipe.path << "\n" << result.output;
    const json plan = json::parse(result.output.substr(result.output.find('{')));
    EXPECT_GT(plan["model"]["trained"], 0) << recipe.path;
  }

  void expect_training(const TheirRecipe& recipe) {
    const fs::path out = folder_ / "out";
    fs::remove_all(out);
    // How axolotl, LLaMA-Factory and torchtune say it.
    static const std::regex kPreferences("(rl|stage): (dpo|rm)\\b|DPOLoss"),
        kRatings("(rl|stage): kto\\b");
    const fs::path& rows = std::regex_search(recipe.text, kPreferences) ? pairs_
                           : std::regex_search(recipe.text, kRatings)   ? ratings_
                                                                        : rows_;
    const Result result = run(words("finetune", recipe,
                                    {"--data", rows, "--data.prompt_style", "plain",
                                     "--train.max_steps", "2", "--train.max_seq_length", "64",
                                     "--accelerator", "cpu", "--devices", "1", "--out_dir", out}));
    ASSERT_EQ(result.exit_code, 0) << recipe.path << "\n" << result.output;
    const std::vector<double> seen = losses(read_run(out));
    ASSERT_EQ(seen.size(), 2U) << recipe.path;
    for (const double loss : seen)
      EXPECT_TRUE(loss > 0 && loss < 20) << recipe.path << ": " << loss;
  }

  void expect_refusal(const TheirRecipe& recipe) {
    const fs::path file = folder_ / "recipe.yaml";
    std::ofstream(file) << recipe.text;
    const Result result = run({"plan", file});
    EXPECT_EQ(result.exit_code, 2) << recipe.path << "\n" << result.output;
    EXPECT_NE(result.output.find(recipe.what), std::string::npos) << recipe.path << "\n"
                                                                  << result.output;
  }

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 64);
  const fs::path pairs_ = write_pairs(folder_ / "pairs.jsonl");
  const fs::path ratings_ = write_ratings(folder_ / "ratings.jsonl");
};

TEST_P(TheirRecipes, PlanAndTrainOrSayWhyNot) {
  int trained = 0, refused = 0;
  for (const TheirRecipe& recipe : recipes_of(GetParam()))
    if (recipe.trains) {
      expect_plan(recipe);
      expect_training(recipe);
      ++trained;
    } else {
      expect_refusal(recipe);
      ++refused;
    }
  RecordProperty("trained", trained);
  RecordProperty("refused", refused);
  EXPECT_GE(trained, 10);
  EXPECT_GE(refused, 2);
}

INSTANTIATE_TEST_SUITE_P(Programs, TheirRecipes,
                         ::testing::Values("axolotl", "llama_factory", "torchtune"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace snug::tests
