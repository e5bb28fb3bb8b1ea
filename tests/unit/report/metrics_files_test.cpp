// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::report {
namespace {

constexpr const char* kHeader =
    "step,loss,tokens,padded_tokens,tokens_per_second,lr,grad_norm,seconds,peak_allocated,"
    "peak_reserved,val_loss\n";

MetricsRow row(int64_t step) { return {step, 2.5, 512, 600, 640.25, 2e-05, 0.5, 0.8, 1000, 2000}; }

TEST(MetricsCsv, WritesARowAtOnce) {
  const test::TempFolder folder;
  const auto path = folder / "new" / "metrics.csv";
  MetricsCsv csv(path);
  EXPECT_EQ(read_file(path), kHeader);
  csv.write(row(1));
  EXPECT_EQ(read_file(path),
            std::string(kHeader) + "1,2.5,512,600,640.25,2e-05,0.5,0.8,1000,2000,\n");
  csv.write_validation(1, 2.75);
  EXPECT_EQ(read_file(path), std::string(kHeader) +
                                 "1,2.5,512,600,640.25,2e-05,0.5,0.8,1000,2000,\n"
                                 "1,,,,,,,,,,2.75\n");
}

TEST(MetricsCsv, LeavesTheCellOfANumberThatIsNoneEmpty) {
  const test::TempFolder folder;
  MetricsCsv csv(folder / "metrics.csv");
  MetricsRow bad = row(3);
  bad.loss = std::nan("");
  bad.grad_norm = INFINITY;
  csv.write(bad);
  EXPECT_EQ(read_file(folder / "metrics.csv"),
            std::string(kHeader) + "3,,512,600,640.25,2e-05,,0.8,1000,2000,\n");
}

TEST(MetricsCsv, ANewRunReplacesAnOldOne) {
  const test::TempFolder folder;
  MetricsCsv(folder / "metrics.csv").write(row(1));
  MetricsCsv second(folder / "metrics.csv");
  EXPECT_EQ(read_file(folder / "metrics.csv"), kHeader);
}

TEST(MetricsCsv, AResumedRunGoesOnAfterItsStep) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.csv";
  {
    MetricsCsv csv(path);
    for (int64_t step : {1, 2, 10, 11}) csv.write(row(step));
    csv.write_validation(10, 2.0);
    csv.write_validation(11, 1.5);
  }
  const std::string whole = read_file(path);
  std::ofstream(path, std::ios::app) << "12,2.5,51";  // killed in the middle of a row
  MetricsCsv csv(path, LoggedUntil{10, 10});
  csv.write(row(11));
  const std::string rest = ",2.5,512,600,640.25,2e-05,0.5,0.8,1000,2000,\n";
  EXPECT_EQ(read_file(path), std::string(kHeader) + "1" + rest + "2" + rest + "10" + rest +
                                 "10,,,,,,,,,,2\n" + "11" + rest);
  // The checkpoint was written before the step's validation, which comes again.
  std::ofstream(path) << whole;
  MetricsCsv earlier(path, LoggedUntil{10, 5});
  EXPECT_EQ(read_file(path), std::string(kHeader) + "1" + rest + "2" + rest + "10" + rest);
}

TEST(MetricsCsv, AStepWithoutALossIsNoValidation) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.csv";
  MetricsRow bad = row(3);
  bad.loss = std::nan("");
  MetricsCsv(path).write(bad);
  const std::string before = read_file(path);
  MetricsCsv resumed(path, LoggedUntil{3, -1});
  EXPECT_EQ(read_file(path), before);
}

TEST(MetricsCsv, ResumesWithoutAFileAndBesideAForeignOne) {
  const test::TempFolder folder;
  MetricsCsv fresh(folder / "a.csv", LoggedUntil{5, 5});
  EXPECT_EQ(read_file(folder / "a.csv"), kHeader);
  std::ofstream(folder / "b.csv") << "other,columns\n1,2\n";
  MetricsCsv foreign(folder / "b.csv", LoggedUntil{5, 5});
  EXPECT_EQ(read_file(folder / "b.csv"), kHeader);
  EXPECT_EQ(read_file(folder / "b.csv.old"), "other,columns\n1,2\n");
}

TEST(MetricsCsv, ARunThatGoesOnInAnotherFolderHasItsEarlierRows) {
  const test::TempFolder folder;
  {
    MetricsCsv csv(folder / "first.csv");
    for (int64_t step : {1, 2, 3}) csv.write(row(step));
  }
  MetricsCsv(folder / "second.csv").write(row(9));  // of another run
  const std::string first = read_file(folder / "first.csv");
  MetricsCsv second(folder / "second.csv", LoggedUntil{2, -1}, folder / "first.csv");
  second.write(row(3));
  EXPECT_EQ(read_file(folder / "second.csv"), first);
  EXPECT_EQ(read_file(folder / "first.csv"), first);
}

TEST(MetricsCsv, SaysWhereItCannotWrite) {
  const test::TempFolder folder;
  std::ofstream(folder / "file") << "x";
  try {
    MetricsCsv csv(folder / "file" / "metrics.csv");
    FAIL() << "a file was taken for a folder";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("file/metrics.csv"), std::string::npos)
        << error.what();
  }
}

// A limit on the size of files stands in for a full disk.
TEST(MetricsCsv, SaysThatNoMoreCanBeWritten) {
  const test::TempFolder folder;
  MetricsCsv csv(folder / "metrics.csv");
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{200, old.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(
      {
        for (int64_t step = 0; step < 10; ++step) csv.write(row(step));
      },
      UserError);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
}

// The expected bytes come from TensorBoard's own writer (tests/oracles/tensorboard_events.py).

TEST(TensorBoard, Crc32cOfKnownTexts) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);            // the check value of the polynomial
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(TensorBoard, WritesTheBytesThatTensorBoardWrites) {
  const test::TempFolder folder;
  double now = 1700000000.25;
  int calls = 0;
  TensorBoardWriter writer(folder / "new" / "logs",
                           {.resumed_step = 7, .clock = [&] { return now + calls++; }});
  writer.scalar("loss", 2.3125, 8);
  writer.scalar("speed/tokens per second ü", 1e-3, 300);
  writer.scalar("loss", std::numeric_limits<double>::quiet_NaN(), int64_t{1} << 40);
  writer.scalar(std::string(300, 'x'), -std::numeric_limits<double>::infinity(), 0);
  EXPECT_EQ(read_file(writer.path()),
            read_file(SNUG_SOURCE_DIR "/tests/data/report/tensorboard_events.bin"));
}

TEST(TensorBoard, WritersOfOneSecondDoNotMeet) {
  const test::TempFolder folder;
  const TensorBoardOptions options{.resumed_step = {}, .clock = [] { return 5.0; }};
  const TensorBoardWriter first(folder.path(), options);
  const TensorBoardWriter second(folder.path(), options);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(first.path().filename().string().find("events.out.tfevents.0000000005."), 0U);
}

TEST(TensorBoard, SaysWhereItCannotWrite) {
  const test::TempFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(TensorBoardWriter(folder / "file"), UserError);
}

}  // namespace
}  // namespace snug::report
