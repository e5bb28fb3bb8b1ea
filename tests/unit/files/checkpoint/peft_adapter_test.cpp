// Adapters as peft wrote them (tests/oracles/peft_adapters.py), read, written and read again; and
// what becomes of directories that are damaged or ask for what cannot be honoured.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/peft_adapter.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "core/memory/ledger.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/weights/safetensors/safetensors.h"
#include "support/temp_folder.h"

namespace snug::checkpoint {
namespace peft_adapter_test {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

const fs::path kAdapters = fs::path(SNUG_SOURCE_DIR) / "tests/data/adapters/peft";
const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";

at::Tensor numbers(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kFloat).reshape(shape);
}

void write_weights(const fs::path& file, const Tensors& tensors) {
  std::vector<files::TensorInfo> infos;
  for (const auto& [name, value] : tensors)
    infos.push_back(files::make_tensor_info(name, dtype_of(value), value.sizes().vec()));
  files::SafetensorsWriter out(file, infos);
  for (const auto& [name, value] : tensors) out.write(name, bytes_of(value.contiguous()));
  out.finish();
}

std::string error_of(const fs::path& directory) {
  try {
    read_peft_adapter(directory);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

void expect_same(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  EXPECT_EQ(a.scalar_type(), b.scalar_type()) << what;
  EXPECT_TRUE(at::equal(a, b)) << what;
}

class EachCase : public testing::TestWithParam<const char*> {};

// Every tensor of the file is somewhere in the description, and nothing else is.
TEST_P(EachCase, IsReadWhole) {
  memory::install_allocators();
  const fs::path directory = kAdapters / GetParam();
  const Adapter adapter = read_peft_adapter(directory);
  size_t count = adapter.base_weights.size();
  for (const auto& [module, parts] : adapter.modules) count += parts.magnitude.defined() ? 3 : 2;
  if (!fs::exists(directory / "adapter_model.safetensors")) {
    EXPECT_EQ(count, 4U);
    return;
  }
  const auto file = files::open_safetensors(directory / "adapter_model.safetensors");
  EXPECT_EQ(count, file->tensors().size());
  const auto stored = [&](const std::string& name) {
    const files::TensorInfo* info = file->find("base_model.model." + name);
    if (info == nullptr) return at::Tensor();
    at::Tensor value = at::full(info->shape, 0, at::kFloat);
    file->read(*info, files::DType::F32, value.mutable_data_ptr());
    return value;
  };
  for (const auto& [module, parts] : adapter.modules) {
    expect_same(parts.a, stored(module + ".lora_A.weight"), module);
    expect_same(parts.b, stored(module + ".lora_B.weight"), module);
    expect_same(parts.magnitude, stored(module + ".lora_magnitude_vector"), module);
  }
}

TEST_P(EachCase, ComesBackAsItWasWritten) {
  memory::install_allocators();
  const test::TempFolder folder;
  Adapter wanted = read_peft_adapter(kAdapters / GetParam());
  write_peft_files(folder.path(), wanted);
  int64_t written = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    written += static_cast<int64_t>(entry.file_size());
  EXPECT_EQ(peft_bytes(wanted), written);
  const Adapter found = read_peft_adapter(folder.path());
  if (!wanted.config.target_modules.pattern.empty()) {
    wanted.config.target_modules = {};
    for (const auto& [module, _] : wanted.modules)
      wanted.config.target_modules.names.push_back(module);
  }
  EXPECT_EQ(found.config, wanted.config);
  ASSERT_EQ(found.modules.size(), wanted.modules.size());
  for (const auto& [module, parts] : wanted.modules) {
    const ModuleAdapter& again = found.modules.at(module);
    expect_same(again.a, parts.a, module);
    expect_same(again.b, parts.b, module);
    expect_same(again.magnitude, parts.magnitude, module);
    EXPECT_EQ(again.scaling, parts.scaling) << module;
  }
  ASSERT_EQ(found.base_weights.size(), wanted.base_weights.size());
  for (const auto& [name, value] : wanted.base_weights)
    expect_same(found.base_weights.at(name), value, name);
}

INSTANTIATE_TEST_SUITE_P(Peft, EachCase,
                         testing::Values("query-value", "all", "rslora", "dora", "patterns",
                                         "tied-head", "tied-dora", "pickled"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(PeftAdapter, ScalesByPatterns) {
  memory::install_allocators();
  const Adapter adapter = read_peft_adapter(kAdapters / "patterns");
  const std::map<std::string, std::pair<int64_t, double>> wanted{
      {"self_attn.q_proj", {2, 8.0 / 2}}, {"self_attn.k_proj", {4, 8.0 / 4}},
      {"self_attn.v_proj", {4, 1.5 / 4}}, {"mlp.gate_proj", {4, 5.0 / 4}},
      {"mlp.up_proj", {4, 5.0 / 4}},      {"mlp.down_proj", {6, 5.0 / 6}}};
  EXPECT_EQ(adapter.modules.size(), wanted.size());
  for (const auto& [name, value] : wanted) {
    const ModuleAdapter& parts = adapter.modules.at("model.layers.1." + name);
    EXPECT_EQ(parts.rank(), value.first) << name;
    EXPECT_DOUBLE_EQ(parts.scaling, value.second) << name;
  }
  EXPECT_DOUBLE_EQ(read_peft_adapter(kAdapters / "rslora").modules.begin()->second.scaling,
                   6 / 2.0);
}

// Names as peft matches them.
TEST(PeftAdapter, ModulesAreChosenAsPeftDoes) {
  const std::string q = "model.layers.3.self_attn.q_proj";
  const auto names = [](std::vector<std::string> list) {
    return AdapterConfig{.target_modules = {.names = std::move(list), .pattern = ""}};
  };
  const auto pattern = [](std::string text) {
    return AdapterConfig{.target_modules = {.names = {}, .pattern = std::move(text)}};
  };
  EXPECT_TRUE(adapts(AdapterConfig{}, q));
  EXPECT_TRUE(adapts(names({"k_proj", "q_proj"}), q));
  EXPECT_TRUE(adapts(names({"self_attn.q_proj"}), q));
  EXPECT_FALSE(adapts(names({"proj"}), q));
  EXPECT_TRUE(adapts(pattern(".*q_proj"), q));
  AdapterConfig beside = names({"q_proj"});
  beside.modules_to_save = {"vision_model", "lm_head"};
  EXPECT_TRUE(adapts(beside, q));
  EXPECT_FALSE(adapts(beside, "model.vision_model.layers.0.q_proj"));
  EXPECT_FALSE(adapts(beside, "vision_model.layers.0.q_proj"));
  for (const char* head : {"lm_head", "language_model.lm_head", "embed_out"})
    EXPECT_FALSE(adapts(pattern("all-linear"), head)) << head;
  EXPECT_FALSE(adapts(pattern("q_proj"), q));  // the whole name
  EXPECT_FALSE(adapts(pattern("model|.*k_proj"), q));
  EXPECT_TRUE(adapts(pattern("x|.*\\.[qk]_proj"), q));
  EXPECT_TRUE(adapts(pattern("all-linear"), q));
  EXPECT_FALSE(adapts(pattern("all-linear"), "lm_head"));
  EXPECT_FALSE(adapts(pattern("all-linear"), "embed_out"));
  AdapterConfig some = names({"q_proj", "lm_head"});
  some.layers_to_transform = {1, 3};
  EXPECT_TRUE(adapts(some, q));
  EXPECT_FALSE(adapts(some, "model.layers.2.self_attn.q_proj"));
  EXPECT_TRUE(adapts(some, "lm_head"));  // named whole
  some.layers_pattern = {"blocks"};
  EXPECT_FALSE(adapts(some, q));
  some.layers_pattern = {"blocks", "layers"};
  EXPECT_TRUE(adapts(some, q));
  some.exclude_modules.pattern = ".*\\.3\\..*";
  EXPECT_FALSE(adapts(some, q));
  EXPECT_THROW(adapts(pattern("(q_proj"), q), UserError);
}

// Tensors under the names of other versions: the adapter's name inside, a magnitude with ".weight".
class Made : public testing::Test {
 protected:
  void SetUp() override {
    memory::install_allocators();
    tensors_ = {{kQ + ".lora_A.weight", numbers({2, 6})}, {kQ + ".lora_B.weight", numbers({4, 2})}};
  }

  // The error of an adapter with these tensors and config, or "no error".
  std::string read() const {
    write_file_atomically(folder_ / "adapter_config.json", config_.dump());
    write_weights(folder_ / "adapter_model.safetensors", tensors_);
    return error_of(folder_.path());
  }
  at::Tensor take(const std::string& name) {
    at::Tensor value = tensors_.at(name);
    tensors_.erase(name);
    return value;
  }

  const test::TempFolder folder_;
  json config_{{"peft_type", "LORA"},
               {"r", 2},
               {"lora_alpha", 4},
               {"target_modules", {"q_proj"}},
               {"lora_dropout", 0.1}};
  Tensors tensors_;
};

TEST_F(Made, IsRead) {
  EXPECT_EQ(read(), "no error");
  const Adapter adapter = read_peft_adapter(folder_.path());
  EXPECT_EQ(adapter.config.lora_dropout, 0.1);
  const ModuleAdapter& parts = adapter.modules.at("model.layers.0.self_attn.q_proj");
  EXPECT_EQ(parts.scaling, 2);
  EXPECT_EQ(parts.in_features(), 6);
  EXPECT_EQ(parts.out_features(), 4);
}

// As peft 0.21 saves an adapter whose base got more tokens.
TEST_F(Made, AWrappersPartsAreTheLayerOnceMore) {
  const std::string head = "base_model.model.lm_head";
  config_["modules_to_save"] = {"lm_head"};
  tensors_[head + ".weight"] = numbers({9, 6});
  tensors_[head + ".modules_to_save.weight"] = numbers({9, 6});
  tensors_[head + ".original_module.weight"] = numbers({9, 6});
  EXPECT_EQ(read(), "no error");
  EXPECT_EQ(read_peft_adapter(folder_.path()).base_weights.size(), 1U);
  EXPECT_EQ(base_weight_shape(folder_.path(), "lm_head.weight"), (std::vector<int64_t>{9, 6}));
  EXPECT_TRUE(base_weight_shape(folder_.path(), "model.embed_tokens.weight").empty());
  tensors_.erase(head + ".weight");
  expect_part(read(), "this older form of fully trained layers is not supported");
}

// peft doubles rank and alpha where it puts experts' gates and ups together, and takes no dropout.
TEST_F(Made, AdaptersOfExpertsAreWrittenAsPeftTakesThem) {
  const std::string expert = "base_model.model.model.layers.0.mlp.experts.1.up_proj";
  tensors_ = {{expert + ".lora_A.weight", numbers({2, 6})},
              {expert + ".lora_B.weight", numbers({4, 2})}};
  config_["target_modules"] = {"up_proj"};
  config_["use_rslora"] = true;
  EXPECT_EQ(read(), "no error");
  const test::TempFolder again;
  const Adapter before = read_peft_adapter(folder_.path());
  write_peft_files(again.path(), before);
  const Adapter after = read_peft_adapter(again.path());
  EXPECT_EQ(after.config.lora_dropout, 0);
  EXPECT_FALSE(after.config.use_rslora);
  for (const auto& [module, parts] : before.modules)
    EXPECT_DOUBLE_EQ(after.modules.at(module).scaling, parts.scaling);
}

TEST_F(Made, TheNameOfTheAdapterMayStandInTheKeys) {
  tensors_[kQ + ".lora_A.default.weight"] = take(kQ + ".lora_A.weight");
  tensors_[kQ + ".lora_B.default.weight"] = take(kQ + ".lora_B.weight");
  EXPECT_EQ(read(), "no error");
  tensors_[kQ + ".lora_B.other.weight"] = take(kQ + ".lora_B.default.weight");
  expect_part(read(), "two adapters, default and other");
}

TEST_F(Made, MagnitudesHaveBeenNamedInManyWays) {
  config_["use_dora"] = true;
  for (const char* end : {"", ".weight", ".default", ".default.weight"}) {
    tensors_[kQ + ".lora_magnitude_vector" + end] = numbers({4});
    EXPECT_EQ(read(), "no error") << end;
    EXPECT_TRUE(at::equal(read_peft_adapter(folder_.path()).modules.begin()->second.magnitude,
                          numbers({4})))
        << end;
    tensors_.erase(kQ + ".lora_magnitude_vector" + end);
  }
  expect_part(read(), "q_proj.lora_magnitude_vector is missing");
  tensors_[kQ + ".lora_magnitude_vector"] = numbers({5});
  expect_part(read(), "lora_magnitude_vector is [5]; it must be [4]");
}

TEST_F(Made, WhatDoesNotFitIsRefused) {
  const auto with = [&](const std::string& name, const at::Tensor& value) {
    const Tensors before = tensors_;
    tensors_[name] = value;
    const std::string error = read();
    tensors_ = before;
    return error;
  };
  expect_part(with(kQ + ".lora_A.weight", numbers({3, 6})),
              "lora_A is [3, 6] and lora_B is [4, 2]");
  expect_part(with(kQ + ".lora_A.weight", numbers({6})), "lora_A is [6]");
  expect_part(with(kQ + ".lora_B.weight", numbers({0, 2})), "lora_B is [0, 2]");
  at::Tensor broken = numbers({4, 2});
  broken[3][1] = std::numeric_limits<float>::quiet_NaN();
  expect_part(with(kQ + ".lora_B.weight", broken), "q_proj.lora_B.weight holds NaN");
  expect_part(with(kQ + ".lora_B.weight", at::full({4, 2}, 1, at::kByte)), "has type U8");
  expect_part(with("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", numbers({2, 6})),
              "up_proj.lora_B is missing");
  expect_part(with(kQ + ".lora_magnitude_vector", numbers({4})), "does not set \"use_dora\"");
  expect_part(with("what.is.this", numbers({4})), "tensor what.is.this is unknown");
  expect_part(with("base_model.model.model.norm.weight", numbers({4})), "is unknown");
  expect_part(with(kQ + ".lora_B.bias", numbers({4})), "adapters with biases are not supported");
  expect_part(with("base_model.model.model.embed_tokens.lora_embedding_A", numbers({2, 4})),
              "adapters of an embedding are not supported");
  expect_part(with(kQ + ".lora_A.default.weight", numbers({2, 6})), "occurs twice");
  take(kQ + ".lora_B.weight");
  expect_part(read(), "q_proj.lora_B is missing");
  tensors_.clear();
  expect_part(read(), "holds no adapter");
}

TEST_F(Made, ConfigurationAndWeightsMustBelongTogether) {
  config_["r"] = 4;
  expect_part(read(), "of rank 2, but the configuration says rank 4");
  config_["rank_pattern"] = {{"q_proj", 2}};
  EXPECT_EQ(read(), "no error");
  config_["target_modules"] = {"v_proj"};
  expect_part(read(), "target_modules do not name");
}

// Each is said by its key, with the value found.
TEST_F(Made, WhatCannotBeHonouredIsRefused) {
  const auto with = [&](const std::string& key, const json& value) {
    const json before = config_;
    config_[key] = value;
    const std::string error = read();
    config_ = before;
    return error;
  };
  expect_part(with("peft_type", "IA3"), "\"peft_type\" is \"IA3\"; it must be LORA");
  expect_part(with("peft_type", nullptr), "\"peft_type\" is missing");
  expect_part(with("bias", "lora_only"), "\"bias\" is \"lora_only\"");
  for (const char* key : {"lora_bias", "use_qalora"})
    expect_part(with(key, true), "\"" + std::string(key) + "\" is set");
  for (const char* key :
       {"trainable_token_indices", "layer_replication", "alora_invocation_tokens"})
    expect_part(with(key, {"x"}), "\"" + std::string(key) + "\" is set");
  expect_part(with("target_parameters", {"x"}), "adapts the parameters x, which the base does not");
  for (const char* method : {"pissa_niter_16", "OLORA", "corda", "loftq"})
    expect_part(with("init_lora_weights", method), "changes the base's weights");
  EXPECT_EQ(with("init_lora_weights", "gaussian"), "no error");
  EXPECT_EQ(with("fan_in_fan_out", true), "no error");  // how the base's files keep its weights
  EXPECT_EQ(with("modules_to_save", json::array()), "no error");
  EXPECT_EQ(with("modules_to_save", {"score"}), "no error");
  expect_part(with("modules_to_save", 3), "\"modules_to_save\" is 3");
  expect_part(with("r", "eight"), "\"r\" is \"eight\"; it must be a whole number from 1");
  expect_part(with("r", 0), "\"r\" is 0");
  expect_part(with("lora_alpha", "x"), "\"lora_alpha\" is \"x\"; it must be a number");
  expect_part(with("lora_dropout", 1.5), "\"lora_dropout\" is 1.5");
  expect_part(with("rank_pattern", {{"q_proj", -1}}), "\"rank_pattern: q_proj\" is -1");
  expect_part(with("rank_pattern", 3), "an object of patterns and numbers");
  expect_part(with("target_modules", 3), "\"target_modules\" is 3");
  expect_part(with("target_modules", "(q_proj"), "is not a regular expression");
  expect_part(with("use_dora", "yes"), "\"use_dora\" is \"yes\"; it must be true or false");
  expect_part(with("base_model_name_or_path", 7), "\"base_model_name_or_path\" is 7");
}

// Cut anywhere, or with any byte changed, a file gives an error or is read; it never crashes.
TEST_F(Made, DamagedFilesAreRefused) {
  const LogSinkGuard quiet([](const std::string&) {});
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  };
  read();
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) {
    const std::string whole = read_file(folder_ / name);
    for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 60) {
      write(name, whole.substr(0, length));
      EXPECT_NE(error_of(folder_.path()), "no error") << name << " cut to " << length;
    }
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x55);
      write(name, changed);
      error_of(folder_.path());
    }
    write(name, whole);
  }
  EXPECT_EQ(error_of(folder_.path()), "no error");
  fs::remove(folder_ / "adapter_model.safetensors");
  expect_part(error_of(folder_.path()),
              "there is neither adapter_model.safetensors nor adapter_model.bin");
  fs::remove(folder_ / "adapter_config.json");
  expect_part(error_of(folder_.path()), "adapter_config.json");
}

}  // namespace peft_adapter_test
}  // namespace snug::checkpoint
