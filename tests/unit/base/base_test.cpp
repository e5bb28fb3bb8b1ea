// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/lost_pages.h"
#include "base/text.h"
#include "support/temp_folder.h"

namespace snug {
namespace {

TEST(Bytes, ParsesWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("2GiB", "x"), 2 * kGiB);
  EXPECT_EQ(parse_bytes("512 MiB", "x"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("1.5GB", "x"), 1500000000);
  EXPECT_EQ(parse_bytes("1000", "x"), 1000);
  for (const char* bad : {"", "GiB", "-1GiB", "2 parsecs", "nan", "1e300"})
    EXPECT_THROW(parse_bytes(bad, "--memory_budget"), UserError) << bad;
}

TEST(Bytes, FormatsInBinaryUnits) {
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(3 * kGiB / 2), "1.50 GiB");
}

TEST(Text, GroupsDigits) {
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(std::numeric_limits<long long>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, FindsNearNamesOnly) {
  EXPECT_EQ(nearest_name("micro_batch_sise", {"micro_batch_size", "epochs"}), "micro_batch_size");
  EXPECT_EQ(nearest_name("completely_else", {"epochs", "seed"}), "");
  EXPECT_EQ(nearest_name("Q4_K", {"Q4_0", "Q4_K_M"}), "Q4_K_M");
  EXPECT_EQ(nearest_name("max", {"max_rows", "max_steps"}), "") << "either may be meant";
}

TEST(Text, RefusesInvalidUtf8) {
  EXPECT_EQ(find_invalid_utf8("grüße 🎉"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2U);
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0U);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0U);  // surrogate
  EXPECT_EQ(find_invalid_utf8("a\xe2\x82"), 1U);     // cut short
}

TEST(Text, PrintableTakesControlAway) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\n\tc\x7f"), "a [2Jb   c ");
  EXPECT_EQ(printable("x\u009b2Jy"), "x 2Jy");  // the one-character form of ESC [
  EXPECT_EQ(printable("ü\xff"), "ü\xef\xbf\xbd");
  EXPECT_EQ(printable("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");  // cut short
  EXPECT_EQ(printable("\xed\xa0\x80z").back(), 'z');             // a surrogate
}

TEST(Text, PrintableLinesKeepsLinesAndTabs) {
  EXPECT_EQ(printable_lines("an\n\tanswer\x1b]0;title\x07 with \x1b[31mred\r"),
            "an\n\tanswer ]0;title  with  [31mred ");
  EXPECT_EQ(printable_lines("x\u009b2Jy\n"), "x 2Jy\n");
}

TEST(Text, QuotesForTheShellOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_quoted("--train.max_steps=2"), "--train.max_steps=2");
  EXPECT_EQ(shell_quoted("my model/größe"), "'my model/größe'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("$HOME;*"), "'$HOME;*'");
}

// Nothing takes the place of a pipe or a device: for root that would be /dev/null.
// Whoever cuts a mapped file short takes away what others are reading.
TEST(Files, CutShortWhileTheyAreReadAreNamed) {
  const test::TempFolder folder;
  const std::filesystem::path path = folder / "weights.bin";
  std::ofstream(path) << std::string(100'000, 'x');
  EXPECT_EXIT(
      {
        tell_of_lost_pages();
        const MappedFile file(path);
        std::filesystem::resize_file(path, 10);
        const volatile std::byte* last = &file.bytes()[99'999];
        std::exit(static_cast<int>(*last));
      },
      testing::ExitedWithCode(2), "snug: /.*/weights.bin was cut short");
}

TEST(Files, APipeIsNoFileToMap) {
  const test::TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder / "pipe"), UserError) << "nor one to wait for";
}

TEST(Files, AtomicWriteLeavesAPipeAPipe) {
  const test::TempFolder folder;
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file_atomically(pipe, "words");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  char read[16] = {};
  EXPECT_EQ(::read(reader, read, sizeof(read)), 5);
  EXPECT_STREQ(read, "words");
  ::close(reader);
}

// As /dev/stdout is one, whose file may be a pipe or what the shell wrote `>` before.
TEST(Files, AtomicWriteLeavesALinkALink) {
  const test::TempFolder folder;
  write_file_atomically(folder / "file", "one");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  write_file_atomically(folder / "link", "two");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "file"), "two");
}

TEST(Files, AtomicWriteReplacesWholeOrNotAtAll) {
  const test::TempFolder folder;
  write_file_atomically(folder / "a", "one");
  write_file_atomically(folder / "a", "two");
  EXPECT_EQ(read_file(folder / "a"), "two");
  EXPECT_THROW(write_file_atomically(folder / "missing" / "a", "x"), UserError);
  EXPECT_THROW(read_file(folder.path()), UserError);
  EXPECT_THROW(read_file(folder / "none"), UserError);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 1);
  const MappedFile mapped(folder / "a");
  EXPECT_EQ(mapped.bytes().size(), 3U);
}

}  // namespace
}  // namespace snug
