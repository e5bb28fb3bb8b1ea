// What is fetched before it is read, and that the kernel does fetch it.
// SPDX-License-Identifier: Apache-2.0
#include "files/weights/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::files {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Addresses without memory behind them.
class Reserved {
 public:
  explicit Reserved(size_t bytes)
      : bytes_(bytes),
        begin_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                      0)) {}
  ~Reserved() { ::munmap(begin_, bytes_); }
  const std::byte* at(size_t offset) const {
    return static_cast<const std::byte*>(begin_) + offset;
  }

 private:
  size_t bytes_;
  void* begin_;
};

TEST(ReadAhead, StaysSoManyBytesAheadOfWhatIsRead) {
  constexpr size_t kEach = ReadAhead::kAheadBytes / 2;
  const Reserved memory(10 * kEach);
  std::vector<std::span<const std::byte>> order;
  for (size_t i = 0; i < 10; ++i) order.emplace_back(memory.at((9 - i) * kEach), kEach);
  ReadAhead ahead(order);
  const auto fetched_before = [&](size_t i) {
    ahead.before_reading(order[i].data());
    return ahead.num_fetched();
  };
  EXPECT_EQ(fetched_before(0), 3U) << "itself and two that follow";
  EXPECT_EQ(fetched_before(1), 4U);
  EXPECT_EQ(fetched_before(1), 4U) << "what was fetched is not asked for again";
  EXPECT_EQ(fetched_before(7), 7U) << "after a jump, what follows and nothing between";
  EXPECT_EQ(fetched_before(9), 7U);
  EXPECT_EQ(fetched_before(0), 7U);
  ahead.before_reading(memory.at(1));
  EXPECT_EQ(ahead.num_fetched(), 7U) << "in no order";
}

size_t resident_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_memory((bytes.size() + page - 1) / page);
  if (::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), in_memory.data()) != 0)
    return 0;
  return static_cast<size_t>(
      std::ranges::count_if(in_memory, [](unsigned char flags) { return (flags & 1) != 0; }));
}

TEST(ReadAhead, BringsWhatFollowsIntoMemory) {
  const test::TempFolder folder;
  const std::filesystem::path file = folder / "weights";
  constexpr size_t kBytes = 16 * kMiB;
  std::ofstream(file, std::ios::binary) << std::string(kBytes, 'x');
  const int descriptor = ::open(file.c_str(), O_RDONLY);
  ::fsync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
  const MappedFile mapped(file);
  const auto all = mapped.bytes();
  if (resident_pages(all) > 0) GTEST_SKIP() << "files of this folder do not leave memory";
  ReadAhead ahead({all.subspan(0, kMiB), all.subspan(kMiB)});
  ahead.before_reading(all.data());
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  // A kernel that is short of memory takes some of them back meanwhile.
  const size_t most = kBytes / page / 10 * 9;
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (resident_pages(all) < most && std::chrono::steady_clock::now() < late)
    std::this_thread::yield();
  EXPECT_GE(resident_pages(all), most) << "none of it was read by anybody else";
}

}  // namespace
}  // namespace snug::files
