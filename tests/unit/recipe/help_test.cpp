// What people read: complete, current, within the width, and with examples that work.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/options/help.h"

#include <cstdlib>
#include <map>

#include "base/files.h"
#include "recipe/options/command_table.h"
#include "support.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(Help, ListsEveryCommandWithExamples) {
  const std::string text = help_text("");
  for (const CommandInfo& info : command_table())
    EXPECT_CONTAINS(text, "  " + std::string(info.names[0]) + " ");
  EXPECT_CONTAINS(text, "Exit codes");
  EXPECT_LE(widest_line(text), 80u);
}

TEST(Help, NamesEveryOptionWithItsDefault) {
  for (const CommandInfo& info : command_table()) {
    const std::string text = help_text(info.names[0], 80, false, HelpOf::All);
    ParsedCommand parsed;
    parsed.command = info.command;
    for (const Row& row : rows_of(parsed)) {
      EXPECT_CONTAINS(text, "--" + option_name(row) + " ");
      EXPECT_FALSE(row.help.empty()) << row.key;
      EXPECT_FALSE(row.theme.empty()) << row.key;
    }
  }
  EXPECT_CONTAINS(help_text("finetune_full", 200), "[default: out/finetune/full]");
  EXPECT_CONTAINS(help_text("finetune", 200), "[default: out/finetune/lora]");
  EXPECT_CONTAINS(help_text("finetune_full", 80, true), "\x1b[1mTraining\x1b[0m");
}

size_t num_options(const std::string& help) {
  size_t count = 0;
  std::istringstream stream(help);
  for (std::string line; std::getline(stream, line);) count += line.starts_with("  --") ? 1 : 0;
  return count;
}

TEST(Help, IsShortWhereACommandHasManyOptions) {
  for (const char* command : {"finetune", "finetune_full", "plan"}) {
    const std::string text = help_text(command), all = help_text(command, 80, false, HelpOf::All);
    EXPECT_LE(num_options(text), 36U) << command;
    EXPECT_GT(num_options(all), 80U) << command;
    for (const char* option : {"--data ", "--out_dir ", "--train.max_steps ", "--optimizer.lr ",
                               "--memory_budget ", "--fit ", "--devices ", "--strategy "})
      EXPECT_CONTAINS(text, option);
    EXPECT_FALSE(contains(text, "--train.z_loss")) << command;
    EXPECT_CONTAINS(text, std::string("snug ") + command + " --help all");
    EXPECT_FALSE(contains(all, "--help all")) << command;
  }
  EXPECT_EQ(help_text("chat"), help_text("chat", 80, false, HelpOf::All));
  EXPECT_FALSE(parse("finetune --help").help_all);
  EXPECT_TRUE(parse("finetune --help all").help_all);
  EXPECT_TRUE(parse("finetune MODEL --help all").help);
  EXPECT_EQ(parse("help finetune all").help_options.options, "all");
}

// A plan is of full fine-tuning where nothing is said of adapters.
TEST(Help, APlanTrainsAllWeightsByDefault) {
  EXPECT_TRUE(parse("plan MODEL").recipe.full);
  EXPECT_FALSE(parse("plan MODEL --lora_r 4").recipe.full);
  const std::string text = help_text("plan", 200);
  EXPECT_CONTAINS(text.substr(text.find("--full ")), "LoRA option is given [default: true]");
  const std::string page = reference_page();
  const std::string of_plan = page.substr(page.find("## snug plan"));
  EXPECT_CONTAINS(of_plan.substr(of_plan.find("`--full`"), 40), "| true |");
}

TEST(Help, OffersOnlyLoggersThatAreThere) {
  for (const HelpOf options : {HelpOf::Common, HelpOf::All})
    EXPECT_FALSE(contains(help_text("finetune", 80, false, options), "wandb"));
  EXPECT_FALSE(contains(reference_page(), "wandb"));
  EXPECT_FALSE(contains(completion_script("bash"), "mlflow"));
}

TEST(Help, ExplanationsStayWithinTheWidth) {
  const std::string text = help_text("finetune_full", 60, false, HelpOf::All);
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const bool explains = line.starts_with("      ");
    EXPECT_LE(explains ? line.size() : 0, 60u) << line;
  }
}

// What stands under "Examples" is a command line that parses. Recipes are read as from the root.
TEST(Help, ExamplesParse) {
  for (const CommandInfo& info : command_table()) {
    for (const std::string_view example : info.examples) {
      SCOPED_TRACE(example);
      if (!example.starts_with("snug ") || example.find('|') != std::string::npos) continue;
      std::vector<std::string> words =
          split(std::string(example.substr(5, example.find(" --prompt \"") - 5)));
      for (std::string& word : words)
        if (word.starts_with("recipes/")) word = std::string(SNUG_SOURCE_DIR) + "/" + word;
      EXPECT_EQ(parse_command_line(words).command, info.command);
    }
  }
}

