// Downloads from a local server that behaves, and misbehaves, as a hub does
// (tests/support/fake_hub.py).
// SPDX-License-Identifier: Apache-2.0
#include "files/hub/download.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "files/hub/digest.h"
#include "support/fake_hub.h"
#include "support/temp_folder.h"

namespace snug::hub {
namespace {

using test::FakeHub;

constexpr int64_t kLarge = 300000;
constexpr const char* kToken = "hf_good";

std::string hash_of(const std::string& bytes) {
  Digest digest(Digest::Kind::Sha256);
  digest.update(bytes);
  return digest.hex();
}

class DownloadTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("NO_PROXY", "*", 1);
    ::setenv("HOME", "/nonexistent", 1);
    server = new FakeHub;
  }
  static void TearDownTestSuite() {
    delete server;
    server = nullptr;
  }
  DownloadTest() { server->reset(); }

  DownloadOptions options(const std::string& repo) const {
    DownloadOptions out;
    out.repo_id = "org/" + repo;
    out.directory = folder / "out";
    out.endpoint = server->endpoint();
    out.backoff_seconds = 0.01;
    out.stall_seconds = 10;
    return out;
  }
  std::filesystem::path model() const { return folder / "out/model.safetensors"; }
  std::filesystem::path part() const {
    return folder /
           ("out/model.safetensors." + hash_of(FakeHub::content(kLarge)).substr(0, 12) + ".part");
  }
  void put_part(const std::string& bytes) const {
    std::filesystem::create_directories(folder / "out");
    std::ofstream(part(), std::ios::binary) << bytes;
  }
  // The error that a download of `wanted` ends in.
  static std::string error_of(const DownloadOptions& wanted) {
    try {
      download(wanted, {});
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << wanted.repo_id << " was downloaded";
    return "";
  }
  std::vector<std::string> requests(const std::string& server_name) const {
    std::vector<std::string> out;
    for (const std::string& line : server->log())
      if (line.starts_with(server_name + " ")) out.push_back(line);
    return out;
  }
  static void expect_in(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }

  static FakeHub* server;
  test::TempFolder folder;
};

FakeHub* DownloadTest::server = nullptr;

TEST_F(DownloadTest, FetchesWhatAModelNeeds) {
  std::vector<std::string> names;
  for (const auto& path : download(options("good"), {})) {
    names.push_back(path.filename());
    EXPECT_EQ(path.parent_path(), folder / "out");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"chat template #1.jinja", "config.json", "empty.txt",
                                             "model.safetensors", "tokenizer.model"}));
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  EXPECT_EQ(read_file(folder / "out/config.json"), FakeHub::content(700));
  EXPECT_EQ(read_file(folder / "out/empty.txt"), "");
  // Five files and the manifest: nothing else is left behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "out"), {}), 6);
}

TEST_F(DownloadTest, ASecondRunFetchesNothing) {
  const auto first = download(options("good"), {});
  server->reset();
  EXPECT_EQ(download(options("good"), {}), first);
  EXPECT_EQ(server->log().size(), 1U) << "the listing alone";
}

TEST_F(DownloadTest, FilesFromElsewhereAreKnownByTheirHash) {
  std::filesystem::create_directories(folder / "out");
  std::ofstream(model(), std::ios::binary) << FakeHub::content(kLarge);
  download(options("one"), {});
  EXPECT_TRUE(requests("cdn").empty());
}

TEST_F(DownloadTest, AChangedFileIsFetchedAgain) {
  download(options("one"), {});
  std::string damaged = FakeHub::content(kLarge);
  damaged[1234] ^= 1;
  std::ofstream(model(), std::ios::binary) << damaged;
  std::filesystem::last_write_time(model(), std::filesystem::file_time_type::min());
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
}

TEST_F(DownloadTest, ADamagedManifestIsNoHarm) {
  download(options("one"), {});
  for (const char* text : {"", "{", "[]", R"({"files":{"model.safetensors":7}})"}) {
    std::ofstream(folder / "out/.snug-download.json") << text;
    server->reset();
    download(options("one"), {});
    EXPECT_TRUE(requests("cdn").empty()) << text;
  }
}

