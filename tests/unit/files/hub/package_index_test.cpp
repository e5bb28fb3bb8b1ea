// Files from a Python package index: what pip is told of it, what its pages say, and downloads from
// a local one (tests/support/fake_hub.py).
// SPDX-License-Identifier: Apache-2.0
#include "files/hub/package_index.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "files/hub/digest.h"
#include "files/hub/http.h"
#include "support/fake_hub.h"
#include "support/programs.h"
#include "support/temp_folder.h"

namespace snug::hub {
namespace {

using test::Environment;
using test::FakeHub;
using test::TempFolder;

constexpr const char* kVariables[] = {"PIP_INDEX_URL", "PIP_CERT", "PIP_CONFIG_FILE", "VIRTUAL_ENV",
                                      "XDG_CONFIG_HOME"};

class PipSettingsTest : public testing::Test {
 protected:
  PipSettingsTest() {
    for (const char* name : kVariables) ::unsetenv(name);
    ::setenv("HOME", home.path().c_str(), 1);
  }
  ~PipSettingsTest() override {
    for (const char* name : kVariables) ::unsetenv(name);
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((home / name).parent_path());
    std::ofstream(home / name) << text;
  }
  TempFolder home;
};

TEST_F(PipSettingsTest, AreReadInPipsOrder) {
  ::setenv("PIP_CONFIG_FILE", "/dev/null", 1);
  EXPECT_EQ(pip_settings().index_url, "https://pypi.org/simple");
  ::unsetenv("PIP_CONFIG_FILE");
  write(".pip/pip.conf", "[global]\nindex-url = https://older.example/simple\ncert=/older.pem\n");
  EXPECT_EQ(pip_settings().certificates, "/older.pem");
  write(".config/pip/pip.conf",
        "# mine\n[install]\nindex-url = https://other.example\n"
        "[global]\n; not this\nindex_url : https://mine.example/simple/\n");
  EXPECT_EQ(pip_settings().index_url, "https://mine.example/simple");
  EXPECT_EQ(pip_settings().certificates, "/older.pem") << "of the file below";
  write(".config/pip/pip.conf",
        "[download]\nindex-url = https://download.example\n"
        "[global]\nindex-url = https://mine.example\n");
  EXPECT_EQ(pip_settings().index_url, "https://download.example");
  ::setenv("PIP_INDEX_URL", "http://env.example/simple/", 1);
  EXPECT_EQ(pip_settings().index_url, "http://env.example/simple");
  write("own.conf", "[global]\ncert = /own.pem\n");
  ::setenv("PIP_CONFIG_FILE", (home / "own.conf").c_str(), 1);
  EXPECT_EQ(pip_settings().certificates, "/own.pem");
  ::setenv("PIP_CERT", "/env.pem", 1);
  EXPECT_EQ(pip_settings().certificates, "/env.pem");
}

TEST_F(PipSettingsTest, KeepTheLoginOutOfTheAddress) {
  ::setenv("PIP_INDEX_URL", "https://who:s%40cret@mirror.example:8443/simple", 1);
  EXPECT_EQ(pip_settings().index_url, "https://mirror.example:8443/simple");
  EXPECT_EQ(pip_settings().login, "who:s@cret");
  ::setenv("PIP_INDEX_URL", "/srv/mirror", 1);
  EXPECT_THROW(pip_settings(), UserError);
}

TEST(IndexPage, IsReadAsJson) {
  const auto files = read_index_page(
      R"({"meta": {"api-version": "1.1"}, "files": [7, {"filename": "a-1.whl", "url": "../../f/a-1.whl",
          "hashes": {"sha256": "aa", "md5": "bb"}}, {"filename": "a-2.whl", "url": "https://b/a-2.whl"}]})",
      "application/vnd.pypi.simple.v1+json", "https://i.example/simple/a/");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, "a-1.whl");
  EXPECT_EQ(files[0].url, "https://i.example/f/a-1.whl");
  EXPECT_EQ(files[0].sha256, "aa");
  EXPECT_EQ(files[1].url, "https://b/a-2.whl");
  EXPECT_EQ(files[1].sha256, "");
}

TEST(IndexPage, IsReadAsHtml) {
  const auto files = read_index_page(
      "<!DOCTYPE html><html><body><abbr>x</abbr>\n"
      "<a data-requires-python=\"&gt;=3.9\" href='/p/a-1.whl#sha256=" +
          std::string(64, 'c') +
          "'>\n a-1.whl </a><br/>\n<a name=\"top\">top</a>"
          "<a href = \"https://b.example/a-2.whl?x=1&amp;y=2\">a-2.whl</a><a href=\"unended",
      "text/html; charset=utf-8", "https://i.example/simple/a/");
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].name, "a-1.whl");
  EXPECT_EQ(files[0].url, "https://i.example/p/a-1.whl");
  EXPECT_EQ(files[0].sha256, std::string(64, 'c'));
  EXPECT_EQ(files[1].name, "top");
  EXPECT_EQ(files[2].url, "https://b.example/a-2.whl?x=1&y=2");
}