TEST(Help, KeysAreUniqueInACommand) {
  for (const CommandInfo& info : command_table()) {
    ParsedCommand parsed;
    parsed.command = info.command;
    std::map<std::string, int> seen;
    for (const Row& row : rows_of(parsed)) {
      ++seen[row.key];
      for (const std::string& alias : row.aliases) ++seen[alias];
    }
    for (const auto& [key, count] : seen) EXPECT_EQ(count, 1) << info.names[0] << " " << key;
  }
}

TEST(Help, ReferencePageIsCurrent) {
  const fs::path page = fs::path(SNUG_SOURCE_DIR) / "docs" / "reference" / "options.md";
  if (std::getenv("SNUG_WRITE_REFERENCE")) write_file_atomically(page, reference_page());
  EXPECT_EQ(read_file(page), reference_page())
      << "the options changed: renew the page with SNUG_WRITE_REFERENCE=1 config_test";
}

// Output of a shell command; empty when the shell is missing.
std::string shell_output(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return out;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) out += static_cast<char>(c);
  pclose(pipe);
  return out;
}

// What bash offers for `line`, as one line of words.
std::string bash_offers(const std::string& line) {
  const std::vector<std::string> words = split(line);
  std::string array;
  for (const std::string& word : words) array += "'" + word + "' ";
  if (line.ends_with(' ')) array += "''";
  const TemporaryFile script(
      completion_script("bash") + "COMP_WORDS=(" + array +
      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_snug\necho \"${COMPREPLY[@]}\"\n");
  return shell_output("bash " + script.string() + " 2>&1");
}

TEST(Completion, BashOffersCommandsOptionsAndChoices) {
  if (shell_output("bash -c 'echo yes'") != "yes\n") GTEST_SKIP() << "bash is missing";
  EXPECT_EQ(bash_offers("snug finetune_f"), "finetune_full\n");
  EXPECT_EQ(bash_offers("snug finetune_full --train.max_s"),
            "--train.max_steps --train.max_seq_length\n");
  EXPECT_EQ(bash_offers("snug demo --train.max_s"), "--train.max_steps --train.max_seq_length\n");
  EXPECT_EQ(bash_offers("snug demo --questions n"), "numbers\n");
  EXPECT_EQ(bash_offers("snug generate --promp"), "--prompt --prompts --prompt_style\n");
  EXPECT_EQ(bash_offers("snug data "), "show\n");
  EXPECT_EQ(bash_offers("snug finetune_full --precision bf16"), "bf16-true bf16-mixed\n");
  EXPECT_EQ(bash_offers("snug completion "), "bash zsh fish\n");
  EXPECT_EQ(bash_offers("snug convert a b --to l"), "litgpt\n");
  EXPECT_EQ(bash_offers("snug help finetune_full "), "all\n");
  EXPECT_EQ(bash_offers("snug help finetune_f"), "finetune_full\n");
}

// Names of suites where the lab runs or lists them; folders, which the shell knows, where it
// reports.
TEST(Completion, OffersSuites) {
  if (shell_output("bash -c 'echo yes'") != "yes\n") GTEST_SKIP() << "bash is missing";
  const test::TempFolder folder;
  std::ofstream(folder / "my-own-suite.yaml") << "name: my-own-suite\n";
  ::setenv("SNUG_SUITES", folder.path().c_str(), 1);
  EXPECT_EQ(bash_offers("snug lab r"), "run report\n");
  EXPECT_EQ(bash_offers("snug lab run my-"), "my-own-suite\n");
  EXPECT_EQ(bash_offers("snug lab list my-"), "my-own-suite\n");
  EXPECT_EQ(bash_offers("snug lab run first my-"), "my-own-suite\n");
  EXPECT_EQ(bash_offers("snug lab report my-"), "\n");
  EXPECT_CONTAINS(completion_script("zsh"), "run) later=\"(");
  EXPECT_CONTAINS(completion_script("fish"), "my-own-suite");
  ::unsetenv("SNUG_SUITES");
}

TEST(Completion, ScriptsAreValidForTheirShells) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const TemporaryFile script(completion_script(shell));
    EXPECT_CONTAINS(completion_script(shell), "train.micro_batch_size");
    if (shell_output(shell + " -c 'echo yes' 2>/dev/null") != "yes\n")
      continue;  // not installed here
    EXPECT_EQ(shell_output(shell + " -n " + script.string() + " 2>&1"), "");
  }
  error_of([] { completion_script("tcsh"); });
}

}  // namespace
}  // namespace snug::recipe
