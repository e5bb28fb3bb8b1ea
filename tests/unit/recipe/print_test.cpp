// parse(print(recipe)) == recipe, for recipes drawn at random through the option tables.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/print.h"

#include <random>

#include "recipe/options/rows.h"
#include "recipe/tables/objectives.h"
#include "recipe/tables/optimizers.h"
#include "support.h"

namespace snug::recipe {
namespace {

class RandomRecipe {
 public:
  explicit RandomRecipe(uint64_t seed) : random_(seed) {}

  Recipe draw(Command command) {
    Recipe recipe;
    recipe.full = command == Command::FinetuneFull || one_in(2);
    recipe.lora.enabled = !recipe.full;
    for (Row& row : recipe_rows(recipe))
      if (row.key != "full") fill(row);
    // A resolved recipe names no optimizer that says more than its arithmetic.
    std::string& name = recipe.optimizer.name;
    if (name.starts_with("paged_")) name.erase(0, 6);
    if (name == "adam_8bit") name = "adamw_8bit";
    if (name == "deepspeed_cpu") name = "adamw";
    // Another optimizer's arguments are never printed; the class's own defaults stand there.
    const OptimizerOptions defaults = optimizer_defaults(recipe.optimizer.name);
    OptimizerOptions& o = recipe.optimizer;
    if (!optimizer_takes(o.name, "betas")) o.beta1 = defaults.beta1, o.beta2 = defaults.beta2;
    if (!optimizer_takes(o.name, "eps")) o.eps = defaults.eps;
    if (!optimizer_takes(o.name, "momentum"))
      o.momentum = defaults.momentum, o.nesterov = defaults.nesterov;
    if (!optimizer_takes(o.name, "state_dtype")) o.state_dtype = defaults.state_dtype;
    if (!optimizer_takes(o.name, "master_weights")) o.master_weights = defaults.master_weights;
    if (!optimizer_takes(o.name, "stochastic_rounding"))
      o.stochastic_rounding = defaults.stochastic_rounding;
    // Another objective's neither.
    const ObjectiveOptions objective = objective_defaults(recipe.objective.name);
    ObjectiveOptions& own = recipe.objective;
    if (!objective_takes(own.name, "beta")) own.beta = objective.beta;
    if (!objective_takes(own.name, "gamma")) own.gamma = objective.gamma;
    if (!objective_takes(own.name, "label_smoothing"))
      own.label_smoothing = objective.label_smoothing;
    if (!objective_takes(own.name, "sft_weight")) own.sft_weight = objective.sft_weight;
    if (!objective_takes(own.name, "length_normalized"))
      own.length_normalized = objective.length_normalized;
    if (!objective_takes(own.name, "share_prompt")) own.share_prompt = objective.share_prompt;
    if (!objective_takes(own.name, "desirable_weight")) {
      own.desirable_weight = objective.desirable_weight;
      own.undesirable_weight = objective.undesirable_weight;
    }
    if (!objective_takes(own.name, "reference")) own.reference = objective.reference;
    if (!objective_takes(own.name, "teacher")) {
      own.teacher = objective.teacher;
      own.top_k = objective.top_k;
    }
    if (!objective_takes(own.name, "center_rewards_coefficient"))
      own.center_rewards_coefficient = objective.center_rewards_coefficient;
    // A list of sources is of a class of its own.
    recipe.data.sources = one_in(2) ? "" : R"(["a.jsonl",{"file":"b c.jsonl","weight":2.5}])";
    if (!recipe.data.sources.empty()) recipe.data.class_path = "Mix";
    // Resolving lowers it to lr.
    recipe.train.min_lr = std::min(recipe.train.min_lr, o.lr);
    if (recipe.quantize.empty()) recipe.quantize = "bnb.fp4";
    return recipe;
  }

 private:
  bool one_in(unsigned n) { return random_() % n == 0; }

  void fill(Row& row) {
    std::visit([&](auto slot) { fill_slot(row, slot); }, row.slot);
  }
  void fill_slot(const Row&, bool* slot) { *slot = one_in(2); }
  void fill_slot(const Row& row, int64_t* slot) {
    const double low = std::max(row.min, -1e15), high = std::min(row.max, 1e15);
    *slot = static_cast<int64_t>(low + (high - low) * share());
  }
  void fill_slot(const Row&, uint64_t* slot) { *slot = random_(); }
  void fill_slot(const Row& row, double* slot) {
    *slot = row.min + share() * (std::min(row.max, 1e3) - row.min) * (one_in(2) ? 1 : 1e-9);
  }
  void fill_slot(const Row& row, std::string* slot) {
    if (row.kind == TextKind::Bytes) {
      *slot = "512MiB";
    } else if (!row.choices.empty()) {
      *slot = row.choices[random_() % row.choices.size()];
    } else if (!row.secret) {
      *slot = word();
    }
  }
  void fill_slot(const Row& row, ListSlot slot) {
    slot->clear();
    for (std::string word; slot->size() < 2; slot->push_back(word)) fill_slot(row, &word);
  }
  template <class T>
  void fill_slot(const Row& row, std::optional<T>* slot) {
    slot->reset();
    if (one_in(3)) return;
    T value{};
    fill_slot(row, &value);
    *slot = value;
  }
  void fill_slot(const Row& row, PairSlot slot) {
    fill_slot(row, slot.first);
    fill_slot(row, slot.second);
  }

