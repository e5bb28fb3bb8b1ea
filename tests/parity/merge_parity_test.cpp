// Merging against peft's merge_and_unload and LitGPT's merge_lora: every weight, and the logits of
// the merged model against those of the base with its adapter (tests/oracles/peft_adapters.py).
// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/merge.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "core/ops/linear/stored_weight.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/gguf_adapter.h"
#include "engine/batch.h"
#include "engine/exec/executor.h"
#include "engine/language_model.h"
#include "files/checkpoint/adapters/peft_adapter.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using tests::expect_close;

const fs::path kAdapters = tests::source_dir() / "tests/data/adapters";
// float32 sums of at most 40 terms in another order.
constexpr double kTolerance = 1e-6;

std::string without_dash(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

fs::path base_of(const std::string& name) {
  if (name.starts_with("stacked")) return tests::source_dir() / "tests/data/parity/gpt-oss";
  if (name.starts_with("conv1d")) return tests::source_dir() / "tests/data/parity/gpt2";
  if (name.starts_with("within"))
    return tests::source_dir() / "tests/data/language_part" /
           (name == "within" ? "gemma3" : "llava");
  return kAdapters / (name.starts_with("tied") ? "tied" : "base");
}

// A base opened with an adapter, and the model that merging makes.
struct Merged {
  Merged(const fs::path& base_path, const fs::path& adapter_path)
      : base(models::open_checkpoint(base_path)),
        adapter(engine::read_adapter(adapter_path, *base.model)),
        untied(engine::parts_head(base, adapter) ? models::model_with_own_head(*base.model)
                                                 : nullptr) {}
  models::Model& model() { return untied ? *untied : *base.model; }

  models::Checkpoint base;
  checkpoint::Adapter adapter;
  std::unique_ptr<models::Model> untied;
};

at::Tensor read_plain(const Merged& merged, const nn::Parameter& parameter) {
  return engine::merged_reader(merged.base, merged.adapter, at::kFloat)(parameter);
}

class PeftMerge : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    memory::install_allocators();
    const std::string name = GetParam();
    folder_ = kAdapters / "peft" / name;
    expected_ = files::open_safetensors(folder_ / "expected.safetensors");
    merged_ = std::make_unique<Merged>(base_of(name), folder_);
  }

  fs::path folder_;
  std::unique_ptr<files::TensorSource> expected_;
  std::unique_ptr<Merged> merged_;
};

TEST_P(PeftMerge, HasPeftsWeights) {
  const auto read = engine::merged_reader(merged_->base, merged_->adapter, at::kFloat);
  size_t num_changed = 0;
  for (const nn::Parameter* parameter : merged_->model().parameters()) {
    const at::Tensor found = read(*parameter);
    if (expected_->find(parameter->name) != nullptr) {
      expect_close(parameter->name, found, tests::read(*expected_, parameter->name), kTolerance);
      ++num_changed;
    } else {
      const nn::Parameter* before = parameter;  // of a head of its own, the embedding
      if (merged_->untied != nullptr && parameter->name == "lm_head.weight")
        before = merged_->base.model->parameters().front();
      EXPECT_TRUE(at::equal(found, models::read_parameter(merged_->base, *before, at::kFloat)))
          << parameter->name;
    }
  }
  EXPECT_EQ(num_changed, expected_->tensors().size() - 2);  // beside input_ids and logits
}

TEST_P(PeftMerge, HasTheLogitsOfBaseAndAdapter) {
  const auto read = engine::merged_reader(merged_->base, merged_->adapter, at::kFloat);
  models::Model& model = merged_->model();
  for (nn::Parameter* parameter : model.parameters()) {
    parameter->trained = false;
    parameter->allocate(at::kCPU, at::kFloat);
    parameter->value.detach().copy_(read(*parameter));
  }
  model.prepare(at::kCPU, 64);
  exec::Executor executor(model.units(), {}, memory::ledger_of(at::kCPU));
  const at::Tensor ids = tests::read(*expected_, "input_ids");
  const nn::Batch batch = engine::to_device(tests::rows_as_batch(ids, ids, 0, 1), at::kCPU);
  expect_close("logits", executor.last_logits(batch, at::kFloat),
               tests::read(*expected_, "logits").select(1, ids.size(1) - 1), 2e-5);
}

