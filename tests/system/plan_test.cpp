// `snug plan` as people type it.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <pty.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <sstream>

#include "base/bytes.h"
#include "report/text_width.h"
#include "support/fake_hub.h"
#include "system/program.h"

namespace snug::tests {
namespace {

std::vector<std::string> plan_words(const std::vector<std::string>& more) {
  std::vector<std::string> words{
      "plan",
      "--model.config",
      std::string(SNUG_SOURCE_DIR) + "/recipes/models/open-llama-7b.json",
      "--precision",
      "bf16-true",
      "--train.max_seq_length",
      "512",
      "--train.micro_batch_size",
      "4",
      "--train.global_batch_size",
      "16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(PlanCommand, PrintsThePlanAndItsCourse) {
  const Result result = run(plan_words({"--device", "a100-80"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* part : {"6,738,415,616 parameters", "to spare", "Memory over one step", "Time"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part;
}

// Each cell is the plan that its words would give.
TEST(PlanCommand, SweepsOptions) {
  const auto sweep = [](const std::string& axes, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = plan_words({"--device", "a100-80", "--sweep", axes});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const std::string axes = "train.max_seq_length=512,2048 train.micro_batch_size=2:8";
  const Result found = sweep(axes, {"--json"});
  ASSERT_EQ(found.exit_code, 0) << found.output;
  const auto json = nlohmann::json::parse(found.output);
  ASSERT_EQ(json["cells"].size(), 6U);
  for (const auto& cell : json["cells"]) {
    const auto values = cell["values"].get<std::vector<std::string>>();
    const Result alone = run(plan_words({"--device", "a100-80", "--train.max_seq_length", values[0],
                                         "--train.micro_batch_size", values[1], "--json"}));
    EXPECT_EQ(cell["fits"].get<bool>(), alone.exit_code == 0) << cell;
    // Below the plan the program says what does not fit.
    const std::string text = alone.output.substr(0, alone.output.rfind('}') + 1);
    const auto plan = nlohmann::json::parse(text);
    EXPECT_EQ(cell["peak"], plan["memory"]["peak_reserved"]) << cell;
    EXPECT_EQ(cell["tokens_per_second"], plan["time"]["tokens_per_second"]) << cell;
  }
  const Result text = sweep(axes);
  EXPECT_NE(text.output.find("Largest micro_batch_size that fits, by max_seq_length:  512: 8"),
            std::string::npos)
      << text.output;
  EXPECT_NE(text.output.find("Fastest that fits: "), std::string::npos) << text.output;
  // Devices, a price, and a value that cannot be planned.
  const Result devices = sweep("device=h100-80,rtx-4090,l4 quantize=none,bnb.nf4,bnb.nf5",
                               {"--lora_r", "8", "--full", "false", "--price_per_hour",
                                "h100-80=2.49,rtx-4090=0.4,l4=0.8 USD"});
  EXPECT_EQ(devices.exit_code, 0) << devices.output;
  EXPECT_NE(devices.output.find("refused [1]"), std::string::npos) << devices.output;
  EXPECT_NE(devices.output.find("\n[1] "), std::string::npos) << devices.output;
  EXPECT_NE(devices.output.find("Cheapest that fits: "), std::string::npos) << devices.output;
  const Result smallest =
      sweep("device=h100-80,l4,rtx-4090", {"--full", "false", "--price_per_hour", "2"});
  EXPECT_EQ(smallest.output.find("Cheapest"), std::string::npos) << "one price for all";
  EXPECT_NE(smallest.output.find("Smallest device that fits: "), std::string::npos)
      << smallest.output;
  EXPECT_EQ(sweep("device=l4,t4").exit_code, 3) << "neither has the memory";
  // Side by side on a machine of eight: one on each, or several that share four.
  const Result several = sweep("devices=1,4", {"--machine_devices", "8", "--json"});
  ASSERT_EQ(several.exit_code, 0) << several.output;
  const auto cells = nlohmann::json::parse(several.output)["cells"];
  EXPECT_EQ(cells[0]["side_by_side"], 8);
  const double share = cells[1]["peak"].get<double>() / (80.0 * (1LL << 30));
  EXPECT_NEAR(cells[1]["side_by_side"].get<double>(), 2 / share, 2);
  EXPECT_EQ(cells[1]["side_by_side"].get<int>() % 2, 0);
  EXPECT_EQ(sweep("optimizer=adamw,sgd devices=1,2", {"--machine_devices", "8"}).exit_code, 2);
  EXPECT_EQ(sweep("train.micro_batch_size=0,-1").exit_code, 2);
  EXPECT_EQ(sweep("no_such_key=1,2").exit_code, 2);
}

// A model that is named beside a config would not be planned; a recipe's is what the config
// replaces.
TEST(PlanCommand, RefusesAModelBesideAConfig) {
  for (const char* more : {"--json", "--largest"}) {
    const Result result = run(plan_words({"nowhere", more}));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    for (const char* part : {"nowhere is no folder", "leave nowhere out", "open-llama-7b.json"})
      EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  }
  const auto exit_code = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--device", "a100-80"});
    return run(plan_words(more)).exit_code;
  };
  EXPECT_EQ(exit_code({"--checkpoint_dir", "nowhere"}), 2);
  EXPECT_EQ(exit_code({"--checkpoint_dir", "none"}), 0);
  EXPECT_EQ(exit_code({SNUG_SOURCE_DIR}), 0);
  const std::string recipe = std::string(SNUG_SOURCE_DIR) + "/recipes/open-llama-7b/full.yaml";
  EXPECT_EQ(exit_code({"--config", recipe}), 0);
}

// `snug words` in a folder of its own, with a hub at `endpoint`.
Result plan_in(const TempFolder& folder, const std::string& endpoint, const std::string& words) {
  return run_in_shell("cd '" + folder.path().string() + "' && HF_ENDPOINT=" + endpoint +
                      " exec snug " + words);
}

constexpr const char* kNoHub = "http://127.0.0.1:9";

// What a terminal of so many columns shows, standard error included.
std::string seen_in_terminal(const std::vector<std::string>& words, unsigned short columns) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    std::vector<char*> argv{const_cast<char*>("snug")};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(SNUG_BINARY, argv.data());
    ::_exit(127);
  }
  std::string seen;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof(buffer))) > 0;)
    seen.append(buffer, static_cast<size_t>(got));
  ::close(terminal);
  finish(child);
  // A line of progress that was cleared is not seen.
  for (size_t end; (end = seen.find("\r\x1b[K")) != seen.npos;) {
    const size_t begin = seen.rfind('\n', end);
    const size_t from = begin == seen.npos ? 0 : begin + 1;
    seen.erase(from, end + 4 - from);
  }
  return seen;
}

// Words stay whole, and tables in line.
TEST(PlanCommand, FitsTheTerminal) {
  const auto words = plan_words({"--device", "rtx-4090", "--fit", "--train.micro_batch_size", "1"});
  const Result whole = run(words);
  for (const unsigned short columns : {60, 80, 120, 200}) {
    const std::string text = seen_in_terminal(words, columns);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::erase(line, '\r');
      EXPECT_LE(report::display_width(line), columns) << line;
    }
    std::istringstream all(whole.output);
    for (std::string word; all >> word;) {
      const bool is_drawn = static_cast<unsigned char>(word[0]) >= 0x80;
      const bool is_figure = word.find_first_of("0123456789") != word.npos;  // of a spare column
      if (is_drawn || is_figure || word == "host" || word == "tokens/s") continue;
      EXPECT_NE(text.find(word), text.npos) << word << " at " << columns << "\n" << text;
    }
  }
}

TEST(PlanByName, NeedsNoDownload) {
  const TempFolder folder;
  for (const char* name : {"Qwen/Qwen3-8B", "qwen3-8b", "someone/Qwen3-8B"}) {
    const Result result =
        plan_in(folder, kNoHub,
                std::string("plan ") + name + " --device rtx-4090 --quantize bnb.nf4 --lora_r 8");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const std::string asked = name[0] == 's' ? name : "Qwen/Qwen3-8B";
    for (const std::string& part :
         {"Model    " + asked + ": 8,", "to train it: snug download " + asked})
      EXPECT_NE(result.output.find(part), std::string::npos) << part << "\n" << result.output;
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing is left behind";
  // A folder of that name among other things is no config.
  fs::create_directories(folder / "Qwen/Qwen3-8B");
  EXPECT_EQ(plan_in(folder, kNoHub, "plan qwen3-8b --device h100-80 --lora_r 8").exit_code, 0);
  const Result gemma = plan_in(folder, kNoHub, "plan gemma-3-4b-it --device h100-80 --lora_r 8");
  EXPECT_NE(gemma.output.find("of a gemma3 the language model is trained"), std::string::npos)
      << gemma.output;
}

TEST(PlanByName, FetchesTheConfigAlone) {
  const TempFolder folder;
  const test::FakeHub hub;
  const Result result = plan_in(folder, hub.endpoint(), "plan org/shape --device t4");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("fetched to checkpoints/org/shape"), std::string::npos)
      << result.output;
  EXPECT_TRUE(fs::exists(folder / "checkpoints/org/shape/tokenizer.json"));
  for (const char* file : {"model.safetensors", "README.md"})
    EXPECT_FALSE(fs::exists(folder / "checkpoints/org/shape" / file)) << file;
  // Training says what is missing.
  const Result run = plan_in(folder, hub.endpoint(), "finetune org/shape --data Synthetic");
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("snug download org/shape"), std::string::npos) << run.output;
}

