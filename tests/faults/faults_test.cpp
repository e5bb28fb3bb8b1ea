// A disk that fails, is full, or stops with the machine, at any single call of a short run: nothing
// that was whole is lost, no failure is taken for success, and the same command then comes to the
// end that it would have come to, with nothing left behind.
//
// One after another each call on a file fails once, or it and all that follow, or the program is
// killed there. A few cases of each command are drawn unless SNUG_FAULTS asks for more: "all" takes
// all of them (two hours), "kill" those of one kind, "kill:17" one alone.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "faults/faulty_disk.h"
#include "support/drawn_cases.h"
#include "support/programs.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// What happens at the disk. What lasts holds for every call from then on.
struct Fault {
  std::string kind;
  bool lasts = false;
  bool is_seen = true;  // false: the program must end as if nothing had happened
};

const std::vector<Fault> kFaults{{.kind = "EIO"},
                                 {.kind = "EIO", .lasts = true},
                                 {.kind = "ENOSPC"},
                                 {.kind = "kill"},
                                 {.kind = "ENOSPC", .lasts = true},
                                 {.kind = "EINTR", .is_seen = false},
                                 {.kind = "short", .is_seen = false}};

std::string name_of(const Fault& fault) {
  return fault.kind + (fault.lasts ? " from then on" : "");
}

// A command, what it finds, and the folder that it fills.
struct Scenario {
  std::string name;
  Words words;
  std::vector<std::string> whole = {};  // folders below "work" that are there whole or not at all
};

// Steps of a run, or the last words on it: what does not depend on how long things took.
std::string essence_of_run(const json& run) {
  json steps = json::array();
  for (const json& step : run["steps"]) steps.push_back({step["step"], step["loss"]});
  return json{run["outcome"], steps, run["validation"]}.dump();
}

std::string essence_of_metrics(const std::string& text) {
  std::string essence;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t loss = line.find(',') + 1;
    essence += line.substr(0, line[loss] == ',' ? line.npos : line.find(',', loss)) + "\n";
  }
  return essence;
}

// What a file says that another run must say too. Throws on one that is not whole.
std::string essence_of(const fs::path& file) {
  const std::string name = file.filename(), text = read_file(file);
  if (name == "run.json") return essence_of_run(json::parse(text));
  if (name == "row.json") return json::parse(text)["outcome"].dump();
  if (name == "metrics.csv") return essence_of_metrics(text);
  if (name.ends_with(".lock") || name == "output.log") return "";
  if (name == "log.txt") return text.find("\ntrain:\n") != text.npos ? "there" : "no recipe";
  if (name.starts_with("report.") || file.parent_path().filename() == "live" ||
      name == "plan.json" || name == "checksums.json" || name == "lab.json" ||
      name == "suite.json") {
    return name.ends_with(".json") && json::parse(text).empty() ? "empty" : "there";
  }
  return text;
}

using Files = std::map<std::string, std::string>;

bool is_temporary(const std::string& path) {
  const bool is_record = path.find(".lock") != path.npos;
  return !is_record && (path.find("/.") != path.npos || path.find(".tmp-") != path.npos ||
                        path.find(".new") != path.npos);
}

// Everything below "work" but what an earlier attempt was moved to.
Files files_in(const fs::path& work) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(work)) {
    const std::string path = fs::relative(entry.path(), work);
    if (path.starts_with("out/earlier")) continue;
    if (entry.is_directory()) {
      if (is_temporary("/" + path)) files[path + "/"] = "";
      continue;
    }
    try {
      files[path] = essence_of(entry.path());
    } catch (const std::exception& error) {
      files[path] = is_temporary("/" + path) ? "" : std::string("damaged: ") + error.what();
    }
  }
  return files;
}

