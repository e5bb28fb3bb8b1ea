// A conversation without a model, a line without a terminal, a prompt from a pipe.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"
#include "use/chat/conversation.h"
#include "use/chat/line_editor.h"
#include "use/generate/prompts.h"

namespace snug::use {
namespace {

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// Answers with a letter a token; a prompt has a token for each letter of its turns.
class Chat : public testing::Test {
 protected:
  Conversation make(ChatModel model, ConversationOptions options = {}) {
    if (model.positions == 0) model.positions = 1000;
    model.prompt = [this](std::span<const tokenizer::Message> turns) {
      Prompt prompt;
      asked_.clear();
      for (const auto& turn : turns) {
        asked_ += turn.role + ": " + turn.content + "\n";
        prompt.ids.insert(prompt.ids.end(), turn.content.size(), 1);
      }
      return prompt;
    };
    model.answer = [this, positions = model.positions](
                       const Prompt& prompt, const std::vector<int32_t>& begun, uint64_t number) {
      if (std::ssize(prompt.ids) >= positions) throw UserError("the prompt is too long");
      begun_ = begun;
      number_ = number;
      return next_;
    };
    return {std::move(model), std::move(options),
            [this](const std::string& note) { notes_ += note + "\n"; }};
  }
  std::string take_notes() { return std::exchange(notes_, {}); }

  ChatAnswer next_{.text = "yes", .ids = {7, 8}, .end = AnswerEnd::Complete};
  std::string asked_, notes_;
  std::vector<int32_t> begun_;
  uint64_t number_ = 0;
};

TEST_F(Chat, EveryQuestionSeesWhatWasSaidBefore) {
  Conversation chat = make({}, {.system = "be brief"});
  EXPECT_TRUE(chat.take("one?"));
  EXPECT_TRUE(chat.take("two?"));
  EXPECT_EQ(asked_, "system: be brief\nuser: one?\nassistant: yes\nuser: two?\n");
  EXPECT_TRUE(chat.take("/clear"));
  EXPECT_TRUE(chat.take("three?"));
  EXPECT_EQ(asked_, "system: be brief\nuser: three?\n");
  EXPECT_FALSE(chat.take("/exit"));
}

TEST_F(Chat, AStyleWithoutTurnsAsksEachQuestionByItself) {
  Conversation chat = make({.keeps_turns = false});
  chat.take("one?");
  chat.take("two?");
  EXPECT_EQ(asked_, "user: two?\n");
}

TEST_F(Chat, AnAnswerThatWasCutOffSaysSoAndGoesOn) {
  Conversation chat = make({});
  next_ = {.text = "one two", .ids = {1, 2}, .end = AnswerEnd::Limit};
  chat.take("count");
  EXPECT_EQ(take_notes(), "[stopped after 2 tokens; /more continues]\n");
  next_ = {.text = " three", .ids = {3}, .end = AnswerEnd::Complete};
  chat.take("/more");
  EXPECT_EQ(begun_, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(number_, 1U);
  EXPECT_EQ(asked_, "user: count\n");
  EXPECT_EQ(take_notes(), "");
  chat.take("/more");
  EXPECT_TRUE(mentions(take_notes(), "complete"));
  chat.take("next");
  EXPECT_TRUE(mentions(asked_, "assistant: one two three\n"));
}

TEST_F(Chat, AStoppedAnswerStaysInTheConversation) {
  Conversation chat = make({});
  next_.end = AnswerEnd::Stopped;
  chat.take("one?");
  EXPECT_EQ(take_notes(), "[stopped]\n");
  chat.take("two?");
  EXPECT_EQ(asked_, "user: one?\nassistant: yes\nuser: two?\n");
}

TEST_F(Chat, TheOldestExchangesMakeRoomAndThatIsSaidOnce) {
  Conversation chat = make({.positions = 40}, {.max_new_tokens = 10});
  for (int i = 0; i < 3; ++i) chat.take(std::to_string(i) + std::string(11, '?'));
  EXPECT_EQ(asked_, "user: 1???????????\nassistant: yes\nuser: 2???????????\n");
  const std::string notes = take_notes();
  EXPECT_TRUE(mentions(notes, "no longer fits into the model's 40 tokens")) << notes;
  chat.take("3" + std::string(11, '?'));
  EXPECT_EQ(take_notes(), "");
  EXPECT_EQ(asked_, "user: 2???????????\nassistant: yes\nuser: 3???????????\n");
}

TEST_F(Chat, FullPositionsCannotGoOn) {
  Conversation chat = make({.positions = 5});
  next_ = {.text = "aa", .ids = {1, 2}, .end = AnswerEnd::Limit};
  chat.take("one");
  EXPECT_TRUE(mentions(take_notes(), "the model's 5 tokens are full"));
  chat.take("/more");
  EXPECT_TRUE(mentions(take_notes(), "full"));
}

TEST_F(Chat, AnUnknownCommandDoesNotReachTheModel) {
  Conversation chat = make({});
  chat.take("/bye");
  EXPECT_TRUE(mentions(take_notes(), "/bye is not a command. Commands: /help, /more"));
  EXPECT_EQ(asked_, "");
  chat.take("/etc/fstab: what is it?");
  EXPECT_EQ(asked_, "user: /etc/fstab: what is it?\n");
  chat.take(" /bye");
  EXPECT_TRUE(mentions(asked_, "user:  /bye\n"));
}

TEST_F(Chat, AQuestionThatFailsIsForgotten) {
  ChatModel failing;
  failing.positions = 10;
  failing.prompt = [](std::span<const tokenizer::Message> turns) -> Prompt {
    if (turns.back().content == "bad") throw UserError("no");
    return {.ids = std::vector<int32_t>(turns.size(), 1)};
  };
  std::vector<size_t> sizes;
  failing.answer = [&](const Prompt& prompt, const std::vector<int32_t>&, uint64_t) {
    sizes.push_back(prompt.ids.size());
    return ChatAnswer{};
  };
  Conversation chat(failing, {}, [](const std::string&) {});
  chat.take("one");
  EXPECT_THROW(chat.take("bad"), UserError);
  chat.take("two");
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 3}));
}

