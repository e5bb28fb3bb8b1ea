// SPDX-License-Identifier: Apache-2.0
#include "lab/run/row_process.h"

#include <gtest/gtest.h>

#include <csignal>

namespace snug::lab {
namespace {

volatile std::sig_atomic_t heard = 0;
void hear(int) { heard = heard + 1; }

// What a signal does, put back when the test is over.
class Disposition {
 public:
  Disposition(int number, void (*handler)(int)) : number_(number) {
    struct sigaction wanted {};
    wanted.sa_handler = handler;
    ::sigaction(number, &wanted, &before_);
  }
  Disposition(const Disposition&) = delete;
  Disposition& operator=(const Disposition&) = delete;
  ~Disposition() { ::sigaction(number_, &before_, nullptr); }

 private:
  int number_;
  struct sigaction before_ {};
};

TEST(StopWish, HearsEachOfItsSignals) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const Disposition plain(number, SIG_DFL);
    const StopWish wish;
    EXPECT_FALSE(StopWish::wanted()) << "a new one knows nothing of an earlier one's wishes";
    std::raise(number);
    EXPECT_TRUE(StopWish::wanted()) << number;
  }
}

TEST(StopWish, ASecondSignalEndsTheProcess) {
  const auto twice = [] {
    const StopWish wish;
    std::raise(SIGINT);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), ::testing::KilledBySignal(SIGINT), "");
}

// As nohup, and a shell that starts a command in the background, have it.
TEST(StopWish, WhatIsIgnoredStaysIgnored) {
  const Disposition ignored(SIGHUP, SIG_IGN);
  {
    const StopWish wish;
    std::raise(SIGHUP);
    EXPECT_FALSE(StopWish::wanted());
  }
  std::raise(SIGHUP);  // would end this process
}

TEST(StopWish, AfterItSignalsDoWhatTheyDidBefore) {
  const Disposition own(SIGTERM, hear);
  heard = 0;
  {
    const StopWish wish;
    std::raise(SIGTERM);
    EXPECT_TRUE(StopWish::wanted());
    EXPECT_EQ(heard, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(heard, 1);
}

}  // namespace
}  // namespace snug::lab
