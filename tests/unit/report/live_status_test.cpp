// SPDX-License-Identifier: Apache-2.0
#include "report/live_status.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "support/live_sample.h"
#include "support/temp_folder.h"

namespace snug::report {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

LiveState filled() {
  LiveState s = test::training_rank(1, 4);
  s.reason = "with \"quotes\"";
  s.reserved = 3;
  s.host_bytes = 6;
  return s;
}

TEST(LiveState, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const fs::path file = live_file(folder.path(), 1);
  EXPECT_EQ(file, folder.path() / "live" / "rank-1.json");
  const LiveState s = filled();
  LiveWriter(file).write(s);
  const LiveState r = read_live_json(file);
  EXPECT_EQ(r.state, s.state);
  EXPECT_EQ(r.reason, s.reason);
  EXPECT_EQ(r.pid, s.pid);
  EXPECT_EQ(r.rank, s.rank);
  EXPECT_EQ(r.world_size, s.world_size);
  EXPECT_EQ(r.time, s.time);
  EXPECT_EQ(r.started, s.started);
  EXPECT_EQ(r.command, s.command);
  EXPECT_EQ(r.model, s.model);
  EXPECT_EQ(r.device, s.device);
  EXPECT_EQ(r.host, s.host);
  EXPECT_EQ(r.step, s.step);
  EXPECT_EQ(r.total_steps, s.total_steps);
  EXPECT_EQ(r.loss, s.loss);
  EXPECT_EQ(r.losses, s.losses);
  EXPECT_EQ(r.tokens_per_second, s.tokens_per_second);
  EXPECT_EQ(r.share_of_peak, s.share_of_peak);
  EXPECT_EQ(r.step_seconds, s.step_seconds);
  EXPECT_EQ(r.seconds_left, s.seconds_left);
  EXPECT_EQ(r.allocated, s.allocated);
  EXPECT_EQ(r.peak, s.peak);
  EXPECT_EQ(r.reserved, s.reserved);
  EXPECT_EQ(r.budget, s.budget);
  EXPECT_EQ(r.predicted_peak, s.predicted_peak);
  EXPECT_EQ(r.host_bytes, s.host_bytes);
  EXPECT_EQ(r.by_category, s.by_category);
  EXPECT_EQ(r.peak_by_category, s.peak_by_category);
  // Nothing beside it.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "live"), fs::directory_iterator()), 1);
}

TEST(LiveState, ALossThatIsNoneYetAndNoTimeLeft) {
  const TempFolder folder;
  LiveState s = filled();
  s.loss = std::numeric_limits<double>::quiet_NaN();
  s.losses = {1, std::numeric_limits<double>::infinity()};
  s.seconds_left.reset();
  LiveWriter(folder / "f").write(s);
  const LiveState r = read_live_json(folder / "f");
  EXPECT_TRUE(std::isnan(r.loss));
  ASSERT_EQ(r.losses.size(), 2U);
  EXPECT_TRUE(std::isnan(r.losses[1]));
  EXPECT_FALSE(r.seconds_left.has_value());
}

TEST(LiveState, IsNotWrittenMoreOftenThanAsked) {
  const TempFolder folder;
  LiveWriter writer(folder / "f", 1e-3);  // once in 1000 seconds
  LiveState s = filled();
  writer.write(s);
  EXPECT_FALSE(writer.is_due());
  s.step = 4;
  writer.write(s);
  EXPECT_EQ(read_live_json(folder / "f").step, filled().step);
  writer.write(s, true);
  EXPECT_EQ(read_live_json(folder / "f").step, 4);
}

TEST(LiveState, AFolderThatCannotBeMadeIsNoError) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "no folder";
  LiveWriter writer(folder / "file" / "live" / "rank-0.json");
  writer.write(filled(), true);
  EXPECT_EQ(read_file(folder / "file"), "no folder");
}

TEST(LiveState, AFolderThatIsRemovedIsMadeAgain) {
  const TempFolder folder;
  LiveWriter writer(live_file(folder.path(), 0));
  writer.write(filled(), true);
  fs::remove_all(folder / "live");
  writer.write(filled(), true);
  EXPECT_EQ(read_live_json(live_file(folder.path(), 0)).pid, filled().pid);
}

// A run whose disk was unmounted would find the disk below in its place.
TEST(LiveState, OfARunWhoseFolderIsGoneIsNotWritten) {
  const TempFolder folder;
  LiveWriter writer(live_file(folder / "run", 0));
  writer.write(filled(), true);
  fs::remove_all(folder / "run");
  writer.write(filled(), true);
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(LiveState, DamagedFilesAreErrorsThatNameThem) {
  const TempFolder folder;
  for (const char* text : {"{", "{}", "[1]", "{\"schema\":\"one\"}", ""}) {
    std::ofstream(folder / "bad.json", std::ios::trunc) << text;
    try {
      read_live_json(folder / "bad.json");
      ADD_FAILURE() << "taken: " << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("bad.json"), std::string::npos);
    }
  }
  EXPECT_THROW(read_live_json(folder / "none.json"), UserError);
}

TEST(LiveState, ANewerSnugsStatusIsRefusedByName) {
  const TempFolder folder;
  std::string newer = live_json(filled());
  newer.replace(newer.find("\"schema\":1"), 10, "\"schema\":9");
  std::ofstream(folder / "newer.json") << newer;
  try {
    read_live_json(folder / "newer.json");
    FAIL() << "taken";
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part : {"newer.json", "a newer version of snug", "schema 9", "reads 1"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

// Whatever was added, values are spread evenly: their distances are all the same.
TEST(ThinnedSeries, StaysSmallAndEven) {
  ThinnedSeries series;
  for (int i = 0; i < 100; ++i) series.add(i);
  EXPECT_EQ(series.values().size(), 100U);
  for (int i = 100; i < 12345; ++i) {
    series.add(i);
    ASSERT_LE(series.values().size(), 200U);
  }
  const std::vector<double>& values = series.values();
  ASSERT_GT(values.size(), 90U);
  EXPECT_EQ(values.front(), 0);
  const double distance = values[1] - values[0];
  for (size_t i = 1; i < values.size(); ++i) EXPECT_EQ(values[i] - values[i - 1], distance);
  EXPECT_GT(values.back(), 12345 - 2 * distance);
}

}  // namespace
}  // namespace snug::report
