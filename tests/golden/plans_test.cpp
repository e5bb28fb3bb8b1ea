// What plans say, kept from one commit to the next: all recipes and the rows of all suites for GPUs
// of fixed profiles, layouts over several devices, each technique, and fits. A change of how a step
// runs must leave them as they are, to the byte; one that is meant to change them renews the file
// (tests/data/plan/golden.jsonl) with SNUG_WRITE_REFERENCE=1, and its commit says why.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/meta_count.h"
#include "data/each_index.h"
#include "engine/strategy.h"
#include "lab/suite/suite.h"
#include "plan/command/planned.h"
#include "recipe/check.h"
#include "recipe/parse.h"
#include "support/drawn_cases.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"
#include "watch/machine/machine.h"

namespace snug::plan {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Words = std::vector<std::string>;

// FNV-1a.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  void add(int64_t number) {
    add(std::string_view(reinterpret_cast<const char*>(&number), sizeof number));
  }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

// Every change of the device's memory in the step that a plan runs: which allocation, how many
// bytes, in which unit's pass, and what is live of each category after it. Up to the last
// allocation, since the order of the frees after it is not specified.
std::string hash_of_events(const Planned& p) {
  Hash hash, until_last;
  uint64_t first = 0;
  memory::Ledger& ledger = memory::meta_ledger();
  const memory::ByCategory before = ledger.by_category();
  ledger.observe([&](const memory::Change& change) {
    if (first == 0) first = change.serial;
    hash.add(static_cast<int64_t>(change.serial - first));
    hash.add(change.bytes);
    hash.add(static_cast<int64_t>(change.phase));
    hash.add(memory::unit_name(change.unit));
    hash.add(static_cast<int64_t>(2 * change.recorded + change.empties));
    for (size_t c = 0; c < before.size(); ++c) hash.add((*change.live)[c] - before[c]);
    if (change.bytes > 0) until_last = hash;
  });
  const auto transport = p.device.kind == at::kCUDA ? dist::Transport::Nccl : dist::Transport::Mpi;
  predict(*p.checkpoint.model, p.recipe,
          largest_micro_batch(p.workload(), p.recipe, p.recipe.train.micro_batch_size), p.longest,
          {.device = p.device.kind,
           .flash_attention = p.device.flash_attention,
           .mesh = dist::planned_mesh(engine::named_strategy(p.recipe).mesh, 0, transport)});
  ledger.observe({});
  return until_last.text();
}

// Six digits: libraries of mathematics differ in the last.
double rounded(double seconds) { return std::stod(fmt::format("{:.6g}", seconds)); }

ordered_json figures(const Candidate& c) {
  const Prediction& p = c.prediction;
  return {{"allocated", p.peak_allocated},
          {"reserved", p.peak_reserved},
          {"host", p.peak_host},
          {"disk", p.on_disk},
          {"categories", p.by_category},
          {"resident", p.resident},
          {"after_forward", p.after_forward},
          {"written", p.bytes_written},
          {"waits", p.host_waits},
          {"driver", {p.driver_calls.retries, p.driver_calls.gets, p.driver_calls.gives}},
          {"seconds", rounded(c.cost.seconds())},
          {"hidden",
           {rounded(c.cost.optimizer_seconds - c.cost.exposed_optimizer_seconds),
            rounded(c.cost.transfer_seconds - c.cost.exposed_transfer_seconds),
            rounded(c.cost.collective_seconds - c.cost.exposed_collective_seconds)}}};
}

ordered_json planned(const Words& words) {
  const recipe::ParsedCommand parsed = recipe::parse_command_line(words);
  recipe::check_recipe(parsed.command, parsed.recipe);
  Planned p{.recipe = parsed.recipe};
  plan_recipe(p, parsed.plan);
  ordered_json out;
  for (const Candidate& stage : p.stages) out["stages"].push_back(figures(stage));
  out["events"] = hash_of_events(p);
  if (!p.recipe.fit) return out;
  const Fit found = fit(*p.checkpoint.model, p.recipe, p.workload(), p.device);
  out["fit"] = ordered_json::array();
  for (const Candidate& c : found.front)
    out["fit"].push_back({c.options, c.prediction.peak_reserved, rounded(c.cost.seconds())});
  return out;
}

