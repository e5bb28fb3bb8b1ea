// The running program: its version, the machine, when it started, and the files installed with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace snug {

inline constexpr const char* kVersion = "0.1.0";

// This machine's host name; "?" if unknown.
std::string host_name();

// Time zero of start-up times: the program's first instruction, not the process's start, which may
// be hours older if a shell replaced itself with the program (exec). Further processes that the
// program starts for the same run count from its start.
double seconds_since_program_start();

// Environment variable that tells processes of the same run its start.
inline constexpr const char* kStartVariable = "SNUG_STARTED";
std::string program_start();

// Counts from the start in `start`, a text of another process's program_start(). Ignores invalid
// texts, and those of another machine, whose clock may differ.
void count_from(const std::string& start);

// Installed files are found relative to the program, so that a package may be moved: for
// PREFIX/bin/snug in PREFIX/share/snug, for build/snug in its repository. The prefix is PREFIX or
// the repository; symbolic links are followed; empty if unknown.
std::filesystem::path program_prefix();

// Possible paths of an installed file, by its name in the repository (recipes/demo.yaml).
std::vector<std::filesystem::path> shipped_places(const std::filesystem::path& name);

// `name` itself if it exists or is found nowhere, else the installed file of that name.
std::filesystem::path shipped_file(const std::filesystem::path& name);

// How long OpenMP threads spin before they sleep, in the program's own environment
// (cli/short_waits.cpp).
inline constexpr const char* kShortWaits = "GOMP_SPINCOUNT=500";

}  // namespace snug