TEST(IndexPage, OtherTextsHoldNoFiles) {
  for (const char* type : {"application/json", "text/html"})
    for (const char* page : {"", "[]", R"({"files": 3})", "<a", "<a >", "<html>maintenance</html>"})
      EXPECT_LE(read_index_page(page, type, "https://i.example/").size(), 1U) << page;
}

class PackageTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ::setenv("NO_PROXY", "*", 1); }
  PackageTest() {
    for (const char* project : {"json", "html", "other-hash", "changed", "closed", "gone"}) {
      std::filesystem::create_directories(packages / project);
      std::ofstream(packages / project / "a-1.whl", std::ios::binary) << content;
      std::ofstream(packages / project / "a-2.whl") << "newer";
    }
  }
  PackageRequest wanted(const std::string& project) const {
    Digest digest(Digest::Kind::Sha256);
    digest.update(content);
    PackageRequest out;
    out.file = {.project = project,
                .name = "a-1.whl",
                .sha256 = digest.hex(),
                .size = static_cast<int64_t>(content.size())};
    out.directory = folder / "out";
    out.settings.index_url = index.endpoint() + "/simple";
    out.backoff_seconds = 0.01;
    return out;
  }
  static std::string error_of(const PackageRequest& request) {
    try {
      download_package_file(request, {});
    } catch (const NotFromIndex& error) {
      return error.what();
    }
    ADD_FAILURE() << request.file.project << " was downloaded";
    return "";
  }
  static void expect_in(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
  std::filesystem::path file() const { return folder / "out/a-1.whl"; }

  const std::string content = FakeHub::content(50000);
  TempFolder packages, folder;
  FakeHub index{packages.path().string()};
};

TEST_F(PackageTest, IsFetchedOnce) {
  for (const char* project : {"json", "html"}) {
    int64_t seen = 0;
    const auto show = [&](const Progress& now) { seen = now.all_bytes; };
    EXPECT_EQ(download_package_file(wanted(project), show), file());
    EXPECT_EQ(read_file(file()), content);
    EXPECT_EQ(seen, 50000);
    index.reset();
    EXPECT_EQ(download_package_file(wanted(project), {}), file());
    EXPECT_TRUE(index.log().empty());
    std::filesystem::remove(file());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
}

TEST_F(PackageTest, GoesOnWithWhatAnInterruptedDownloadLeft) {
  std::filesystem::create_directories(folder / "out");
  const PackageRequest request = wanted("json");
  const auto part = file().string() + "." + request.file.sha256.substr(0, 12) + ".part";
  std::ofstream(part, std::ios::binary) << content.substr(0, 20000);
  download_package_file(request, {});
  EXPECT_EQ(read_file(file()), content);
  EXPECT_EQ(index.log().back(), "hub /packages/json/a-1.whl bytes=20000- -");
  EXPECT_FALSE(std::filesystem::exists(part));
}

TEST_F(PackageTest, OtherBytesThanWantedAreRefused) {
  expect_in(error_of(wanted("other-hash")), {"has no a-1.whl with the right hash"});
  expect_in(error_of(wanted("changed")), {"a-1.whl", "hash", "damaged", "PIP_INDEX_URL"});
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
}

TEST_F(PackageTest, TheLoginGoesToTheIndexAlone) {
  PackageRequest request = wanted("closed");
  expect_in(error_of(request), {"/simple/closed/", "status 401"});
  request.settings.login = "who:secret";
  EXPECT_EQ(read_file(download_package_file(request, {})), content);
  for (const std::string& line : index.log()) EXPECT_NE(line.find("/closed/"), line.npos);
  EXPECT_TRUE(same_server("https://a.example/simple", "https://a.example:443/f"));
  EXPECT_FALSE(same_server("https://a.example/simple", "http://a.example/f"));
  EXPECT_FALSE(same_server("https://a.example/simple", "https://files.a.example/f"));
}

TEST_F(PackageTest, SaysWhyItCannotBeFetched) {
  expect_in(error_of(wanted("absent")), {"/simple/absent/", "status 404"});
  expect_in(error_of(wanted("gone")), {"/packages/gone/a-1.whl", "status 404"});
  PackageRequest request = wanted("json");
  request.settings.index_url = "http://127.0.0.1:1/simple";
  expect_in(error_of(request), {"http://127.0.0.1:1/simple/json/", "cannot be reached"});
}

}  // namespace
}  // namespace snug::hub
