// SPDX-License-Identifier: Apache-2.0
#include "files/hub/access.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "support/temp_folder.h"

namespace snug::hub {
namespace {

class AccessTest : public testing::Test {
 protected:
  AccessTest() {
    for (const char* name :
         {"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HOME", "HF_TOKEN_PATH"})
      ::unsetenv(name);
    ::setenv("HOME", home.path().c_str(), 1);
  }
  ~AccessTest() override {
    ::unsetenv("HF_ENDPOINT");
    ::unsetenv("HF_TOKEN");
    ::unsetenv("HUGGING_FACE_HUB_TOKEN");
    ::unsetenv("HF_HOME");
  }
  test::TempFolder home;
  DownloadOptions options;
};

TEST_F(AccessTest, TheEndpointIsOptionThenEnvironmentThenTheHub) {
  EXPECT_EQ(resolve_access(options).endpoint, "https://huggingface.co");
  ::setenv("HF_ENDPOINT", "https://mirror.example//", 1);
  EXPECT_EQ(resolve_access(options).endpoint, "https://mirror.example");
  options.endpoint = "http://localhost:1";
  EXPECT_EQ(resolve_access(options).endpoint, "http://localhost:1");
  options.endpoint = "file:///etc";
  EXPECT_THROW(resolve_access(options), UserError);
}

TEST_F(AccessTest, TheTokenIsOptionThenEnvironmentThenFile) {
  EXPECT_EQ(resolve_access(options).token, "");
  std::filesystem::create_directories(home / ".cache/huggingface");
  std::ofstream(home / ".cache/huggingface/token") << "  hf_file\n";
  EXPECT_EQ(resolve_access(options).token, "hf_file");
  std::ofstream(home / "token") << "hf_home";
  ::setenv("HF_HOME", home.path().c_str(), 1);
  EXPECT_EQ(resolve_access(options).token, "hf_home");
  ::setenv("HUGGING_FACE_HUB_TOKEN", "hf_old", 1);
  EXPECT_EQ(resolve_access(options).token, "hf_old");
  ::setenv("HF_TOKEN", "hf_env\n", 1);
  EXPECT_EQ(resolve_access(options).token, "hf_env");
  options.token = "hf_given";
  EXPECT_EQ(resolve_access(options).token, "hf_given");
}

TEST_F(AccessTest, ATokenCannotAddHeaders) {
  options.token = "hf\r\nX-Evil: 1";
  EXPECT_EQ(resolve_access(options).token, "hf");
  options.token = "hf\x01";
  EXPECT_THROW(resolve_access(options), UserError);
}

}  // namespace
}  // namespace snug::hub
