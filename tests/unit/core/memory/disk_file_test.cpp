// SPDX-License-Identifier: Apache-2.0
#include "core/memory/disk_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "support/temp_folder.h"

namespace snug::memory {
namespace {

namespace fs = std::filesystem;

// As the system's own table of mounts says.
bool is_tmpfs(const std::string& folder) {
  std::ifstream mounts("/proc/mounts");
  for (std::string line; std::getline(mounts, line);)
    if (line.find(" " + folder + " tmpfs ") != line.npos) return true;
  return false;
}

class DiskFileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_allocators(); }
  at::Tensor make(DiskFile& file, int64_t elements) {
    const CategoryGuard category(Category::Optimizer);
    const DiskGuard guard(&file);
    return at::empty({elements}, at::kFloat);
  }
  // The message of the UserError that making a file throws.
  static std::string refusal(const fs::path& folder, int64_t bytes,
                             const DiskUse& use = kStatesOnDisk) {
    try {
      const DiskFile file(use, folder, bytes);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  const test::TempFolder folder_;
};

TEST_F(DiskFileTest, TensorsLieInAFileThatNobodySees) {
  const int64_t host_before = cpu_host_ledger().allocated(), before = cpu_ledger().allocated();
  std::optional<DiskFile> file(std::in_place, kStatesOnDisk, folder_.path(), 8 * kKiB);
  {
    const at::Tensor a = make(*file, 1000), b = make(*file, 10);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
    EXPECT_EQ(a.sum().item<float>(), 0) << "a new file reads as zeros";
    EXPECT_EQ(cpu_disk_ledger().allocated(), DiskFile::padded(4000) + DiskFile::padded(40));
    EXPECT_EQ(find_allocation(a)->category, Category::Optimizer);
    EXPECT_EQ(cpu_host_ledger().allocated(), host_before);
    file.reset();  // its tensors keep it
    a.fill_(3);
    b.fill_(4);
    write_behind(a);
    read_ahead(a);
    EXPECT_EQ(a.sum().item<float>(), 3000);
    EXPECT_EQ(b.sum().item<float>(), 40) << "a neighbour on the same page";
  }
  EXPECT_EQ(cpu_disk_ledger().allocated(), 0);
  EXPECT_EQ(cpu_ledger().allocated(), before);
}

TEST_F(DiskFileTest, HintsForTensorsInMemoryDoNothing) {
  const at::Tensor a = at::ones({100});
  read_ahead(a);
  write_behind(a);
  write_behind(at::Tensor());
  EXPECT_EQ(a.sum().item<float>(), 100);
}

TEST_F(DiskFileTest, AFullDiskIsRefusedAtOnce) {
  const std::string text = refusal(folder_.path(), int64_t{1} << 60);
  for (const std::string& part :
       {folder_.path().string(), format_bytes(int64_t{1} << 60), std::string("are free")})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const std::string weights = refusal(folder_.path(), int64_t{1} << 60, kWeightsOnDisk);
  EXPECT_TRUE(weights.starts_with("weight_offload = disk:")) << weights;
  EXPECT_NE(weights.find("the frozen weights need"), std::string::npos) << weights;
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(DiskFileTest, AFolderThatCannotHoldItIsNamed) {
  const std::string missing = refusal(folder_ / "missing", 4096);
  EXPECT_NE(missing.find("no such folder"), std::string::npos) << missing;
  // Not even a superuser may make a file there.
  const std::string unwritable = refusal("/proc", 4096);
  EXPECT_NE(unwritable.find("disk:/proc"), std::string::npos) << unwritable;
}

TEST_F(DiskFileTest, FilesInMemoryAreTold) {
  EXPECT_THROW(DiskFile::is_on_disk(kStatesOnDisk, folder_ / "missing"), UserError);
  DiskFile::is_on_disk(kStatesOnDisk, folder_.path());
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  if (!is_tmpfs("/dev/shm")) GTEST_SKIP() << "no tmpfs at /dev/shm";
  EXPECT_FALSE(DiskFile::is_on_disk(kStatesOnDisk, "/dev/shm"));
}

TEST_F(DiskFileTest, NoMoreThanWasReserved) {
  DiskFile file(kStatesOnDisk, folder_.path(), 4096);
  const at::Tensor all = make(file, 1024);
  EXPECT_THROW(make(file, 1), InternalError);
}

TEST_F(DiskFileTest, APlanCountsTheSameBytes) {
  const int64_t before = meta_disk_ledger().allocated();
  DiskFile planned;
  const DiskGuard guard(&planned);
  const at::Tensor a = at::empty({1001}, at::TensorOptions().device(at::kMeta).dtype(at::kFloat));
  EXPECT_EQ(meta_disk_ledger().allocated() - before, DiskFile::padded(4004));
}

}  // namespace
}  // namespace snug::memory
