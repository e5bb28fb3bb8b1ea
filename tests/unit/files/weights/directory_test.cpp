// SPDX-License-Identifier: Apache-2.0
#include "files/weights/pth/pth.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

namespace fs = std::filesystem;

class ModelDirectory : public ::testing::Test {
 protected:
  void copy(const std::string& from, const std::string& to) {
    fs::copy_file(data_file(from), folder_ / to);
  }
  void write_index(const std::string& weight_map,
                   const std::string& name = "model.safetensors.index.json") {
    write_text(folder_, name,
               "{\"metadata\":{\"total_size\":8},\"weight_map\":" + weight_map + "}");
  }
  void write_shard(const std::string& name, const std::string& tensor) {
    const std::vector<float> values = {1, 2};
    SafetensorsWriter writer(folder_ / name, {make_tensor_info(tensor, DType::F32, {2})});
    writer.write(tensor, bytes_of(values));
    writer.finish();
  }
  void expect_folder_refused(const std::vector<std::string>& parts) {
    expect_refused([&] { open_model_directory(folder_.path()); }, parts);
  }

  test::TempFolder folder_;
};

TEST_F(ModelDirectory, EveryLayout) {
  const std::pair<const char*, const char*> layouts[] = {{"plain.safetensors", "model.safetensors"},
                                                         {"plain.pth", "pytorch_model.bin"},
                                                         {"plain.pth", "lit_model.pth"},
                                                         {"plain.pth", "final.pth"}};
  for (const auto& [file, name] : layouts) {
    SCOPED_TRACE(name);
    copy(file, name);
    expect_same_tensors(*open_model_directory(folder_.path()), "plain.expected.safetensors");
    fs::remove(folder_ / name);
  }
}

TEST_F(ModelDirectory, SafetensorsBeforeBin) {
  copy("plain.safetensors", "model.safetensors");
  copy("views.pth", "pytorch_model.bin");
  EXPECT_NE(open_model_directory(folder_.path())->find("real.float32"), nullptr);
}

TEST_F(ModelDirectory, ShardsOfBothKinds) {
  copy("plain.pth", "pytorch_model-1.bin");
  copy("views.pth", "pytorch_model-2.bin");
  write_index(
      R"({"scalar":"pytorch_model-1.bin","base":"pytorch_model-2.bin","transposed":"pytorch_model-2.bin"})",
      "pytorch_model.bin.index.json");
  const auto bin = open_model_directory(folder_.path());
  EXPECT_EQ(bin->tensors().size(), 3u);
  EXPECT_EQ(read_floats(*bin, *bin->find("scalar")), std::vector<float>{2.5f});
  EXPECT_NE(bin->describe().find("2 files, 3 tensors"), std::string::npos) << bin->describe();

  write_shard("s1", "a");
  write_shard("s2", "b");
  write_index(R"({"a":"s1","b":"s2"})");
  const auto shards = open_model_directory(folder_.path());
  EXPECT_EQ(read_floats(*shards, *shards->find("b")), (std::vector<float>{1, 2}));
}

// Hugging Face's cache holds links to blobs elsewhere.
TEST_F(ModelDirectory, LinksAreFollowed) {
  fs::create_symlink(data_file("plain.safetensors"), folder_ / "model.safetensors");
  EXPECT_EQ(open_model_directory(folder_.path())->tensors().size(), 12u);
}

TEST_F(ModelDirectory, NothingThere) {
  expect_folder_refused({folder_.path().string(), "model.safetensors",
                         "pytorch_model.bin.index.json", "lit_model.pth"});
  copy("plain.pth", "a.pth");
  copy("plain.pth", "b.pth");
  expect_folder_refused({"a single *.pth"});
  expect_refused([&] { open_model_directory(folder_ / "absent"); }, {"absent", "no such folder"});
}

TEST_F(ModelDirectory, MissingShards) {
  write_shard("s1", "a");
  write_index(R"({"a":"s1","b":"s2","c":"s3"})");
  expect_folder_refused({"index.json", "2 of its 3 files", "s2, s3", "fetch"});
}

TEST_F(ModelDirectory, ShardsThatLinkInACircle) {
  fs::create_symlink("s2", folder_ / "s1");
  fs::create_symlink("s1", folder_ / "s2");
  write_index(R"({"a":"s1","b":"s2"})");
  expect_folder_refused({"s1, s2"});
  fs::create_symlink("model.safetensors", folder_ / "model.safetensors");
  expect_folder_refused({"model.safetensors", "cannot open"});
}

TEST_F(ModelDirectory, ShardsOutsideTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "sub/x", "..", ".", "", "a\\u0000b"}) {
    write_index("{\"a\":\"" + std::string(name) + "\"}");
    expect_folder_refused({"index.json", "plain name"});
  }
  write_index(R"({"a":"model.safetensors.index.json"})");
  expect_folder_refused({"plain name"});
}

TEST_F(ModelDirectory, BrokenIndex) {
  for (const char* map : {"[]", "{}", "7", "{\"a\":", "null"}) {
    write_index(map);
    expect_folder_refused({"index.json", "weight_map"});
  }
  write_index("{\"a\":7}");
  expect_folder_refused({"\"a\" is not a text"});
  write_text(folder_, "model.safetensors.index.json", std::string(1000000, '['));
  expect_folder_refused({"weight_map"});
}

TEST_F(ModelDirectory, IndexAndShardsDisagree) {
  write_shard("s1", "a");
  write_shard("s2", "b");
  write_index(R"({"a":"s2","b":"s2"})");
  expect_folder_refused({"1 tensors", "\"a\" in s2"});
}

TEST_F(ModelDirectory, ATensorInTwoShardsComesFromTheNamedOne) {
  write_shard("s1", "a");
  write_shard("s2", "a");
  write_shard("s3", "b");
  write_index(R"({"a":"s1","b":"s3"})");
  EXPECT_EQ(open_model_directory(folder_.path())->tensors().size(), 2u);
}

}  // namespace
}  // namespace snug::files
