// Chats in another template than the model's: trained, written, and used by every other command as
// they were learnt.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

const std::string kTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}<|stop|>"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

class OtherTemplate : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream rows(rows_);
    for (int i = 0; i < 24; ++i) {
      const std::string n = std::to_string(i % 5);
      rows << json{{"messages",
                    {{{"role", "user"}, {"content", "say " + n}},
                     {{"role", "assistant"}, {"content", "it is " + n}}}}}
                  .dump()
           << "\n";
    }
    rows.close();
    write_text("chat.jinja", kTemplate);
    // A base with one more mark, which nothing uses yet.
    json tokens = json::parse(read_file(tiny_checkpoint() + "/tokenizer.json"));
    json mark = tokens["added_tokens"][0];
    mark["id"] = 300;
    mark["content"] = "<|stop|>";
    tokens["added_tokens"].push_back(mark);
    fs::create_directories(folder_ / "base");
    for (const char* name : {"config.json", "tokenizer_config.json"})
      fs::copy_file(fs::path(tiny_checkpoint()) / name, folder_ / "base" / name);
    write_text("base/tokenizer.json", tokens.dump());
    const Result made = run(trained(
        "base", "made", {"--model.config", at("base/config.json"), "--train.max_steps", "1"}));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void write_text(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_ / name, text);
  }
  Words trained(const std::string& model, const std::string& out, const Words& more) const {
    Words words{"finetune_full",
                at(model),
                "--data",
                at("rows.jsonl"),
                "--out_dir",
                at(out),
                "--precision",
                "32-true",
                "--train.global_batch_size",
                "8",
                "--train.micro_batch_size",
                "4",
                "--train.epochs",
                "2",
                "--train.lr_warmup_steps",
                "2",
                "--eval.num_samples",
                "0",
                "--optimizer.lr",
                "0.003",
                "--data.val_split_fraction",
                "0.25"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words changed() const {
    return {"--data.chat_template", at("chat.jinja"), "--data.eos_token", "<|stop|>"};
  }
  // Ids and masks of all rows as a model's folder has them.
  json shown(const std::string& model, const Words& more = {}) const {
    Words words{"data",
                "show",
                at("rows.jsonl"),
                "--model",
                at(model),
                "--num_samples",
                "100",
                "--data.val_split_fraction",
                "0",
                "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.exit_code == 0
               ? json::parse(result.output.substr(result.output.find('{')))["shown"]
               : json();
  }
  json in(const std::string& file) const { return json::parse(read_file(folder_ / file)); }

  TempFolder folder_;
  fs::path rows_ = folder_ / "rows.jsonl";
};

TEST_F(OtherTemplate, IsPartOfTheModel) {
  const json before = shown("made/final");
  const json wanted = shown("made/final", changed());
  ASSERT_NE(before[0]["ids"], wanted[0]["ids"]);
  Words words = trained("made/final", "out", changed());
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(shown("out/final"), wanted);
  EXPECT_EQ(read_file(folder_ / "out/final/chat_template.jinja"), kTemplate);
  EXPECT_EQ(in("out/final/config.json")["eos_token_id"], 300);
  const json ends = in("out/final/generation_config.json")["eos_token_id"];
  EXPECT_EQ(ends, (json{300, 1})) << "as transformers' Trainer joins them";
  EXPECT_EQ(in("out/final/tokenizer_config.json")["eos_token"], "<|stop|>");
  // And of the file that llama.cpp reads.
  const Result converted = run({"convert", at("out/final"), at("out/model.gguf"), "--to", "gguf"});
  ASSERT_EQ(converted.exit_code, 0) << converted.output;
  EXPECT_EQ(shown("out/model.gguf"), wanted);
}

TEST_F(OtherTemplate, StandsBesideAnAdapter) {
  const json wanted = shown("made/final", changed());
  Words words = trained("made/final", "out", changed());
  words.front() = "finetune_lora";
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(shown("out/final"), wanted);
  const json record = read_run(folder_ / "out");
  EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
            record["memory"]["measured"]["peak_allocated"]);
  // Measured in the same words.
  const double loss = record["validation"].back()["loss"];
  EXPECT_NEAR(evaluated(at("out/final"), rows_)["loss"], loss, 2e-5 * loss);
  // Training goes on in them, and a merged model keeps them.
  Words further = trained("out/final", "further", {"--train.max_steps", "1"});
  further.front() = "finetune_lora";
  const Result gone_on = run(further);
  ASSERT_EQ(gone_on.exit_code, 0) << gone_on.output;
  EXPECT_EQ(shown("further/final"), wanted);
  const Result merged = run({"merge", at("out/final"), "--out_dir", at("merged")});
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_EQ(shown("merged"), wanted);
  EXPECT_EQ(in("merged/config.json")["eos_token_id"], 300);
}

// As Unsloth writes adapters, whose tokenizer has other words for some ids.
TEST_F(OtherTemplate, OfAnAdapterBringsItsVocabulary) {
  Words words = trained("made/final", "out", changed());
  words.front() = "finetune_lora";
  ASSERT_EQ(run(words).exit_code, 0);
  std::string tokens = read_file(folder_ / "out/final/tokenizer.json");
  const auto replace = [](std::string& text) {
    for (size_t at = 0; (at = text.find("<|stop|>", at)) != text.npos; at += 7)
      text.replace(at, 8, "<|end|>");
  };
  replace(tokens);
  write_text("out/final/tokenizer.json", tokens);
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    std::string text = read_file(folder_ / "out/final" / name);
    replace(text);
    write_text(std::string("out/final/") + name, text);
  }
  EXPECT_EQ(shown("out/final")[0]["ids"], shown("made/final", changed())[0]["ids"]);
}