// The first difference, for a person.
std::string difference(const Files& found, const Files& wanted) {
  for (const auto& [path, essence] : wanted) {
    if (!found.contains(path)) return path + " is missing";
    if (found.at(path) != essence)
      return fmt::format("{} is not as in an undisturbed run:\n{}\nbut\n{}", path,
                         essence.substr(0, 300), found.at(path).substr(0, 300));
  }
  for (const auto& [path, essence] : found)
    if (!wanted.contains(path) && !path.ends_with(".lock")) return path + " is left behind";
  return "";
}

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(state_file_) << std::string(sizeof(State), '\0');
    const int file = ::open(state_file_.c_str(), O_RDWR | O_CLOEXEC);
    state_ = static_cast<State*>(
        ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    ASSERT_NE(state_, MAP_FAILED);
    fs::create_directories(work_);
  }
  void TearDown() override { ::munmap(state_, sizeof(State)); }

  // A model small enough that its run is over at once, and its data.
  void make_model() const {
    fs::create_directories(model());
    for (const auto& entry : fs::directory_iterator(tiny_checkpoint()))
      fs::copy(entry.path(), model());
    json config = json::parse(read_file(model() / "config.json"));
    config["num_hidden_layers"] = 1;
    std::ofstream(model() / "config.json") << config;
    write_rows(work_ / "rows.jsonl", 40);
  }
  fs::path model() const { return work_ / "model"; }
  fs::path out() const { return work_ / "out"; }

  // Four steps, two checkpoints, of which one is kept.
  Words training() const {
    Words words =
        finetune_words(work_ / "rows.jsonl", out(),
                       {"--train.max_steps", "4", "--train.save_interval", "2",
                        "--train.keep_checkpoints", "1", "--resume", "auto", "--eval.interval", "3",
                        "--data.val_split_fraction", "0.1", "--num_threads", "1"});
    words[1] = model();
    words[3] = model() / "config.json";
    return words;
  }
  // The files of a trained model of its own, in place of the untrained one.
  void train_model() const {
    make_model();
    ASSERT_EQ(run(training()).exit_code, 0);
    fs::remove_all(model());
    fs::rename(out() / "final", model());
    fs::remove_all(out());
  }

  void enumerate(const Scenario& scenario);
  // Counts, and runs undisturbed, where `at` is 0.
  Result run_with(const Fault& fault, int64_t at, const Words& words) const;

  const TempFolder folder_;
  const fs::path work_ = folder_ / "work", before_ = folder_ / "before";
  State* state_ = nullptr;

 private:
  void start_over() const;
  void check(const Scenario& scenario, const Fault& fault, int64_t at);
  std::string fault_of_end(const Scenario& scenario, const Fault& fault, const Result& result);
  std::string fault_of_parts(const Scenario& scenario, const Files& files) const;

  const fs::path state_file_ = folder_ / "state";
  Files expected_, old_;
  std::map<std::string, std::map<std::string, int>> counts_;  // by fault: how the program ended
};

Result Faults::run_with(const Fault& fault, int64_t at, const Words& words) const {
  state_->calls = 0;
  state_->where[0] = 0;
  const test::Environment environment[]{
      {"LD_PRELOAD", SNUG_FAULTY_DISK},      {"SNUG_FAULT_FOLDER", work_},
      {"SNUG_FAULT_STATE", state_file_},     {"SNUG_FAULT_KIND", fault.kind},
      {"SNUG_FAULT_AT", std::to_string(at)}, {"SNUG_FAULT_LASTS", fault.lasts ? "1" : "0"}};
  return run(words);
}

void Faults::start_over() const {
  fs::remove_all(work_);
  fs::copy(before_, work_, fs::copy_options::recursive);
}

// A folder that is put in place whole has all of its files, each as before or as it shall become.
std::string Faults::fault_of_parts(const Scenario& scenario, const Files& files) const {
  for (const auto& [path, essence] : files) {
    if (is_temporary("/" + path)) continue;
    if (essence.starts_with("damaged: ")) return path + " is " + essence;
    for (const std::string& folder : scenario.whole) {
      if (!path.starts_with(folder + "/")) continue;
      for (const auto& [part, wanted] : expected_)
        if (part.starts_with(folder + "/") && (!files.contains(part) || files.at(part) != wanted) &&
            !(old_.contains(part) && files.contains(part) && files.at(part) == old_.at(part)))
          return fmt::format("{} is there, but {} is not whole", path, part);
    }
  }
  return "";
}

