// Models that change their layout and come back, and answers that a terminal shows.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pty.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "files/weights/tensor_source.h"
#include "system/program.h"

namespace snug::tests {
namespace {

// Where snug demo puts it.
fs::path smollm2() {
  const char* cache = std::getenv("SNUG_CACHE");
  const char* home = std::getenv("HOME");
  const fs::path root = cache ? fs::path(cache) : fs::path(home ? home : "/") / ".cache/snug";
  return root / "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// From `source` to a Hugging Face directory, to GGUF and back: not a byte differs.
void expect_gguf_keeps_all(const fs::path& source, const TempFolder& folder) {
  const auto convert = [&](const fs::path& from, const fs::path& to, const char* layout) {
    const Result result = run({"convert", from, to, "--to", layout});
    ASSERT_EQ(result.exit_code, 0) << result.output;
  };
  convert(source, folder / "hf", "hf");
  convert(folder / "hf", folder / "model.gguf", "gguf");
  convert(folder / "model.gguf", folder / "again", "hf");
  EXPECT_TRUE(read_file(folder / "hf/model.safetensors") ==
              read_file(folder / "again/model.safetensors"));
  const auto parsed = [&](const std::string& name) {
    return nlohmann::json::parse(read_file(folder / name));
  };
  EXPECT_EQ(parsed("hf/generation_config.json"), parsed("again/generation_config.json"));
}

TEST(Convert, GgufKeepsEveryBitOfSmolLm2) {
  if (!fs::exists(smollm2())) GTEST_SKIP() << smollm2() << " is missing: snug demo --fetch_only";
  const TempFolder folder;
  expect_gguf_keeps_all(smollm2(), folder);
  EXPECT_TRUE(read_file(folder / "hf/tokenizer.json") ==
              read_file(folder / "again/tokenizer.json"));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "hf/config.json")),
            nlohmann::json::parse(read_file(folder / "again/config.json")));
}

class Trained : public testing::Test {
 protected:
  void SetUp() override {
    const Result result = run(finetune_words(write_rows(folder_ / "rows.jsonl", 64),
                                             folder_ / "out", {"--train.max_steps", "1"}));
    ASSERT_EQ(result.exit_code, 0) << result.output;
  }
  fs::path model() const { return folder_ / "out/final"; }
  const TempFolder folder_;
};

// The same model as the language part of one with a tower for pictures.
void write_with_pictures(const fs::path& model, const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(model / name, folder / name);
  using nlohmann::json;
  const json config = {{"model_type", "llava"},
                       {"text_config", json::parse(read_file(model / "config.json"))},
                       {"vision_config", {{"model_type", "clip_vision_model"}}}};
  write_file_atomically(folder / "config.json", config.dump());
  const std::string whole = read_file(model / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof length);
  const std::string data = whole.substr(sizeof length + length);
  json header = json::object();
  const json before = json::parse(whole.substr(sizeof length, length));
  for (const auto& [name, tensor] : before.items())
    header[name == "__metadata__" ? name : "language_model." + name] = tensor;
  header["vision_tower.patches.weight"] = {
      {"dtype", "F32"}, {"shape", {2, 2}}, {"data_offsets", {data.size(), data.size() + 16}}};
  const std::string text = header.dump();
  length = text.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  write_file_atomically(folder / "model.safetensors", file + text + data + std::string(16, 'x'));
}

