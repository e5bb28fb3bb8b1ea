// Adapters folded into models by the program: what it writes is a model that it and others open,
// and what it refuses it explains.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

const fs::path kAdapters = fs::path(SNUG_SOURCE_DIR) / "tests/data/adapters";

class Merge : public testing::Test {
 protected:
  // The small model `name`, as a folder with a tokenizer.
  fs::path base(const std::string& name) const {
    const fs::path target = folder_ / fs::path(name).filename();
    fs::copy(kAdapters / name, target);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy(fs::path(tiny_checkpoint()) / file, target / file);
    return target;
  }
  // A copy of an adapter that names `base`, as files on this machine do.
  fs::path adapter(const std::string& name, const fs::path& base) const {
    const fs::path target = folder_ / "adapter";
    fs::copy(kAdapters / name, target);
    nlohmann::json config = nlohmann::json::parse(read_file(target / "adapter_config.json"));
    config["base_model_name_or_path"] = base.string();
    write_file_atomically(target / "adapter_config.json", config.dump());
    return target;
  }

  const TempFolder folder_;
};

TEST_F(Merge, FindsTheBaseAndWritesBesideTheAdapter) {
  const fs::path source = adapter("peft/query-value", base("base"));
  const std::string written = source.string() + "-merged";
  expect_part(run({"merge", source.string() + "/"}), 0, written);
  const auto config = nlohmann::json::parse(read_file(fs::path(written) / "config.json"));
  EXPECT_EQ(config["torch_dtype"], "float32");
  EXPECT_TRUE(fs::exists(fs::path(written) / "tokenizer.json"));
  expect_part(run({"generate", written, "--precision", "32-true", "--max_new_tokens", "3",
                   "--prompt_style", "plain", "--prompt", "!"}),
              0, "tokens/s");
  expect_part(run({"merge", source}), 2, "exists already; give a new or empty folder");
}

TEST_F(Merge, ATiedHeadThatAnAdapterChangesIsWrittenApart) {
  const fs::path tied = base("tied"), out = folder_ / "out";
  const fs::path changed = adapter("peft/tied-head", tied);
  expect_part(run({"merge", changed, "--out_dir", out, "--dtype", "bfloat16"}), 0,
              "the head, which shared its weight with the embedding, now has its own");
  const auto config = nlohmann::json::parse(read_file(out / "config.json"));
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_NE(read_file(out / "model.safetensors").find("lm_head.weight"), std::string::npos);
  // Also on the way of a conversion.
  ASSERT_EQ(run({"convert", changed, folder_ / "hf", "--dtype", "bfloat16"}).exit_code, 0);
  EXPECT_TRUE(read_file(folder_ / "hf/model.safetensors") == read_file(out / "model.safetensors"));
}

TEST_F(Merge, TakesLitGptsNameAndAdapters) {
  const fs::path litgpt = base("litgpt/base"), out = folder_ / "out";
  const fs::path source = kAdapters / "litgpt/query-value";
  expect_part(run({"merge_lora", source, "--pretrained_checkpoint_dir", litgpt, "--out_dir", out}),
              0, "4 weights of");
  EXPECT_TRUE(fs::exists(out / "model.safetensors"));
}

// Beside the model instead of in it: the same answers.
TEST_F(Merge, AdaptersAnswerBesideTheModelToo) {
  const fs::path model = base("base"), source = adapter("peft/dora", model);
  const std::vector<std::string> asking{
      "--precision", "32-true", "--max_new_tokens", "8", "--prompt_style", "plain",
      "--prompt",    "!",       "--temperature",    "0", "--json"};
  const auto text = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "generate");
    words.insert(words.end(), asking.begin(), asking.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output.substr(0, result.output.find('\n')))["text"];
  };
  expect_part(run({"merge", source, "--out_dir", folder_ / "merged"}), 0, "14 weights of");
  const auto wanted = text({folder_ / "merged"});
  EXPECT_EQ(text({source}), wanted);
  EXPECT_EQ(text({model, "--adapter", source}), wanted);
  EXPECT_NE(text({model}), wanted);
  const Result both =
      run({"generate", model, "--adapter", source, "--adapter", kAdapters / "peft/query-value",
           "--prompt_style", "plain", "--prompt", "!", "--max_new_tokens", "2"});
  expect_part(both, 0, "[" + source.string() + "]");
  expect_part(both, 0, "query-value]");
  const fs::path rows = write_rows(folder_ / "rows.json", 3);
  expect_part(run({"chat", model, "--adapter", source, "--adapter", source}), 2,
              "chat takes one adapter, and 2 are given");
  expect_part(run({"evaluate", source, "--adapter", source, "--data.json_path", rows}), 2,
              "is an adapter already");
}

// What a merge and a conversion after it write.
TEST_F(Merge, ConvertMergesOnTheWay) {
  const fs::path source = adapter("peft/query-value", base("base"));
  const auto model_of = [&](const fs::path& file) { return read_file(file); };
  expect_part(run({"merge", source}), 0, "-merged");
  expect_part(run({"convert", source, "--to", "hf"}), 0, "merged the adapter into 4 weights");
  EXPECT_TRUE(model_of(source.string() + "-hf/model.safetensors") ==
              model_of(source.string() + "-merged/model.safetensors"));
  expect_part(run({"convert", source}), 2, "say what to write");
}

