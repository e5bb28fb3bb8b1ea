// What is foreseen of a disk, and what happens where it is full when the model is to be written.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "support/temp_folder.h"
#include "train/out_dir/full_disk.h"

namespace snug::train {
namespace {

namespace fs = std::filesystem;

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// What a run has on its disk after each thing that it writes, counted one by one.
int64_t most_by_counting(const DiskNeed& need) {
  int64_t there = need.num_there, most = 0;
  for (int64_t i = 0; i < need.num_checkpoints; ++i) {
    ++there;
    most = std::max(most, (there - need.num_there) * need.checkpoint_bytes);
    if (need.keep) there = std::min(there, *need.keep);
  }
  // Those of before that went away make room, which a run must not count on: they are not alike.
  const int64_t left = std::max<int64_t>(0, there - need.num_there);
  return std::max(most, left * need.checkpoint_bytes + need.model_bytes);
}

TEST(DiskRoom, IsWhatIsThereAtOnce) {
  for (int64_t written = 0; written < 6; ++written)
    for (int64_t before = 0; before < 4; ++before)
      for (int64_t keep = 0; keep < 6; ++keep) {
        if (keep > 0 && before > keep) continue;
        DiskNeed need{.model_bytes = 70,
                      .checkpoint_bytes = 100,
                      .num_checkpoints = written,
                      .num_there = before};
        if (keep > 0) need.keep = keep;
        EXPECT_EQ(most_bytes(need), most_by_counting(need)) << written << before << keep;
      }
}

TEST(DiskRoom, CountsTheCheckpointsThatAreLeftToWrite) {
  recipe::Recipe recipe;
  EXPECT_EQ(checkpoints_to_write(recipe, 0, 100), 0);
  recipe.train.save_interval = 10;
  EXPECT_EQ(checkpoints_to_write(recipe, 0, 99), 9);
  EXPECT_EQ(checkpoints_to_write(recipe, 0, 100), 10);
  EXPECT_EQ(checkpoints_to_write(recipe, 30, 100), 7);
  EXPECT_EQ(checkpoints_to_write(recipe, 100, 100), 0);
}

TEST(DiskRoom, WarnsOfCheckpointsAndRefusesOnlyForTheModel) {
  DiskNeed need{.model_bytes = kGiB, .checkpoint_bytes = 3 * kGiB, .num_checkpoints = 10};
  EXPECT_EQ(check_room(need, 31 * kGiB, "out"), "");
  EXPECT_EQ(check_room(need, 30 * kGiB, "out"),
            "this run will fill the disk of out: 10 checkpoints of 3.00 GiB and the model of 1.00 "
            "GiB need 31.00 GiB, and 30.00 GiB is free; keep fewer with --train.keep_checkpoints "
            "9, write none with --train.save_interval none, or choose another --out_dir");
  EXPECT_TRUE(says(check_room(need, 7 * kGiB, "out"), "--train.keep_checkpoints 1,"));
  EXPECT_FALSE(says(check_room(need, 4 * kGiB, "out"), "keep_checkpoints"));
  need.keep = 2;
  EXPECT_EQ(check_room(need, 9 * kGiB, "out"), "");
  EXPECT_TRUE(says(check_room(need, 8 * kGiB, "out"), "3 checkpoints of 3.00 GiB"));
  EXPECT_EQ(check_room({.model_bytes = kGiB, .checkpoint_bytes = 3 * kGiB}, kGiB, "out"), "");
  try {
    check_room(need, kGiB / 2, "out");
    ADD_FAILURE() << "it does not fit";
  } catch (const UserError& error) {
    EXPECT_TRUE(says(error.what(), "it takes 1.00 GiB, and 512.00 MiB is free")) << error.what();
    EXPECT_TRUE(says(error.what(), "--train.save_model false")) << error.what();
  }
}

// A folder that cannot be written to at first.
class LastTry : public ::testing::Test {
 protected:
  LastWrite wish(int failures) {
    return {.folder = folder_ / "final",
            .write =
                [this, failures](const fs::path& to) {
                  tried_.push_back(to);
                  if (std::ssize(tried_) <= failures)
                    throw UserError("no space on {}", to.string());
                },
            .say = [this](const std::string& text) { said_.push_back(text); },
            .what_remains = [] { return "step-000004 holds these weights."; },
            .ask = {},
            .wait =
                [this](double seconds) {
                  waited_ += seconds;
                  return waited_ < stop_at_;
                }};
  }

  test::TempFolder folder_;
  std::vector<fs::path> tried_;
  std::vector<std::string> said_;
  double waited_ = 0, stop_at_ = 1e9;
};

TEST_F(LastTry, ThatGoesWellSaysNothing) {
  EXPECT_EQ(write_at_last(wish(0)), folder_ / "final");
  EXPECT_EQ(tried_.size(), 1U);
  EXPECT_TRUE(said_.empty());
}

TEST_F(LastTry, IsRepeatedUntilThereIsRoom) {
  EXPECT_EQ(write_at_last(wish(3)), folder_ / "final");
  EXPECT_EQ(tried_.size(), 4U);
  EXPECT_EQ(waited_, 30);
  ASSERT_EQ(said_.size(), 1U) << "said once";
  EXPECT_TRUE(says(said_[0], "no space on")) << said_[0];
  EXPECT_TRUE(says(said_[0], "tries again every 10 s for 10 minutes; Ctrl-C gives up. step-000004"))
      << said_[0];
}

TEST_F(LastTry, EndsAfterTenMinutesWithWhatRemains) {
  try {
    write_at_last(wish(1000));
    ADD_FAILURE() << "it never went well";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), fmt::format("no space on {}\nstep-000004 holds these "
                                                     "weights.",
                                                     (folder_ / "final").string()));
  }
  EXPECT_EQ(waited_, 600);
}

TEST_F(LastTry, EndsWhereAPersonStopsIt) {
  stop_at_ = 20;
  EXPECT_THROW(write_at_last(wish(1000)), Interrupted);
  EXPECT_EQ(tried_.size(), 2U);
}

TEST_F(LastTry, GoesWhereAPersonSays) {
  fs::create_directories(folder_ / "taken/model");
  std::vector<std::string> answers{"", (folder_ / "taken").string(), (folder_ / "other").string()};
  LastWrite asks = wish(2);
  asks.ask = [&](const std::string& question) {
    EXPECT_TRUE(says(question, "Enter tries " + (folder_ / "final").string())) << question;
    const std::string answer = answers.front();
    answers.erase(answers.begin());
    return std::optional(answer);
  };
  EXPECT_EQ(write_at_last(asks), folder_ / "other");
  EXPECT_EQ(tried_,
            (std::vector<fs::path>{folder_ / "final", folder_ / "final", folder_ / "other"}));
  EXPECT_TRUE(says(said_.back(), "taken exists already")) << said_.back();
  tried_.clear();
  asks = wish(1);
  asks.ask = [](const std::string&) { return std::nullopt; };
  EXPECT_THROW(write_at_last(asks), Interrupted);
}

}  // namespace
}  // namespace snug::train
