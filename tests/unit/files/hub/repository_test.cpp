// SPDX-License-Identifier: Apache-2.0
#include "files/hub/repository.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace snug::hub {
namespace {

const std::string kSha(40, 'a');

Listing of(std::initializer_list<const char*> names) {
  Listing listing;
  for (const char* name : names) listing.files.emplace_back().path = name;
  return listing;
}

std::vector<std::string> chosen(const Listing& listing, std::vector<std::string> patterns = {},
                                const char* type = "model") {
  DownloadOptions options;
  options.repo_id = "org/name";
  options.repo_type = type;
  options.patterns = std::move(patterns);
  std::vector<std::string> names;
  for (const RemoteFile& file : select_files(listing, options)) names.push_back(file.path);
  return names;
}

using Names = std::vector<std::string>;

TEST(Listing, ReadsSizesAndHashes) {
  const Listing listing = parse_listing(R"({"sha":")" + kSha + R"(","siblings":[
        {"rfilename":"b","size":3,"blobId":")" +
                                            kSha + R"("},
        {"rfilename":"a","size":134,"blobId":"x","lfs":{"sha256":")" +
                                            std::string(64, 'b') +
                                            R"(","size":9,"pointerSize":134}},
        {"rfilename":"c"},{"rfilename":"c","size":5},
        {"rfilename":"d","size":-4,"blobId":"ZZ","lfs":null},
        {"rfilename":"e","size":18446744073709551615}]})",
                                        "hub");
  EXPECT_EQ(listing.commit, kSha);
  ASSERT_EQ(listing.files.size(), 5U);
  EXPECT_EQ(listing.files[0].path, "a");
  EXPECT_EQ(listing.files[0].size, 9);
  EXPECT_EQ(listing.files[0].identity(), std::string(64, 'b'));
  EXPECT_EQ(listing.files[1].identity(), kSha);
  EXPECT_EQ(listing.files[2].size, -1) << "the first of two equal names counts";
  EXPECT_EQ(listing.files[3].size, -1);
  EXPECT_EQ(listing.files[3].identity(), "");
  EXPECT_EQ(listing.files[4].size, -1);
}

TEST(Listing, RefusesWhatIsNone) {
  const std::string head = R"({"sha":")" + kSha + R"(",)";
  for (const std::string& bad :
       {std::string(), std::string("<html>"), std::string("[]"), std::string("{}"),
        head + R"("siblings":3})", head + R"("siblings":[3]})",
        head + R"("siblings":[{"size":3}]})", std::string(R"({"sha":"../..","siblings":[]})"),
        std::string(100000, '[')})
    EXPECT_THROW(parse_listing(bad, "hub"), UserError) << bad.substr(0, 80);
}

TEST(Listing, EncodesAddresses) {
  DownloadOptions options;
  options.repo_id = "org/na-me_1.5";
  options.revision = "refs/pr/1";
  EXPECT_EQ(listing_path(options), "/api/models/org/na-me_1.5/revision/refs%2Fpr%2F1?blobs=true");
  EXPECT_EQ(file_path(options, kSha, "a b/c?#%.json"),
            "/org/na-me_1.5/resolve/" + kSha + "/a%20b/c%3F%23%25.json");
  options.repo_type = "dataset";
  EXPECT_EQ(listing_path(options), "/api/datasets/org/na-me_1.5/revision/refs%2Fpr%2F1?blobs=true");
  EXPECT_EQ(file_path(options, kSha, "x"), "/datasets/org/na-me_1.5/resolve/" + kSha + "/x");
}

TEST(Listing, RefusesNamesThatAreNone) {
  DownloadOptions options;
  for (const char* bad :
       {"", "/a", "a/", "a/b/c", "a b", "../x", "a/..", "a?x", "a/.b", "http://x"}) {
    options.repo_id = bad;
    EXPECT_THROW(listing_path(options), UserError) << bad;
  }
  options.repo_id = "gpt2";
  EXPECT_NO_THROW(listing_path(options));
  options.repo_type = "space";
  EXPECT_THROW(listing_path(options), UserError);
}

TEST(Listing, FileNamesStayInside) {
  for (const char* good : {"a", "a/b.json", "..a", "a..", ".gitattributes", "ü/日本"})
    EXPECT_NO_THROW(check_file_name(good, "r")) << good;
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("../a"), std::string("a/../b"),
        std::string(".."), std::string("a/"), std::string("a//b"), std::string("./a"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\xff"), std::string(300, 'x'),
        std::string(".snug-download.json")})
    EXPECT_THROW(check_file_name(bad, "r"), UserError) << bad;
}

TEST(Selection, AModelHasItsWeightsOnce) {
  EXPECT_EQ(
      chosen(of({".gitattributes", "README.md", "config.json", "consolidated.safetensors",
                 "merges.txt", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                 "onnx/config.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
                 "tokenizer.json", "tokenizer.model", "x.jinja"})),
      (Names{"config.json", "merges.txt", "model-00001-of-00002.safetensors",
             "model.safetensors.index.json", "tokenizer.json", "tokenizer.model", "x.jinja"}));
  EXPECT_EQ(chosen(of({"config.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
                       "training_args.bin"})),
            (Names{"config.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}));
  EXPECT_EQ(chosen(of({"consolidated.safetensors"})), Names{"consolidated.safetensors"});
}

TEST(Selection, PatternsReachIntoFolders) {
  const Listing listing = of({"a.json", "onnx/a.json", "b.bin"});
  EXPECT_EQ(chosen(listing, {"*.json"}), (Names{"a.json", "onnx/a.json"}));
  EXPECT_EQ(chosen(listing, {"onnx/*", "b.???"}), (Names{"onnx/a.json", "b.bin"}));
}

TEST(Selection, ADataSetIsTakenWhole) {
  EXPECT_EQ(chosen(of({".gitattributes", "README.md", "data/a.parquet"}), {}, "dataset"),
            (Names{"README.md", "data/a.parquet"}));
}

TEST(Selection, SaysWhatThereIs) {
  try {
    chosen(of({"a.gguf", "config.json"}));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("a.gguf"), std::string::npos);
  }
  try {
    chosen(of({"a.json", "b.bin"}), {"*.safetensors"});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "no file of org/name matches '*.safetensors'; it holds a.json, b.bin");
  }
  EXPECT_THROW(chosen(of({})), UserError);
}

}  // namespace
}  // namespace snug::hub