// What is wrong with how the program ended and what it left; empty: nothing.
std::string Faults::fault_of_end(const Scenario& scenario, const Fault& fault,
                                 const Result& result) {
  const Files files = files_in(work_);
  const int code = result.exit_code;
  ++counts_[name_of(fault)][code == 0 ? "done" : code == 137 ? "killed" : "refused"];
  if (!fault.is_seen) return result.exit_code == 0 ? difference(files, expected_) : "it failed";
  if (result.exit_code == 0) {
    for (const auto& [path, essence] : expected_)
      if (essence != "there" && (!files.contains(path) || files.at(path) != essence))
        return fmt::format("exit code 0, but {} is {}", path,
                           files.contains(path) ? files.at(path).substr(0, 300) : "missing");
    return "";
  }
  const bool was_killed = fault.kind == "kill" && result.exit_code == 137;
  const auto says = [&](const char* text) { return result.output.find(text) != std::string::npos; };
  const bool explains = says("snug: ") || says(" error   ");  // of the program, of a row
  const bool is_clear = result.exit_code == 2 && explains;
  const bool row_was_killed = fault.kind == "kill" && says("killed by signal 9");
  if (!was_killed && !is_clear && !row_was_killed)
    return fmt::format("exit code {}", result.exit_code);
  return fault_of_parts(scenario, files);
}

void Faults::check(const Scenario& scenario, const Fault& fault, int64_t at) {
  start_over();
  const Result result = run_with(fault, at, scenario.words);
  const std::string where = state_->where;
  std::string wrong = fault_of_end(scenario, fault, result);
  Result next;
  if (wrong.empty() && fault.is_seen) {
    next = run(scenario.words);
    wrong = difference(files_in(work_), expected_);
    const bool was_done = next.output.find("exists already") != std::string::npos;
    if (next.exit_code != 0 && !was_done) wrong = fmt::format("then exit code {}", next.exit_code);
    if (!wrong.empty()) wrong = "started again: " + wrong;
  }
  if (!wrong.empty())
    ADD_FAILURE() << scenario.name << ", SNUG_FAULTS=" << fault.kind << ":" << at << " ("
                  << name_of(fault) << ", " << where << "): " << wrong << "\n"
                  << result.output << (next.output.empty() ? "" : "\nand then\n") << next.output;
}

// The cases that SNUG_FAULTS names, or one of each of a few kinds that are drawn. Which calls count
// is the kind's.
void Faults::enumerate(const Scenario& scenario) {
  constexpr int64_t kDrawn = 4;
  const std::string wanted = variable("SNUG_FAULTS");
  const std::string kind = wanted.substr(0, wanted.find(':'));
  const int64_t one = kind == wanted ? 0 : std::atoll(wanted.c_str() + kind.size() + 1);
  fs::copy(work_, before_, fs::copy_options::recursive);
  old_ = files_in(work_);
  ASSERT_EQ(run_with(kFaults.front(), 0, scenario.words).exit_code, 0);
  expected_ = files_in(work_);
  std::vector<size_t> faults;
  if (wanted.empty()) {
    const auto few = static_cast<size_t>((kDrawn + one_of() - 1) / one_of());
    faults = drawn_of(kFaults.size(), few, "kinds of faults of " + scenario.name);
  } else {
    for (size_t i = 0; i < kFaults.size(); ++i)
      if (wanted == "all" || kFaults[i].kind == kind) faults.push_back(i);
  }
  int64_t num_cases = 0;
  for (const size_t i : faults) {
    start_over();
    const Result whole = run_with(kFaults[i], 0, scenario.words);
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    ASSERT_EQ(difference(files_in(work_), expected_), "") << "it is not the same each time";
    const auto calls = static_cast<size_t>(state_->calls);
    ASSERT_GT(calls, 0U);
    const size_t number = wanted.empty() ? 1 : calls;
    for (const size_t at : drawn_of(calls, number, name_of(kFaults[i]) + " in " + scenario.name)) {
      if (one != 0 && one != static_cast<int64_t>(at) + 1) continue;
      check(scenario, kFaults[i], static_cast<int64_t>(at) + 1);
      ++num_cases;
    }
  }
  std::string table;
  for (const auto& [fault, ends] : counts_) {
    table += fmt::format("{:22}", fault);
    for (const auto& [end, count] : ends) table += fmt::format("  {} {}", count, end);
    table += "\n";
  }
  fmt::print("{}: {} cases\n{}", scenario.name, num_cases, table);
}

