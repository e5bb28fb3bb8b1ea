// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <thread>

#include "files/weights/gguf/gguf.h"
#include "files/weights/pth/pth.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

TEST(Safetensors, ReadsWhatTheLibraryWrote) {
  const auto file = open_safetensors(data_file("plain.safetensors"));
  expect_same_tensors(*file, "plain.expected.safetensors");
  EXPECT_EQ(file->find("real.bfloat16")->dtype, DType::BF16);
  EXPECT_EQ(file->find("whole.int64")->nbytes, 14 * 8);
  EXPECT_EQ(file->find("absent"), nullptr);
  EXPECT_EQ(read_safetensors_metadata(data_file("plain.safetensors")).at("format"), "pt");
}

TEST(Safetensors, DescribesItself) {
  const std::string text = open_safetensors(data_file("plain.safetensors"))->describe();
  EXPECT_NE(text.find("plain.safetensors (12 tensors, 482 B)"), std::string::npos) << text;
}

TEST(Pth, ReadsZipLegacyAndLaterProtocols) {
  expect_same_tensors(*open_pth(data_file("plain.pth")), "plain.expected.safetensors");
  for (const char* name : {"views.pth", "legacy.pth", "protocol4.pth"}) {
    SCOPED_TRACE(name);
    expect_same_tensors(*open_pth(data_file(name)), "views.expected.safetensors");
  }
}

TEST(Pth, RawIsEmptyForStridedTensorsOnly) {
  const auto file = open_pth(data_file("views.pth"));
  EXPECT_TRUE(file->raw(*file->find("transposed")).empty());
  EXPECT_EQ(file->raw(*file->find("rows")).size(), 64u);
  EXPECT_EQ(file->raw(*file->find("rows")).data(), file->raw(*file->find("base")).data() + 64);
}

TEST(Gguf, ReadsWhatThePackageWrote) {
  expect_same_tensors(*GgufFile::open(data_file("model.gguf")), "gguf.expected.safetensors");
}

TEST(Gguf, TurnsDimensionsRound) {
  const auto file = GgufFile::open(data_file("model.gguf"));
  EXPECT_EQ(file->find("cube")->shape, (std::vector<int64_t>{2, 4, 32}));
  EXPECT_EQ(file->find("q4_1")->dtype, DType::Q4_1);
}

TEST(Gguf, MetadataOfEveryType) {
  const auto file = GgufFile::open(data_file("model.gguf"));
  EXPECT_EQ(file->text("general.architecture"), "llama");
  EXPECT_EQ(file->integer("test.uint8"), 200);
  EXPECT_EQ(file->integer("test.int8"), -5);
  EXPECT_EQ(file->integer("test.uint16"), 60000);
  EXPECT_EQ(file->integer("test.int16"), -30000);
  EXPECT_EQ(file->integer("test.uint32"), 4000000000);
  EXPECT_EQ(file->integer("test.int32"), -2000000000);
  EXPECT_EQ(file->integer("test.int64"), -(int64_t{1} << 60));
  EXPECT_EQ(file->number("test.float32"), static_cast<double>(0.1f));
  EXPECT_EQ(file->number("test.float64"), 0.1);
  EXPECT_EQ(file->number("llama.block_count"), 2.0);
  EXPECT_TRUE(file->boolean("test.bool"));
  EXPECT_EQ(file->texts("tokenizer.ggml.tokens"),
            (std::vector<std::string>{"<unk>", "<s>", "hello", "ä€𝄞"}));
  EXPECT_EQ(file->numbers("tokenizer.ggml.scores"), (std::vector<float>{0, -1.5f, -2.25f, -1e30f}));
  EXPECT_EQ(file->integers("tokenizer.ggml.token_type"), (std::vector<int32_t>{2, 3, 1, 1}));
  EXPECT_TRUE(file->is_array("tokenizer.ggml.scores"));
  EXPECT_FALSE(file->is_array("test.bool"));
  EXPECT_EQ(GgufFile::show(file->metadata().at("test.flags")), "[true, false]");
  EXPECT_EQ(GgufFile::show(file->metadata().at("test.uint64")), "9223372036854775813");
}

TEST(Gguf, MissingAndMistakenKeys) {
  const auto file = GgufFile::open(data_file("model.gguf"));
  EXPECT_EQ(file->integer("absent", 7), 7);
  EXPECT_EQ(file->text("absent", "x"), "x");
  expect_refused([&] { file->integer("llama.block_counts"); },
                 {"model.gguf", "llama.block_counts", "missing", "llama.block_count\""});
  expect_refused([&] { file->integer("general.name", 3); }, {"general.name", "small", "integer"});
  expect_refused([&] { file->integer("test.uint64"); }, {"test.uint64", "63 bits"});
  expect_refused([&] { file->texts("tokenizer.ggml.scores"); }, {"array of texts"});
  expect_refused([&] { file->integers("tokenizer.ggml.scores"); }, {"array of integers"});
}

TEST(Gguf, VersionTwoIsReadOthersAreRefused) {
  const test::TempFolder folder;
  std::string bytes = read_file(data_file("model.gguf"));
  bytes[4] = 2;
  expect_same_tensors(*GgufFile::open(write_text(folder, "v2.gguf", bytes)),
                      "gguf.expected.safetensors");
  bytes[4] = 1;
  expect_refused([&] { GgufFile::open(write_text(folder, "v1.gguf", bytes)); }, {"version 1"});
  bytes.replace(4, 4, std::string("\0\0\0\3", 4));
  expect_refused([&] { GgufFile::open(write_text(folder, "big.gguf", bytes)); }, {"big-endian"});
}