// Exchanges that a too long question pushed out come back with its refusal.
TEST_F(Chat, AQuestionThatIsTooLongTakesNothingFromTheConversation) {
  Conversation chat = make({.positions = 40}, {.max_new_tokens = 10});
  chat.take("one?");
  EXPECT_THROW(chat.take(std::string(50, 'y')), UserError);
  EXPECT_EQ(take_notes(), "") << "nothing was dropped";
  chat.take("two?");
  EXPECT_EQ(asked_, "user: one?\nassistant: yes\nuser: two?\n");
}

TEST_F(Chat, SavesRowsThatTrainingReads) {
  const test::TempFolder folder;
  const std::string file = (folder / "chat.jsonl").string();
  Conversation chat = make({}, {.system = "s"});
  chat.take("/save " + file);
  EXPECT_TRUE(mentions(take_notes(), "nothing to save"));
  chat.take("one?");
  chat.take("/save " + file);
  next_.end = AnswerEnd::Stopped;
  chat.take("two?");
  chat.take("/save " + file);  // its own file may be written over
  EXPECT_EQ(nlohmann::json::parse(read_file(file)).dump(),
            R"({"messages":[{"content":"s","role":"system"},{"content":"one?","role":"user"},)"
            R"({"content":"yes","role":"assistant"},{"content":"two?","role":"user"},)"
            R"({"content":"yes","role":"assistant","stopped":true}]})");
  Conversation other = make({.keeps_turns = false});
  other.take("a");
  other.take("b");
  EXPECT_THROW(other.take("/save " + file), UserError);
  const std::string second = (folder / "second.jsonl").string();
  other.take("/save " + second);
  std::istringstream lines(read_file(second));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_EQ(nlohmann::json::parse(line)["messages"].size(), 2U);
  EXPECT_EQ(count, 2);
}