TEST_F(DownloadTest, TheTokenGoesToTheHubAlone) {
  DownloadOptions wanted = options("gated");
  wanted.token = kToken;
  download(wanted, {});
  ASSERT_EQ(requests("cdn").size(), 1U);
  EXPECT_TRUE(requests("cdn")[0].ends_with(" - -")) << requests("cdn")[0];
  for (const std::string& line : requests("hub"))
    EXPECT_TRUE(line.ends_with(" Bearer hf_good")) << line;
}

// Nor to the same machine under another name, nor into a message if the server sends it back.
TEST_F(DownloadTest, AHostileHubDoesNotSpreadTheToken) {
  DownloadOptions wanted = options("echo");
  wanted.token = kToken;
  std::string error = error_of(wanted);
  EXPECT_EQ(error.find(kToken), std::string::npos) << error;
  expect_in(error, {"no, Bearer ***"});

  wanted.repo_id = "org/away";
  wanted.max_retries = 0;
  testing::internal::CaptureStderr();
  set_verbose(true);
  error = error_of(wanted);
  set_verbose(false);
  error += testing::internal::GetCapturedStderr();
  EXPECT_EQ(error.find(kToken), std::string::npos) << error;
  EXPECT_EQ(error.find("signature"), std::string::npos) << error;
  ASSERT_EQ(requests("cdn").size(), 1U);
  EXPECT_TRUE(requests("cdn")[0].ends_with(" - -")) << requests("cdn")[0];
}

TEST_F(DownloadTest, ARedirectLeadsNeitherToFilesNorOutOfTls) {
  expect_in(error_of(options("local")), {"file"});
  ::setenv("CURL_CA_BUNDLE", FakeHub::certificate().c_str(), 1);
  server->reset();
  DownloadOptions wanted = options("good");
  wanted.endpoint = server->secure_endpoint();
  wanted.token = kToken;
  expect_in(error_of(wanted), {"http", "HF_ENDPOINT"});
  EXPECT_EQ(requests("tls").size(), 1U) << "it is trusted, and asked once";
  EXPECT_TRUE(requests("hub").empty()) << "without TLS nothing is asked";
  ::setenv("CURL_CA_BUNDLE", "/dev/null", 1);
  expect_in(error_of(wanted), {"certificate"});
  ::unsetenv("CURL_CA_BUNDLE");
  EXPECT_EQ(requests("tls").size(), 1U) << "a stranger's certificate: no request, no token";
}

TEST_F(DownloadTest, TheLoginOfAnEndpointIsSentToItAndNotShown) {
  DownloadOptions wanted = options("gated");
  wanted.endpoint.insert(wanted.endpoint.find("//") + 2, "who:secret@");
  const std::string error = error_of(wanted);
  EXPECT_EQ(error.find("secret"), std::string::npos) << error;
  for (const std::string& line : requests("hub"))
    EXPECT_TRUE(line.ends_with(" Basic d2hvOnNlY3JldA==")) << line;
  EXPECT_FALSE(requests("hub").empty());
}

TEST_F(DownloadTest, FilesHaveTheModeThatTheUmaskLeaves) {
  const mode_t before = ::umask(027);
  download(options("good"), {});
  ::umask(before);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out"))
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms(0640)) << entry.path();
}

TEST_F(DownloadTest, ALostConnectionIsGoneOnWith) {
  download(options("drop"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  const auto lines = requests("cdn");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "cdn /drop/300000 - -");
  EXPECT_EQ(lines[1], "cdn /drop/300000 bytes=100000- -");
  EXPECT_EQ(lines[2], "cdn /drop/300000 bytes=200000- -");
}

TEST_F(DownloadTest, AnEarlierRunIsGoneOnWith) {
  put_part(FakeHub::content(kLarge).substr(0, 123456));
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  ASSERT_EQ(requests("cdn").size(), 1U);
  EXPECT_EQ(requests("cdn")[0], "cdn /one/300000 bytes=123456- -");
  EXPECT_FALSE(std::filesystem::exists(part()));
}

TEST_F(DownloadTest, AWholePartFileNeedsNoRequest) {
  put_part(FakeHub::content(kLarge));
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  EXPECT_TRUE(requests("cdn").empty());
}

TEST_F(DownloadTest, ADamagedPartFileIsFetchedAnew) {
  put_part(std::string(123456, 'x'));
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  EXPECT_EQ(requests("cdn").size(), 2U);
  std::filesystem::remove(model());
  put_part(std::string(kLarge + 1, 'x'));
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
}

// As another user of the folder could plant one.
TEST_F(DownloadTest, APartFileThatIsALinkIsNotFollowed) {
  std::filesystem::create_directories(folder / "out");
  const auto victim = folder / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, part());
  expect_in(error_of(options("one")), {".part: it is a symbolic link", "remove it"});
  EXPECT_EQ(read_file(victim), "precious");
  std::filesystem::remove(part());
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
}

