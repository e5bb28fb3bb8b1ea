// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <numeric>

#include "base/bytes.h"
#include "files/weights/convert.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/pth/pth.h"
#include "formats_testing.h"

namespace snug::files {
namespace writer_test {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<TensorInfo> sample_infos() {
  return {make_tensor_info("model.embed.weight", DType::BF16, {4, 3}),
          make_tensor_info("flags", DType::Bool, {3}),
          make_tensor_info("model.norm.weight", DType::F32, {5}),
          make_tensor_info("scalar", DType::F64, {}),
          make_tensor_info("empty", DType::F16, {0, 2}),
          make_tensor_info("ids", DType::I64, {2, 2})};
}

// Bytes that depend on the tensor: small positive numbers in every type, true for a boolean.
std::vector<std::byte> sample_bytes(const TensorInfo& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.nbytes));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(tensor.dtype == DType::Bool ? i % 2 : (i * 7 + 3) % 60);
  return bytes;
}

TensorBytes sample_source() {
  return [kept = std::vector<std::byte>()](const TensorInfo& tensor) mutable {
    kept = sample_bytes(tensor);
    return std::span<const std::byte>(kept);
  };
}

void expect_sample(const TensorSource& source) {
  ASSERT_EQ(source.tensors().size(), sample_infos().size());
  for (const TensorInfo& wanted : sample_infos()) {
    const TensorInfo* found = source.find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    EXPECT_EQ(found->dtype, wanted.dtype) << wanted.name;
    EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
    const auto raw = source.raw(*found);
    EXPECT_EQ(std::vector(raw.begin(), raw.end()), sample_bytes(wanted)) << wanted.name;
  }
}

// tests/oracles/formats_readback.py reads the stored files with safetensors, torch.load and gguf;
// the same bytes today are still read by them. SNUG_WRITE_GOLDEN=1 stores anew.
void expect_golden(const fs::path& written, const std::string& golden) {
  if (std::getenv("SNUG_WRITE_GOLDEN") != nullptr)
    write_file_atomically(data_file(golden), read_file(written));
  EXPECT_EQ(read_file(written), read_file(data_file(golden))) << golden;
}

TEST(SafetensorsWriter, RoundTripAlignedAndGolden) {
  const test::TempFolder folder;
  const auto written =
      write_sharded(folder.path(), sample_infos(), kGiB, sample_source(), {{"format", "pt"}});
  ASSERT_EQ(written, std::vector{folder / "model.safetensors"});
  const auto file = open_safetensors(written[0]);
  expect_sample(*file);
  for (const TensorInfo& tensor : file->tensors()) {
    const auto width = static_cast<uintptr_t>(layout(tensor.dtype).block_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file->raw(tensor).data()) % width, 0u) << tensor.name;
  }
  EXPECT_EQ(read_safetensors_metadata(written[0]).at("format"), "pt");
  expect_golden(written[0], "written.safetensors");
}

TEST(SafetensorsWriter, PiecesInAnyOrder) {
  const test::TempFolder folder;
  const std::vector<TensorInfo> infos = sample_infos();
  SafetensorsWriter writer(folder / "x.safetensors", infos);
  for (size_t i = infos.size(); i-- > 0;) {
    const std::vector<std::byte> bytes = sample_bytes(infos[i]);
    const size_t half = bytes.size() / 2;
    writer.write(infos[i].name, std::span(bytes).first(half));
    writer.write(infos[i].name, std::span(bytes).subspan(half));
  }
  writer.finish();
  expect_sample(*open_safetensors(folder / "x.safetensors"));
}

TEST(SafetensorsWriter, IncompleteOrTooMuchIsAnInternalErrorAndLeavesNothing) {
  const test::TempFolder folder;
  {
    SafetensorsWriter writer(folder / "x.safetensors", sample_infos());
    EXPECT_THROW(writer.write("other", {}), InternalError);
    EXPECT_THROW(writer.write("flags", sample_bytes(sample_infos()[0])), InternalError);
    EXPECT_THROW(writer.finish(), InternalError);
    EXPECT_EQ(files_in(folder.path()).size(), 1u);  // the temporary one
  }
  EXPECT_TRUE(files_in(folder.path()).empty());
}

TEST(SafetensorsWriter, FailureKeepsTheFormerFile) {
  const test::TempFolder folder;
  write_text(folder, "x.safetensors", "former");
  { SafetensorsWriter writer(folder / "x.safetensors", sample_infos()); }
  EXPECT_EQ(read_file(folder / "x.safetensors"), "former");
}

TEST(SafetensorsWriter, UnwritableFolder) {
  expect_refused([] { SafetensorsWriter writer("/proc/none/x.safetensors", sample_infos()); },
                 {"cannot create", "/proc/none/x.safetensors"});
}