LineEditor::Event type(LineEditor& editor, const std::string& bytes) {
  LineEditor::Event last = LineEditor::Event::None;
  for (const char byte : bytes) last = editor.feed(byte);
  return last;
}

TEST(LineEditor, MovesAndErasesByCharacter) {
  LineEditor editor;
  editor.begin();
  type(editor, "grün");
  type(editor, "\x1b[D\x1b[D\x7f");  // two to the left, then the r
  EXPECT_EQ(editor.text(), "gün");
  type(editor, "\x7f");
  EXPECT_EQ(editor.text(), "ün");
  type(editor, "\x1b[3~");
  EXPECT_EQ(editor.text(), "n");
  type(editor, "\x05! \xe2\x82");
  EXPECT_EQ(editor.text(), "n! ") << "a character that is not whole yet";
  type(editor, "\xac");
  EXPECT_EQ(editor.text(), "n! €");
  type(editor, "\x01one two \x1b[1;5D\x17");
  EXPECT_EQ(editor.text(), "two n! €");
  type(editor, "\x05\x19");
  EXPECT_EQ(editor.text(), "two n! €one ");
  type(editor, "\x15");
  EXPECT_EQ(editor.text(), "");
}

TEST(LineEditor, ArrowsBringBackWhatWasEntered) {
  LineEditor editor;
  editor.remember("first");
  editor.remember("second\nline");
  editor.begin();
  type(editor, "typed");
  EXPECT_EQ(type(editor, "\x1b[A"), LineEditor::Event::Changed);
  EXPECT_EQ(editor.text(), "second\nline");
  type(editor, "\x1bOA");
  EXPECT_EQ(editor.text(), "first");
  EXPECT_EQ(type(editor, "\x1b[A"), LineEditor::Event::None);
  type(editor, "\x1b[B\x1b[B");
  EXPECT_EQ(editor.text(), "typed");
}

TEST(LineEditor, TellsKeysThatAreNotText) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(type(editor, "\x04"), LineEditor::Event::End);
  type(editor, "ab");
  EXPECT_EQ(type(editor, "\x04"), LineEditor::Event::Changed) << "nothing is under the cursor";
  EXPECT_EQ(type(editor, "\x03"), LineEditor::Event::Interrupt);
  EXPECT_EQ(type(editor, "\r"), LineEditor::Event::Entered);
  EXPECT_EQ(editor.text(), "ab");
}

TEST(LineEditor, PastedLinesAreOneEntry) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(type(editor, "\x1b[200~one\rtwo\n\x03\x1b[201~"), LineEditor::Event::None);
  EXPECT_EQ(editor.text(), "one\ntwo\n");
  EXPECT_EQ(type(editor, "\r"), LineEditor::Event::Entered);
}

TEST(LineEditor, DrawsOverWhatItDrewBefore) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(editor.drawing("> ", 10), "\r\x1b[J> \r\x1b[2C");
  type(editor, "12345678");
  // The cursor stands in a row of its own behind a full one.
  EXPECT_EQ(editor.drawing("> ", 10), "\r\x1b[J> 12345678\r\n\r");
  type(editor, "\x01");
  EXPECT_EQ(editor.drawing("> ", 10), "\x1b[1A\r\x1b[J> 12345678\r\x1b[2C");
  type(editor, "\x0b日本");
  EXPECT_EQ(editor.drawing("> ", 5), "\r\x1b[J> 日\r\n本\r\x1b[2C");
}

TEST(GivenPrompt, IsTheTextOfAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "hi\nthere\r\n\n", 11), 11);
  ::close(ends[1]);
  EXPECT_EQ(text_of_input(ends[0], 5), "hi\nthere");
  EXPECT_EQ(text_of_input(ends[0], 5), std::nullopt) << "its end";
  ::close(ends[0]);
}

TEST(GivenPrompt, IsNotWaitedForWhereNothingComes) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  try {
    text_of_input(ends[0], 0.05);
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_TRUE(mentions(error.what(), "--prompt \"What is Debian?\"")) << error.what();
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace snug::use
