// Whole runs: what they learn, what they leave behind, and that being killed costs nothing.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

TEST(Finetune, LearnsAndLeavesEverythingBehind) {
  const TempFolder folder;
  const Result result =
      run(finetune_words(write_rows(folder / "rows.jsonl", 240), folder / "out",
                         {"--logger_name", "tensorboard", "--eval.initial_validation", "true"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json record = read_run(folder / "out");
  EXPECT_EQ(record["outcome"], "ok");
  const std::vector<double> l = losses(record);
  ASSERT_GE(l.size(), 25U);
  EXPECT_LT(l.back(), 0.8 * l.front());
  EXPECT_LT(record["validation"].back()["loss"], record["validation"].front()["loss"]);
  // All that was printed, below the recipe.
  const std::string log = read_file(folder / "out/log.txt");
  EXPECT_NE(log.find("\ntrain:\n"), std::string::npos) << log;
  EXPECT_NE(log.find("\n" + result.output), std::string::npos) << log << "\nand\n" << result.output;
  EXPECT_TRUE(log.ends_with(" UTC  ended: ok\n")) << log;
  for (const char* file :
       {"metrics.csv", "report.html", "tensorboard", "final/model.safetensors", "final/config.json",
        "final/generation_config.json", "final/tokenizer.json"})
    EXPECT_TRUE(fs::exists(folder / "out" / file)) << file;
  const nlohmann::json statistics = record["speed"]["steps"];
  EXPECT_GT(statistics["mean_utilization"], 0.05);
  EXPECT_LT(statistics["mean_utilization"], 1.05);
  EXPECT_GT(statistics["mean_seconds"], 0);
  EXPECT_GT(record["memory"]["measured"]["peak_allocated"], 0);
  EXPECT_EQ(record["memory"]["phases"].size(), 8U);  // four each at steps 0 and 1
}

TEST(Finetune, TellsTheMeanLossOfEachEpoch) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const Words words{"--data.val_split_fraction", "0", "--train.save_interval", "5"};
  Words twice = words;
  twice.insert(twice.end(), {"--train.epochs", "2"});
  const Result result = run(finetune_words(rows, folder / "out", twice));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json record = read_run(folder / "out");
  const std::vector<double> l = losses(record);
  ASSERT_EQ(l.size(), 16U);
  for (const size_t epoch : {0U, 1U}) {
    const double mean = std::accumulate(l.begin() + 8 * epoch, l.begin() + 8 * epoch + 8, 0.0) / 8;
    EXPECT_NEAR(record["epochs"][epoch]["loss"], mean, 1e-12 * mean);
    EXPECT_EQ(record["epochs"][epoch]["steps"], 8);
    const std::string line =
        fmt::format("\nEpoch {}: mean training loss {:.4f} over 8 steps\n", epoch + 1, mean);
    EXPECT_NE(result.output.find(line), std::string::npos) << line << result.output;
  }
  // The checkpoints are in the one time and not in the other.
  double steps = 0;
  for (const auto& step : record["steps"]) steps += step["seconds"].get<double>();
  EXPECT_GT(record["fit_seconds"], steps);
  EXPECT_LT(record["fit_seconds"], record["seconds_total"]);
  Words loud = words;
  loud.emplace_back("--verbose");
  const Result once = run(finetune_words(rows, folder / "once", loud));
  EXPECT_EQ(once.output.find("mean training loss"), std::string::npos) << "of one epoch";
  // The recipe as resolved stands in front of all that it leads to, where that is asked for.
  EXPECT_LT(once.output.find("\ntrain:\n"), once.output.find("\nModel ")) << once.output;
  EXPECT_EQ(result.output.find("\ntrain:\n"), std::string::npos) << result.output;
}

// With two micro-batches a step, records have what the usual ones say, and more.
TEST(Finetune, RecordsTheMemoryOfEachMicroBatch) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const auto train = [&](const char* out, const Words& more) {
    Words words = finetune_words(rows, folder / out, {"--train.max_steps", "3"});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  ASSERT_EQ(train("usual", {}).exit_code, 0);
  const Result each = train("each", {"--log_memory", "micro_batch"});
  ASSERT_EQ(each.exit_code, 0) << each.output;
  const auto phases_in = [&](const char* out) {
    return read_run(folder / out)["memory"]["phases"];
  };
  const nlohmann::json usual = phases_in("usual"), all = phases_in("each");
  ASSERT_EQ(usual.size(), 8U);
  ASSERT_EQ(all.size(), 14U);
  const auto same = [&](size_t of_all, size_t of_usual) {
    nlohmann::json record = all[of_all];
    record["micro_batch"] = 0;
    EXPECT_EQ(record, usual[of_usual]);
  };
  for (const size_t step : {0U, 1U}) {
    const std::vector<int> micro_batches{1, 1, 1, 2, 2, 2, 0};
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(all[7 * step + i]["micro_batch"], micro_batches[i]);
    same(7 * step, 4 * step);          // before the first forward
    same(7 * step + 1, 4 * step + 1);  // after it
    same(7 * step + 5, 4 * step + 2);  // after the last backward
    same(7 * step + 6, 4 * step + 3);
  }
  const size_t line = each.output.find("\nMemory   step 1, micro-batch 2, after_fwd: Params ");
  EXPECT_LT(line, each.output.find("\nEpoch 1 | iter 2 step 1 ")) << "as it is measured";
  EXPECT_NE(each.output.find("\nStep  Micro-batch  Phase (MiB) "), std::string::npos)
      << each.output;
  const Result wrong = train("wrong", {"--log_memory", "microbatch"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.output.find("micro_batch"), std::string::npos) << wrong.output;
}

TEST(Finetune, ThePlanIsAnUpperBoundThatIsReached) {
  const TempFolder folder;
  run(finetune_words(write_rows(folder / "rows.jsonl", 240), folder / "out"));
  const nlohmann::json memory = read_run(folder / "out")["memory"];
  const double planned = memory["predicted"]["peak_allocated"];
  const double measured = memory["measured"]["peak_allocated"];
  EXPECT_LE(measured, planned);
  EXPECT_GE(measured, 0.97 * planned);
}

TEST(Finetune, FinalModelGoesOnWhereTrainingEnded) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  ASSERT_EQ(run(finetune_words(rows, folder / "out")).exit_code, 0);
  const std::string trained = folder / "out/final";
  const Result generated =
      run({"generate", trained, "--prompt", "say 3", "--prompt_style", "plain", "--precision",
           "32-true", "--max_new_tokens", "8", "--json", "true"});
  EXPECT_EQ(generated.exit_code, 0) << generated.output;
  const Result evaluated =
      run({"evaluate", trained, "--data", "JSON", "--data.json_path", rows.string(),
           "--data.prompt_style", "plain", "--precision", "32-true", "--json", "true"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const double loss = nlohmann::json::parse(evaluated.output)["loss"];
  EXPECT_LT(loss, losses(read_run(folder / "out")).front());
  expect_part(run({"generate", folder / "out", "--prompt", "say 3"}), 2,
              "what the run trained is in " + trained);
  expect_part(run({"convert", trained, folder / "out.gguf"}), 0,
              "fine-tuned with prompt style plain, which a GGUF file cannot say");
}

TEST(Finetune, AConfigAloneHasNoTokenizerForRows) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 4);
  const std::string config = std::string(SNUG_SOURCE_DIR) + "/tests/data/system/tiny/config.json";
  expect_part(run({"finetune_full", "--model.config", config, "--data", "JSON", "--data.json_path",
                   rows.string(), "--out_dir", folder / "out"}),
              2, "a model without a tokenizer");
}

// A model is asked, and judged, as it was trained.
TEST(Finetune, EvaluateCountsWhatTrainingCounted) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const Result trained =
      run(finetune_words(rows, folder / "out",
                         {"--data.mask_prompt", "true", "--data.val_split_fraction", "0.25",
                          "--eval.max_iters", "1000"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const nlohmann::json validation = read_run(folder / "out")["validation"].back();
  const auto evaluate = [&](const fs::path& model, const Words& more) {
    Words words{"evaluate",
                model,
                "--data",
                rows,
                "--split",
                "val",
                "--data.val_split_fraction",
                "0.25",
                "--precision",
                "32-true",
                "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output);
  };
  const fs::path model = folder / "out/final";
  const nlohmann::json same = evaluate(model, {});
  EXPECT_EQ(same["tokens"], validation["tokens"]);
  EXPECT_NEAR(same["loss"], validation["loss"], 1e-4);
  EXPECT_EQ(same["prompt_style"], "plain");
  EXPECT_GT(evaluate(model, {"--data.mask_prompt", "false"})["tokens"], validation["tokens"]);
  ASSERT_EQ(run({"convert", model, folder / "copy"}).exit_code, 0);
  EXPECT_EQ(evaluate(folder / "copy", {})["tokens"], validation["tokens"]);
}

TEST(Finetune, WarmUpNeverTakesTheWholeRun) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 8);
  const Result result = run(finetune_words(
      rows, folder / "out", {"--train.lr_warmup_steps", "100", "--data.val_split_fraction", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json steps = read_run(folder / "out")["steps"];
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_GT(steps[0]["lr"], 0.0);
  EXPECT_NE(result.output.find("0 steps instead of train.lr_warmup_steps = 100"), std::string::npos)
      << result.output;
}

TEST(Finetune, WarmUpAsAShareIsThatShare) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 8);
  const auto rates = [&](const char* share, const char* steps) {
    const Result result = run(finetune_words(
        rows, folder / "out",
        {"--train.lr_warmup_steps", "0", "--train.lr_warmup_fraction", share, "--train.max_steps",
         steps, "--train.epochs", "9", "--data.val_split_fraction", "0"}));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const nlohmann::json record = read_run(folder / "out");
    std::vector<double> found;
    for (const nlohmann::json& step : record["steps"]) found.push_back(step["lr"]);
    return found;
  };
  const std::vector<double> all = rates("1", "4");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0], 0);
  EXPECT_DOUBLE_EQ(all[3], 3 * all[1]);
  EXPECT_GT(rates("0.1", "1").at(0), 0) << "a run of one step learns";
}

TEST(Finetune, QuantizedWeightsAreNotTrained) {
  const TempFolder folder;
  Words words = finetune_words(write_rows(folder / "rows.jsonl", 8), folder / "out",
                               {"--full", "true", "--quantize", "bnb.nf4"});
  words.front() = "finetune";
  const Result result = run(words);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("quantized weights cannot be trained"), std::string::npos)
      << result.output;
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Finetune, OutOfMemoryIsAResult) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const Result result =
      run(finetune_words(rows, folder / "out", {"--memory_budget", "1200KiB", "--force"}));
  EXPECT_EQ(result.exit_code, 3) << result.output;
  for (const char* part : {"missing", "Live:", "parameters", "What would fit"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  EXPECT_EQ(read_run(folder / "out")["outcome"], "oom");
  EXPECT_FALSE(fs::exists(folder / "out/final"));
}

// Without --force the plan ends it before a weight is read.
TEST(Finetune, WhatCannotFitIsNotStarted) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const Result result = run(finetune_words(rows, folder / "out", {"--memory_budget", "1200KiB"}));
  EXPECT_EQ(result.exit_code, 3) << result.output;
  for (const char* part : {"the plan does not fit", "--force", "What would fit"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  const nlohmann::json record = read_run(folder / "out");
  EXPECT_EQ(record["outcome"], "oom");
  EXPECT_TRUE(record["steps"].empty());
}

// --fit turns on what makes it fit, says so, and the run stays within the budget.
TEST(Finetune, FitChoosesWhatMakesItFit) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  ASSERT_EQ(run(finetune_words(rows, folder / "roomy")).exit_code, 0);
  const int64_t peak = read_run(folder / "roomy")["memory"]["measured"]["peak_allocated"];
  const Result result = run(finetune_words(
      rows, folder / "tight", {"--memory_budget", std::to_string(peak * 6 / 10), "--fit"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("combinations tried: --"), std::string::npos) << result.output;
  const nlohmann::json record = read_run(folder / "tight");
  EXPECT_LE(record["memory"]["measured"]["peak_allocated"].get<int64_t>(), peak * 6 / 10);
  EXPECT_LE(record["memory"]["measured"]["peak_allocated"].get<int64_t>(),
            record["memory"]["predicted"]["peak_allocated"].get<int64_t>());
}

// With so little host memory that the states must leave it, --fit trains with them in the folder
// that it was given, and says why.
TEST(Finetune, FitPutsStatesOnADiskWhereItMayAndMust) {
  const TempFolder folder, disk;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  ASSERT_EQ(run(finetune_words(rows, folder / "roomy")).exit_code, 0);
  const int64_t peak = read_run(folder / "roomy")["memory"]["measured"]["peak_allocated"];
  const int64_t there = peak * 84 / 100;
  Words words =
      finetune_words(rows, folder / "tight", {"--host_memory", std::to_string(there), "--fit"});
  const Result refused = run(words);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_NE(refused.output.find("--fit_disk FOLDER"), std::string::npos) << refused.output;
  words.insert(words.end(), {"--fit_disk", disk.path().string()});
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("Optimizer states are on disk, as fit_disk allows"),
            std::string::npos)
      << result.output;
  const nlohmann::json record = read_run(folder / "tight");
  EXPECT_EQ(record["memory"]["measured"]["on_disk"], record["memory"]["predicted"]["on_disk"]);
  EXPECT_GT(record["memory"]["measured"]["on_disk"].get<int64_t>(), 0);
  EXPECT_LE(record["memory"]["measured"]["peak_allocated"].get<int64_t>(), there);
  EXPECT_TRUE(fs::is_empty(disk.path()));
}

TEST(Plan, SaysWhatARunThenTakes) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  ASSERT_EQ(run(finetune_words(rows, folder / "out")).exit_code, 0);
  const double measured = read_run(folder / "out")["memory"]["measured"]["peak_allocated"];
  Words words = finetune_words(rows, folder / "unused", {"--json", "--html", folder / "plan.html"});
  words[0] = "plan";
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json plan = nlohmann::json::parse(result.output);
  const double planned = plan["memory"]["peak_allocated"];
  EXPECT_LE(measured, planned);
  EXPECT_GE(measured, 0.97 * planned);
  EXPECT_EQ(plan["fits"], true);
  EXPECT_GT(plan["timeline"].size(), 5U);
  EXPECT_FALSE(fs::exists(folder / "unused"));
  std::string page = read_file(folder / "plan.html");
  for (const char* part : {"<svg", "block 0, forward", "</html>", "default-src 'none'"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // What is no address: the name of the page's language, and where its policy stands.
  for (const std::string name : {"http://www.w3.org/1999/xhtml", "http-equiv"}) {
    ASSERT_NE(page.find(name), std::string::npos) << name;
    page.erase(page.find(name), name.size());
  }
  EXPECT_EQ(page.find("http"), std::string::npos) << "the page needs no network";
}

TEST(Finetune, SplittingGoesOnWithSmallerMicroBatches) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  ASSERT_EQ(run(finetune_words(rows, folder / "roomy")).exit_code, 0);
  const int64_t peak = read_run(folder / "roomy")["memory"]["measured"]["peak_allocated"];
  const std::string budget = std::to_string(peak - 2000);
  const Result result = run(finetune_words(rows, folder / "tight",
                                           {"--memory_budget", budget, "--train.on_oom", "split"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("does not fit; continuing with 2"), std::string::npos)
      << result.output;
  const std::vector<double> expected = losses(read_run(folder / "roomy"));
  const std::vector<double> split = losses(read_run(folder / "tight"));
  ASSERT_EQ(expected.size(), split.size());
  for (size_t i = 0; i < split.size(); ++i) EXPECT_NEAR(split[i], expected[i], 1e-4 * expected[i]);
}

TEST(Convert, ThereAndBackIsTheSame) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  ASSERT_EQ(run(finetune_words(rows, folder / "out", {"--train.max_steps", "2"})).exit_code, 0);
  const std::string original = folder / "out/final";
  ASSERT_EQ(run({"convert", original, folder / "litgpt", "--to", "litgpt"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder / "litgpt/lit_model.pth"));
  const Result back = run({"convert", folder / "litgpt", folder / "hf", "--to", "hf"});
  ASSERT_EQ(back.exit_code, 0) << back.output;
  const Words tail{
      "--data", "JSON",        "--data.json_path", rows.string(), "--data.prompt_style",
      "plain",  "--precision", "32-true",          "--json",      "true"};
  Words a{"evaluate", original};
  Words b{"evaluate", folder / "hf"};
  a.insert(a.end(), tail.begin(), tail.end());
  b.insert(b.end(), tail.begin(), tail.end());
  EXPECT_EQ(run(a).output, run(b).output);
}

}  // namespace
}  // namespace snug::tests
