// The expected bytes come from TensorBoard's own writer (tests/oracles/tensorboard_events.py).
// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::report {
namespace {

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