// --- the cases: a name, and what is typed behind snug ---

using Cases = std::map<std::string, Words>;

// What the recipes that leave the model to the command line are for, by their folder.
const std::map<std::string, std::string> kModels{
    {"captions", "smolvlm-256m-instruct"},
    {"exaone4-1.2b", "exaone-4.0-1.2b"},
    {"falcon-7b", "falcon-7b"},
    {"gemma3-270m", "gemma-3-270m"},
    {"gpt-oss-20b", "gpt-oss-20b"},
    {"ministral3-8b", tests::source_dir() / "tests/data/parity/ministral3/config.json"},
    {"mixtral-8x7b", "mixtral-8x7b-v0.1"},
    {"olmo3-7b", "olmo-3-1025-7b"},
    {"olmoe-1b-7b", "olmoe-1b-7b-0924"},
    {"pythia-160m", "pythia-160m"},
    {"qwen3-0.6b", "qwen3-0.6b"},
    {"qwen3-30b-a3b", "qwen3-30b-a3b"},
    {"smollm2", "smollm2-135m"},
    {"smolvlm", "smolvlm-256m-instruct"},
    {"starcoder2-3b", "starcoder2-3b"}};

void add_recipes(Cases& cases) {
  for (const auto& entry : fs::recursive_directory_iterator(tests::source_dir() / "recipes")) {
    const fs::path file = entry.path().lexically_relative(tests::source_dir());
    const bool is_recipe =
        file.extension() == ".yaml" && std::distance(file.begin(), file.end()) == 3;
    if (!is_recipe || file.parent_path() == "recipes/lab") continue;
    Words words{"plan", entry.path().string(), "--device", "a100-80"};
    if (file.filename() == "parts.yaml") continue;  // of a Q-Former, with pictures of one's own
    const auto model = kModels.find(file.parent_path().filename());
    if (model != kModels.end()) words.insert(words.end(), {"--checkpoint_dir", model->second});
    cases[file.string()] = std::move(words);
  }
}

void add_suites(Cases& cases) {
  for (const auto& entry : fs::directory_iterator(tests::source_dir() / "recipes/lab")) {
    if (entry.path().extension() != ".yaml") continue;
    const lab::Suite suite = lab::read_suite(entry.path());
    for (const lab::Row& row : suite.rows)
      cases[entry.path().stem().string() + " " + row.id] =
          lab::plan_words(suite, row, lab::Mode::Plan, {});
  }
}

void add(Cases& cases, const std::string& options) {
  Words words{"plan"};
  for (size_t at = 0; at < options.size();) {
    const size_t end = std::min(options.find(' ', at), options.size());
    words.push_back(options.substr(at, end - at));
    at = end + 1;
  }
  cases[options] = std::move(words);
}