TEST(PlanByName, SaysHowToPlanWithoutAHub) {
  const TempFolder folder;
  const Result result = plan_in(folder, kNoHub, "plan Qwen/Qwen3-9B --device t4");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  for (const char* part : {"snug models lists", "--model.config", "Did you mean qwen3-", kNoHub})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << "\n" << result.output;
}

// Without a tokenizer rows cannot be counted: the plan says so, and is for full samples.
TEST(PlanByName, OfRowsThatCannotBeRead) {
  const TempFolder folder;
  write_file_atomically(folder / "rows.jsonl", R"({"instruction": "a", "output": "b"})");
  const Result result =
      plan_in(folder, kNoHub, "plan qwen3-0.6b --device t4 --data rows.jsonl --max_seq_length 256");
  EXPECT_NE(result.output.find("the rows are not read"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("1 x 256 tokens"), std::string::npos) << result.output;
}

TEST(Models, AreListed) {
  const Result all = run({"models"});
  EXPECT_EQ(all.exit_code, 0) << all.output;
  for (const char* part : {"qwen3-8b", "llama-3.3-70b-instruct", "smollm2-135m", "QLoRA"})
    EXPECT_NE(all.output.find(part), std::string::npos) << part;
  const Result few = run({"models", "qwen3-8b", "--device", "rtx-4090"});
  for (const char* part : {"Qwen/Qwen3-8B-Base", "https://", "rtx-4090"})
    EXPECT_NE(few.output.find(part), std::string::npos) << part << "\n" << few.output;
  const Result json = run({"models", "qwen3-8b", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.output)[0]["parameters"], 8190735360);
  EXPECT_EQ(run({"models", "nothing-of-this-name"}).exit_code, 2);
}

// What is found fits as its own plan says, and one more layer does not.
TEST(PlanCommand, FindsTheLargestModel) {
  const Result found = run(plan_words({"--device", "rtx-4090", "--largest", "--json"}));
  ASSERT_EQ(found.exit_code, 0) << found.output;
  const auto json = nlohmann::json::parse(found.output);
  const TempFolder folder;
  const auto plan_of = [&](const nlohmann::json& config) {
    write_file_atomically(folder.path() / "config.json", config.dump());
    return run(plan_words({"--device", "rtx-4090", "--json", "--model.config",
                           (folder.path() / "config.json").string()}));
  };
  for (const auto& shape : json["by_width"]) {
    nlohmann::json config = shape["config"];
    const Result fits = plan_of(config);
    EXPECT_EQ(fits.exit_code, 0) << shape;
    const auto plan = nlohmann::json::parse(fits.output);
    EXPECT_EQ(plan["memory"]["peak_reserved"], shape["peak"]) << shape;
    EXPECT_LE(shape["parameters"], json["largest"]["parameters"]) << shape;
    config["num_hidden_layers"] = shape["layers"].get<int>() + 1;
    EXPECT_EQ(plan_of(config).exit_code, 3) << shape;
  }
  // Some models by name fit and some do not, each as its own plan says.
  int fitting = 0;
  for (const auto& named : json["by_name"]) {
    const Result alone = run(plan_words(
        {"--device", "rtx-4090", "--json", "--model.config", named["id"].get<std::string>()}));
    EXPECT_EQ(alone.exit_code == 0, named["lacking"] == 0) << named;
    fitting += alone.exit_code == 0 ? 1 : 0;
  }
  EXPECT_GT(fitting, 0);
  EXPECT_LT(fitting, static_cast<int>(json["by_name"].size()));
  int64_t before = 0;
  for (const auto& row : json["by_devices"]) {
    EXPECT_GT(row["largest"]["parameters"].get<int64_t>(), before) << row;
    before = row["largest"]["parameters"];
  }
  EXPECT_EQ(json["by_devices"].size(), 4U);
  EXPECT_EQ(json["by_devices"][0]["largest"], json["largest"]);
  const Result text = run(plan_words({"--device", "rtx-4090", "--largest"}));
  EXPECT_NE(text.output.find("On more devices"), std::string::npos) << text.output;
  EXPECT_EQ(run(plan_words({"--device", "rtx-4090", "--largest", "--fit"})).exit_code, 2);
  EXPECT_EQ(run(plan_words({"--memory_budget", "1MiB", "--largest"})).exit_code, 3);
}

TEST(PlanCommand, SaysWhatTokensCost) {
  const auto words = plan_words({"--device", "a100-80", "--data", "Synthetic"});
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  EXPECT_EQ(with({}).output.find("\nCost "), std::string::npos) << "no price is made up";
  const Result text = with({"--price_per_hour", "1.80 USD", "--devices", "2"});
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_NE(text.output.find("\nCost     1M tokens: "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find(" USD (at 1.80 USD per hour for each of 2 devices)\n"),
            std::string::npos)
      << text.output;
  const Result plan = with({"--price_per_hour", "1.80", "--devices", "2", "--json"});
  const auto json = nlohmann::json::parse(plan.output);
  const double rate = json["time"]["tokens_per_second"];
  EXPECT_EQ(json["batch"]["tokens_per_epoch"], 256 * 512);
  EXPECT_NEAR(json["cost"]["million_tokens_price"], 2 * 1.80 / 3600 * 1e6 / rate, 1e-9);
  EXPECT_NEAR(json["cost"]["epoch_seconds"], 256 * 512 / rate, 1e-6);
  const Result listed = with({"--price_per_hour", "l4=0.80,a100-80=1.80 USD"});
  EXPECT_NE(listed.output.find("(at 1.80 USD per hour)"), std::string::npos) << listed.output;
  const Result missing = with({"--price_per_hour", "l4=0.80"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.output.find("has no price of a100-80; add a100-80=…"), std::string::npos)
      << missing.output;
  const Result wrong = with({"--price_per_hour", "cheap"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.output.find("--price_per_hour cheap: give a number above 0"), std::string::npos)
      << wrong.output;
}

TEST(PlanCommand, OfAModelThatIsNotHereSaysWhatItNeeds) {
  const Result result = run({"plan", "checkpoints/openlm-research/open-llama-7b"});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  for (const char* part : {"does not exist", "--model.config recipes/models/",
                           "snug download openlm-research/open-llama-7b"})
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
}

// A configuration is enough, in a folder or alone.
TEST(PlanCommand, OfAShapeAlone) {
  const TempFolder folder;
  const std::string config = std::string(SNUG_SOURCE_DIR) + "/recipes/models/qwen2.5-1.5b.json";
  fs::copy_file(config, folder / "config.json");
  for (const fs::path& model : {folder.path(), folder / "config.json"}) {
    const Result result = run({"plan", model, "--device", "a100-80", "--precision", "bf16-true"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    for (const char* part : {"1,543,714,304 parameters", "1 x 2048 tokens (a common length"})
      EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  }
}

TEST(PlanCommand, SaysWhereASampleCannotBeSoLong) {
  const Result result = run(plan_words({"--max_seq_length", "10000"}));
  EXPECT_NE(result.output.find("train.max_seq_length = 10000: the model takes at most 2048 tokens"),
            std::string::npos)
      << result.output;
}

TEST(PlanCommand, SetsLitgptBesideIt) {
  const Result text = run(plan_words({"--device", "a100-80", "--like", "litgpt"}));
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_NE(text.output.find("no separate log-softmax"), std::string::npos) << text.output;
  const Result result = run(plan_words({"--device", "a100-80", "--like", "lightning", "--json"}));
  const nlohmann::json plan = nlohmann::json::parse(result.output);
  EXPECT_TRUE(plan["like"]["fits"].get<bool>());
  EXPECT_GT(plan["like"]["kept_for_backward"].get<double>(),
            1.5 * plan["memory"]["by_category"]["activations"].get<double>());
}

TEST(PlanCommand, SetsTransformersBesideIt) {
  const std::vector<std::string> words{"--device", "a100-80", "--like", "transformers"};
  const Result text = run(plan_words(words));
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* part : {"Compared with transformers in its own Trainer",
                           "gradient_checkpointing: true", "optim: adamw_bnb_8bit"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  std::vector<std::string> more = plan_words(words);
  more.insert(more.end(),
              {"--activation_checkpointing", "all", "--optimizer_offload", "cpu", "--json"});
  const nlohmann::json plan = nlohmann::json::parse(run(more).output);
  ASSERT_FALSE(plan["like"]["changes"].empty());
  for (const nlohmann::json& change : plan["like"]["changes"]) {
    EXPECT_NE(change["line"], "gradient_checkpointing: true");
    EXPECT_NE(change["line"], "optim: adamw_bnb_8bit");
    EXPECT_LT(change["peak_allocated"], plan["like"]["peak_allocated"]) << change;
  }
  std::ranges::replace(more, std::string("transformers"), std::string("transformers+liger"));
  const nlohmann::json liger = nlohmann::json::parse(run(more).output);
  EXPECT_LT(liger["like"]["peak_allocated"], plan["like"]["peak_allocated"]);
}

// A recipe that DeepSpeed trains is planned with its stage, not with FSDP.
TEST(PlanCommand, SetsDeepSpeedBesideItsRecipe) {
  const test::TempFolder folder;
  int host_group = 1;
  const auto planned = [&](int stage, std::vector<std::string> more = {}) {
    std::ofstream(folder / "ds.json")
        << nlohmann::json{{"zero_optimization",
                           {{"stage", stage},
                            {"reduce_bucket_size", "auto"},
                            {"zero_hpz_partition_size", host_group}}}};
    std::vector<std::string> words =
        plan_words({"--config", folder / "r.yaml", "--device", "a100-80", "--devices", "4",
                    "--like", "transformers"});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  std::ofstream(folder / "r.yaml") << "output_dir: o\nbf16: true\nlearning_rate: 1e-4\n"
                                      "deepspeed: ds.json\n";
  std::vector<double> peaks;
  for (const int stage : {1, 2, 3}) {
    const Result text = planned(stage);
    EXPECT_EQ(text.exit_code, 0) << text.output;
    EXPECT_NE(text.output.find("DeepSpeed's ZeRO-" + std::to_string(stage)), std::string::npos)
        << text.output;
    const std::string json = planned(stage, {"--json"}).output;  // behind what the recipe is
    const auto plan = nlohmann::json::parse(json.substr(json.find('{')));
    EXPECT_EQ(plan["like"]["program"], "transformers+deepspeed");
    peaks.push_back(plan["like"]["peak_allocated"]);
  }
  EXPECT_GT(peaks[0], peaks[1]);
  EXPECT_GT(peaks[1], peaks[2]);
  const Result adapted = planned(3, {"--lora_r", "8", "--lora_target_modules", "all-linear"});
  EXPECT_EQ(adapted.exit_code, 0) << adapted.output;
  const Result on_host = planned(3, {"--optimizer_offload", "cpu", "--weight_streaming", "true"});
  EXPECT_NE(on_host.output.find("its Adam on the host, weights there too"), std::string::npos)
      << on_host.output;
  EXPECT_NE(on_host.output.find("\non the host "), std::string::npos) << on_host.output;
  EXPECT_NE(planned(3, {"--strategy", "hybrid"}).output.find("zero_hpz_partition_size"),
            std::string::npos);
  host_group = 2;
  const Result hybrid = planned(3, {"--strategy", "hybrid"});
  EXPECT_EQ(hybrid.exit_code, 0) << hybrid.output;
  EXPECT_NE(hybrid.output.find("zero_hpz_partition_size: 2"), std::string::npos) << hybrid.output;
  host_group = 1;
  const Result refused = planned(0);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("its stages 1 to 3"), std::string::npos) << refused.output;
}

// DDP's buckets are as large as what is trained. One device has none, and no row of zeros.
TEST(PlanCommand, ShowsBuffersOfCollectivesBesideOurs) {
  const auto like = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--device", "a100-80", "--like", "transformers"};
    words.insert(words.end(), more.begin(), more.end());
    const Result text = run(plan_words(words));
    words.emplace_back("--json");
    const nlohmann::json plan = nlohmann::json::parse(run(plan_words(words)).output);
    const bool has_row = text.output.find("\ncommunication ") != std::string::npos;
    const auto bytes = plan["like"]["communication"].get<int64_t>();
    EXPECT_EQ(has_row, bytes > 0) << text.output;
    return bytes;
  };
  constexpr int64_t kWeights = 2 * int64_t{6738415616};
  const int64_t ddp = like({"--devices", "4", "--strategy", "ddp"});
  EXPECT_GE(ddp, kWeights);
  EXPECT_LE(ddp, kWeights + kWeights / 1000);  // each tensor is rounded up
  const int64_t sharded = like({"--devices", "4", "--strategy", "fsdp"});
  EXPECT_GT(sharded, kWeights / 32);  // a block's weights, of 32 blocks, and their gradients
  EXPECT_LT(sharded, kWeights / 8);
  EXPECT_EQ(like({}), 0);
}

// Adapters of one rank beside the same layers are as large on both sides.
TEST(PlanCommand, SetsLitgptsAdaptersBesideOurs) {
  const std::vector<std::string> lora{"--device",   "a100-80", "--lora_r",          "32",
                                      "--lora_key", "true",    "--lora_mlp",        "true",
                                      "--like",     "litgpt",  "--lora_projection", "true"};
  const Result text = run(plan_words(lora));
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* part : {"Compared with litgpt finetune_lora", " parameters, 79,953,920 trained"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  std::vector<std::string> words = plan_words(lora);
  words.emplace_back("--json");
  const nlohmann::json plan = nlohmann::json::parse(run(words).output);
  EXPECT_EQ(plan["like"]["gradients"], plan["memory"]["by_category"]["gradients"]);
  EXPECT_EQ(plan["like"]["optimizer_states"], plan["memory"]["by_category"]["optimizer"]);
  EXPECT_EQ(plan["like"]["gradients"], 2 * 79953920);
}

TEST(PlanCommand, OfManyDevicesSaysWhatEachHoldsAndSends) {
  const Result text = run(plan_words(
      {"--device", "a100-80", "--devices", "4", "--strategy", "FULL_SHARD", "--scaling"}));
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* part :
       {"fsdp (fsdp=4): each holds 1/4 of weights, gradients and optimizer states",
        "each of 4 ranks: peak", "reduce-scatter", "4,096", "1 micro-batch a step"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  const Result result = run(plan_words({"--device", "a100-80", "--devices", "2", "--num_nodes", "2",
                                        "--strategy", "hybrid", "--like", "lightning", "--json"}));
  EXPECT_EQ(result.exit_code, 2);  // Lightning's hybrid sharding is not planned
  const Result hybrid = run(plan_words({"--device", "a100-80", "--devices", "2", "--num_nodes", "2",
                                        "--strategy", "hybrid", "--scaling", "--json"}));
  const nlohmann::json plan = nlohmann::json::parse(hybrid.output);
  EXPECT_EQ(plan["ranks"], 4);
  ASSERT_EQ(plan["links"].size(), 2U) << plan["links"];
  EXPECT_EQ(plan["links"][0]["axis"], "dp");
  EXPECT_EQ(plan["links"][0]["sent_within_machine"], 0);
  EXPECT_GT(plan["links"][0]["sent_between_machines"], 0);
  EXPECT_EQ(plan["links"][1]["sent_between_machines"], 0);
  EXPECT_EQ(plan["scaling"].back()["devices"], 4096);
}

TEST(PlanCommand, FitChoosesAmongStrategiesThatFit) {
  const Result result = run(plan_words(
      {"--device", "a100-80", "--devices", "4", "--memory_budget", "20GiB", "--fit", "--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json best = nlohmann::json::parse(result.output)["fit"]["best"];
  EXPECT_TRUE(best["fits"].get<bool>());
  EXPECT_EQ(best["strategy"], "fsdp");
}

TEST(PlanCommand, WhereNoTechniqueFitsOtherChangesAreNamed) {
  const std::string text =
      run(plan_words({"--device", "rtx-4090", "--memory_budget", "20GiB", "--optimizer_offload",
                      "none", "--weight_streaming", "false", "--fit"}))
          .output;
  EXPECT_NE(text.find("Fit: none of "), std::string::npos) << text;
  EXPECT_NE(text.find("beyond the techniques that --fit tries"), std::string::npos) << text;
}

// What has to fit is in front, and rows that are nearly the same are one.
TEST(PlanCommand, TheTableOfAFitHasWhatIsReserved) {
  std::vector<std::string> words = plan_words({"--device", "rtx-4090", "--memory_budget", "16GB",
                                               "--train.global_batch_size", "4", "--fit"});
  const std::string text = run(words).output;
  const size_t head = text.find("reserved  ", text.find("Fit: fastest first"));
  ASSERT_NE(head, std::string::npos) << text;
  words.emplace_back("--json");
  const nlohmann::json plan = nlohmann::json::parse(run(words).output);
  const nlohmann::json best = plan["fit"]["best"];
  EXPECT_NE(text.find(format_bytes(best["peak_reserved"].get<int64_t>()), head), std::string::npos);
  EXPECT_GT(plan["device"]["assumed_host_bytes"], 0);
  EXPECT_NE(text.find("GiB assumed (set --host_memory to change it)") != std::string::npos,
            plan["memory"]["offloaded_to_host"] == 0);
  EXPECT_NE(text.find("GiB of host memory assumed, see --host_memory"), std::string::npos) << text;
}

TEST(PlanCommand, AnAssumedHostThatIsTooSmallIsWarnedOf) {
  const std::vector<std::string> words =
      plan_words({"--device", "t4", "--optimizer_offload", "cpu", "--precision", "32-true"});
  const std::string text = run(words).output;
  for (const char* part : {"more than the 64.00 GiB assumed (set --host_memory to change it)",
                           "is assumed to have; set --host_memory to what your machine has"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(PlanCommand, LikeIsAnOptionOfPlanAlone) {
  EXPECT_EQ(run({"finetune_full", "nowhere", "--like", "litgpt"}).exit_code, 2);
  const Result result = run(plan_words({"--like", "litgtp"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("litgpt"), std::string::npos) << result.output;
}

// Machines that are named are as many as a run would start on.
TEST(PlanCommand, NamedHostsAreMachines) {
  const std::vector<std::string> device{"--device", "a100-80", "--train.global_batch_size", "32"};
  const auto planned = [&](std::vector<std::string> more) {
    more.insert(more.end(), device.begin(), device.end());
    const Result result = run(plan_words(more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  EXPECT_EQ(planned({"--hosts", "a:4,b:4"}), planned({"--devices", "4", "--num_nodes", "2"}));
  expect_part(run(plan_words({"--hosts", "a:4,b:4", "--num_nodes", "3"})), 2, "names 2 machines");
}

// Held-out rows may be longer than those of training, and are planned as well.
TEST(PlanCommand, CountsAValidationThatTakesMore) {
  const TempFolder folder;
  const fs::path held_out = folder / "held-out.jsonl";
  std::ofstream(held_out) << nlohmann::json{{"instruction", "say"},
                                            {"output", std::string(300, 'b')}}
                          << "\n";
  std::vector<std::string> words = finetune_words(
      write_rows(folder / "rows.jsonl", 16), folder / "out",
      {"--data.val_path", held_out, "--train.max_steps", "2", "--eval.interval", "1"});
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json memory = read_run(folder / "out")["memory"];
  EXPECT_EQ(memory["predicted"]["peak_allocated"], memory["measured"]["peak_allocated"]);
  words[0] = "plan";
  words.insert(words.end(), {"--device", "cpu", "--json"});
  const std::string output = run(words).output;  // a warning of cut samples first
  const nlohmann::json plan = nlohmann::json::parse(output.substr(output.find('{')));
  EXPECT_EQ(plan["memory"]["peak_allocated"], memory["measured"]["peak_allocated"]);
}

// As a new user types it, with every option left open: mixed precision too, where keeping cast
// weights is one of the things to try.
TEST(PlanCommand, FitsSevenBillionOnOneCard) {
  const Result result = run({"plan", "--model.config",
                             std::string(SNUG_SOURCE_DIR) + "/recipes/models/open-llama-7b.json",
                             "--device", "rtx-4090", "--fit"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("weight_streaming: true"), std::string::npos) << result.output;
}

// A micro-batch of another size takes other steps to the same global batch, which must be said.
TEST(PlanCommand, FitKeepsTheGlobalBatchOfAccumulatedMicroBatches) {
  const auto plan = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "plan",
        "--model.config",
        std::string(SNUG_SOURCE_DIR) + "/recipes/models/smollm2-135m.json",
        "--device",
        "rtx-4090",
        "--train.max_seq_length",
        "512",
        "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string output = run(words).output;
    return nlohmann::json::parse(output.substr(output.find('{')));
  };
  const auto chosen =
      plan({"--fit", "--train.micro_batch_size", "4", "--train.accumulate_grad_batches", "4"});
  const std::string given = chosen["fit"]["best"]["options"];
  EXPECT_EQ(given.find("--train."), std::string::npos) << given;
  const auto free = plan({"--fit", "--train.accumulate_grad_batches", "8"})["fit"]["best"];
  std::istringstream options(free["options"].get<std::string>());
  std::vector<std::string> words;
  for (std::string word; options >> word;) words.push_back(word);
  ASSERT_NE(std::ranges::find(words, "--train.accumulate_grad_batches"), words.end()) << free;
  EXPECT_EQ(plan(words)["memory"]["peak_reserved"], free["peak_reserved"]);
}

TEST(PlanCommand, WhatCannotFitSaysWhatTheLeastIs) {
  const Result result =
      run(plan_words({"--device", "rtx-4090", "--memory_budget", "1GiB", "--fit"}));
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_NE(result.output.find("The smallest combination takes"), std::string::npos)
      << result.output;
}

// A host too small for the states: what would help is named, and done where it is allowed.
TEST(PlanCommand, FitNamesTheDiskThatWouldHelpAndTakesTheOneItMay) {
  std::vector<std::string> words = plan_words(
      {"--device", "rtx-4090", "--memory_budget", "16GB", "--host_memory", "32GiB", "--fit"});
  const Result refused = run(words);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_NE(refused.output.find("--fit_disk FOLDER"), std::string::npos) << refused.output;
  words.insert(words.end(), {"--fit_disk", "/mnt/nvme"});
  const Result text = run(words);
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* part : {"Optimizer states are on disk, as fit_disk allows",
                           "optimizer_offload: disk:/mnt/nvme", "--optimizer_offload disk:/mnt"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  words.emplace_back("--json");
  const nlohmann::json plan = nlohmann::json::parse(run(words).output);
  const nlohmann::json best = plan["fit"]["best"];
  EXPECT_LE(best["offloaded_to_host"].get<int64_t>(), int64_t{32} << 30);
  EXPECT_GE(best["on_disk"].get<int64_t>(), 4 * plan["model"]["parameters"].get<int64_t>());
  EXPECT_GT(best["time"]["disk_seconds"].get<double>(), 0);
}

TEST(PlanCommand, AMistypedDeviceIsAnswered) {
  const Result result = run(plan_words({"--device", "rtx4080"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("did you mean rtx-4090?"), std::string::npos) << result.output;
}

}  // namespace

// A recipe of BLIP-2's beside the script that it comes from; four GPUs of minGPT's sweep.
TEST(PlanCommand, SetsLightningScriptsBesideIt) {
  const std::string recipes = std::string(SNUG_SOURCE_DIR) + "/recipes/";
  const auto planned = [&](const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> words{"plan", "--model.config", recipes + "models/" + model + ".json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const std::vector<std::string> blip2{"--config",     recipes + "blip2/bs05-bf16-true.yaml",
                                       "--model_name", "null",
                                       "--device",     "h100-94",
                                       "--like",       "lightning"};
  const Result text = planned("blip2-opt-2.7b", blip2);
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* part :
       {"Compared with transformers' BLIP-2 in a Lightning Trainer: 16 x 82 tokens",
        "after_opt_step", "it fits too"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in\n" << text.output;
  const Result sweep = planned(
      "mingpt-xl", {"--device", "v100-16", "--precision", "16-mixed", "--batch_size", "8",
                    "--accumulate_grad_batches", "1", "--act_ckpt", "--devices", "4", "--strategy",
                    "fsdp", "--train.max_seq_length", "128", "--like", "lightning", "--json"});
  const nlohmann::json plan = nlohmann::json::parse(sweep.output.substr(sweep.output.find('{')));
  EXPECT_EQ(plan["batch"]["global_batch_size"], 32);
  EXPECT_EQ(plan["like"]["num_alloc_retries"], 0);
  const Result refused = planned("mingpt-xl", {"--like", "litgpt"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("--like lightning"), std::string::npos) << refused.output;
}

}  // namespace snug::tests
