// One writer at a time. The kernel holds the lock for as long as the process lives, however it
// ends, so that no stale one is ever in the way; the file says who holds it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/file.h>

#include <filesystem>
#include <string>

namespace snug {

struct LockWish {
  // Inside: a folder that files are written into as time goes by; it is made, and its .lock stays.
  // Beside: a folder or file that is put in place when it is whole; .NAME.lock goes with the lock.
  enum class Place { Inside, Beside };

  std::filesystem::path target;
  Place place = Place::Inside;
  std::string command;  // this process's, for the message that another one gives
  std::string remedy = "choose another --out_dir";
  int (*lock)(int descriptor, int operation) = ::flock;  // another in tests
};

class FolderLock {
 public:
  // Throws UserError where another process writes there, or this one can't. On a file system that
  // knows no locks it goes by the process that the file names, and warns.
  explicit FolderLock(const LockWish& wish);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool take(const LockWish& wish);
  void write_holder(const LockWish& wish) const;

  std::filesystem::path file_;
  bool removes_ = false;
  int descriptor_ = -1;
};

}  // namespace snug