TEST_F(DownloadTest, APartOfAnotherVersionGoes) {
  std::filesystem::create_directories(folder / "out");
  const auto stale = folder / "out/model.safetensors.aaaaaaaaaaaa.part";
  const auto other = folder / "out/model.safetensors.notes.part";
  std::ofstream(stale) << "old";
  std::ofstream(other) << "someone else's";
  download(options("one"), {});
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(other));
}

TEST_F(DownloadTest, AServerWithoutRangesStartsOver) {
  download(options("no_range"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  EXPECT_EQ(requests("cdn").size(), 2U);
}

TEST_F(DownloadTest, AnotherRangeThanAskedForIsNotWritten) {
  put_part(FakeHub::content(kLarge).substr(0, 1000));
  download(options("other_range"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
}

TEST_F(DownloadTest, AStalledConnectionIsLeft) {
  DownloadOptions wanted = options("stall");
  wanted.stall_seconds = 0.3;
  download(wanted, {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  ASSERT_EQ(requests("cdn").size(), 2U);
  EXPECT_EQ(requests("cdn")[1], "cdn /stall/300000 bytes=50000- -");
}

TEST_F(DownloadTest, GivesUpWhenNothingIsGained) {
  DownloadOptions wanted = options("always_drop");
  wanted.max_retries = 3;
  expect_in(error_of(wanted),
            {"model.safetensors", "keeps breaking", "run the same command again"});
  EXPECT_EQ(requests("cdn").size(), 1U + 3U);
  EXPECT_FALSE(std::filesystem::exists(model()));
}

TEST_F(DownloadTest, WaitsWhenAskedTo) {
  const auto begin = std::chrono::steady_clock::now();
  download(options("busy"), {});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << "Retry-After: 1";
  EXPECT_EQ(read_file(folder / "out/config.json"), FakeHub::content(700));
  EXPECT_EQ(requests("hub").size(), 2U + 3U);
}

TEST_F(DownloadTest, AWrongHashLeavesNothing) {
  expect_in(error_of(options("wrong_hash")), {"model.safetensors", "hash", "instead of 0000"});
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_F(DownloadTest, AWrongSizeIsAnError) {
  expect_in(error_of(options("wrong_size")), {"expected 300005 bytes", "serves 300000"});
  expect_in(error_of(options("too_long")), {"more than the expected 300000 bytes"});
  EXPECT_FALSE(std::filesystem::exists(model()));
}

TEST_F(DownloadTest, WithoutHashesTheSizeCounts) {
  download(options("no_hash"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  server->reset();
  download(options("no_hash"), {});
  EXPECT_TRUE(requests("cdn").empty());
}

TEST_F(DownloadTest, NamesNeverLeaveTheFolder) {
  for (const char* repo : {"escape1", "escape2", "escape3", "escape4", "escape5", "escape6"}) {
    DownloadOptions wanted = options(repo);
    wanted.patterns = {"*"};
    const std::string error = error_of(wanted);
    expect_in(error, {"lists a file named", "nothing is downloaded"});
    EXPECT_EQ(error.find('\x1b'), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(DownloadTest, AFileAndAFolderOfOneNameAreAnError) {
  DownloadOptions wanted = options("clash");
  wanted.patterns = {"*"};
  expect_in(error_of(wanted), {"cannot make", "out/a"});
}

TEST_F(DownloadTest, ADataSetWithFolders) {
  DownloadOptions wanted = options("data");
  wanted.repo_type = "dataset";
  const auto paths = download(wanted, {});
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_EQ(paths[1], folder / "out/data/train-00000.parquet");
  EXPECT_EQ(read_file(paths[1]), FakeHub::content(2000));
  EXPECT_EQ(requests("hub")[0], "hub /api/datasets/org/data/revision/main?blobs=true - -");
}

TEST_F(DownloadTest, SaysHowToGetAtAGatedModel) {
  expect_in(error_of(options("gated")), {"org/gated is gated", "Access is restricted", "HF_TOKEN"});
  DownloadOptions wanted = options("gated");
  wanted.token = "hf_bad";
  expect_in(error_of(wanted), {"belongs to that account"});
  wanted = options("private");
  expect_in(error_of(wanted), {"there is no org/private", "private or gated", "HF_TOKEN"});
}

TEST_F(DownloadTest, SaysThatThereIsNoSuchThing) {
  const std::string error = error_of(options("missing"));
  expect_in(error, {"org/missing", "nothing under that name", "ORG/NAME"});
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  DownloadOptions wanted = options("good");
  wanted.revision = "v9";
  expect_in(error_of(wanted), {"org/good has no revision 'v9'"});
  expect_in(error_of(options("none")), {"holds no files"});
  expect_in(error_of(options("gguf")), {"a-q4.gguf", "a-q8.gguf"});
}

TEST_F(DownloadTest, SaysThatTheServerIsNoHub) {
  expect_in(error_of(options("website")), {"not a repository listing", "HF_ENDPOINT"});
  expect_in(error_of(options("list")), {"has no name"});
  expect_in(error_of(options("loop")), {"redirects"});
  server->reset();
  DownloadOptions dead = options("dead");
  dead.max_retries = 2;
  expect_in(error_of(dead), {"status 503", "maintenance", "try again later"});
  EXPECT_EQ(server->log().size(), 3U);
}

TEST_F(DownloadTest, WithoutNetworkSaysWhatToCheck) {
  DownloadOptions wanted = options("good");
  wanted.endpoint = "http://127.0.0.1:1";
  expect_in(error_of(wanted), {"cannot be reached", "HTTPS_PROXY", "HF_ENDPOINT"});
  EXPECT_FALSE(std::filesystem::exists(wanted.directory));
}

TEST_F(DownloadTest, WithoutNetworkGoesOnWithWhatIsThere) {
  const auto paths = download(options("good"), {});
  DownloadOptions wanted = options("good");
  wanted.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(download(wanted, {}), paths);
  wanted.revision = "v2";
  expect_in(error_of(wanted), {"cannot be reached"});
  wanted.revision = "main";
  std::filesystem::remove(paths[1]);
  expect_in(error_of(wanted), {"cannot be reached"});
}

TEST_F(DownloadTest, TooLittleRoomIsSaidBeforehand) {
  expect_in(error_of(options("huge")), {"needs 4194304.00 TiB more", "free", "another folder"});
  EXPECT_TRUE(requests("cdn").empty());
  EXPECT_FALSE(std::filesystem::exists(options("huge").directory));
}

// A limit on the size of files stands in for a disk that fills up on the way.
TEST_F(DownloadTest, AFullDiskKeepsWhatArrived) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{100000, old.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of(options("one"));
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  expect_in(error, {"cannot write", "are kept", "free there", "run the same command again"});
  EXPECT_EQ(std::filesystem::file_size(part()), 100000U);
  download(options("one"), {});
  EXPECT_EQ(read_file(model()), FakeHub::content(kLarge));
  EXPECT_EQ(requests("cdn").back(), "cdn /one/300000 bytes=100000- -");
}

TEST_F(DownloadTest, AnUnwritableFolderIsAnError) {
  DownloadOptions wanted = options("one");
  std::ofstream(folder / "file") << "x";
  wanted.directory = folder / "file" / "out";
  expect_in(error_of(wanted), {"cannot make"});
}

TEST_F(DownloadTest, TwoAtATimeDoNotMix) {
  put_part("");
  const int fd = ::open(part().c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  expect_in(error_of(options("one")), {"another process"});
  ::close(fd);
  download(options("one"), {});
}

TEST_F(DownloadTest, ReportsProgress) {
  std::vector<Progress> reports;
  download(options("good"), [&](const Progress& progress) { reports.push_back(progress); });
  ASSERT_FALSE(reports.empty());
  int64_t last = 0;
  for (const Progress& report : reports) {
    EXPECT_GE(report.all_bytes, last);
    EXPECT_LE(report.file_bytes, report.file_total);
    last = report.all_bytes;
  }
  EXPECT_EQ(reports.back().all_bytes, 30 + 700 + 0 + kLarge + 5000);
  EXPECT_EQ(reports.back().all_total, reports.back().all_bytes);
}

}  // namespace
}  // namespace snug::hub
