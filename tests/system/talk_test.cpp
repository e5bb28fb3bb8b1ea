// snug generate, snug chat and snug data show as a person uses them: with pipes, and chat in a
// terminal.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <termios.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Clock = std::chrono::steady_clock;
using json = nlohmann::json;

bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
#define EXPECT_TEXT(text, part) EXPECT_TRUE(has_text(text, part)) << part << "\nin: " << text

class Talk : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    write_rows(*folder_ / "rows.jsonl", 24);
    ASSERT_EQ(run(finetune_words(*folder_ / "rows.jsonl", *folder_ / "out")).exit_code, 0);
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string model() { return (*folder_ / "out/final").string(); }
  static fs::path at(const std::string& name) { return *folder_ / name; }

  // What `snug` does with a pipe before and words after it.
  static Result piped(const std::string& input, const std::string& words) {
    return run_in_shell("printf '" + input + "' | snug " + words);
  }

  static TempFolder* folder_;
};
TempFolder* Talk::folder_ = nullptr;

const std::string kGreedy = " --precision 32-true --temperature 0 --max_new_tokens 4";

TEST_F(Talk, GenerateTakesItsPromptFromAPipeAWordOrAnOption) {
  const std::string words = "generate " + model() + kGreedy + " --json true";
  const auto answer = [](const Result& result) {
    return json::parse(result.output)["prompt"].get<std::string>() + "|" +
           json::parse(result.output)["text"].get<std::string>();
  };
  const Result by_pipe = piped("say 3\\n", words);
  ASSERT_EQ(by_pipe.exit_code, 0) << by_pipe.output;
  EXPECT_EQ(answer(by_pipe).substr(0, 6), "say 3|");
  EXPECT_EQ(answer(run_in_shell("snug " + words + " --prompt 'say 3'")), answer(by_pipe));
  EXPECT_EQ(
      answer(run_in_shell("snug generate " + model() + " 'say 3'" + kGreedy + " --json true")),
      answer(by_pipe));
}

TEST_F(Talk, GenerateWithoutAPromptSaysHowToGiveOne) {
  const Result none = run({"generate", model()});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TEXT(none.output, "there is no prompt; give one with --prompt \"What is Debian?\"");
  EXPECT_EQ(piped("\\n", "generate " + model()).exit_code, 2) << "an empty line is none";
  const Result unquoted = run({"generate", model(), "What", "is", "Debian?"});
  EXPECT_EQ(unquoted.exit_code, 2);
  EXPECT_TEXT(unquoted.output, "put it in quotes: snug generate");
  EXPECT_TEXT(unquoted.output, "'What is Debian?'");
}

TEST_F(Talk, ChatAnswersLinesOfAPipe) {
  const std::string saved = at("saved.jsonl").string();
  const Result result =
      piped("say 1\\nsay \\\\\\n2\\n/wrong\\n/save " + saved + "\\n\\nnot read\\n",
            "chat " + model() + " --prompt_style chat" + kGreedy);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TEXT(result.output, "/wrong is not a command");
  const json messages = json::parse(read_file(saved))["messages"];
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0]["content"], "say 1");
  EXPECT_EQ(messages[2]["content"], "say \n2");
}

TEST_F(Talk, ChatAsksAsTheModelWasTrained) {
  const Result plain = piped("say 1\\n", "chat " + model() + kGreedy);
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_TEXT(plain.output,
              "The model sees each question without the earlier ones (prompt style plain, as in "
              "training).");
  const Result chat = piped("say 1\\n", "chat " + model() + " --prompt_style chat" + kGreedy);
  EXPECT_FALSE(has_text(chat.output, "without the earlier ones")) << chat.output;
}

// The program in a terminal of its own.
class InTerminal {
 public:
  explicit InTerminal(std::vector<std::string> words) {
    winsize size{};
    size.ws_col = 100;
    size.ws_row = 30;
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ != 0) {
      ::tcgetattr(terminal_, &before_);
      return;
    }
    ::setenv("TERM", "xterm-256color", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    words.insert(words.begin(), SNUG_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(SNUG_BINARY, argv.data());
    ::_exit(127);
  }
  ~InTerminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(terminal_);
  }

