// What a row's processes left behind, as its result: the JSON of `snug plan`, run.json, and how the
// process ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "lab/result.h"
#include "lab/run/row_process.h"

namespace snug::lab {

// `text`: what `snug plan --json` printed, which ended as `end` says. Fills `predicted`, `like` and
// what goes with them; the outcome too: Ok, OutOfMemory where the plan does not fit, else as an
// ended process has it. Planning for which this machine's own memory was too little has crashed.
void collect_plan(const std::string& text, const ProcessEnd& end, RowResult& result);

// Of a run that ended as `end` says, with its run.json in `out_dir`, if there is one.
void collect_run(const std::filesystem::path& out_dir, const ProcessEnd& end, RowResult& result);

// Of a process whose exit code is no result of its own: crashed, timed out, an error.
void judge_end(const ProcessEnd& end, RowResult& result);

// The program's own sentence, without its name in front.
std::string sentence_of(const ProcessEnd& end);
// Words of a program that found no room for a file.
bool speaks_of_full_disk(const std::string& text);

}  // namespace snug::lab