TEST_F(OtherTemplate, IsGivenByNameFolderOrText) {
  const json wanted = shown("made/final", changed());
  // In a recipe, the lines of kTemplate one below the other.
  std::string lines = "data:\n  eos_token: <|stop|>\n  chat_template: |-\n    " + kTemplate + "\n";
  lines.insert(lines.find("{% endfor"), "    ");
  write_text("recipe.yaml", lines);
  const Result by_text = run(trained("made/final", "text", {"--config", at("recipe.yaml")}));
  ASSERT_EQ(by_text.exit_code, 0) << by_text.output;
  EXPECT_EQ(shown("text/final"), wanted);
  const Words folder{"--data.chat_template", at("out/final")};
  ASSERT_EQ(run(trained("made/final", "out", changed())).exit_code, 0);
  EXPECT_EQ(shown("made/final", folder), wanted) << "with its end of sequence";
  const json named = shown("made/final", {"--data.chat_template", "chatml"});
  EXPECT_EQ(named[0]["ids"], shown("made/final")[0]["ids"]) << "which is this model's own";
}

// A base whose vocabulary has 300 tokens and whose embedding 304 rows; six more are two too many.
class NewTokens : public OtherTemplate {
 protected:
  Words marks() const {
    return {"--data.chat_template", "phi3",
            "--data.eos_token",     "<|end|>",
            "--tokens.add",         "<|user|>,<|assistant|>,<|end|>,<|im_end|>,<|a|>,<|b|>,<|c|>"};
  }
  double loss_of(const std::string& model) const { return evaluated(at(model), rows_)["loss"]; }
  // What `snug finetune…` made of it, and that it took what was planned.
  double trained_loss(const std::string& out) const {
    const json record = read_run(folder_ / out);
    EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
              record["memory"]["measured"]["peak_allocated"]);
    return record["validation"].back()["loss"];
  }
};

TEST_F(NewTokens, AreRowsOfTheModel) {
  const json wanted = shown("made/final", marks());
  EXPECT_EQ(wanted[0]["ids"][1], 301) << "<|user|>, behind <|stop|>";
  EXPECT_EQ(std::ranges::count(wanted[0]["ids"], json(303)), 2) << "<|end|>";
  const Result result = run(trained("made/final", "out", marks()));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(in("out/final/config.json")["vocab_size"], 307);
  EXPECT_EQ(in("out/final/config.json")["eos_token_id"], 303);
  EXPECT_EQ(shown("out/final"), wanted);
  const double loss = trained_loss("out");
  EXPECT_NEAR(loss_of("out/final"), loss, 2e-5 * loss);
  const Result converted = run({"convert", at("out/final"), at("out/model.gguf"), "--to", "gguf"});
  ASSERT_EQ(converted.exit_code, 0) << converted.output;
  EXPECT_EQ(shown("out/model.gguf"), wanted);
  // And ranks that have parts of the rows.
  Words shared = trained("made/final", "shared", marks());
  shared.insert(shared.end(), {"--devices", "2", "--strategy", "fsdp"});
  const Result two = run(shared);
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_NEAR(trained_loss("shared"), loss, 1e-4 * loss);
}

