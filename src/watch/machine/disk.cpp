// SPDX-License-Identifier: Apache-2.0
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "watch/machine/machine.h"

namespace snug::machine {
namespace {

namespace fs = std::filesystem;

struct Kind {
  uint32_t magic;
  const char* name;
};

// Numbers of linux/magic.h and of file systems that keep theirs elsewhere.
constexpr Kind kKinds[] = {
    {0xEF53, "ext4"},        {0x58465342, "xfs"},  {0x9123683E, "btrfs"},  {0x01021994, "tmpfs"},
    {0x794C7630, "overlay"}, {0x6969, "nfs"},      {0xFF534D42, "cifs"},   {0xFE534D42, "smb"},
    {0x2FC12FC1, "zfs"},     {0x65735546, "fuse"}, {0x0BD00BD0, "lustre"}, {0x01021997, "9p"},
    {0x00C36400, "ceph"},    {0x47504653, "gpfs"}, {0x19830326, "beegfs"}, {0xF2F52010, "f2fs"}};

fs::path nearest_folder(const fs::path& folder) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  while (!fs::exists(at, error) && at != at.parent_path()) at = at.parent_path();
  return at;
}

}  // namespace

Disk disk(const fs::path& folder) {
  const fs::path there = nearest_folder(folder);
  Disk disk;
  struct statvfs room {};
  if (::statvfs(there.c_str(), &room) == 0) {
    disk.size = static_cast<int64_t>(room.f_blocks * room.f_frsize);
    disk.free = static_cast<int64_t>(room.f_bavail * room.f_frsize);
  }
  struct statfs type {};
  if (::statfs(there.c_str(), &type) == 0)
    for (const Kind& kind : kKinds)
      if (kind.magic == static_cast<uint32_t>(type.f_type)) disk.kind = kind.name;
  return disk;
}

}  // namespace snug::machine