TEST_F(Trained, TheLanguageModelIsTakenOutOfOneThatSeesPictures) {
  const fs::path both = folder_ / "both", text = folder_ / "text";
  write_with_pictures(model(), both);
  expect_part(run({"convert", both, text, "--text_only"}), 0,
              "the language model alone (llama); left out: 1 tensor (16 B) of other parts");
  EXPECT_TRUE(read_file(text / "model.safetensors") == read_file(model() / "model.safetensors"));
  EXPECT_EQ(read_file(text / "config.json"), read_file(model() / "config.json"));
  const auto planned = [](const Result& result) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output);
  };
  const nlohmann::json of_text = planned(run({"plan", text, "--json"}));
  const nlohmann::json of_both = planned(run({"plan", both, "--json"}));
  EXPECT_EQ(of_both.at("memory"), of_text.at("memory"));
  EXPECT_EQ(of_both.at("model"), of_text.at("model"));
  expect_part(run({"convert", model(), folder_ / "a", "--text_only"}), 2,
              "reads a model of type \"llama\" whole; leave --text_only out");
  expect_part(run({"convert", folder_ / "rows.jsonl", folder_ / "a", "--text_only"}), 2,
              "this file is no model");
  expect_part(run({"convert", both, folder_ / "a.gguf", "--text_only", "--gguf_type", "Q4_0",
                   "--imatrix_data", folder_ / "rows.jsonl"}),
              2, "convert to a directory first");
}

// Whether a tensor of `a` has the bytes of one of `b`.
void expect_same_bytes(const files::TensorSource& a, const std::string& in_a,
                       const files::TensorSource& b, const std::string& in_b) {
  ASSERT_NE(a.find(in_a), nullptr) << in_a;
  ASSERT_NE(b.find(in_b), nullptr) << in_b;
  EXPECT_TRUE(std::ranges::equal(a.raw(*a.find(in_a)), b.raw(*b.find(in_b)))) << in_a;
}