TEST_F(Faults, ATrainingRun) {
  make_model();
  enumerate({.name = "finetune",
             .words = training(),
             .whole = {"out/final", "out/step-000002", "out/step-000004"}});
}

// As if it had been killed after its second step.
TEST_F(Faults, ARunThatGoesOn) {
  make_model();
  ASSERT_EQ(run_with({.kind = "EIO"}, 0, training()).exit_code, 0);
  const auto has_checkpoint = [&] {
    return fs::exists(out() / "step-000002") || fs::exists(out() / "step-000004");
  };
  const auto is_half = [&] {
    return fs::exists(out() / "step-000002") && !fs::exists(out() / "final");
  };
  const auto kill_at = [&](int64_t call) {
    fs::remove_all(out());
    run_with({.kind = "kill"}, call, training());
  };
  // The first call after which there is a checkpoint; how many there are before varies a little.
  int64_t first = 1;
  for (int64_t last = state_->calls; first < last;) {
    const int64_t middle = (first + last) / 2;
    kill_at(middle);
    if (has_checkpoint())
      last = middle;
    else
      first = middle + 1;
  }
  for (int64_t call = first; call < first + 20 && !is_half(); ++call) kill_at(call);
  ASSERT_TRUE(is_half());
  enumerate({.name = "resume",
             .words = training(),
             .whole = {"out/final", "out/step-000002", "out/step-000004"}});
}

TEST_F(Faults, AConversion) {
  train_model();
  enumerate({.name = "convert", .words = {"convert", model(), out()}, .whole = {"out"}});
}

TEST_F(Faults, AConversionToOneFile) {
  train_model();
  enumerate({
      .name = "convert to GGUF",
      .words = {"convert", model(), work_ / "out.gguf"},
  });
}

TEST_F(Faults, AMergedAdapter) {
  const fs::path adapters = fs::path(SNUG_SOURCE_DIR) / "tests/data/adapters";
  const fs::path adapter = work_ / "adapter";
  fs::copy(adapters / "base", model());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(fs::path(tiny_checkpoint()) / file, model() / file);
  fs::copy(adapters / "peft/query-value", adapter);
  json config = json::parse(read_file(adapter / "adapter_config.json"));
  config["base_model_name_or_path"] = model();
  std::ofstream(adapter / "adapter_config.json") << config;
  std::ofstream(adapter / "prompt_style.json") << R"({"mask_prompt": false, "style": "plain"})";
  enumerate({.name = "merge", .words = {"merge", adapter, "--out_dir", out()}, .whole = {"out"}});
}

TEST_F(Faults, ASuite) {
  make_model();
  std::ofstream(work_ / "small.yaml")
      << "suite: small\ntitle: One row\nabout: One row.\ndevice: a100-80\n"
         "models: {tiny: {checkpoint: "
      << model().string() << ", config: " << (model() / "config.json").string()
      << ", scaled: " << (model() / "config.json").string()
      << "}}\nset: {train.max_seq_length: 32, data: Synthetic}\n"
         "scaled: {about: As it is., memory_budget: 100MiB, row_timeout: 60, set: {data: "
         "Synthetic, train.max_steps: 2, train.save_model: false, num_threads: 1}}\n"
         "rows: [{id: only, title: Only, model: tiny}]\n";
  enumerate({
      .name = "lab",
      .words = {"lab", "run", work_ / "small.yaml", "--scaled", "--out_dir", out()},
  });
}

}  // namespace
}  // namespace snug::tests