// A limit on the size of files stands in for a full disk.
TEST(SafetensorsWriter, FullDiskShowsBeforeTheFirstTensor) {
  const test::TempFolder folder;
  rlimit former{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &former), 0);
  const rlimit small{1 << 20, former.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<TensorInfo> infos = {make_tensor_info("x", DType::F32, {1 << 20})};
  expect_refused([&] { SafetensorsWriter writer(folder / "x.safetensors", infos); },
                 {"reserve the space", "x.safetensors"});
  setrlimit(RLIMIT_FSIZE, &former);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(files_in(folder.path()).empty());
}

TEST(Sharded, CutsIndexesAndReadsBack) {
  const test::TempFolder folder;
  write_text(folder, "model.safetensors", "left from earlier");
  const auto written = write_sharded(folder.path(), sample_infos(), 30, sample_source());
  EXPECT_EQ(
      files_in(folder.path()),
      (std::vector<fs::path>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                             "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  EXPECT_EQ(written.size(), 4u);
  expect_sample(*open_model_directory(folder.path()));
  EXPECT_NE(read_file(written.back()).find("\"total_size\": 87"), std::string::npos);
}

TEST(Sharded, OneFileReplacesFormerShards) {
  const test::TempFolder folder;
  write_sharded(folder.path(), sample_infos(), 30, sample_source());
  write_sharded(folder.path(), sample_infos(), kGiB, sample_source());
  EXPECT_FALSE(fs::exists(folder / "model.safetensors.index.json"));
  expect_sample(*open_model_directory(folder.path()));
}

TEST(PthWriter, RoundTripAndGolden) {
  const test::TempFolder folder;
  write_pth(folder / "lit_model.pth", sample_infos(), sample_source());
  expect_sample(*open_model_directory(folder.path()));
  expect_golden(folder / "lit_model.pth", "written.pth");
}

// 32 numbers as GGUF's Q8_0 has them: the scale, max|x| / 127, as float16, then rounded int8.
void write_q8_block(const float* x, std::byte* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
  const float scale = largest / 127.0f, inverse = 1.0f / scale;
  convert(DType::F32, &scale, DType::F16, block, 1);
  for (int i = 0; i < 32; ++i)
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * inverse)));
}

TEST(GgufWriter, RoundTripAndGolden) {
  const test::TempFolder folder;
  const auto former = GgufFile::open(data_file("model.gguf"));
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), -31.5f);
  const std::vector<TensorInfo> infos = {make_tensor_info("f32", DType::F32, {3, 1}),
                                         make_tensor_info("q8", DType::Q8_0, {2, 32}),
                                         make_tensor_info("b", DType::BF16, {2, 2, 2})};
  std::vector<std::byte> q8(static_cast<size_t>(infos[1].nbytes));
  write_q8_block(values.data(), q8.data());
  write_q8_block(values.data() + 32, q8.data() + 34);
  GgufWriter writer(folder / "x.gguf");
  writer.set_text("general.architecture", "llama");
  for (const auto& [key, value] : former->metadata())
    if (key.starts_with("test.") || key.starts_with("tokenizer.")) writer.copy(key, value);
  writer.set_u32("a.u32", 7);
  writer.set_i32("a.i32", -7);
  writer.set_u64("a.u64", uint64_t{1} << 40);
  writer.set_f32("a.f32", 0.5f);
  writer.set_bool("a.bool", false);
  writer.set_texts("a.texts", {"x", "", "ü"});
  writer.set_f32s("a.f32s", std::vector<float>{1, 2.5f});
  writer.set_i32s("a.i32s", std::vector<int32_t>{3, -4});
  EXPECT_THROW(writer.set_u32("a.u32", 8), InternalError);
  writer.declare(infos);
  writer.write("f32", bytes_of(values).first(12));
  writer.write("q8", q8);
  writer.write("b", bytes_of(values).first(16));
  writer.finish();

  const auto file = GgufFile::open(folder / "x.gguf");
  EXPECT_EQ(file->integer("a.u64"), int64_t{1} << 40);
  EXPECT_EQ(file->integer("a.i32"), -7);
  EXPECT_EQ(file->texts("a.texts"), (std::vector<std::string>{"x", "", "ü"}));
  EXPECT_EQ(file->texts("tokenizer.ggml.tokens"), former->texts("tokenizer.ggml.tokens"));
  EXPECT_EQ(file->integer("test.int16"), -30000);
  EXPECT_EQ(file->find("b")->shape, (std::vector<int64_t>{2, 2, 2}));
  const auto raw = file->raw(*file->find("q8"));
  EXPECT_EQ(std::vector(raw.begin(), raw.end()), q8);
  expect_golden(folder / "x.gguf", "written.gguf");
}

}  // namespace writer_test
}  // namespace snug::files