  // False where the program ends or half a minute passes before; forgets all up to it.
  bool wait_for(const std::string& text) {
    const auto until = Clock::now() + std::chrono::seconds(30);
    while (seen_.find(text) == seen_.npos && Clock::now() < until)
      if (!read_some()) break;
    const size_t found = seen_.find(text);
    if (found == seen_.npos) return false;
    seen_.erase(0, found + text.size());
    return true;
  }
  void type(const std::string& text) {
    EXPECT_EQ(::write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int end() {
    while (read_some()) {
    }
    termios after{};
    if (::tcgetattr(terminal_, &after) == 0) modes_are_back_ = after.c_lflag == before_.c_lflag;
    const int code = finish(child_);
    child_ = -1;
    return code;
  }
  const std::string& seen() const { return seen_; }
  bool modes_are_back() const { return modes_are_back_; }

 private:
  bool read_some() {
    pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 30'000) <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::read(terminal_, buffer, sizeof buffer);
    if (size <= 0) return false;
    seen_.append(buffer, static_cast<size_t>(size));
    return true;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  termios before_{};
  bool modes_are_back_ = false;
  std::string seen_;
};

constexpr const char* kReady = "\x1b[?2004h";  // lines are edited from here on

TEST_F(Talk, ChatEditsLinesAndCtrlCClearsThem) {
  InTerminal chat({"chat", model(), "--prompt_style", "chat", "--precision", "32-true",
                   "--temperature", "0", "--max_new_tokens", "2"});
  ASSERT_TRUE(chat.wait_for("/help lists the commands.")) << chat.seen();
  ASSERT_TRUE(chat.wait_for(kReady)) << chat.seen();
  chat.type("/helx\x7fp\r");
  ASSERT_TRUE(chat.wait_for("continue an answer that was cut off")) << chat.seen();
  ASSERT_TRUE(chat.wait_for(kReady)) << chat.seen();
  chat.type("not asked\x03");
  ASSERT_TRUE(chat.wait_for("^C")) << chat.seen();
  ASSERT_TRUE(chat.wait_for(kReady)) << chat.seen();
  chat.type("\x1b[A");  // brings back /help
  ASSERT_TRUE(chat.wait_for("/help")) << chat.seen();
  chat.type("\x15\r");  // an empty line asks nothing, and ends nothing
  ASSERT_TRUE(chat.wait_for(kReady)) << chat.seen();
  chat.type("/quit\r");
  EXPECT_EQ(chat.end(), 0) << chat.seen();
  EXPECT_TRUE(chat.modes_are_back());
}

TEST_F(Talk, CtrlCEndsAnAnswerAndNotTheChat) {
  // With room for an answer that takes seconds, or it may be over before Ctrl-C comes.
  const fs::path talkative = at("talkative");
  fs::copy(model(), talkative, fs::copy_options::recursive);
  fs::remove(talkative / "checksums.json");
  json config = json::parse(read_file(talkative / "config.json"));
  config["max_position_embeddings"] = 16384;
  write_file_atomically(talkative / "config.json", config.dump());
  InTerminal chat({"chat", talkative.string(), "--prompt_style", "chat", "--precision", "32-true",
                   "--temperature", "0", "--max_new_tokens", "100000", "--min_new_tokens",
                   "100000"});
  ASSERT_TRUE(chat.wait_for(kReady)) << chat.seen();
  chat.type("say 1\r");
  ASSERT_TRUE(chat.wait_for("\r\n")) << chat.seen();
  ASSERT_TRUE(chat.wait_for("\x1b[?2004l")) << chat.seen();
  chat.type("\x03");
  ASSERT_TRUE(chat.wait_for("[stopped]")) << chat.seen();
  ASSERT_TRUE(chat.wait_for(kReady)) << chat.seen();
  chat.type("\x04");
  EXPECT_EQ(chat.end(), 0) << chat.seen();
  EXPECT_TRUE(chat.modes_are_back());
}

TEST_F(Talk, DataShowTellsWhatTrainingReads) {
  const fs::path rows = at("shown.jsonl");
  std::ofstream(rows) << R"({"instruction": "say a", "output": "aaaa"})"
                         "\n"
                      << R"({"instruction": "say b", "output": "bbbb"})"
                         "\n"
                      << R"({"instruction": "say a", "output": "aaaa"})"
                         "\n"
                      << R"({"instruction": "say", "input": "c", "output": "cc"})"
                         "\n";
  const fs::path tokenizer = at("tokenizer");  // no weights, no config.json
  fs::create_directories(tokenizer);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(fs::path(tiny_checkpoint()) / name, tokenizer / name,
                  fs::copy_options::overwrite_existing);
  const std::vector<std::string> words{"data",
                                       "show",
                                       rows.string(),
                                       "--model",
                                       tokenizer.string(),
                                       "--data.prompt_style",
                                       "chat",
                                       "--data.mask_prompt",
                                       "true"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return run(more);
  };
  const Result text = run(words);
  ASSERT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TEXT(text.output,
              "[mask]<|im_start|>user\nsay a<|im_end|>\n<|im_start|>assistant\n[/mask]"
              "aaaa<|im_end|>");
  EXPECT_TEXT(text.output, "equal to an earlier one: rows 1 and 3");
  EXPECT_TEXT(text.output, "Style     chat (--data.prompt_style)");
  const fs::path one = at("one.jsonl");  // a single row, of which none can be held out
  std::ofstream(one) << R"({"instruction": "a\r\nb", "output": "c"})";
  const Result windows = run({"data", "show", one.string(), "--model", tokenizer.string()});
  ASSERT_EQ(windows.exit_code, 0) << windows.output;
  EXPECT_TEXT(windows.output, "a\\r\nb") << "an end of a line as the model sees it";
  const Result shown = with({"--json", "true", "--row", "4", "--max_seq_length", "8"});
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  const json all = json::parse(shown.output);
  EXPECT_EQ(all["first_duplicate"], (json{1, 2})) << "what is cut makes them equal";
  EXPECT_EQ(all["rows"]["questions"], 3);
  EXPECT_EQ(all["rows"]["questions_with_input"], 1);
  EXPECT_EQ(all["cut"]["samples"], 4);
  EXPECT_EQ(all["nothing_to_learn"], 4) << "their prompts fill eight tokens";
  ASSERT_EQ(all["shown"].size(), 1U);
  EXPECT_EQ(all["shown"][0]["row"], 4);
  EXPECT_EQ(all["shown"][0]["ids"].size(), 8U);
  const Result whole = with({"--json", "true"});
  EXPECT_EQ(json::parse(whole.output)["duplicates"], 1);
  EXPECT_EQ(json::parse(whole.output)["first_duplicate"], (json{1, 3}));
  EXPECT_EQ(json::parse(whole.output)["shown"].size(), 3U);
  const Result no_row = with({"--row", "5"});
  EXPECT_EQ(no_row.exit_code, 2);
  EXPECT_TEXT(no_row.output, "--row 5: the ");
  EXPECT_TEXT(no_row.output, " samples have no such row");
}

// What every chat of the training began with belongs to the model, for other programs too.
TEST_F(Talk, ASystemMessageOfAllRowsIsTheModelsOwn) {
  const auto train = [](const char* name, const char* last) {
    const fs::path rows = at(std::string(name) + ".jsonl");
    std::ofstream out(rows);
    for (int i = 0; i < 12; ++i)
      out << json{{"messages",
                   {{{"role", "system"}, {"content", i < 11 ? "Say letters." : last}},
                    {{"role", "user"}, {"content", "say " + std::to_string(i)}},
                    {{"role", "assistant"}, {"content", "aaa"}}}}}
                 .dump()
          << "\n";
    out.close();
    std::vector<std::string> words = finetune_words(rows, at(name));
    std::ranges::replace(words, "plain", "chat");
    EXPECT_EQ(run(words).exit_code, 0);
    return (at(name) / "final").string();
  };
  const std::string model = train("alike", "Say letters.");
  const Result chat = piped("say 1\\n", "chat " + model + kGreedy);
  EXPECT_TEXT(chat.output, "System message, as in all rows of the training: Say letters.");
  const Result told = piped("say 1\\n", "chat " + model + kGreedy + " --sys_prompt 'Be brief.'");
  EXPECT_FALSE(has_text(told.output, "Say letters.")) << told.output;
  const std::string ollama = at("ollama").string();
  EXPECT_EQ(run({"convert", model, ollama, "--to", "ollama"}).exit_code, 0);
  EXPECT_TEXT(read_file(ollama + "/Modelfile"), "SYSTEM \"\"\"Say letters.\"\"\"\n");
  const Result other = piped("say 1\\n", "chat " + train("different", "Be silent.") + kGreedy);
  EXPECT_FALSE(has_text(other.output, "System message")) << other.output;
}

// The option was read and did nothing.
TEST_F(Talk, EveryQuestionOfAConversationCanBeASample) {
  const fs::path rows = at("chats.jsonl");
  std::ofstream(rows) << R"({"messages": [{"role": "user", "content": "a"},)"
                      << R"( {"role": "assistant", "content": "b"},)"
                      << R"( {"role": "user", "content": "c"},)"
                      << R"( {"role": "assistant", "content": "d"}]})"
                         "\n";
  const Result result =
      run({"data", "show", rows.string(), "--model", tiny_checkpoint(), "--json", "true",
           "--data.include_multiturn_conversations", "true", "--data.val_split_fraction", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(json::parse(result.output)["samples"]["training"], 2);
}

}  // namespace
}  // namespace snug::tests
