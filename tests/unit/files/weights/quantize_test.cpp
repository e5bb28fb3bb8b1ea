// What quantizers make, against ggml's own bytes; which type a tensor gets, against llama.cpp's
// choice. tests/oracles/gguf_quantize.py made both.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "files/weights/convert.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/gguf/mix.h"
#include "files/weights/pth/zip.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

using nlohmann::json;

TEST(Quantize, HasTheBytesOfGgml) {
  const auto file = GgufFile::open(data_file("quantize.gguf"));
  const TensorInfo& rows = *file->find("rows");
  const std::vector<float> values = read_floats(*file, rows);
  int num_types = 0;
  for (const TensorInfo& wanted : file->tensors()) {
    if (wanted.name == rows.name) continue;
    ++num_types;
    ASSERT_EQ(wanted.name, name(wanted.dtype));
    std::vector<std::byte> found(static_cast<size_t>(wanted.nbytes));
    quantize(wanted.dtype, values.data(), found.data(), rows.num_elements());
    const auto expected = file->raw(wanted);
    const auto block = static_cast<size_t>(layout(wanted.dtype).block_bytes);
    for (size_t at = 0; at < found.size(); at += block)
      EXPECT_TRUE(std::equal(found.begin() + at, found.begin() + at + block, expected.begin() + at))
          << wanted.name << ", block " << at / block << " of row "
          << at / (found.size() / rows.shape[0]);
  }
  EXPECT_EQ(num_types, 8);
}

TEST(Quantize, WithAnImportanceHasTheBytesOfGgml) {
  const auto file = GgufFile::open(data_file("quantize.gguf"));
  const TensorInfo& rows = *file->find("rows");
  const std::vector<float> values = read_floats(*file, rows);
  const auto importances = GgufFile::open(data_file("importance.gguf"));
  const json cases = json::parse(read_file(data_file("weighted.json")));
  EXPECT_EQ(cases.size(), 6u * 8u);
  for (const auto& [key, widths] : cases.items()) {
    const size_t space = key.find(' ');
    const std::vector<float> importance =
        read_floats(*importances, *importances->find(key.substr(0, space)));
    const DType type = file->find(key.substr(space + 1))->dtype;
    for (const auto& [width, checksums] : widths.items()) {
      const int64_t columns = std::stoll(width);
      std::vector<std::byte> found(static_cast<size_t>(bytes_for(type, columns)));
      ASSERT_EQ(std::ssize(checksums), rows.shape[0]);
      for (int64_t row = 0; row < rows.shape[0]; ++row) {
        quantize(type, values.data() + row * rows.shape[1], found.data(), columns,
                 importance.data());
        EXPECT_EQ(crc32(found), checksums[static_cast<size_t>(row)].get<uint32_t>())
            << key << ", row " << row << " of " << width;
      }
    }
  }
}

// convert() goes by stretches of 4096.
TEST(Quantize, StretchesOfOtherTypesAreTheSameBlocks) {
  const auto file = GgufFile::open(data_file("quantize.gguf"));
  const TensorInfo& rows = *file->find("rows");
  const int64_t count = rows.num_elements();
  ASSERT_GT(count, 2 * 4096);
  std::vector<uint16_t> narrow(static_cast<size_t>(count));
  file->read(rows, DType::BF16, narrow.data());
  std::vector<float> wide(narrow.size());
  bf16_to_f32(narrow.data(), wide.data(), count);
  for (const DType type : {DType::Q8_0, DType::Q4_K}) {
    std::vector<std::byte> found(static_cast<size_t>(bytes_for(type, count))), expected(found);
    convert(DType::BF16, narrow.data(), type, found.data(), count);
    quantize(type, wide.data(), expected.data(), count);
    EXPECT_EQ(found, expected) << name(type);
  }
}

TEST(Quantize, RefusesWhatIsNotFinite) {
  std::vector<std::byte> out(210);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(256, 1.0F);
    values[200] = bad;
    expect_refused([&] { quantize(DType::Q6_K, values.data(), out.data(), 256); },
                   {"infinities", "Q6_K"});
  }
  EXPECT_FALSE(can_quantize(DType::Q3_K));
}

// Scales are float16 numbers, so that finite weights may be beyond what a format holds.
TEST(Quantize, RefusesFiniteWeightsThatItWouldMakeInfinite) {
  std::vector<std::byte> out(1024);
  for (const DType type : {DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
                           DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    std::vector<float> values(256, 1.0F);
    values[200] = -1e9F;
    expect_refused([&] { quantize(type, values.data(), out.data(), 256); }, {"1e+09", name(type)});
    values[200] = 60000;
    quantize(type, values.data(), out.data(), 256);
  }
  std::vector<float> values(256, 1.0F);
  values[3] = 1e6F;  // 127 steps of 7874
  quantize(DType::Q8_0, values.data(), out.data(), 256);
}

// The tensors of a case, layer by layer.
std::vector<TensorInfo> tensors_of(const json& model) {
  std::vector<TensorInfo> tensors;
  for (const auto& [kind, shape] : model["shapes"].items()) {
    const bool in_layers = !kind.starts_with("output") && kind != "token_embd.weight";
    for (int64_t layer = 0; layer < (in_layers ? model["layers"].get<int64_t>() : 1); ++layer)
      tensors.push_back(make_tensor_info(in_layers ? fmt::format("blk.{}.{}", layer, kind) : kind,
                                         DType::F32, shape));
  }
  return tensors;
}

TEST(GgufMix, GivesEachTensorTheTypeThatLlamaCppDoes) {
  const json models = json::parse(read_file(data_file("gguf_types.json")));
  EXPECT_GT(models.size(), 10u);
  for (const auto& [model_name, model] : models.items()) {
    const std::vector<TensorInfo> tensors = tensors_of(model);
    const auto expect_types = [&](const std::string& mix, const json& wanted,
                                  Importance importance) {
      const std::vector<DType> types = types_in_mix(gguf_mix(mix), tensors, importance);
      ASSERT_EQ(types.size(), tensors.size());
      for (size_t i = 0; i < types.size(); ++i) {
        const std::string& full = tensors[i].name;
        const bool in_layers = full.starts_with("blk.");
        const json& kind = wanted[in_layers ? full.substr(full.find('.', 4) + 1) : full];
        const json& expected = kind.is_array() ? kind[std::stoul(full.substr(4))] : kind;
        EXPECT_EQ(name(types[i]), expected.get<std::string>())
            << model_name << " " << mix << " " << full;
      }
    };
    for (const auto& [mix, wanted] : model["types"].items()) {
      if (mix == "weighted") continue;
      expect_types(mix, wanted, Importance::None);
      expect_types(mix, mix == "Q4_0" ? model["types"]["weighted"] : wanted, Importance::Known);
    }
  }
}

TEST(GgufMix, AnUnknownNameListsTheKnown) {
  expect_refused([] { gguf_mix("Q3_K_L"); }, {"Q3_K_L", "Q8_0, Q4_0, Q6_K, Q4_K_M, Q5_K_M"});
}

}  // namespace
}  // namespace snug::files