TEST_F(Merge, ConvertWritesAnAdapterAsAGgufAdapter) {
  const fs::path model = base("base"), source = adapter("peft/query-value", model);
  const fs::path file = folder_ / "a.gguf", half = folder_ / "half.gguf";
  expect_part(run({"convert", source, file}), 0, file);
  expect_part(run({"convert", source, half, "--dtype", "float16"}), 0, half);
  EXPECT_LT(fs::file_size(half), fs::file_size(file));
  expect_part(run({"convert", source, file}), 2, "exists already");
  expect_part(run({"convert", kAdapters / "litgpt/query-value", folder_ / "b.gguf", "--base",
                   kAdapters / "litgpt/base"}),
              0, "b.gguf");
}

TEST_F(Merge, ConvertSaysWhatAnAdapterCannotBe) {
  const fs::path model = base("base"), source = adapter("peft/query-value", model);
  const fs::path file = folder_ / "a.gguf";
  expect_part(run({"convert", model, file, "--base", model}), 2, "is for adapters, and");
  fs::remove_all(source);
  expect_part(run({"convert", adapter("peft/dora", model), file}), 2,
              "has DoRA's magnitudes, which a GGUF adapter cannot hold");
  EXPECT_FALSE(fs::exists(file));
}

// A run's own adapter: merged it has the loss that the run ended with, and so it has beside the
// base.
TEST_F(Merge, ARunsAdapterKeepsItsLoss) {
  const fs::path rows = write_rows(folder_ / "rows.jsonl", 64);
  const std::vector<std::string> split{"--data.val_split_fraction", "0.25"};
  const auto train = [&](const char* command, const fs::path& model, const fs::path& out,
                         const std::vector<std::string>& more) {
    std::vector<std::string> words = finetune_words(rows, out, {"--train.max_steps", "4"});
    words[0] = command;
    words[1] = model;
    if (model != tiny_checkpoint()) words.erase(words.begin() + 2, words.begin() + 4);
    for (const auto* list : {&split, &more}) words.insert(words.end(), list->begin(), list->end());
    const Result result = run(words);
    ASSERT_EQ(result.exit_code, 0) << result.output;
  };
  const auto loss = [&](const fs::path& model) {
    std::vector<std::string> words{"evaluate",
                                   model,
                                   "--data.json_path",
                                   rows,
                                   "--precision",
                                   "32-true",
                                   "--data.prompt_style",
                                   "plain",
                                   "--split",
                                   "val",
                                   "--json"};
    words.insert(words.end(), split.begin(), split.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output)["loss"].get<double>();
  };
  const fs::path base = folder_ / "full/final";
  train("finetune_full", tiny_checkpoint(), folder_ / "full", {});
  for (const std::string bits : {"", "bnb.nf4"}) {
    const fs::path out = folder_ / ("lora" + bits), merged = folder_ / ("merged" + bits);
    std::vector<std::string> options{"--lora_mlp", "true"};
    std::vector<std::string> merging{"merge", out / "final", "--out_dir", merged};
    if (!bits.empty()) {
      options.insert(options.end(), {"--quantize", bits});
      merging.insert(merging.end(), {"--quantize", bits, "--precision", "32-true"});
    }
    train("finetune", base, out, options);
    const double wanted = read_run(out)["validation"].back()["loss"];
    expect_part(run(merging), 0, "10 weights of");
    EXPECT_NEAR(loss(merged), wanted, 1e-5 * wanted) << bits;
    if (bits.empty()) {
      EXPECT_NEAR(loss(out / "final"), wanted, 1e-5 * wanted);
      const fs::path folder = out / "final-ollama";
      expect_part(run({"convert", out / "final", "--to", "ollama"}), 0,
                  "Then: ollama create final-ollama -f " + (folder / "Modelfile").string());
      EXPECT_NEAR(loss(folder / "final-ollama.gguf"), wanted, 1e-5 * wanted) << "merged on the way";
    } else {
      expect_part(run({"merge", out / "final", "--out_dir", folder_ / "other"}), 0,
                  "was trained beside quantized weights");
      expect_part(run({"generate", out / "final", "--prompt", "a", "--max_new_tokens", "1"}), 0,
                  "--quantize bnb.nf4 --precision");
    }
  }
}

TEST_F(Merge, RefusesABaseWithWeightsThatAreNoNumbers) {
  const fs::path model = base("base"), source = adapter("peft/query-value", model);
  const fs::path file = model / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));  // NaN
  std::ofstream(file) << bytes;
  expect_part(run({"merge", source}), 2, "weight holds NaN or infinite numbers");
  EXPECT_FALSE(fs::exists(source.string() + "-merged"));
}

TEST_F(Merge, SaysWhatIsWrong) {
  const fs::path source = adapter("peft/query-value", folder_ / "gone");
  expect_part(run({"merge", source}), 2, "which is not on this machine (looked for ");
  expect_part(run({"merge", source, "--base", kAdapters / "nowhere"}), 2, "does not exist");
  expect_part(run({"merge", kAdapters / "base"}), 2, "holds no adapter");
  expect_part(run({"merge"}), 2, "snug merge needs checkpoint_dir");
  EXPECT_FALSE(fs::exists(source.string() + "-merged"));
}

}  // namespace
}  // namespace snug::tests