TEST_F(Trained, TheLanguageModelTrainsWithinOneThatSeesPictures) {
  const fs::path both = folder_ / "both";
  write_with_pictures(model(), both);
  write_file_atomically(both / "preprocessor_config.json", "{}");
  const auto finetune = [&](const char* command, const fs::path& checkpoint, const char* to) {
    const Result result =
        run({command, checkpoint, "--data", "JSON", "--data.json_path", folder_ / "rows.jsonl",
             "--data.prompt_style", "plain", "--train.max_steps", "2", "--precision", "32-true",
             "--out_dir", folder_ / to});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  EXPECT_NE(
      finetune("finetune_full", both, "whole").find("of a llava the language model is trained"),
      std::string::npos);
  finetune("finetune_full", model(), "alone");
  const fs::path whole = folder_ / "whole/final", alone = folder_ / "alone/final";
  const auto ours = files::open_model_directory(whole), plain = files::open_model_directory(alone);
  for (const files::TensorInfo& tensor : plain->tensors())
    expect_same_bytes(*ours, "language_model." + tensor.name, *plain, tensor.name);
  expect_same_bytes(*ours, "vision_tower.patches.weight", *files::open_model_directory(both),
                    "vision_tower.patches.weight");
  EXPECT_EQ(ours->tensors().size(), plain->tensors().size() + 1);
  using nlohmann::json;
  const json config = json::parse(read_file(whole / "config.json"));
  EXPECT_EQ(config["model_type"], "llava");
  EXPECT_EQ(config["vision_config"], json::parse(read_file(both / "config.json"))["vision_config"]);
  EXPECT_TRUE(fs::exists(whole / "preprocessor_config.json"));
  // What was written is read again.
  const auto answer = [&](const fs::path& checkpoint) {
    const Result result = run(
        {"generate", checkpoint, "--prompt", "a", "--max_new_tokens", "4", "--temperature", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output.substr(0, result.output.find('\n'));  // without its time
  };
  EXPECT_EQ(answer(whole), answer(alone));

  // An adapter has the names of transformers' whole model, and merging gives that model again.
  finetune("finetune_lora", both, "adapter");
  const json adapter = json::parse(read_file(folder_ / "adapter/final/adapter_config.json"));
  EXPECT_EQ(adapter["target_modules"][0].get<std::string>().find("model.language_model.layers."),
            0U)
      << adapter;
  EXPECT_EQ(run({"merge", folder_ / "adapter/final"}).exit_code, 0);
  const auto merged = files::open_model_directory(folder_ / "adapter/final-merged");
  EXPECT_EQ(merged->tensors().size(), ours->tensors().size());
  finetune("finetune_lora", folder_ / "adapter/final", "further");
  expect_part(run({"convert", whole, folder_ / "a.gguf"}), 0, "left out: 1 tensor");

  finetune("finetune_full", whole, "again");
  expect_same_bytes(*files::open_model_directory(folder_ / "again/final"),
                    "vision_tower.patches.weight", *ours, "vision_tower.patches.weight");
}

TEST_F(Trained, ALossThatIsNoNumberIsNoResult) {
  const fs::path broken = folder_ / "broken";
  fs::copy(model(), broken);
  std::string bytes = read_file(broken / "model.safetensors");
  for (size_t at = bytes.size() - 4096; at < bytes.size(); at += 4)
    bytes.replace(at, 4, std::string("\xc0\x7f\xc0\x7f", 4));  // NaN in 16 and in 32 bits
  std::ofstream(broken / "model.safetensors") << bytes;
  fs::remove(broken / "checksums.json");  // which would find it
  const auto evaluate = [&](const fs::path& of) {
    return run({"evaluate", of, "--data", "JSON", "--data.json_path", folder_ / "rows.jsonl",
                "--data.prompt_style", "plain", "--precision", "32-true"});
  };
  expect_part(evaluate(model()), 0, "loss");
  expect_part(evaluate(broken), 2, "contain NaN");
}

TEST_F(Trained, GgufKeepsEveryBit) { expect_gguf_keeps_all(model(), folder_); }

// What lies at the destination is somebody's: a folder with files, a file, the folder one stands
// in.
TEST_F(Trained, ConvertNeverTakesAnothersPlace) {
  const fs::path precious = folder_ / "precious";
  fs::create_directories(precious);
  write_file_atomically(precious / "thesis.txt", "years of work");
  write_file_atomically(folder_ / "notes", "a file");
  for (const fs::path& destination :
       {precious, fs::path(precious.string() + "/"), folder_ / "notes", model()}) {
    const Result result = run({"convert", model(), destination, "--to", "hf"});
    EXPECT_EQ(result.exit_code, 2) << destination << "\n" << result.output;
    EXPECT_NE(result.output.find("exists already"), std::string::npos) << result.output;
  }
  EXPECT_EQ(read_file(precious / "thesis.txt"), "years of work");
  EXPECT_EQ(read_file(folder_ / "notes"), "a file");
  const fs::path empty = folder_ / "empty";
  fs::create_directories(empty);
  const Result result = run({"convert", model(), empty.string() + "/", "--to", "hf"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(fs::exists(empty / "config.json"));
}

// Nor does a run's own final model.
TEST_F(Trained, ATrainingRunKeepsForeignFiles) {
  write_file_atomically(model() / "notes.md", "mine");
  const Result result =
      run(finetune_words(folder_ / "rows.jsonl", folder_ / "out", {"--train.max_steps", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(read_file(folder_ / "out/earlier/final/notes.md"), "mine");
}

TEST_F(Trained, GgufIsReadLikeAnyModel) {
  ASSERT_EQ(run({"convert", model(), folder_ / "m.gguf"}).exit_code, 0);
  ASSERT_TRUE(fs::is_regular_file(folder_ / "m.gguf")) << "by its ending";
  EXPECT_EQ(run({"convert", model(), folder_ / "n.gguf", "--to", "hf"}).exit_code, 2);
  const auto answer = [&](const fs::path& path) {
    const Result result = run({"generate", path, "--prompt", "say 3", "--precision", "32-true",
                               "--temperature", "0", "--prompt_style", "plain"});
    return result.output.substr(0, result.output.rfind('('));
  };
  EXPECT_EQ(answer(folder_ / "m.gguf"), answer(model()));
  const Result refused = run({"convert", model(), folder_ / "out", "--to", "gguf"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("exists already"), std::string::npos) << refused.output;
}

TEST_F(Trained, QuantizedGgufIsSmallerAndReadLikeAnyModel) {
  const auto written = [&](const char* type) {
    const fs::path file = folder_ / (std::string(type) + ".gguf");
    const Result result = run({"convert", model(), file, "--gguf_type", type});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(run({"generate", file, "--prompt", "say 3", "--max_new_tokens", "4"}).exit_code, 0);
    return fs::file_size(file);
  };
  ASSERT_EQ(run({"convert", model(), folder_ / "bf16.gguf"}).exit_code, 0);
  EXPECT_LT(written("q8_0"), fs::file_size(folder_ / "bf16.gguf"));
  EXPECT_LT(written("Q4_0"), fs::file_size(folder_ / "q8_0.gguf"));
}

// Two layers have seven matrices each; the rows of the down projections fit Q4_0.
TEST_F(Trained, GgufIsQuantizedWithAnImportanceMatrixOfTheRows) {
  const auto written = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words{"convert", model(), folder_ / name, "--gguf_type", "Q4_0"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(result.output.find("importance matrix of 14 weights from") != std::string::npos,
              !more.empty() && more.front() == "--imatrix_data")
        << result.output;
    return read_file(folder_ / name);
  };
  const std::string plain = written("plain.gguf", {});
  const std::string weighted =
      written("weighted.gguf", {"--imatrix_data", folder_ / "rows.jsonl", "--precision", "32-true",
                                "--imatrix_out", folder_ / "kept.gguf"});
  EXPECT_EQ(plain.find("quantize.imatrix"), std::string::npos);
  EXPECT_NE(weighted.find("quantize.imatrix.file"), std::string::npos);
  const size_t data = 4096;  // from the end: weights of a layer
  EXPECT_NE(weighted.substr(weighted.size() - data), plain.substr(plain.size() - data));
  const auto refusal = [&](const fs::path& out) {
    const Result result = run({"convert", model(), folder_ / "new.gguf", "--gguf_type", "Q4_0",
                               "--imatrix_data", folder_ / "rows.jsonl", "--imatrix_out", out});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_FALSE(fs::exists(folder_ / "new.gguf"));
    return result.output;
  };
  EXPECT_NE(refusal(folder_ / "kept.gguf").find("exists already"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "./new.gguf").find("a name of its own"), std::string::npos);
  const std::string again = written("again.gguf", {"--imatrix", folder_ / "kept.gguf"});
  EXPECT_EQ(again.substr(again.size() - data), weighted.substr(weighted.size() - data));
}

TEST_F(Trained, AFolderForOllamaHasTheGgufFileAndAModelfile) {
  const fs::path folder = folder_ / "my-model";
  const Result result = run({"convert", model(), folder, "--to", "ollama", "--gguf_type", "Q8_0"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  ASSERT_EQ(run({"convert", model(), folder_ / "my-model.gguf", "--gguf_type", "Q8_0"}).exit_code,
            0);
  EXPECT_TRUE(read_file(folder / "my-model.gguf") == read_file(folder_ / "my-model.gguf"));
  // It was trained with prompts in the style plain, by the record in the folder.
  EXPECT_EQ(
      read_file(folder / "Modelfile"),
      "FROM ./my-model.gguf\nTEMPLATE \"\"\"{{ .Prompt }}\"\"\"\nPARAMETER stop \"<|im_end|>\"\n");
  EXPECT_EQ(run({"verify", folder}).exit_code, 0);
}

TEST_F(Trained, WeightsThatAreNoNumbersAreRefused) {
  const fs::path file = model() / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));  // NaN
  std::ofstream(file) << bytes;
  fs::remove(model() / "checksums.json");
  const fs::path gguf = folder_ / "new.gguf", hf = folder_ / "new";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{gguf}, {gguf, "--gguf_type", "Q8_0"}, {hf}}) {
    std::vector<std::string> command{"convert", model()};
    command.insert(command.end(), words.begin(), words.end());
    const Result result = run(command);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.output.find("weight holds NaN or infinite numbers"), std::string::npos)
        << result.output;
    EXPECT_FALSE(fs::exists(gguf) || fs::exists(hf));
  }
  for (const char* beams : {"1", "2"}) {
    const Result result = run({"generate", model(), "--prompt", "a", "--num_beams", beams,
                               "--temperature", "0", "--max_new_tokens", "2"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.output.find("a logit is NaN"), std::string::npos) << result.output;
  }
}

// Its training did not diverge.
TEST_F(Trained, WeightsBeyondFloat16AreNamedWithTheirValue) {
  const fs::path file = model() / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\xb8\x88\x47", 4));  // 70000
  std::ofstream(file) << bytes;
  fs::remove(model() / "checksums.json");
  const Result result = run({"convert", model(), folder_ / "new", "--dtype", "float16"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("weight holds 70000, and float16 numbers end at 65504"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("diverged"), std::string::npos) << result.output;
  EXPECT_EQ(run({"convert", model(), folder_ / "wide", "--dtype", "bfloat16"}).exit_code, 0);
}

TEST_F(Trained, GgufTypesAreForGgufFilesAlone) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"convert", model()};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.output;
  };
  EXPECT_NE(refusal({folder_ / "m.gguf", "--gguf_type", "Q3_K"})
                .find("is not one of Q8_0, Q4_0, Q6_K, Q4_K_M, Q5_K_M"),
            std::string::npos);
  EXPECT_NE(refusal({folder_ / "m", "--gguf_type", "Q8_0"}).find("give --to gguf"),
            std::string::npos);
  EXPECT_NE(refusal({folder_ / "m.gguf", "--gguf_type", "Q8_0", "--dtype", "float16"})
                .find("--dtype float16"),
            std::string::npos);
  EXPECT_NE(refusal({folder_ / "m.gguf", "--imatrix_data", folder_ / "rows.jsonl"})
                .find("is for quantizing; say how with --gguf_type"),
            std::string::npos);
  EXPECT_NE(refusal({folder_ / "m.gguf", "--gguf_type", "Q4_0", "--imatrix", "m.dat",
                     "--imatrix_data", folder_ / "rows.jsonl"})
                .find("both give an importance matrix"),
            std::string::npos);
  EXPECT_NE(
      refusal({folder_ / "m.gguf", "--gguf_type", "Q4_0", "--imatrix", folder_ / "rows.jsonl"})
          .find("no importance matrix"),
      std::string::npos);
}

// Its answers are all but random bytes, every control character among them.
TEST_F(Trained, AnswersLeaveATerminalAlone) {
  const Result in_file = run({"generate", model(), "--prompt", "a", "--max_new_tokens", "200",
                              "--temperature", "2", "--top_k", "304"});
  ASSERT_EQ(in_file.exit_code, 0) << in_file.output;
  EXPECT_NE(in_file.output.find_first_of("\x01\x02\x03\x04\x05\x06\x1b\x1c\x1d"),
            std::string::npos);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl(SNUG_BINARY, SNUG_BINARY, "generate", model().c_str(), "--prompt", "a",
            "--max_new_tokens", "200", "--temperature", "2", "--top_k", "304", nullptr);
    ::_exit(127);
  }
  ASSERT_GT(child, 0);
  std::string seen;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof(buffer))) > 0;)
    seen.append(buffer, static_cast<size_t>(got));
  ::close(terminal);
  EXPECT_EQ(finish(child), 0);
  EXPECT_GT(seen.size(), 100U);
  for (const char c : seen)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t')
        << static_cast<int>(c);
}

}  // namespace
}  // namespace snug::tests
