// Folders that other programs have quantized against what those programs take them for
// (tests/oracles/quantized_folders.py): each matrix to the bit, logits, and codes kept as they are.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "core/kernels/quantized_matrix.h"
#include "core/memory/ledger.h"
#include "core/ops/linear/stored_weight.h"
#include "engine/adapters/adapters.h"
#include "engine/batch.h"
#include "engine/exec/executor.h"
#include "engine/export/export.h"
#include "files/weights/convert.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "models/quantized_folder.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"

namespace snug {
namespace quantized_folders {
namespace {

namespace fs = std::filesystem;

void load(models::Checkpoint& checkpoint, at::ScalarType type) {
  for (nn::Parameter* parameter : checkpoint.model->parameters()) {
    parameter->trained = false;
    parameter->allocate(at::kCPU, type);
  }
  models::load_weights(checkpoint);
}

at::Tensor dequantized(const nn::Parameter& parameter, at::ScalarType type) {
  return ops::dequantize(
      {parameter.value, parameter.quantization->format, parameter.shape[0], parameter.shape[1]},
      type);
}

fs::path folder_of(const std::string& name) {
  return tests::source_dir() / "tests/data/formats/quantized" / name;
}

class QuantizedFolder : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  const fs::path folder_ = folder_of(GetParam());
  const std::unique_ptr<files::TensorSource> expected_ =
      files::open_safetensors(folder_ / "expected.safetensors");
};

TEST_P(QuantizedFolder, EveryMatrixIsThePackages) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    models::Checkpoint checkpoint = models::open_checkpoint(folder_);
    load(checkpoint, type);
    int compared = 0;
    for (const nn::Parameter* parameter : checkpoint.model->parameters()) {
      const files::TensorInfo* wanted = expected_->find(parameter->name);
      if (wanted == nullptr) continue;
      ++compared;
      EXPECT_TRUE(at::equal(parameter->value, tests::read(*expected_, parameter->name).to(type)))
          << parameter->name << " as " << type;
    }
    EXPECT_EQ(compared, 7);
  }
}

TEST_P(QuantizedFolder, LogitsAreTransformers) {
  models::Checkpoint checkpoint = models::open_checkpoint(folder_);
  load(checkpoint, at::kFloat);
  checkpoint.model->prepare(at::kCPU, 64);
  exec::Executor executor(checkpoint.model->units(), {}, memory::ledger_of(at::kCPU));
  const at::Tensor ids = tests::read(*expected_, "input_ids");
  const nn::Batch batch = engine::to_device(tests::rows_as_batch(ids, ids, 0, 1), at::kCPU);
  tests::expect_close("logits", executor.last_logits(batch, at::kFloat),
                      tests::read(*expected_, "logits").select(1, ids.size(1) - 1), 1e-5);
}

// As a folder of plain numbers, whose config no longer speaks of a quantization.
TEST_P(QuantizedFolder, IsWrittenAsPlainNumbers) {
  const test::TempFolder out;
  models::Checkpoint checkpoint = models::open_checkpoint(folder_);
  engine::export_hugging_face(out.path() / "plain", *checkpoint.model, nullptr,
                              [&](const nn::Parameter& parameter) {
                                return models::read_parameter(checkpoint, parameter, at::kFloat);
                              },
                              {.dtype = at::kFloat});
  const std::string config = read_file(out.path() / "plain/config.json", 1 << 20);
  EXPECT_FALSE(nlohmann::json::parse(config).contains("quantization_config"));
  models::Checkpoint plain = models::open_checkpoint(out.path() / "plain");
  for (const nn::Parameter* parameter : plain.model->parameters())
    if (expected_->find(parameter->name) != nullptr) {
      EXPECT_TRUE(at::equal(models::read_parameter(plain, *parameter, at::kFloat),
                            tests::read(*expected_, parameter->name).to(at::kFloat)))
          << parameter->name;
    }
}