TEST_F(NewTokens, TrainWholeBesideAdapters) {
  const json wanted = shown("made/final", marks());
  Words words = trained("made/final", "out", marks());
  words.front() = "finetune_lora";
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("Tokens   6 new, for which embeddings and head train whole in a "
                               "vocabulary of 307 rows"),
            std::string::npos)
      << result.output;
  const json config = in("out/final/adapter_config.json");
  EXPECT_EQ(config["modules_to_save"], (json{"embed_tokens", "lm_head"})) << config;
  EXPECT_EQ(shown("out/final"), wanted);
  const double loss = trained_loss("out");
  EXPECT_NEAR(loss_of("out/final"), loss, 2e-5 * loss);
  const Result merged =
      run({"merge", at("out/final"), "--out_dir", at("merged"), "--dtype", "float32"});
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_EQ(in("merged/config.json")["vocab_size"], 307);
  EXPECT_EQ(shown("merged"), wanted);
  EXPECT_NEAR(loss_of("merged"), loss, 2e-5 * loss);
  Words further = trained("out/final", "further", {"--tokens.add", "<|d|>"});
  further.front() = "finetune_lora";
  expect_part(run(further), 2, "trains on with the tokens that it has; snug merge ");
  words = trained("made/final", "head", marks());
  words.front() = "finetune_lora";
  words.insert(words.end(), {"--lora_target_modules", "lm_head"});
  expect_part(run(words), 2, "the head trains whole beside new tokens, and no other layer gets");
}

// Rows that the embedding has for no token yet serve.
TEST_F(NewTokens, TakeRowsThatAreThere) {
  const Result result = run(trained("made/final", "out", {"--tokens.add", "<|im_end|>, <|user|>"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(in("out/final/config.json")["vocab_size"], 304);
  expect_part(
      run({"evaluate", at("out/final"), "--data", at("rows.jsonl"), "--tokens.add", "<|x|>"}), 2,
      "new tokens have rows that nothing has trained");
  expect_part(run(trained("made/final", "none", {"--tokens.add", " , "})), 2,
              "there is no token in it");
  // Run again from its checkpoint, to the same end.
  const Words two_more{"--tokens.add", "<|im_end|>, <|user|>", "--train.epochs", "3", "--resume",
                       "auto"};
  Words longer = trained("made/final", "out", two_more);
  Words others = longer;
  others[others.size() - 5] = "<|im_end|>, <|other|>";
  expect_part(run(others), 2, "was written with tokens.add = \"<|im_end|>, <|user|>\", and now it");
  const Result resumed = run(longer);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(shown("out/final"), shown("made/final", {"--tokens.add", "<|im_end|>, <|user|>"}));
}

TEST_F(NewTokens, StandBesideAHeadThatScores) {
  std::ofstream texts(folder_ / "texts.jsonl");
  for (int i = 0; i < 16; ++i)
    texts << json{{"text", "<|user|>" + std::string(static_cast<size_t>(1 + i % 3), 'a')},
                  {"label", i % 2 == 0 ? "even" : "odd"}}
                 .dump()
          << "\n";
  texts.close();
  Words words = trained(
      "made/final", "out",
      {"--tokens.add", "<|user|>", "--objective", "classification", "--data", at("texts.jsonl")});
  words.front() = "finetune_lora";
  const Result result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(in("out/final/adapter_config.json")["modules_to_save"],
            (json{"embed_tokens", "score"}));
  const Result merged = run({"merge", at("out/final"), "--out_dir", at("merged")});
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  EXPECT_NE(read_file(folder_ / "merged/tokenizer.json").find("<|user|>"), std::string::npos);
}

TEST_F(OtherTemplate, SaysWhatIsWrong) {
  const auto said = [&](const Words& more) {
    Words words{"data", "show", at("rows.jsonl"), "--model", at("made/final")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  expect_part(said({"--data.chat_template", "llama2"}), 2,
              "data.chat_template = llama2: there is no such file or folder, nor a template of "
              "that name; give a file of Jinja, a folder of a model that has a template, or one "
              "of alpaca, chatml, gemma, llama3, phi3");
  expect_part(said({"--data.chat_template", at("base")}), 0, "");
  write_text("none.jinja", " \n");
  expect_part(said({"--data.chat_template", at("none.jinja")}), 2, "there is no template in it");
  std::ofstream(folder_ / "asked.jsonl") << R"({"instruction": "say 1", "output": "1"})"
                                         << "\n";
  expect_part(run({"data", "show", at("asked.jsonl"), "--model", at("made/final"),
                   "--data.val_split_fraction", "0", "--data.chat_template", "chatml"}),
              0, "these rows become text in prompt style alpaca and not in the template");
  fs::create_directories(folder_ / "empty");
  expect_part(said({"--data.chat_template", at("empty")}), 2, "there is no template in it");
  expect_part(said({"--data.eos_token", "<|done|>"}), 2,
              "eos_token = <|done|>: the vocabulary of ");
  expect_part(said({"--data.chat_template", "{% for"}), 2, "data.chat_template");
  expect_part(said({"--data.chat_template", "llama3"}), 0,
              "it ends an answer with no token that this vocabulary has as a special one");
}

}  // namespace
}  // namespace snug::tests