// Sums are made in float32 whatever the type that is written.
TEST_P(PeftMerge, RoundsOnce) {
  const auto exact = engine::merged_reader(merged_->base, merged_->adapter, at::kFloat);
  const auto rounded = engine::merged_reader(merged_->base, merged_->adapter, at::kBFloat16);
  for (const nn::Parameter* parameter : merged_->model().parameters())
    EXPECT_TRUE(
        at::equal(rounded(*parameter).to(at::kBFloat16), exact(*parameter).to(at::kBFloat16)))
        << parameter->name;
}

// Into weights as QLoRA saw them, head and embedding left alone: quantized and back, in each of the
// formats, with the same addition.
TEST_P(PeftMerge, AddsToWeightsThatWereQuantized) {
  for (const auto format : {ops::QuantizedFormat::Nf4, ops::QuantizedFormat::Int8}) {
    Merged plain(base_of(GetParam()), folder_);
    for (nn::Linear* linear : engine::linears_of(*merged_->base.model))
      if (linear->role() != nn::Role::Head)
        linear->weight().quantization = nn::Quantization{.format = format, .source = at::kBFloat16};
    const auto read = engine::merged_reader(merged_->base, merged_->adapter, at::kFloat);
    for (const nn::Linear* linear : engine::linears_of(*plain.base.model)) {
      if (linear->role() == nn::Role::Head ||
          plain.adapter.base_weights.contains(linear->weight().name))
        continue;
      const at::Tensor before = models::read_parameter(plain.base, linear->weight(), at::kBFloat16);
      at::Tensor wanted =
          ops::dequantize(ops::quantize(before, format), at::kBFloat16).to(at::kFloat);
      const auto own = plain.adapter.modules.find(linear->name());
      if (own != plain.adapter.modules.end()) engine::fold_in(wanted, own->second);
      EXPECT_TRUE(at::equal(read(linear->weight()), wanted)) << linear->name();
      EXPECT_FALSE(at::equal(wanted, read_plain(plain, linear->weight()))) << linear->name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PeftMerge,
                         testing::Values("query-value", "all", "rslora", "dora", "patterns",
                                         "tied-head", "tied-dora", "tied-table", "pickled",
                                         "stacked-experts", "stacked-outputs", "conv1d-saved",
                                         "within", "within-saved"),
                         without_dash);

// What peft wrote, read and written again: the names it nests, and the order of the experts.
TEST_P(PeftMerge, IsWrittenAsPeftWroteIt) {
  const fs::path file = folder_ / "adapter_model.safetensors";
  if (!fs::exists(file)) GTEST_SKIP() << "peft wrote a pickle";
  if (GetParam() == std::string("conv1d-saved"))
    GTEST_SKIP()
        << "GPT-2's matrices, turned in its files, are trained beside adapters by others alone";
  const test::TempFolder again;
  checkpoint::write_peft_files(again.path(), merged_->adapter);
  const auto theirs = files::open_safetensors(file);
  const auto ours = files::open_safetensors(again.path() / "adapter_model.safetensors");
  EXPECT_EQ(ours->tensors().size(), theirs->tensors().size());
  for (const files::TensorInfo& info : theirs->tensors()) {
    ASSERT_NE(ours->find(info.name), nullptr) << info.name;
    EXPECT_TRUE(at::equal(tests::read(*ours, info.name), tests::read(*theirs, info.name)))
        << info.name;
  }
  const auto config = [](const fs::path& folder) {
    return nlohmann::json::parse(read_file(folder / "adapter_config.json", 1 << 20));
  };
  const checkpoint::Adapter found = engine::read_adapter(again.path(), *merged_->base.model);
  EXPECT_EQ(found.modules.size(), merged_->adapter.modules.size());
  EXPECT_EQ(config(again.path()).contains("target_parameters"),
            !config(folder_)["target_parameters"].is_null());
}

// Written as a GGUF file, to which llama.cpp adds alpha / rank times B A.
class GgufAdapter : public PeftMerge {
 protected:
  std::unique_ptr<files::GgufFile> write() const {
    const fs::path file = temporary_ / "a.gguf";
    engine::export_gguf_adapter(file, merged_->base, merged_->adapter, folder_, at::kFloat);
    return files::GgufFile::open(file);
  }
  std::string refusal() const {
    try {
      write();
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  }

  const test::TempFolder temporary_;
};
using RefusedGgufAdapter = GgufAdapter;

TEST_P(GgufAdapter, AddsUpToPeftsWeights) {
  const auto file = write();
  EXPECT_EQ(file->text("general.type"), "adapter");
  EXPECT_EQ(file->text("general.architecture"), "llama");
  EXPECT_EQ(file->text("adapter.type"), "lora");
  EXPECT_EQ(file->tensors().size(), 2 * merged_->adapter.modules.size());
  const double alpha = file->number("adapter.lora.alpha");
  for (const nn::Parameter* parameter : merged_->base.model->parameters()) {
    if (expected_->find(parameter->name) == nullptr) continue;
    const auto place = merged_->base.model->placement(models::Layout::Gguf, *parameter);
    const auto in_gguf = [&](const at::Tensor& value) {
      return models::in_order(place.order, value);
    };
    const at::Tensor a = tests::read(*file, place.tensor + ".lora_a");
    const at::Tensor b = tests::read(*file, place.tensor + ".lora_b");
    const at::Tensor base = models::read_parameter(merged_->base, *parameter, at::kFloat);
    expect_close(parameter->name,
                 in_gguf(base) + alpha / static_cast<double>(a.size(0)) * b.matmul(a),
                 in_gguf(tests::read(*expected_, parameter->name)), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GgufAdapter,
                         testing::Values("query-value", "all", "rslora", "patterns", "pickled"),
                         without_dash);

TEST_P(RefusedGgufAdapter, SaysToMerge) {
  const std::string text = refusal();
  EXPECT_NE(text.find("which a GGUF adapter cannot hold; snug merge " + folder_.string()),
            std::string::npos)
      << text;
  EXPECT_TRUE(fs::is_empty(temporary_.path()));
}

INSTANTIATE_TEST_SUITE_P(Refused, RefusedGgufAdapter,
                         testing::Values("dora", "tied-head", "tied-dora", "tied-table"),
                         without_dash);

class OwnWeights : public GgufAdapter {};

TEST_P(OwnWeights, AreRefusedInAGgufAdapter) {
  const auto& parameter = *merged_->base.model->parameters().front();
  auto& own = merged_->adapter.base_weights[parameter.name];
  own = models::read_parameter(merged_->base, parameter, at::kFloat);
  EXPECT_EQ(refusal(), "none");
  own = own * 2;
  EXPECT_NE(refusal().find("it brings its own model.embed_tokens.weight"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Beside, OwnWeights, testing::Values("query-value"), without_dash);

// Qwen2's rows of q and k are in our order in a GGUF file too; a second module of another scale has
// it in B.
TEST(GgufAdapters, KeepTheRowsOfQwen2AndScaleB) {
  memory::install_allocators();
  const models::Checkpoint base =
      models::open_checkpoint(tests::source_dir() / "tests/data/parity/qwen2");
  const auto part = [](double scaling, int64_t out) {
    return checkpoint::ModuleAdapter{
        .a = at::rand({4, 32}), .b = at::rand({out, 4}), .scaling = scaling};
  };
  checkpoint::Adapter adapter;
  adapter.modules["model.layers.0.self_attn.q_proj"] = part(2, 32);
  adapter.modules["model.layers.1.self_attn.k_proj"] = part(0.5, 16);
  const test::TempFolder folder;
  engine::export_gguf_adapter(folder / "deep/a.gguf", base, adapter, "adapter", at::kFloat);
  const auto file = files::GgufFile::open(folder / "deep/a.gguf");
  EXPECT_EQ(file->text("general.architecture"), "qwen2");
  EXPECT_EQ(file->number("adapter.lora.alpha"), 8);
  const auto written = [&](const char* name) { return tests::read(*file, name); };
  const auto& q = adapter.modules.at("model.layers.0.self_attn.q_proj");
  const auto& k = adapter.modules.at("model.layers.1.self_attn.k_proj");
  EXPECT_TRUE(at::equal(written("blk.0.attn_q.weight.lora_a"), q.a));
  EXPECT_TRUE(at::equal(written("blk.0.attn_q.weight.lora_b"), q.b));
  EXPECT_TRUE(at::equal(written("blk.1.attn_k.weight.lora_b"), k.b / 4));
}

class LitGptMerge : public testing::TestWithParam<const char*> {};

TEST_P(LitGptMerge, HasLitGptsWeights) {
  memory::install_allocators();
  const fs::path folder = kAdapters / "litgpt";
  Merged merged(folder / "base", folder / GetParam());
  const auto read = engine::merged_reader(merged.base, merged.adapter, at::kFloat);
  const models::Checkpoint expected = models::open_checkpoint(folder / GetParam() / "merged");
  size_t num_changed = 0;
  for (const nn::Parameter* parameter : expected.model->parameters()) {
    const at::Tensor wanted = models::read_parameter(expected, *parameter, at::kFloat);
    expect_close(parameter->name, read(*parameter), wanted, kTolerance);
    num_changed += !at::equal(wanted, models::read_parameter(merged.base, *parameter, at::kFloat));
  }
  EXPECT_EQ(num_changed, merged.adapter.modules.size());
}

INSTANTIATE_TEST_SUITE_P(Cases, LitGptMerge, testing::Values("query-value", "all", "key"),
                         without_dash);

// Adapters beside a model instead of in it.
class Beside : public testing::Test {
 protected:
  void SetUp() override {
    memory::install_allocators();
    for (const char* name : {"base", "tied"}) {
      fs::copy(kAdapters / name, folder_ / name);
      for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
        fs::copy(tests::source_dir() / "tests/data/system/tiny" / file, folder_ / name / file);
    }
  }
  static std::string adapter(const std::string& name) { return kAdapters / "peft" / name; }
  // The model with the adapter that is in use, against peft's logits for adapter `name`.
  static void expect_logits(const engine::LanguageModel& lm, const std::string& name) {
    const auto expected =
        files::open_safetensors(kAdapters / "peft" / name / "expected.safetensors");
    const at::Tensor ids = tests::read(*expected, "input_ids");
    const nn::Batch batch = engine::to_device(tests::rows_as_batch(ids, ids, 0, 1), at::kCPU);
    expect_close(name, lm.executor->last_logits(batch, at::kFloat),
                 tests::read(*expected, "logits").select(1, ids.size(1) - 1), 2e-5);
  }
  engine::LanguageModel open(const fs::path& path, const std::vector<std::string>& adapters) const {
    return engine::open_language_model(
        path, at::kCPU, {.precision = "32-true", .max_seqlen = 64, .adapters = adapters});
  }

  const test::TempFolder folder_;
};

TEST_F(Beside, AdaptersTakeTurns) {
  const std::vector<std::string> names{"query-value", "all",      "rslora",
                                       "dora",        "patterns", "pickled"};
  std::vector<std::string> folders;
  for (const std::string& name : names) folders.push_back(adapter(name));
  const engine::LanguageModel lm = open(folder_ / "base", folders);
  ASSERT_EQ(lm.adapters.size(), names.size());
  expect_logits(lm, names.front());
  for (size_t i = names.size(); i-- > 0;) {
    lm.use(lm.adapters[i]);
    expect_logits(lm, names[i]);
  }
}

TEST_F(Beside, ATiedHeadIsAdaptedWithoutTheEmbedding) {
  const engine::LanguageModel lm =
      open(folder_ / "tied", {adapter("tied-head"), adapter("tied-dora")});
  expect_logits(lm, "tied-head");
  lm.use(lm.adapters.back());
  expect_logits(lm, "tied-dora");
}

// The head would change with it.
TEST_F(Beside, ATiedEmbeddingThatAnAdapterBringsIsNotPutInPlace) {
  try {
    open(folder_ / "tied", {adapter("tied-table")});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("makes one model of both"), std::string::npos);
  }
}

TEST_F(Beside, AnAdaptersFolderStandsForBaseAndAdapter) {
  const fs::path named = folder_ / "named";
  fs::copy(adapter("dora"), named);
  nlohmann::json config = nlohmann::json::parse(read_file(named / "adapter_config.json"));
  config["base_model_name_or_path"] = (folder_ / "base").string();
  write_file_atomically(named / "adapter_config.json", config.dump());
  expect_logits(open(named, {}), "dora");
}

// The head that peft stored beside the adapter is another than this base's.
TEST_F(Beside, AHeadThatTheAdapterBringsMustBeTheBases) {
  const fs::path file = folder_ / "base/model.safetensors";
  std::string bytes = read_file(file);
  const models::Checkpoint base = models::open_checkpoint(folder_ / "base");
  const files::TensorInfo* head = base.tensors->find("lm_head.weight");
  const std::string_view view = bytes;
  const std::span<const std::byte> raw = base.tensors->raw(*head);
  const size_t at = view.find(std::string_view(reinterpret_cast<const char*>(raw.data()), 64));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_file_atomically(file, bytes);
  try {
    open(folder_ / "base", {adapter("all")});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("its lm_head.weight differs from"), std::string::npos)
        << error.what();
  }
}

// A base of another size than the adapter's is named with the module and both shapes.
TEST(WrongBase, IsNamed) {
  memory::install_allocators();
  const test::TempFolder folder;
  const auto error_with = [&](const char* adapter, const nlohmann::json& changes) {
    nlohmann::json config = nlohmann::json::parse(read_file(kAdapters / "base/config.json"));
    if (!changes.is_null()) config.update(changes);
    write_file_atomically(folder / "config.json", config.dump());
    const auto model = models::model_from_config(folder / "config.json");
    try {
      engine::read_adapter(kAdapters / adapter, *model);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto expect_part = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(error_with("peft/query-value", {}), "no error");
  expect_part(error_with("peft/query-value", {{"hidden_size", 32}, {"head_dim", 4}}),
              "q_proj is adapted as a weight of shape [16, 16], the base's is [16, 32]");
  expect_part(error_with("peft/query-value", {{"num_hidden_layers", 1}}),
              "it adapts model.layers.1.self_attn.q_proj, which the base does not have (the "
              "nearest is model.layers.0.self_attn.q_proj)");
  expect_part(error_with("peft/query-value", {{"num_hidden_layers", 3}}),
              "the configuration adapts model.layers.2.self_attn.q_proj too");
  expect_part(error_with("peft/all", {{"vocab_size", 80}}),
              "lm_head is adapted as a weight of shape [64, 16], the base's is [80, 16]");
  expect_part(error_with("litgpt/query-value", {{"num_key_value_heads", 4}}),
              "transformer.h.0.attn.qkv: lora_A is [8, 16] and lora_B is [24, 4]; for this base "
              "and hyperparameters.yaml they should be [8, 16] and [32, 4]");
  expect_part(error_with("litgpt/query-value", {{"num_hidden_layers", 1}}),
              "the base has no layer transformer.h.1.attn.qkv");
  expect_part(error_with("base", {}), "holds no adapter: neither adapter_config.json");
  expect_part(error_with("nowhere", {}), "does not exist");
}

// An adapter names its base by path or by its name on the hub.
TEST(Base, IsFoundWhereTheAdapterSays) {
  const test::TempFolder folder;
  const auto find = [&](const std::string& name) {
    write_file_atomically(
        folder / "adapter_config.json",
        nlohmann::json{{"peft_type", "LORA"}, {"base_model_name_or_path", name}}.dump());
    return engine::find_base(folder.path());
  };
  EXPECT_EQ(find(kAdapters / "base"), kAdapters / "base");
  ::setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
  const fs::path snapshot = folder / "hub/models--org--name/snapshots/abc";
  fs::create_directories(snapshot);
  fs::create_directories(folder / "hub/models--org--name/refs");
  write_file_atomically(folder / "hub/models--org--name/refs/main", "abc\n");
  EXPECT_EQ(find("org/name"), snapshot);
  EXPECT_THROW(find("org/other"), UserError);
  EXPECT_THROW(find(""), UserError);
  ::unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace snug