void add_others(Cases& cases) {
  const std::string small = "qwen3-0.6b --device rtx-4090 --max_seq_length 512";
  for (const char* technique :
       {"--activation_checkpointing all",
        "--activation_checkpointing every:2",
        "--activation_checkpointing selective",
        "--activation_offload true",
        "--activation_checkpointing all --activation_offload true",
        "--optimizer_in_backward true --train.micro_batch_size 16",
        "--optimizer_in_backward true --train.max_norm 1",
        "--optimizer_offload cpu",
        "--optimizer_offload disk:/",
        "--optimizer_offload cpu --delayed_parameter_update true",
        "--weight_streaming true --optimizer_offload cpu",
        "--weight_streaming true --optimizer_offload cpu --optimizer_in_backward true "
        "--activation_checkpointing all --activation_offload true",
        "--cast_cache true",
        "--cuda_graphs true",
        "--precision bf16-true",
        "--precision 32-true",
        "--precision 16-mixed",
        "--lora_r 8",
        "--lora_r 8 --quantize bnb.nf4",
        "--lora_r 8 --quantize bnb.int8",
        "--lora_r 8 --weight_streaming true --optimizer_offload cpu",
        "--lora_r 8 --weight_streaming true --optimizer_offload cpu --weight_offload disk:/",
        "--optimizer sgd",
        "--optimizer adam8bit",
        "--optimizer adafactor",
        "--optimizer lion",
        "--fit true"})
    add(cases, small + " " + technique);
  const std::string eight = "qwen3-8b --device h100-80 --devices 8 --max_seq_length 1024";
  for (const char* layout :
       {"--strategy ddp", "--strategy zero1", "--strategy zero2", "--strategy fsdp",
        "--mesh fsdp=4,tp=2", "--mesh pp=2,fsdp=4", "--mesh pp=4,tp=2",
        "--mesh pp=2,tp=2,fsdp=2 --pipeline_interleave 2", "--mesh fsdp=2,cp=4", "--mesh cp=2,tp=4",
        "--strategy fsdp --activation_checkpointing all --optimizer_offload cpu", "--fit true"})
    add(cases, eight + " " + layout);
  for (const char* other :
       {"olmoe-1b-7b-0924 --device a100-80 --lora_r 8 --weight_streaming true --optimizer_offload "
        "cpu "
        "--expert_streaming true --max_seq_length 512",
        "olmoe-1b-7b-0924 --device h100-80 --devices 4 --mesh ep=4 --max_seq_length 512",
        "qwen3-8b --device rtx-4090 --lora_r 8 --fit true", "llama-3.2-1b --device l4 --fit true"})
    add(cases, other);
}

std::string difference(const ordered_json& kept, const ordered_json& now) {
  std::string text;
  for (const auto& item : ordered_json::diff(kept, now)) {
    const auto path = ordered_json::json_pointer(item["path"].get<std::string>());
    text += fmt::format("\n  {}: {} -> {}", path.to_string(),
                        kept.contains(path) ? kept[path].dump() : "nothing",
                        item.contains("value") ? item["value"].dump() : "nothing");
  }
  return text;
}

TEST(Golden, PlansAreAsTheyWere) {
  const fs::path file = tests::source_dir() / "tests/data/plan/golden.jsonl";
  Cases cases;
  add_recipes(cases);
  add_suites(cases);
  add_others(cases);
  const std::vector<std::pair<std::string, Words>> all(cases.begin(), cases.end());
  EXPECT_GE(all.size(), 250U);

  std::map<std::string, ordered_json> kept;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const ordered_json parsed = ordered_json::parse(line);
    kept[parsed["plan"]] = parsed["is"];
  }
  const bool renews = std::getenv("SNUG_WRITE_REFERENCE") != nullptr;
  memory::install_allocators();
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:9", 1);  // no hub, as without a network
  for (const char* settings : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    ::unsetenv(settings);
  // Nothing that lies about here becomes part of a plan.
  const test::TempFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_TRUE(renews || kept.size() == all.size()) << kept.size() << " of " << all.size();
  const std::vector<size_t> drawn =
      tests::drawn_of(all.size(), "plans", renews ? 1 : tests::one_of());
  std::vector<ordered_json> now(drawn.size());
  data::for_each_index(drawn.size(), machine::usable_cores(), [&](size_t i) {
    const memory::OwnMetaLedgers ledgers;
    try {
      now[i] = planned(all[drawn[i]].second);
    } catch (const UserError& error) {
      ADD_FAILURE() << all[drawn[i]].first << ": " << error.what();
    }
  });
  std::string written;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const std::string& name = all[drawn[i]].first;
    written += ordered_json{{"plan", name}, {"is", now[i]}}.dump() + "\n";
    if (renews) continue;
    EXPECT_EQ(difference(kept[name], now[i]), "") << name;
  }
  fs::current_path(before);
  if (renews) write_file_atomically(file, written);
}

}  // namespace
}  // namespace snug::plan
