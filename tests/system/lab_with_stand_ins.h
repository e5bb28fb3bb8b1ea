// snug lab as a person uses it, over a suite whose rows' program is a shell script that ends as it
// is told to: for every end that a row may have, and what comes after it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "report/run_record.h"
#include "support/programs.h"
#include "system/program.h"

namespace snug::tests {

using nlohmann::json;
using Words = std::vector<std::string>;

inline std::string tiny_config() { return tiny_checkpoint() + "/config.json"; }

inline json plan_json(bool fits) {
  return {{"model", {{"parameters", 1}, {"trained", 1}}},
          {"device", {{"name", "stand-in"}, {"kind", "cpu"}, {"usable_bytes", 100}}},
          {"fits", fits},
          {"margin_bytes", fits ? 10 : -10},
          {"memory", {{"peak_allocated", fits ? 90 : 110}, {"by_category", json::object()}}},
          {"time", {{"step_seconds", 0.5}}},
          {"timeline", json::array()}};
}

class Lab : public ::testing::Test {
 protected:
  void SetUp() override {
    report::RunRecord record;
    record.memory.measured.peak_allocated = 80;
    for (int step = 1; step <= 3; ++step)
      record.steps.push_back({.step = step, .loss = 2, .seconds = 0.1});
    report::write_run_json(record, folder_ / "ok.json");
    record.outcome = "oom";
    report::write_run_json(record, folder_ / "oom.json");
    write_file_atomically(folder_ / "fits.json", plan_json(true).dump());
    write_file_atomically(folder_ / "too_large.json", plan_json(false).dump());
  }

  // `rows`: YAML of the suite from `rows:` on.
  void write_suite(const std::string& rows, const std::string& scaled = "row_timeout: 60") {
    write_file_atomically(
        folder_ / "odd.yaml",
        "suite: odd\ntitle: Stand-ins\nabout: Rows that end in every way.\ndevice: a100-80\n"
        "models: {tiny: {checkpoint: " +
            tiny_checkpoint() + ", config: " + tiny_config() + ", scaled: " + tiny_config() +
            "}}\nset: {train.max_seq_length: 64, data: Synthetic}\n" +
            "scaled: {about: As they are, memory_budget: 100MiB, " + scaled +
            ", set: {data: Synthetic, train.max_steps: 3, train.save_model: false}}\n" + rows);
  }
  void write_rows(const Words& ids, const std::string& scaled = "row_timeout: 60") {
    std::string rows = "rows:\n";
    for (const std::string& id : ids)
      rows += "  - {id: " + id + ", title: " + id +
              ", model: tiny, set: {seed: " + std::to_string(rows.size()) + "}}\n";
    write_suite(rows, scaled);
  }

  // What a row's process does: `cases` of the shell's `case` over "ID".
  void stand_in(const std::string& cases, const std::string& plan = "cat $here/fits.json; exit 0") {
    const std::string shell = "here=" + folder_.path().string() + R"sh(
for word in "$@"; do
  [ "$before" = --out_dir ] && out=$word
  [ "$before" = --train.micro_batch_size ] && size=$word
  before=$word
done
if [ "$1" = plan ]; then )sh" +
                              plan +
                              R"sh(; fi
id=$(basename "$(dirname "$out")")
echo "$id" >> "$here/calls"
mkdir -p "$out"
well() { cp "$here/ok.json" "$out/run.json"; exit 0; }
out_of_memory() { cp "$here/oom.json" "$out/run.json"; echo 'snug: out of memory' >&2; exit 3; }
case "$id" in
)sh" + cases + R"sh(
*) well;;
esac)sh";
    test::write_script(folder_ / "program", shell);
  }

  Words words(const Words& more) const {
    Words all{"lab",      "run",       (folder_ / "odd.yaml").string(),
              "--scaled", "--out_dir", out().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Result lab(const Words& more = {}) const {
    const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
    return run(words(more));
  }
  pid_t start_lab(const Words& more = {}) const {
    const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
    return start(words(more), folder_ / "lab.log");
  }

  fs::path out() const { return folder_ / "out"; }
  bool has_row(const std::string& id) const { return fs::exists(out() / "rows" / id / "row.json"); }
  json row(const std::string& id) const {
    return json::parse(read_file(out() / "rows" / id / "row.json"));
  }
  std::string outcome_in_report(const std::string& id) const {
    const json report = json::parse(read_file(out() / "report.json"));
    for (const json& each : report["rows"])
      if (each["id"] == id) return each["outcome"];
    return "no row";
  }
  std::map<std::string, int> calls() const {
    std::map<std::string, int> counts;
    std::ifstream in(folder_ / "calls");
    for (std::string line; std::getline(in, line);) ++counts[line];
    return counts;
  }
  void forget_calls() const { fs::remove(folder_ / "calls"); }

  TempFolder folder_;
};

}  // namespace snug::tests