// As transformers fills up an embedding that gets more rows.
void expect_mean_rows(TensorSource& source, const std::string& name) {
  SCOPED_TRACE(name);
  const TensorInfo& tensor = *source.find(name);
  const std::vector<float> own = read_floats(source, tensor);
  const int64_t rows = tensor.shape[0], columns = std::ssize(own) / rows;
  source.add_mean_rows(tensor, rows + 3);
  source.add_mean_rows(tensor, rows);  // it has them
  ASSERT_EQ(tensor.shape[0], rows + 3);
  EXPECT_TRUE(source.raw(tensor).empty());
  std::vector<float> expected = own;
  for (int64_t i = 0; i < 3 * columns; ++i) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += own[row * columns + i % columns];
    expected.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  }
  expect_same_bits(read_floats(source, tensor), expected, name);
  for (const int64_t begin : {int64_t{0}, rows * columns - 1, rows * columns + 1}) {
    std::vector<float> part(expected.size() - static_cast<size_t>(begin));
    source.read(tensor, DType::F32, part.data(), begin, std::ssize(part));
    expect_same_bits(part, {expected.begin() + begin, expected.end()}, name);
  }
}

TEST(MeanRows, AreBehindTheFilesOwn) {
  const auto gguf = GgufFile::open(data_file("model.gguf"));
  for (const TensorInfo& tensor : gguf->tensors())
    if (tensor.shape.size() == 2) expect_mean_rows(*gguf, tensor.name);
  const auto pth = open_pth(data_file("views.pth"));
  expect_mean_rows(*pth, "rows");
  expect_refused([&] { pth->add_mean_rows(*pth->find("transposed"), 100); },
                 {"views.pth", "do not lie one after another"});
}

// Every stretch of a tensor equals the same stretch of the whole, blocks broken or not.
void expect_parts_equal_whole(const TensorSource& source) {
  for (const TensorInfo& tensor : source.tensors()) {
    const std::vector<float> whole = read_floats(source, tensor);
    const auto elements = static_cast<int64_t>(whole.size());
    for (int64_t begin = 0; begin < elements; begin += std::max<int64_t>(1, elements / 13)) {
      for (int64_t count : {int64_t{1}, (elements - begin) / 2, elements - begin}) {
        count = std::min(count, elements - begin);
        std::vector<float> part(static_cast<size_t>(count));
        source.read(tensor, DType::F32, part.data(), begin, count);
        expect_same_bits(part, {whole.begin() + begin, whole.begin() + begin + count}, tensor.name);
      }
    }
  }
}

TEST(Source, PartsEqualTheWhole) {
  expect_parts_equal_whole(*GgufFile::open(data_file("quants.gguf")));
  expect_parts_equal_whole(*open_pth(data_file("views.pth")));
  expect_parts_equal_whole(*open_safetensors(data_file("plain.safetensors")));
}

TEST(Source, ReleasedPagesReadTheSameAgain) {
  const auto file = GgufFile::open(data_file("quants.gguf"));
  const std::vector<float> before = read_floats(*file, *file->find("Q6_K"));
  file->release(*file->find("Q6_K"));
  expect_same_bits(read_floats(*file, *file->find("Q6_K")), before, "Q6_K");
}

TEST(Source, OwnTypeComesUnchanged) {
  const auto file = open_safetensors(data_file("plain.safetensors"));
  std::vector<int64_t> whole(14), part(3);
  file->read(*file->find("whole.int64"), DType::I64, whole.data());
  file->read(*file->find("whole.int64"), DType::I64, part.data(), 5, 3);
  EXPECT_EQ(part, std::vector<int64_t>(whole.begin() + 5, whole.begin() + 8));
}

TEST(Source, MisuseIsAnInternalError) {
  const auto file = open_safetensors(data_file("plain.safetensors"));
  const TensorInfo& tensor = *file->find("real.float32");
  float out[16];
  EXPECT_THROW(file->read(tensor, DType::F32, out, 10, 6), InternalError);
  EXPECT_THROW(file->read(tensor, DType::F32, out, -1, 2), InternalError);
  EXPECT_THROW(file->read(tensor, DType::I64, out), InternalError);
  EXPECT_THROW(file->read(make_tensor_info("other", DType::F32, {1}), DType::F32, out),
               InternalError);
}

// Large enough for several threads, at an odd address, since nothing in the format aligns data.
TEST(Source, LargeUnalignedTensorInThreads) {
  const test::TempFolder folder;
  const size_t elements = (size_t{3} << 20) + 17;
  std::vector<float> values(elements);
  std::iota(values.begin(), values.end(), -1e6f);
  std::string header = R"({"x":{"dtype":"F32","shape":[)" + std::to_string(elements) +
                       R"(],"data_offsets":[0,)" + std::to_string(elements * 4) + "]}}";
  if (header.size() % 2 == 0) header += ' ';
  std::string bytes = as_bytes(uint64_t{header.size()}) + header;
  bytes.append(reinterpret_cast<const char*>(values.data()), elements * 4);
  const auto file = open_safetensors(write_text(folder, "x.safetensors", bytes));
  ASSERT_NE(reinterpret_cast<uintptr_t>(file->raw(*file->find("x")).data()) % 4, 0u);
  expect_same_bits(read_floats(*file, *file->find("x")), values, "x");
  std::vector<uint16_t> narrow(elements), expected(elements);
  file->read(*file->find("x"), DType::BF16, narrow.data());
  for (size_t i = 0; i < elements; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    expected[i] = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  EXPECT_EQ(narrow, expected);
}

}  // namespace
}  // namespace snug::files
