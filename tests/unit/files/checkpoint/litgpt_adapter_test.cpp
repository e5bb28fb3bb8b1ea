// LitGPT's LoRA checkpoints, as LitGPT wrote them (tests/oracles/peft_adapters.py): q, k and v
// taken apart, and what is said of files that do not belong together.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/litgpt_adapter.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "support/temp_folder.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

const fs::path kAdapters = fs::path(SNUG_SOURCE_DIR) / "tests/data/adapters/litgpt";

// The layers of tests/data/adapters/litgpt/base: width 16, 4 heads and 2 key-value heads of 4.
LitGptModules modules() {
  LitGptModules all{{"lm_head", {{.module = "lm_head", .rows = 64, .columns = 16}}}};
  for (const std::string layer : {"0", "1"}) {
    const std::string theirs = "transformer.h." + layer + ".", ours = "model.layers." + layer + ".";
    all[theirs + "attn.qkv"] = {
        {.module = ours + "self_attn.v_proj", .row_begin = 24, .rows = 8, .columns = 16},
        {.module = ours + "self_attn.q_proj", .row_begin = 0, .rows = 16, .columns = 16},
        {.module = ours + "self_attn.k_proj", .row_begin = 16, .rows = 8, .columns = 16}};
    all[theirs + "attn.proj"] = {{.module = ours + "self_attn.o_proj", .rows = 16, .columns = 16}};
    all[theirs + "mlp.fc_1"] = {{.module = ours + "mlp.gate_proj", .rows = 24, .columns = 16}};
    all[theirs + "mlp.fc_2"] = {{.module = ours + "mlp.up_proj", .rows = 24, .columns = 16}};
    all[theirs + "mlp.proj"] = {{.module = ours + "mlp.down_proj", .rows = 16, .columns = 24}};
  }
  return all;
}

class LitGptAdapter : public testing::Test {
 protected:
  void SetUp() override { memory::install_allocators(); }

  void copy(const std::string& name) const {
    for (const char* file : {"lit_model.pth.lora", "hyperparameters.yaml"})
      fs::copy_file(kAdapters / name / file, folder_ / file, fs::copy_options::overwrite_existing);
  }
  void replace_option(const std::string& from, const std::string& to) const {
    std::string text = read_file(folder_ / "hyperparameters.yaml");
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    write_file_atomically(folder_ / "hyperparameters.yaml", text);
  }
  void expect_error(const std::string& part, const LitGptModules& known = modules()) const {
    try {
      read_litgpt_adapter(folder_.path(), known);
      FAIL() << "no error with " << part;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  const test::TempFolder folder_;
};

TEST_F(LitGptAdapter, PartsAreTakenApart) {
  copy("query-value");
  const Adapter adapter = read_litgpt_adapter(folder_.path(), modules());
  EXPECT_EQ(adapter.config.target_modules.names, std::vector<std::string>({"q_proj", "v_proj"}));
  EXPECT_EQ(adapter.config.base_model_name_or_path, "tests/data/adapters/litgpt/base");
  EXPECT_EQ(litgpt_base(folder_.path()), adapter.config.base_model_name_or_path);
  ASSERT_EQ(adapter.modules.size(), 4U);
  const ModuleAdapter& v = adapter.modules.at("model.layers.1.self_attn.v_proj");
  EXPECT_EQ(v.rank(), 4);
  EXPECT_EQ(v.in_features(), 16);
  EXPECT_EQ(v.out_features(), 8);
  EXPECT_EQ(v.scaling, 2);
  copy("all");
  EXPECT_EQ(read_litgpt_adapter(folder_.path(), modules()).modules.size(), 15U);
}

TEST_F(LitGptAdapter, FilesThatDoNotBelongTogetherAreRefused) {
  copy("query-value");
  replace_option("lora_key: false", "lora_key: true");
  expect_error("transformer.h.0.attn.qkv: lora_A is [8, 16] and lora_B is [24, 4]");
  copy("query-value");
  replace_option("lora_r: 4", "lora_r: 8");
  expect_error("they should be [16, 16] and [24, 8]");
  replace_option("lora_r: 8", "lora_r: 0");
  expect_error("\"lora_r\" is 0; it must be a whole number from 1");
  replace_option("lora_r: 0", "lora_r: many");
  expect_error("\"lora_r\" has a value of the wrong kind");
  replace_option("lora_r: many", "lora_rank: 4");
  expect_error("\"lora_r\" is missing");
  copy("query-value");
  replace_option("lora_query: true", "lora_query: false");
  replace_option("lora_value: true", "lora_value: false");
  expect_error("none of query, key and value");
  copy("query-value");
  LitGptModules other = modules();
  other.erase("transformer.h.1.attn.qkv");
  expect_error("the base has no layer transformer.h.1.attn.qkv", other);
}

TEST_F(LitGptAdapter, DamagedFilesAreRefused) {
  copy("query-value");
  const std::string whole = read_file(folder_ / "lit_model.pth.lora");
  for (size_t length = 0; length < whole.size(); length += 97) {
    std::ofstream(folder_ / "lit_model.pth.lora", std::ios::binary) << whole.substr(0, length);
    EXPECT_THROW(read_litgpt_adapter(folder_.path(), modules()), UserError) << length;
  }
  copy("query-value");
  std::ofstream(folder_ / "hyperparameters.yaml") << "lora_r: [";
  expect_error("hyperparameters.yaml:1:");
  fs::remove(folder_ / "hyperparameters.yaml");
  expect_error("is missing, which holds the adapter's rank and scaling");
}

}  // namespace
}  // namespace snug::checkpoint
