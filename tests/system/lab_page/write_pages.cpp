// Writes the report pages of made-up lab runs into a folder, for the browser to be looked at.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <filesystem>

#include "base/files.h"
#include "lab/report/reports.h"
#include "support/lab_samples.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    const auto write = [&](const char* name, snug::lab::LabRun run) {
      run.folder = std::filesystem::path(argv[1]) / name;
      std::filesystem::create_directories(run.folder);
      snug::test::write_logs(run);
      snug::lab::write_reports(run);
    };
    write("planned", snug::test::planned_sample());
    write("measured", snug::test::measured_sample());
    write("hostile", snug::test::hostile_sample());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
