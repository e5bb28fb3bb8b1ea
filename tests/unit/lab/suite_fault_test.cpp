// What is wrong with a suite's file is said with its line and how to mend it, all of it at once.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "suite_text.h"

namespace snug::lab {
namespace {

using test::fault_of;
using test::suite_text;

constexpr const char* kData = "set: {data: Alpaca2k}\n";  // line 6

struct Case {
  const char* rest;  // from line 7
  std::vector<std::string> says;
};

void expect_says(const std::string& text, const std::vector<std::string>& says) {
  const std::string fault = fault_of(text);
  for (const std::string& part : says)
    EXPECT_NE(fault.find(part), std::string::npos) << "wanted: " << part << "\nsaid: " << fault;
}

TEST(SuiteFaults, AreSaidWithLineAndRemedy) {
  const Case cases[] = {
      {"rows: [{id: a, modle: small}]", {":7: a row has no key modle; did you mean model?"}},
      {"row: [{id: a}]", {":7: a suite has no key row; did you mean rows?"}},
      {"rows: [{id: a, model: smal}]", {":7: model smal: ", "did you mean small?"}},
      {"rows:\n  - {id: a, model: small}\n  - {id: a, model: small}", {":9: id a: is given twice"}},
      {"rows: [{id: ../../etc, model: small}]", {":7: id \"../../etc\": give letters"}},
      {"rows: [{id: .., model: small}]", {":7: id \"..\": give letters"}},
      {"rows: [{model: small}]", {":7: id \"\": give letters"}},
      {"rows: [{id: a, from: b, model: small}]", {":7: from: b is not an earlier row"}},
      {"rows:\n  - {id: a, from: b, model: small}\n  - {id: b, from: a, model: small}",
       {":8: from: b is not an earlier row"}},
      {"rows: [{id: a, from: a, model: small}]", {":7: from: a is this row itself"}},
      {"rows:\n  - {id: base, model: small}\n  - {id: a, from: bse}", {"did you mean base?"}},
      {"rows: []", {"the suite has no rows"}},
      {"rows: {a: {model: small}}", {":7: rows: must be a list of rows"}},
      {"rows: [just words]", {":7: a row holds one value; give a mapping of keys"}},
      {"rows: [{id: a, model: small, device: a100-8}]", {":7: device: ", "did you mean a100-80?"}},
      {"rows: [{id: a, model: small, command: chat}]", {":7: command: \"chat\" is not one of"}},
      {"rows: [{id: a, model: small, like: deepspeed}]", {":7: like: \"deepspeed\" is not one of"}},
      {"rows: [{id: a, model: small, memory_budget: lots}]",
       {":7: memory_budget: \"lots\" is not a size; write it as"}},
      {"rows: [{id: a, model: small, expect: fine}]",
       {":7: expect: \"fine\" is not one of ok, oom"}},
      {"rows: [{id: a, model: small, expect: {memory: {less_then: a}}}]",
       {":7: expect.memory has no key less_then; did you mean less_than?"}},
      {"rows: [{id: a, model: small, expect: {memory: {less_than: b}}}]",
       {":7: row a: expect: b is not a row of the suite"}},
      {"rows: [{id: a, model: small, published: {reserved: [1GiB, much]}}]",
       {":7: reserved: \"much\" is not a size"}},
      {"rows: [{id: a, model: small, published: {reservd: 1GiB}}]",
       {":7: published has no key reservd; did you mean reserved?"}},
      {"rows: [{id: a, model: small, published: {device_use: 140%}}]",
       {":7: device_use: \"140%\" is not a share"}},
      {"rows: [{id: a, model: small, published: {iteration_seconds: -1}}]",
       {":7: iteration_seconds: -1 is not a valid figure"}},
      {"rows: [{id: a}]", {":7: row a: has no model; give one of the suite's"}},
      {"row_timeout: -5\nrows: [{id: a, model: small}]", {":7: row_timeout: -5 seconds"}},
      {"row_timeout: soon\nrows: [{id: a, model: small}]",
       {":7: row_timeout: \"soon\" is not a number"}},
  };
  for (const Case& each : cases) expect_says(suite_text(std::string(kData) + each.rest), each.says);
}

TEST(SuiteFaults, OptionsAreThoseOfTheCommand) {
  const Case cases[] = {
      {"rows: [{id: a, model: small, set: {train.micro_batchsize: 4}}]",
       {":7: train.micro_batchsize: unknown key; did you mean train.micro_batch_size?"}},
      {"rows:\n  - id: a\n    model: small\n    set:\n      precision: 31-true",
       {":11: precision: \"31-true\" is not one of", "did you mean 32-true?"}},
      {"rows: [{id: a, model: small, set: {batch_size: many}}]",
       {":7: batch_size: \"many\" is not a whole number from 1"}},
      {"rows: [{id: a, model: small, set: {batch_size: 2, train.micro_batch_size: 4}}]",
       {":7: train.micro_batch_size: the same option as batch_size; keep one"}},
      {"rows: [{id: a, model: small, set: {help: true}}]", {":7: help: unknown key"}},
      {"rows: [{id: a, model: small, set: {device: cpu}}]", {":7: device: unknown key"}},
      {"rows: [{id: a, model: small, set: {out_dir: here}}]",
       {":7: out_dir: cannot be set in a suite"}},
      {"rows: [{id: a, model: small, set: {checkpoint_dir: here}}]",
       {":7: row a: checkpoint_dir: its model small already sets this"}},
      {"rows: [{id: a, model: small, set: {config: nowhere.yaml}}]",
       {":7: row a: ", "nowhere.yaml"}},
      {"rows: [{id: a, model: small, set: {lora_r: 8}}]",
       {":7: row a: --lora_r: an option of snug finetune, not of this command"}},
      {"rows: [{id: a, model: small, set: {batch_size: 3, train.global_batch_size: 8}}]",
       {":7: row a: ", "global_batch_size"}},
      {"rows: [{id: a, model: small, set: [1, 2]}]", {":7: set: must be a mapping of options"}},
      {"rows: [{id: a, model: small, set: {optimizer.betas: [[1], 2]}}]",
       {":7: optimizer.betas holds a list; give one value"}},
      {"rows: [{id: a, model: small, scaled: {set: {precision: null}}}]",
       {":7: precision: null removes an option only in the set of a row"}},
      {"rows: [{id: a, model: small, plan: {sett: {}}}]", {":7: plan has no key sett"}},
  };
  for (const Case& each : cases) expect_says(suite_text(std::string(kData) + each.rest), each.says);
}

// A fault of what all rows share is one fault.
TEST(SuiteFaults, OfTheSuitesOwnOptionsAreSaidOnce) {
  const std::string fault = fault_of(suite_text(
      "set: {precison: 32-true}\nrows: [{id: a, model: small}, {id: b, model: small}]\n"));
  EXPECT_EQ(fault.find("unknown key"), fault.rfind("unknown key"));
  EXPECT_NE(fault.find(":6: precison"), std::string::npos);
}

TEST(SuiteFaults, OneMistakeIsOneFault) {
  const std::string bad_id = fault_of(suite_text("rows: [{id: \"<b>\", model: small}]\n"));
  EXPECT_NE(bad_id.find("<b>"), std::string::npos);
  EXPECT_EQ(bad_id.find("has no rows"), std::string::npos) << bad_id;
  const std::string itself =
      fault_of(suite_text("rows:\n  - {id: a, model: small}\n  - {id: c, from: c}\n"));
  EXPECT_NE(itself.find("c is this row itself"), std::string::npos) << itself;
}

TEST(SuiteFaults, AreAllSaidByLine) {
  const std::string fault =
      fault_of(suite_text(std::string(kData) + "like: none\n"
                                               "rows:\n"
                                               "  - {id: a, model: small, set: {batchsize: 4}}\n"
                                               "  - {id: b/c, modle: small}\n"
                                               "  - {id: d, from: x, expect: bad}\n"));
  EXPECT_NE(fault.find("5 faults:"), std::string::npos) << fault;
  size_t at = 0;
  for (const char* const line : {":9:", ":10:", ":10:", ":11:", ":11:"}) {
    at = fault.find(line, at + 1);
    EXPECT_NE(at, std::string::npos) << line << fault;
  }
}

TEST(SuiteFaults, OfMatrixSweepsAndSearches) {
  const Case cases[] = {
      {"matrix: {model: small}", {":7: matrix: needs axes"}},
      {"matrix: {axes: {model: []}}", {":7: axis model has no values"}},
      {"matrix: {axes: {model: [small, tiny]}}", {":7: model tiny: "}},
      {"matrix: {axes: {batch: {a: {batch: 4}}}, model: small}", {":7: batch: unknown key"}},
      {"matrix: {id: \"{mdel}\", axes: {model: [small]}}",
       {":7: \"{mdel}\": there is no {mdel} here; the names are model"}},
      {"matrix: {id: same, axes: {model: [small, large]}}", {":7: id same: is given twice"}},
      {"matrix: {axes: {model: [small]}, expect: {smal: ok}}",
       {":7: expect: smal is not one of small"}},
      {"sweeps: [{id: s, model: small, over: batch_size}]", {":7: a sweep needs values"}},
      {"sweeps: [{id: s, model: small, over: batch_size, values: []}]", {":7: values: empty"}},
      {"sweeps: [{id: s, model: small, values: [1]}]", {":7: a sweep: needs over"}},
      {"sweeps: [{id: s, model: small, over: batchsize, values: [1]}]",
       {":7: batchsize: unknown key"}},
      {"sweeps: [{id: s, model: small, over: batch_size, values: {from: 1, to: 4}}]",
       {":7: values: must be a list"}},
      {"sweeps: [{id: s, model: small, over: batch_size, values: {from: 1, factor: 1, to: 4}}]",
       {":7: values: must be a list"}},
      {"sweeps: [{id: s, model: small, over: batch_size, values: {from: 0, step: 1, to: 4}}]",
       {":7: from: \"0\" is not a whole number from 1"}},
      {"sweeps: [{id: s, model: small, over: batch_size, values: {from: 1, step: 1, to: "
       "1000000000}}]",
       {":7: values: more than 200"}},
      {"sweeps: [{id: s, model: small, over: batch_size, values: [1], published: {2: {}}}]",
       {":7: published: 2 is not one of 1"}},
      {"searches: [{id: s, model: small, over: batch_size}]", {":7: search s: needs between"}},
      {"searches: [{id: s, model: small, over: batch_size, between: [9, 1]}]",
       {":7: search s: needs between"}},
      {"searches: [{id: s, model: small, over: batch_size, between: [1, 99999999999999999999]}]",
       {":7: between: \"99999999999999999999\" is not a whole number"}},
      {"searches: [{id: s, over: model, models: [huge]}]", {":7: model huge: "}},
  };
  for (const Case& each : cases) expect_says(suite_text(std::string(kData) + each.rest), each.says);
}

TEST(SuiteFaults, OfTheFileItself) {
  EXPECT_NE(fault_of("").find("a suite is a mapping"), std::string::npos);
  EXPECT_NE(fault_of("- a\n- b\n").find("a suite is a mapping"), std::string::npos);
  EXPECT_NE(fault_of("suite: mine\nrows: [").find("not valid YAML"), std::string::npos);
  EXPECT_NE(fault_of("suite: mine\nsuite: mine\n").find("given twice"), std::string::npos);
  EXPECT_NE(fault_of("suite: yours\n").find(":1: suite yours: the file is named mine.yaml"),
            std::string::npos);
  EXPECT_NE(fault_of("suite: a/b\n").find("suite \"a/b\": give letters"), std::string::npos);
  EXPECT_NE(
      fault_of("suite: mine\nmodels: {a: {config: no.json}}\n").find(":2: config: no such file"),
      std::string::npos);
  EXPECT_NE(fault_of("suite: mine\nmodels: {a: {checkpoint: x}}\n").find("model a: needs config"),
            std::string::npos);
  EXPECT_THROW(read_suite("nowhere/mine.yaml"), UserError);
}

// What would take all memory or time of a reader that trusts its file.
TEST(SuiteFaults, OfHostileFiles) {
  EXPECT_NE(fault_of("suite: mine\na: &a [x, x]\nb: [*a, *a]\n").find("anchors and aliases"),
            std::string::npos);
  EXPECT_NE(fault_of("suite: mine\nrows: " + std::string(5000, '[') + std::string(5000, ']'))
                .find("nested more than"),
            std::string::npos);
  EXPECT_NE(fault_of("suite: mine\nabout: " + std::string(size_t{2} << 20, 'x')).find("mine.yaml"),
            std::string::npos);
  EXPECT_NE(fault_of(suite_text("rows: [{id: " + std::string(5000, 'a') + ", model: small}]"))
                .find("at most 100"),
            std::string::npos);
  std::string axes, values;
  for (int i = 0; i < 100; ++i) values += fmt::format("{}v{}: {{}}", i == 0 ? "" : ", ", i);
  for (int i = 0; i < 10; ++i) axes += fmt::format("    a{}: {{{}}}\n", i, values);
  const std::string matrix = "matrix:\n  model: small\n  axes:\n" + axes;
  EXPECT_NE(fault_of(suite_text(kData + matrix)).find("more than 2000 rows"), std::string::npos);
}

}  // namespace
}  // namespace snug::lab
