// Makes a row's result from what its process left: the JSON of `snug plan`, run.json, and how the
// process ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "lab/result.h"
#include "lab/run/row_process.h"

namespace snug::lab {

// From the output of `snug plan --json`. Sets `predicted`, `like` and the outcome: Ok, OutOfMemory
// if the plan does not fit, Crashed if this machine had too little memory for planning itself, else
// as judge_end() says.
void collect_plan(const std::string& text, const ProcessEnd& end, RowResult& result);

// From a run and its run.json in `out_dir`, if there is one.
void collect_run(const std::filesystem::path& out_dir, const ProcessEnd& end, RowResult& result);

// Sets outcome and reason from the way a process ended: exit code, signal, time limit.
void judge_end(const ProcessEnd& end, RowResult& result);

// The program's error message, without "snug: ".
std::string sentence_of(const ProcessEnd& end);
// Whether an error message means that a disk or quota is full.
bool speaks_of_full_disk(const std::string& text);

}  // namespace snug::lab
