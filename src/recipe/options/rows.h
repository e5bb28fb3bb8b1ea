// The option tables: which rows each command has. A table is bound to one struct and must not
// outlive it. Two tables of a command have the same rows in the same order, so that the table of a
// default struct gives the defaults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/mesh.h"
#include "recipe/options/commands.h"
#include "recipe/options/row.h"
#include "recipe/recipe.h"

namespace snug::recipe {

std::vector<Row> recipe_rows(Recipe& recipe);
std::vector<Row> demo_rows(DemoOptions& options);
std::vector<Row> plan_rows(PlanOptions& options);
std::vector<Row> models_rows(ModelsOptions& options);
std::vector<Row> import_rows(ImportOptions& options);
std::vector<Row> generate_rows(GenerateOptions& options);
std::vector<Row> caption_rows(CaptionOptions& options);
std::vector<Row> chat_rows(GenerateOptions& options);
std::vector<Row> show_data_rows(ShowDataOptions& options);
std::vector<Row> evaluate_rows(EvaluateOptions& options);
std::vector<Row> convert_rows(ConvertOptions& options);
std::vector<Row> merge_rows(MergeOptions& options);
std::vector<Row> bench_rows(BenchOptions& options);
std::vector<Row> lab_rows(LabOptions& options);
std::vector<Row> monitor_rows(MonitorOptions& options);
std::vector<Row> doctor_rows(DoctorOptions& options);
std::vector<Row> verify_rows(VerifyOptions& options);
std::vector<Row> download_rows(DownloadOptions& options);
std::vector<Row> completion_rows(CompletionOptions& options);
std::vector<Row> help_rows(HelpOptions& options);

// A smaller memory size was probably meant in another unit.
inline constexpr double kLeastMemory = 1 << 16;
// Upper bounds: far above what anybody trains with, and low enough that products of them do not
// overflow.
inline constexpr double kMostMemory = 0x1p60;  // bytes
inline constexpr double kMostSteps = 1e9;
inline constexpr double kMostEpochs = 1e6;
inline constexpr double kMostSamplesAStep = 1 << 20;
inline constexpr double kMostSamplesAtOnce = 1 << 16;  // in a micro-batch
inline constexpr double kMostTokens = 1 << 24;         // of a sample or an answer
inline constexpr double kMostRate = 1e3;               // learning rates and decays
inline constexpr double kMostSeconds = 1e7;            // a third of a year
inline constexpr double kMostSeed = 0x1p64;            // all that 64 bits hold

// Rows that several commands have.
std::vector<Row> data_rows(DataOptions& data);
std::vector<Row> machine_rows(std::string& accelerator, std::string& memory_budget,
                              int64_t& num_threads, bool& verbose);
Row quantize_row(std::string& slot, std::string_view help);
Row verbose_row(std::string_view theme, bool& slot);

// Themes of rows in several commands.
inline constexpr std::string_view kModelTopic = "Model";
inline constexpr std::string_view kProgramTopic = "Program";

// Keys that LitGPT writes into its recipes and that have no effect here. An unset one is accepted;
// a set one gives a warning with `why`.
struct IgnoredKey {
  std::string_view key;
  std::string_view why;
};
const IgnoredKey* find_ignored_key(std::string_view key);

// The lab's suites, sorted by name: those in the folders of $SNUG_SUITES, in recipes/lab of the
// current directory, and those installed with the program; of two with the same name, the first.
std::vector<std::filesystem::path> suite_files();
// Their names, as snug lab takes them and completion offers them.
std::vector<std::string> suite_names();

}  // namespace snug::recipe