std::vector<std::string> names_of(const files::TensorSource& file) {
  std::vector<std::string> names;
  for (const files::TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

// What a damaged or hostile file may hold in place of one tensor: nothing, half of its rows, other
// bytes of other types, more dimensions.
enum class Damage { Absent, Halved, Retyped, Turned, Filled };

// The folder's file with that damage to `name`; false if there is none of this kind.
bool write_damaged(const fs::path& path, const files::TensorSource& file, const std::string& name,
                   Damage damage) {
  std::vector<files::TensorInfo> infos;
  for (files::TensorInfo tensor : file.tensors()) {
    if (tensor.name == name) {
      if (damage == Damage::Absent) continue;
      if (damage == Damage::Halved) {
        if (tensor.shape.empty() || tensor.shape[0] < 2) return false;
        tensor.shape[0] /= 2;
      }
      if (damage == Damage::Retyped)
        tensor.dtype = tensor.dtype == files::DType::I8 ? files::DType::Bool : files::DType::I8;
      if (damage == Damage::Turned) tensor.shape.insert(tensor.shape.begin(), 1);
      tensor = files::make_tensor_info(tensor.name, tensor.dtype, tensor.shape);
    }
    infos.push_back(tensor);
  }
  files::SafetensorsWriter writer(path, infos);
  for (const files::TensorInfo& tensor : infos) {
    const auto bytes = file.raw(*file.find(tensor.name));
    std::vector<std::byte> own(bytes.begin(), bytes.begin() + tensor.nbytes);
    if (tensor.name == name && damage == Damage::Filled) std::ranges::fill(own, std::byte{0x7F});
    writer.write(tensor.name, own);
  }
  writer.finish();
  return true;
}

// Whatever is wrong with one tensor of a layer: it is read, or refused in words. (Run with address
// checks, it reads nothing outside the file.)
TEST_P(QuantizedFolder, DamageIsRefusedInWords) {
  const auto file = files::open_safetensors(folder_ / "model.safetensors");
  const test::TempFolder copy;
  fs::copy(folder_ / "config.json", copy.path() / "config.json");
  int refused = 0;
  for (const std::string& name : names_of(*file)) {
    if (name.find("mlp.down_proj") == std::string::npos) continue;
    for (const Damage damage :
         {Damage::Absent, Damage::Halved, Damage::Retyped, Damage::Turned, Damage::Filled}) {
      if (!write_damaged(copy.path() / "model.safetensors", *file, name, damage)) continue;
      try {
        models::Checkpoint checkpoint = models::open_checkpoint(copy.path());
        load(checkpoint, at::kFloat);
      } catch (const UserError& error) {
        ++refused;
        EXPECT_NE(std::string(error.what()).find("down_proj"), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(refused, 2);
}

INSTANTIATE_TEST_SUITE_P(Layouts, QuantizedFolder,
                         testing::Values("bnb-nf4-dq", "bnb-nf4", "bnb-fp4", "bnb-int8", "gptq-4",
                                         "gptq-3", "gptq-2", "gptq-8-order", "gptq-v2", "awq",
                                         "packed-4", "packed-4-zero", "packed-8-row", "packed-3",
                                         "int8-row", "fp8-row", "fp8-all", "fp8-block", "nvfp4",
                                         "mxfp4", "mxfp8", "fp8-rest"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class BitsAndBytesFolder : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

std::span<const std::byte> part_at(const at::Tensor& bytes, int64_t begin, size_t size) {
  const auto* data = static_cast<const std::byte*>(bytes.const_data_ptr());
  return {data + begin, size};
}

// The very bytes of the file: codes, scales, and those of double quantization.
TEST_P(BitsAndBytesFolder, CodesStayAsTheyAre) {
  const fs::path folder = folder_of(GetParam());
  const std::string name = std::string(GetParam()).substr(4);
  EXPECT_EQ(models::stored_quantization(folder), "bnb." + name);
  const auto format = kernels::quantized_format_named(name).value();
  const auto file = files::open_safetensors(folder / "model.safetensors");
  models::Checkpoint checkpoint = models::open_checkpoint(folder);
  const auto is_packed = [](const nn::Parameter& p) { return p.name.ends_with("_proj.weight"); };
  for (nn::Parameter* parameter : checkpoint.model->parameters())
    if (is_packed(*parameter))
      parameter->quantization = nn::Quantization{.format = format, .source = at::kBFloat16};
  load(checkpoint, at::kBFloat16);
  for (const nn::Parameter* parameter : checkpoint.model->parameters()) {
    if (!is_packed(*parameter)) continue;
    const auto layout = kernels::quantized_layout(format, parameter->shape[0], parameter->shape[1]);
    const auto expect_part = [&](const std::string& part, int64_t begin) {
      const files::TensorInfo* info = file->find(part);
      ASSERT_NE(info, nullptr) << part;
      const auto wanted = file->raw(*info);
      const auto found = part_at(parameter->value, begin, wanted.size());
      EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size()), 0) << part;
    };
    expect_part(parameter->name, layout.codes);
    const bool is_int8 = name == "int8";
    const std::string module = parameter->name.substr(0, parameter->name.size() - 6);
    expect_part(is_int8 ? module + "SCB" : parameter->name + ".absmax", layout.scales);
    if (name.ends_with("-dq"))
      expect_part(parameter->name + ".nested_absmax", layout.nested_scales);
    const auto expected = files::open_safetensors(folder / "expected.safetensors");
    const at::Tensor wanted = tests::read(*expected, parameter->name);
    EXPECT_TRUE(at::equal(dequantized(*parameter, at::kFloat).to(wanted.dtype()), wanted))
        << parameter->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BitsAndBytesFolder,
                         testing::Values("bnb-nf4-dq", "bnb-nf4", "bnb-fp4", "bnb-int8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// What the tensors are counts, not what a config says of names.
TEST(QuantizedFolders, LayersThatAreNumbersStaySo) {
  memory::install_allocators();
  const auto file = files::open_safetensors(folder_of("bnb-nf4") / "model.safetensors");
  const auto values = files::open_safetensors(folder_of("bnb-nf4") / "expected.safetensors");
  const std::string plain = "model.layers.0.mlp.down_proj.weight";
  std::vector<files::TensorInfo> infos = {*values->find(plain)};
  for (const files::TensorInfo& tensor : file->tensors())
    if (!tensor.name.starts_with(plain)) infos.push_back(tensor);
  const test::TempFolder copy;
  fs::copy(folder_of("bnb-nf4") / "config.json", copy.path() / "config.json");
  files::SafetensorsWriter writer(copy.path() / "model.safetensors", infos);
  for (const files::TensorInfo& tensor : infos) {
    const files::TensorSource& source = tensor.name == plain ? *values : *file;
    writer.write(tensor.name, source.raw(*source.find(tensor.name)));
  }
  writer.finish();
  models::Checkpoint checkpoint = models::open_checkpoint(copy.path());
  recipe::Recipe recipe;
  recipe.lora.enabled = true;
  engine::resolve_quantize(recipe, copy.path());
  EXPECT_EQ(recipe.quantize, "bnb.nf4");
  engine::quantize_weights(*checkpoint.model, recipe);
  int quantized = 0;
  for (const nn::Parameter* parameter : checkpoint.model->parameters()) {
    quantized += parameter->quantization.has_value();
    if (parameter->name == plain) {
      EXPECT_FALSE(parameter->quantization);
    }
  }
  EXPECT_EQ(quantized, 6);
  load(checkpoint, at::kBFloat16);
  // Asked for numbers, or for training that changes the base, it gives them.
  for (const bool asks : {true, false}) {
    recipe::Recipe other;
    other.lora.enabled = true;
    if (asks) other.given_keys = {"quantize"};
    if (!asks) other.lora.init_weights = recipe::AdapterInit::Pissa;
    engine::resolve_quantize(other, copy.path());
    EXPECT_EQ(other.quantize, "");
  }
}

// Each code of the 8-bit floating-point types, those of infinities and NaN among them.
TEST(QuantizedFolders, EightBitFloatsAreTorchs) {
  const at::Tensor codes = at::arange(256, at::kInt).to(at::kByte);
  for (const auto& [ours, theirs] : {std::pair(files::DType::F8E4M3, at::kFloat8_e4m3fn),
                                     std::pair(files::DType::F8E5M2, at::kFloat8_e5m2)}) {
    at::Tensor found = at::empty({256}, at::kFloat);
    files::convert(ours, codes.const_data_ptr(), files::DType::F32, found.mutable_data_ptr(), 256);
    EXPECT_TRUE(at::allclose(found, codes.view(theirs).to(at::kFloat), 0, 0, /*equal_nan=*/true))
        << files::name(ours);
  }
}

// Quantizing anew what is quantized otherwise, and what is cut, is no other way to the same numbers
// but it must be one that works: a folder in 4 bits read for 8, and the reverse.
TEST(QuantizedFolders, AreQuantizedAnewInAnotherFormat) {
  memory::install_allocators();
  for (const auto& [name, format] :
       {std::pair("bnb-nf4-dq", kernels::QuantizedFormat::Int8),
        std::pair("bnb-int8", kernels::QuantizedFormat::Nf4),
        std::pair("gptq-4", kernels::QuantizedFormat::Nf4DoubleQuant)}) {
    models::Checkpoint packed = models::open_checkpoint(folder_of(name));
    const auto expected = files::open_safetensors(folder_of(name) / "expected.safetensors");
    for (nn::Parameter* parameter : packed.model->parameters())
      if (parameter->name.ends_with("_proj.weight"))
        parameter->quantization = nn::Quantization{.format = format, .source = at::kFloat};
    load(packed, at::kFloat);
    for (const nn::Parameter* parameter : packed.model->parameters()) {
      if (!parameter->quantization) continue;
      const at::Tensor wanted = tests::read(*expected, parameter->name).to(at::kFloat);
      const at::Tensor found = dequantized(*parameter, at::kFloat);
      const double apart = (found - wanted).norm().item<double>() / wanted.norm().item<double>();
      EXPECT_LT(apart, 0.12) << name << " " << parameter->name;
      EXPECT_GT(apart, 0) << name << " " << parameter->name;
    }
  }
}

}  // namespace
}  // namespace quantized_folders
}  // namespace snug
