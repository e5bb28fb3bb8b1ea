// Ensures a single writer for an output folder or file. The kernel releases the lock when the
// process ends, however it ends, so there are no stale locks; the file names the holder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/file.h>

#include <filesystem>
#include <string>

namespace snug {

struct LockWish {
  // Inside: for a folder into which files are written over time; the folder is made, and its .lock
  // stays. Beside: for a folder or file that is renamed into place when complete; .NAME.lock is
  // deleted with the lock.
  enum class Place { Inside, Beside };

  std::filesystem::path target;
  Place place = Place::Inside;
  std::string command;  // this process's, for the message that another one gives
  std::string remedy = "choose another --out_dir";
  int (*lock)(int descriptor, int operation) = ::flock;  // another in tests
};

class FolderLock {
 public:
  // Throws UserError if another process writes there, or this one cannot. On a file system without
  // locks it checks the process named in the file instead, and warns.
  explicit FolderLock(const LockWish& wish);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  void check_folders_above(const LockWish& wish) const;
  bool take(const LockWish& wish);
  void write_holder(const LockWish& wish) const;

  std::filesystem::path file_;
  bool removes_ = false;
  int descriptor_ = -1;
};

}  // namespace snug
