// SPDX-License-Identifier: Apache-2.0
#include "base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>

#include "base/abandoned.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "support/temp_folder.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

std::string refusal_of(const LockWish& wish) {
  try {
    const FolderLock lock(wish);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// A process that does as it is told and then waits to be killed.
class Other {
 public:
  explicit Other(const std::function<void()>& act) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      act();
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Other() { kill(); }
  pid_t process() const { return process_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

TEST(FolderLock, TheSecondIsToldWhoHasIt) {
  const test::TempFolder folder;
  const LockWish wish{.target = folder / "out", .command = "snug finetune_full tiny"};
  {
    const FolderLock lock(wish);
    const std::string refusal = refusal_of({.target = folder / "out", .command = "another"});
    EXPECT_TRUE(refusal.starts_with(
        fmt::format("{} is in use: snug finetune_full tiny (process {} on {}) has been writing "
                    "there since ",
                    (folder / "out").string(), ::getpid(), host_name())))
        << refusal;
    EXPECT_TRUE(refusal.ends_with("; wait for it, or choose another --out_dir")) << refusal;
    EXPECT_EQ(refusal_of({.target = folder / "elsewhere"}), "");
  }
  EXPECT_EQ(refusal_of(wish), "");
}

TEST(FolderLock, NothingIsPutIntoAFolderThatAnotherWrites) {
  const test::TempFolder folder;
  const auto inside = [&](const char* name) {
    return refusal_of({.target = folder / "out" / name, .place = LockWish::Place::Beside});
  };
  {
    const FolderLock run({.target = folder / "out", .command = "snug finetune_full tiny"});
    EXPECT_TRUE(has(inside("final"), "is in use: snug finetune_full tiny"));
    EXPECT_TRUE(has(inside("step-000001/model"), "is in use"));
  }
  EXPECT_EQ(inside("final"), "") << "the run has ended";
}

TEST(FolderLock, GoesWithAProcessThatIsKilled) {
  const test::TempFolder folder;
  const LockWish wish{.target = folder.path(), .command = "the killed one"};
  Other other([&] { new FolderLock(wish); });
  EXPECT_TRUE(has(refusal_of(wish), fmt::format("(process {} on", other.process())));
  other.kill();
  EXPECT_EQ(refusal_of(wish), "") << "its file is still there, and says nothing";
}

TEST(FolderLock, BesideWhatIsMadeWholeNothingStays) {
  const test::TempFolder folder;
  const LockWish wish{.target = folder / "model/", .place = LockWish::Place::Beside};
  {
    const FolderLock lock(wish);
    EXPECT_FALSE(fs::exists(folder / "model"));
    EXPECT_TRUE(has(refusal_of({.target = folder / "model", .place = LockWish::Place::Beside}),
                    "is in use"));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(FolderLock, WhereNothingCanBeWrittenItSaysSo) {
  const test::TempFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_TRUE(has(refusal_of({.target = folder / "file/out"}), "choose another --out_dir"));
}

// Some network file systems: what the file says is all that is known.
TEST(FolderLock, WithoutLocksItGoesByTheProcess) {
  const test::TempFolder folder;
  LockWish wish{.target = folder.path(), .command = "snug merge a", .lock = [](int, int) {
                  errno = ENOLCK;
                  return -1;
                }};
  std::string said;
  const LogSinkGuard sink([&](const std::string& text) { said += text; });
  Other other([&] { new FolderLock(wish); });
  EXPECT_TRUE(has(refusal_of(wish), "snug merge a"));
  other.kill();
  EXPECT_EQ(refusal_of(wish), "");
  EXPECT_TRUE(has(said, "cannot be locked")) << said;
}

TEST(Files, WhatAKilledProcessLeftIsRemovedAndNothingElse) {
  const test::TempFolder folder;
  Other other([] {});
  const std::string gone = fmt::format("run.json.tmp-{}", other.process());
  Other running([] {});
  other.kill();
  const std::string own = fmt::format("a.tmp-{}", ::getpid());
  const std::string others = fmt::format("b.tmp-{}", running.process());
  for (const std::string& name : {gone, own, others, std::string("c.tmp-"), std::string("d.tmp-1x"),
                                  std::string(".tmp-999999999"), std::string("final.tmp")})
    std::ofstream(folder / name) << "x";
  remove_abandoned(folder.path());
  EXPECT_FALSE(fs::exists(folder / gone));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 6);
  remove_abandoned(folder / "none");
}

TEST(FolderLock, TemporaryFilesOfOneFileGoAlone) {
  const test::TempFolder folder;
  Other other([] {});
  const std::string gone = fmt::format(".tmp-{}", other.process());
  other.kill();
  const fs::path file = folder / "model.gguf";
  const fs::path theirs = folder / ("another.gguf" + gone);
  for (const fs::path& path : {file, fs::path(file.string() + gone), theirs})
    std::ofstream(path) << "x";
  remove_abandoned_versions(file);
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(fs::exists(theirs));
  EXPECT_FALSE(fs::exists(file.string() + gone));
}

}  // namespace
}  // namespace snug