  double share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  // Texts that a careless printer would write so that they read back as something else.
  std::string word() {
    static const std::vector<std::string> kWords = {
        "a/b/c",     "null",        "~",          "true",
        "1e5",       "0x1F",        "a: b",       "# no comment",
        "- item",    "\"quoted\"",  "it's",       "tab\there",
        "new\nline", "back\\slash", "{x}",        "[y]",
        "*a",        "&b",          "!c",         "%d",
        "@e",        " space ",     "größe/模型", "a #b",
        "x:",        "\x01\x7f",    "012",        "1_000",
        "y",         ".",           "-",          "?",
        "|",         ">",           "C:\\dir",    "none"};
    return kWords[random_() % kWords.size()];
  }

  std::mt19937_64 random_;
};

TEST(Print, TheCommandCanBePastedAndKeepsSecrets) {
  const auto print = [](const std::vector<std::string>& words) { return print_command(words); };
  EXPECT_EQ(print({"finetune_full", "a b", "--train.max_steps", "2"}),
            "snug finetune_full 'a b' --train.max_steps 2");
  EXPECT_EQ(print({"download", "a/b", "--access-token", "hf_x", "--verbose"}),
            "snug download a/b --access-token *** --verbose");
  EXPECT_EQ(print({"download", "--access_token=hf_x", "a/b"}),
            "snug download --access_token=*** a/b");
}

TEST(Print, ReadsBackToTheSameRecipe) {
  const uint64_t seed = std::random_device()();
  RandomRecipe recipes(seed);
  for (int round = 0; round < 300; ++round) {
    const Command command = round % 2 ? Command::FinetuneFull : Command::FinetuneLora;
    const Recipe recipe = recipes.draw(command);
    const std::string text = print_recipe_yaml(recipe);
    const Recipe again = recipe_from(text, {}, command);
    ASSERT_TRUE(same_values(again, recipe)) << "seed " << seed << "\n"
                                            << text << "\n"
                                            << print_recipe_yaml(again);
    ASSERT_EQ(recipe_json(again), recipe_json(recipe)) << "seed " << seed;
  }
}

TEST(Print, HasLitgptsShape) {
  const std::string text =
      print_recipe_yaml(parse("finetune_full x --data Alpaca2k --optimizer.lr 2e-5").recipe);
  EXPECT_CONTAINS(text, "checkpoint_dir: x\n");
  EXPECT_CONTAINS(text, "data:\n  class_path: Alpaca2k\n  init_args:\n    json_path: null\n");
  EXPECT_CONTAINS(text, "optimizer:\n  class_path: adamw\n  init_args:\n    lr: 2.0e-05\n");
  EXPECT_CONTAINS(text, "betas: [0.9, 0.999]");
  EXPECT_FALSE(contains(text, "momentum")) << text;
  EXPECT_FALSE(contains(text, "lora_r")) << text;
}

TEST(Print, KeepsTheTokenToItself) {
  const Recipe recipe = parse("finetune_full x --access_token hf_secret").recipe;
  EXPECT_EQ(recipe.access_token, "hf_secret");
  EXPECT_FALSE(contains(print_recipe_yaml(recipe), "hf_secret"));
  EXPECT_FALSE(contains(recipe_json(recipe).dump(), "hf_secret"));
}

TEST(Print, JsonHasTypes) {
  const nlohmann::json json =
      recipe_json(parse("finetune_full x --train.max_steps 25 --data.json_path d.json").recipe);
  EXPECT_EQ(json["train"]["max_steps"], 25);
  EXPECT_TRUE(json["train"]["max_tokens"].is_null());
  EXPECT_EQ(json["data"]["json_path"], "d.json");
  EXPECT_EQ(json["optimizer"]["betas"][1], 0.999);
  EXPECT_EQ(json["data"]["packing"], true);
}

TEST(Differences, MakeOneRecipeTheOther) {
  const Recipe from;
  Recipe to;
  to.strategy = "zero2";
  to.activation_checkpointing = "all";
  to.weight_streaming = true;
  to.optimizer_offload = "disk:/mnt/a folder";
  to.train.micro_batch_size = 3;
  to.train.max_steps = 7;
  to.optimizer.lr = 2.5e-5;
  const auto values = differences(from, to);
  EXPECT_EQ(values.size(), 7U);
  EXPECT_EQ(values.at("strategy"), "zero2");
  Recipe other = from;
  apply_differences(other, values);
  EXPECT_TRUE(same_values(other, to));
  EXPECT_TRUE(differences(to, other).empty());
}

}  // namespace
}  // namespace snug::recipe
