// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rows.h"

#include "base/text.h"
#include "data/rows/hugging_face.h"
#include "data_fixtures.h"

namespace snug::data {
namespace {

using std::string_literals::operator""s;

std::vector<Row> rows_of(const std::string& name, std::string_view content) {
  const Folder folder;
  return read_rows(folder.write(name, content));
}

std::string refusal(const std::string& name, std::string_view content) {
  return message_of([&] { rows_of(name, content); });
}

TEST(Rows, ReadsArraysWrappedArraysAndLines) {
  const char* row = R"({"instruction":"q","input":"i","output":"a","score":[1,{"x":2}]})";
  for (const auto& [name, content] :
       {std::pair{"a.json", "[" + std::string(row) + "]"},
        std::pair{"b.json", R"({"version":{"data":[1]},"data":[)"s + row + "]}"},
        std::pair{"c.jsonl", row + "\n"s}, std::pair{"d.jsonl", ""s + row}}) {
    const std::vector<Row> rows = rows_of(name, content);
    ASSERT_EQ(rows.size(), 1U) << name;
    EXPECT_EQ(rows[0].instruction, "q");
    EXPECT_EQ(rows[0].input, "i");
    EXPECT_EQ(rows[0].output, "a");
    EXPECT_TRUE(rows[0].messages.empty());
  }
}

TEST(Rows, TakesByteOrderMarkWindowsLinesAndBlankLines) {
  const std::vector<Row> rows = rows_of("a.jsonl",
                                        "\xEF\xBB\xBF\r\n{\"instruction\":\"1\",\"output\":\"a\"}"
                                        "\r\n\r\n  \t\n{\"instruction\":\"2\",\"output\":\"b\"}");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].instruction, "2");
  EXPECT_EQ(rows_of("b.json", "\xEF\xBB\xBF [{\"instruction\":\"1\",\"output\":\"a\"}]\r\n").size(),
            1U);
}

TEST(Rows, KeepsNulEmptyAnswersAndNullInputs) {
  const std::vector<Row> rows =
      rows_of("a.json", R"([{"instruction":"a\u0000b","input":null,"output":""}])");
  EXPECT_EQ(rows[0].instruction, "a\0b"s);
  EXPECT_EQ(rows[0].input, "");
  EXPECT_EQ(rows[0].output, "");
}

TEST(Rows, RenamesColumns) {
  const Folder folder;
  const auto path = folder.write("d.jsonl", R"({"context":"c","instruction":"q","response":"a"})");
  const std::vector<Row> rows = read_rows(path, {"instruction", "context", "response"});
  EXPECT_EQ(rows[0].input, "c");
  EXPECT_EQ(rows[0].output, "a");
  EXPECT_EQ(read_rows(path, {"instruction", "", "response"})[0].input, "");
}

TEST(Rows, ReadsChatsInTheirThreeShapes) {
  for (const char* row :
       {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})",
        R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})",
        R"({"conversations":["q","a"],"source":"x"})"}) {
    const std::vector<Row> rows = rows_of("a.jsonl", row);
    ASSERT_EQ(rows[0].messages.size(), 2U) << row;
    EXPECT_EQ(rows[0].messages[0].role, "user");
    EXPECT_EQ(rows[0].messages[1].role, "assistant");
    EXPECT_EQ(rows[0].instruction, "q");
    EXPECT_EQ(rows[0].output, "a");
  }
}

TEST(Rows, ReadsWhichAnswersOfAChatAreLearnt) {
  const auto chat = [](const std::string& mark) {
    return R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a",)" +
           mark + "}]}";
  };
  for (const char* mark :
       {R"("weight":0)", R"("weight":0.0)", R"("train":false)", R"("training":false)"})
    EXPECT_FALSE(rows_of("a.jsonl", chat(mark))[0].messages[1].learnt) << mark;
  for (const char* mark : {R"("weight":1)", R"("train":true)", R"("weight":null)", R"("id":0)"})
    EXPECT_TRUE(rows_of("a.jsonl", chat(mark))[0].messages[1].learnt) << mark;
  EXPECT_CONTAINS(refusal("a.jsonl", chat(R"("weight":0.5)")),
                  "turn 2: \"weight\" is 0.5; write 0 or false");
}

// ShareGPT's names for a call of a tool and its result.
TEST(Rows, ReadsCallsOfToolsAsTurns) {
  const Row row =
      rows_of(
          "a.jsonl",
          R"({"conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"c"},)"
          R"({"from":"observation","value":"r"},{"from":"gpt","value":"a"}]})")
          .at(0);
  std::string roles;
  for (const Message& turn : row.messages) roles += turn.role + " ";
  EXPECT_EQ(roles, "user assistant tool assistant ");
}

TEST(Rows, ReadsQuestionsAndAnswersUnderManyNames) {
  for (const char* row :
       {R"({"question":"q","answer":"a"})", R"({"query":"q","response":"a"})",
        R"({"prompt":"q","response":"a"})", R"({"input":"q","output":"a"})",
        R"({"instruction":"q","response":"a","id":7})", R"({"problem":"q","solution":"a"})"}) {
    const Row read = rows_of("a.jsonl", row).at(0);
    EXPECT_EQ(read.instruction + "|" + read.input + "|" + read.output, "q||a") << row;
    EXPECT_EQ(read.kind, RowKind::Question);
  }
  const Row with_context =
      rows_of("a.jsonl", R"({"question":"q","context":"c","answer":"a"})").at(0);
  EXPECT_EQ(with_context.input, "c");
}

TEST(Rows, ReadsPromptsWithCompletionsAndTextsAlone) {
  const Row ready = rows_of("a.jsonl", R"({"prompt":"1 + 1 =","completion":" 2"})").at(0);
  EXPECT_EQ(ready.kind, RowKind::Completion);
  EXPECT_EQ(ready.instruction + ready.output, "1 + 1 = 2");
  const Row text = rows_of("a.jsonl", R"({"text":"Once upon a time","meta":{}})").at(0);
  EXPECT_EQ(text.kind, RowKind::Text);
  EXPECT_EQ(text.output, "Once upon a time");
  EXPECT_EQ(rows_of("a.jsonl", R"({"instruction":"q","output":"a","text":"q a"})").at(0).kind,
            RowKind::Question)
      << "Alpaca's own file has such a column";
  const Row turns = rows_of("a.json", R"([{"prompt": [{"role": "user", "content": "q"}],
      "completion": [{"role": "assistant", "content": "a"}]}])")
                        .at(0);
  EXPECT_EQ(turns.messages.size(), 2U);
  EXPECT_EQ(turns.output, "a");
}

// As TRL learns them: what is answered within the prompt belongs to it.
TEST(Rows, CountsAnswersWithinAPromptAsPrompt) {
  const std::vector<Row> rows = rows_of("a.jsonl", R"({"prompt":[{"role":"user","content":"q"},)"
                                                   R"({"role":"assistant","content":"a"},)"
                                                   R"({"role":"user","content":"r"}],)"
                                                   R"("completion":[)"
                                                   R"({"role":"assistant","content":"b"}]})");
  const std::vector<Message>& turns = rows.at(0).messages;
  ASSERT_EQ(turns.size(), 4U);
  EXPECT_TRUE(turns[1].in_prompt);
  EXPECT_FALSE(turns[3].in_prompt);
  EXPECT_EQ(rows[0].instruction + rows[0].output, "rb") << "for styles without turns";
  const std::vector<Row> pairs = split_conversations(rows);
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0].instruction + pairs[0].output, "rb");
}

TEST(Rows, ReadsTurnsInPairsAndTextsInParts) {
  for (const char* row :
       {R"({"conversation":[["q","a"],["r","b"]]})",
        R"({"conversation":[{"human":"q","assistant":"a"},{"human":"r","assistant":"b"}]})",
        R"({"conversations":[{"user":"q","bot":"a"},{"user":"r","bot":"b"}]})",
        R"({"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},
            {"role":"assistant","content":[{"type":"text","text":"a"}]},
            {"role":"user","content":["r"]},{"role":"assistant","content":"b"}]})"}) {
    const Row read = rows_of("a.json", "[" + std::string(row) + "]").at(0);
    std::string all;
    for (const Message& turn : read.messages) all += turn.role[0] + turn.content;
    EXPECT_EQ(all, "uqaaurab") << row;
  }
  EXPECT_CONTAINS(
      refusal("a.jsonl", R"({"messages":[{"role":"user","content":[{"type":"audio_url"}]}]})"),
      "\"content\" has a part of type \"audio_url\"");
}

// Pictures of a chat, wherever they are named; their places stay in the text.
TEST(Rows, ReadsPicturesAmongTurns) {
  const Folder folder;
  const auto read = [&](const std::string& line) {
    const Row row = read_rows(folder.write("a.jsonl", line)).at(0);
    std::string all;
    for (const Message& turn : row.messages) all += turn.role[0] + turn.content;
    for (const std::string& picture : row.pictures)
      all += "|" + std::filesystem::path(picture).lexically_proximate(folder.path()).string();
    return all;
  };
  const std::string answer = R"({"role":"assistant","content":"b"}])";
  const std::string said = R"({"from":"gpt","value":"b"}])";
  for (
      const std::string& line : {
          R"({"messages":[{"role":"user","content":[{"type":"image","image":"1.png"},{"type":"text","text":"a"},
               {"type":"image_url","image_url":{"url":"file://2.png"}}]},)" +
              answer + "}",
          R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"a","image":null},
               {"type":"image"}]},)" +
              answer + R"(,"images":["1.png","2.png"]})",
          R"({"conversations":[{"from":"human","value":"<image>a<image>"},)" + said +
              R"(,"image":["1.png","2.png"]})",
          std::string(
              R"({"instruction":"<image>a<image>","output":"b","images":["1.png","2.png"]})"),
          R"({"prompt":[{"role":"user","content":"<image>a<image>"}],"completion":[)" + answer +
              R"(,"images":["1.png","2.png"]})"}) {
    std::string one = line;
    std::erase(one, '\n');
    EXPECT_EQ(read(one), "u<image>a<image>ab|1.png|2.png") << line;
  }
  // Without marks all stand first; a column of another kind is not read.
  EXPECT_EQ(
      read(R"({"conversations":[{"from":"human","value":"a"},)" + said + R"(,"image":"1.png"})"),
      "u<image>aab|1.png");
  EXPECT_EQ(read(R"({"conversations":[{"from":"human","value":"a"},)" + said + R"(,"image":7})"),
            "uaab");
  EXPECT_CONTAINS(
      refusal("a.jsonl",
              R"({"messages":[{"role":"user","content":[{"type":"image"}]},)" + answer + "}"),
      "1 part of type \"image\" names no file");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"conversations":[{"from":"human","value":"<image>"},)" +
                                         said + R"(,"image":["1.png","2.png"]})"),
                  "2 pictures, but 1 places");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"conversations":[{"from":"human","value":"<image>"},)" +
                                         said + R"(,"image":"https://example.org/1.png"})"),
                  "is not a file; save the picture");
}

// For a model that looks at pictures: beside a question, beside a turn, under other names, as
// objects.
TEST(Rows, ReadsPicturesWhereverAModelIsToSeeThem) {
  const Folder folder;
  const auto read = [&](const std::string& line, bool looks) {
    const Row row = read_rows(folder.write("a.jsonl", line), {.pictures = looks}).at(0);
    std::string all;
    for (const Message& turn : row.messages) all += turn.role[0] + turn.content;
    for (const std::string& picture : row.pictures)
      all += "|" + std::filesystem::path(picture).lexically_proximate(folder.path()).string();
    return all;
  };
  const std::string two = R"(["1.png",{"bytes":null,"path":"2.png"}]})";
  for (
      const std::string& line :
      {R"({"question":"a","answer":"b","images":)" + two,
       R"({"instruction":"a","output":"b","image":[["1.png"],[{"image":"2.png"}]]})" +
           std::string(),
       R"({"prompt":"a","completion":"b","images":)" + two,
       R"({"query":"a","response":"b","img":)" + two,
       R"({"messages":[{"role":"user","content":"a","images":["1.png","2.png"]},{"role":"assistant","content":"b"}]})" +
           std::string()})
    EXPECT_EQ(read(line, true), "u<image><image>aab|1.png|2.png") << line;
  EXPECT_EQ(read(R"({"question":"a","answer":"b","images":)" + two, false), "");
  const std::string parts =
      R"({"messages":[{"role":"user","content":[{"type":"image","image":"1.png"},{"type":"image"},{"type":"text","text":"a"}]},
          {"role":"assistant","content":"b"}],"images":)";
  std::string mixed = parts;
  std::erase(mixed, '\n');
  for (const char* beside : {R"(["2.png"]})", R"(["1.png","2.png"]})"})
    EXPECT_EQ(read(mixed + beside, false), "u<image><image>aab|1.png|2.png") << beside;
  const auto refused = [&](const std::string& line) {
    return message_of([&] { read(line, true); });
  };
  EXPECT_CONTAINS(refused(mixed + R"(["3.png","2.png"]})"),
                  "1 part of type \"image\" names no file");
  EXPECT_CONTAINS(refused(R"({"question":"a","answer":"b","image":7})"), "\"image\" is a number");
  EXPECT_CONTAINS(
      refused(R"({"question":"a","answer":"b","image":{"bytes":"iVBO","path":"1.png"}})"),
      "stored as bytes");
  EXPECT_CONTAINS(refused(R"({"text":"a kite","image":"1.png"})"), "--data ImageFolder");
  EXPECT_EQ(
      read(
          R"({"conversations":[{"from":"human","value":"<image>a"},{"from":"gpt","value":"b"},{"from":"human","value":"<image>c"}],"image":["1.png","2.png"]})",
          true),
      "u<image>aab|1.png")
      << "a question without an answer";
}

TEST(Rows, EachQuestionOfAChatKeepsItsPictures) {
  const Row chat{.messages = {{"user", "<image>a<image>"},
                              {"assistant", "b"},
                              {"user", "c"},
                              {"assistant", "d"},
                              {"user", "<image>e"},
                              {"assistant", "f"}},
                 .pictures = {"1", "2", "3"}};
  const std::vector<Row> pairs = split_conversations({chat});
  ASSERT_EQ(pairs.size(), 3U);
  EXPECT_EQ(pairs[0].pictures, (std::vector<std::string>{"1", "2"}));
  EXPECT_TRUE(pairs[1].pictures.empty());
  EXPECT_EQ(pairs[2].pictures, (std::vector<std::string>{"3"}));
}

// What stands beside the question is not lost.
TEST(Rows, ReadsSystemTextsAndHistories) {
  const auto turns = [](const std::string& line) {
    const std::vector<Row> rows = rows_of("a.jsonl", line);
    std::string all;
    for (const Message& turn : rows.at(0).messages) all += turn.role[0] + turn.content;
    return all;
  };
  EXPECT_EQ(turns(R"({"conversations":[["q","a"]],"system":"S","tools":"[]"})"), "sSuqaa");
  EXPECT_EQ(turns(R"({"messages":[{"role":"system","content":"own"},{"role":"user","content":"q"},)"
                  R"({"role":"assistant","content":"a"}],"system":"S"})"),
            "sownuqaa");
  EXPECT_EQ(turns(R"({"system_prompt":"S","question":"q","response":"a"})"), "sSuqaa");
  EXPECT_EQ(turns(R"({"instruction":"r","input":"i","output":"b","system":"S",)"
                  R"("history":[["q","a"]]})"),
            "sSuqaaur\n\niab");
  EXPECT_EQ(turns(R"({"instruction":"q","output":"a","system":"","history":[]})"), "");
  EXPECT_EQ(rows_of("a.jsonl", R"({"system":"S","instruction":"q","input":"i","output":"a"})")
                .at(0)
                .instruction,
            "S\n\nq\n\ni")
      << "for styles without turns";
}

TEST(Rows, KeepsWhatOnlyTemplatesRead) {
  const Row row =
      rows_of("a.jsonl", R"({"tools":[{"name":"f","a":null}],"messages":[)"
                         R"({"role":"user","content":"q","weight":1},)"
                         R"({"role":"assistant","content":null,"tool_calls":[{"z":1,"a":null}]},)"
                         R"({"role":"tool","name":"f","content":"r"},)"
                         R"({"role":"assistant","content":"x","reasoning_content":"t"}]})")
          .at(0);
  EXPECT_EQ(row.tools, R"([{"name":"f"}])");
  EXPECT_TRUE(row.needs_template);
  ASSERT_EQ(row.messages.size(), 4U);
  EXPECT_EQ(row.messages[0].more, "");
  EXPECT_EQ(row.messages[1].more, R"({"tool_calls":[{"z":1}],"content":null})");
  EXPECT_EQ(row.messages[2].more, R"({"name":"f"})");
  EXPECT_EQ(row.messages[3].more, R"({"reasoning_content":"t"})");
  const auto tools = [](const std::string& value) {
    return R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}],"tools":)" +
           value + "}";
  };
  EXPECT_EQ(rows_of("a.jsonl", tools(R"("[{\"b\": 1, \"a\": 2}]")")).at(0).tools,
            R"([{"b":1,"a":2}])");
  for (const char* none : {"\"\"", "[]", "\"[]\"", "null"})
    EXPECT_EQ(rows_of("a.jsonl", tools(none)).at(0).tools, "") << none;
  for (const char* wrong : {"3", "\"{}\"", "\"[\"", "{}"})
    EXPECT_CONTAINS(refusal("a.jsonl", tools(wrong)), "\"tools\" must be a list");
  EXPECT_CONTAINS(message_of([&] { split_conversations({row}); }), "call tools");
  EXPECT_CONTAINS(refusal("a.txt", "some text"), "--data TextFiles");
}

TEST(Rows, ReadsWhichTurnsOthersLeaveOutOfTheLoss) {
  for (const char* flag : {"\"loss\":false", "\"loss_mask\":0", "\"trainable\":false",
                           "\"learn\":false", "\"weight\":0.0", "\"train\":false"}) {
    const std::vector<Row> rows =
        rows_of("a.jsonl",
                R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a",)" +
                    std::string(flag) + "}]}");
    EXPECT_FALSE(rows[0].messages[1].learnt) << flag;
    EXPECT_EQ(rows[0].messages[1].more, "") << flag;
  }
}

// ShareGPT's and ms-swift's calls are texts of turns with roles of their own.
TEST(Rows, ReadsCallsThatAreTexts) {
  const std::vector<Row> rows = rows_of(
      "a.jsonl",
      R"({"messages":[{"role":"user","content":"q"},)"
      R"({"role":"tool_call","content":"{\"name\":\"f\",\"arguments\":{\"a\":1}}"},)"
      R"({"role":"tool_call","content":"{\"name\":\"g\"}"},)"
      R"({"role":"tool_response","content":"r"},{"role":"assistant","content":"a"}]})"
      "\n"
      R"j({"conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"f(1)"},)j"
      R"({"from":"observation","value":"r"},{"from":"gpt","value":"a"}]})");
  const std::vector<Message>& swift = rows[0].messages;
  ASSERT_EQ(swift.size(), 4U);
  EXPECT_EQ(swift[1].role, "assistant");
  EXPECT_TRUE(swift[1].calls_are_content);
  EXPECT_EQ(swift[1].more,
            R"({"tool_calls":[{"function":{"name":"f","arguments":{"a":1}},"type":"function"},)"
            R"({"function":{"name":"g","arguments":{}},"type":"function"}]})");
  EXPECT_EQ(swift[2].role, "tool");
  const std::vector<Message>& text = rows[1].messages;
  EXPECT_EQ(text[1].content, "f(1)") << "a call that is no JSON stays as it is";
  EXPECT_EQ(text[1].more, "");
  EXPECT_EQ(text[2].role, "tool");
}

TEST(Rows, CallsAreAListOrTheTextOfOne) {
  const auto calls = [](const std::string& value) {
    return rows_of("a.jsonl", R"({"messages":[{"role":"user","content":"q"},{"role":"assistant",)"
                              R"("content":null,"tool_calls":)" +
                                  value + "}]}")[0]
        .messages[1]
        .more;
  };
  EXPECT_EQ(calls(R"("[{\"z\":1}]")"), calls(R"([{"z":1}])"));
  for (const char* other : {R"("f")", R"({"z":1})", "1"}) EXPECT_THROW(calls(other), UserError);
}

TEST(Rows, CallsThatAreNoneAndToolsThatAreTextsAreAsWithoutAndAsObjects) {
  for (const char* none : {R"("tool_calls":[],)", R"("tool_calls":null,)", ""}) {
    const std::vector<Row> rows =
        rows_of("a.jsonl", R"({"messages":[{"role":"user","content":"q"},{"role":"assistant",)" +
                               std::string(none) + R"("content":"a"}]})");
    EXPECT_EQ(rows[0].messages[1].more, "") << none;
    EXPECT_FALSE(rows[0].needs_template) << none;
  }
  const std::string chat = R"("messages":[["q","a"]]})";
  const std::string tools = R"([{"name":"f"}])";
  EXPECT_EQ(rows_of("a.jsonl", R"({"tools":[{"name":"f"}],)" + chat)[0].tools, tools);
  EXPECT_EQ(rows_of("a.jsonl", R"({"tools":["{\"name\":\"f\"}"],)" + chat)[0].tools, tools);
  EXPECT_EQ(rows_of("a.jsonl", R"({"tools":"[{\"name\":\"f\"}]",)" + chat)[0].tools, tools);
}

// What they say would be learnt as an answer.
TEST(Rows, RefusesRowsMadeForAnotherObjective) {
  for (const char* row : {R"({"prompt":"q","chosen":"a","rejected":"b"})",
                          R"({"question":"q","answer":"a","rejected":"b"})",
                          R"({"messages":[["q","a"]],"rejected_response":"b"})",
                          R"({"conversations":[["q","a"]],"chosen":{"from":"gpt","value":"a"},)"
                          R"("rejected":{"from":"gpt","value":"b"}})"})
    EXPECT_CONTAINS(refusal("a.jsonl", row), "preferences");
  for (const char* row :
       {R"({"prompt":"q","completion":"a","label":true})",
        R"({"messages":[["q","a"]],"label":false})", R"({"messages":[["q","a"]],"kto_tag":true})"})
    EXPECT_CONTAINS(refusal("a.jsonl", row), "--objective kto");
  for (const char* row : {R"({"text":"t","label":1})", R"({"text":"t","label":"good"})"})
    EXPECT_CONTAINS(refusal("a.jsonl", row), "classification");
  // Flags and scores beside answers are columns like others.
  EXPECT_EQ(rows_of("a.jsonl", R"({"question":"q","answer":"a","rejected":false,"label":3,)"
                               R"("rejected_reason":"too long"})")
                .size(),
            1U);
}

TEST(Rows, WholeNumbersBeyondTheParsersAreTexts) {
  const auto arguments = [](const std::string& numbers) {
    const std::string call = R"({"messages":[{"role":"user","content":"q 123456789012345678901"},)"
                             R"({"role":"assistant","tool_calls":[{"function":{"name":"f",)"
                             R"("arguments":)" +
                             numbers + "}}]}]}";
    const std::vector<Row> rows = rows_of("a.jsonl", call);
    EXPECT_EQ(rows[0].messages[0].content, "q 123456789012345678901");
    const std::string& more = rows[0].messages[1].more;
    const size_t begin = more.find("\"arguments\":") + 12;
    return more.substr(begin, more.find("}}]") - begin);
  };
  EXPECT_EQ(arguments("[123456789012345678901234567890,-99999999999999999999]"),
            R"(["123456789012345678901234567890","-99999999999999999999"])");
  EXPECT_EQ(arguments("[18446744073709551615,-9223372036854775808,1e30,0.12345678901234567890123]"),
            "[18446744073709551615,-9223372036854775808,1e+30,0.12345678901234568]");
}

TEST(Rows, ReadsChatsAsArraysAndAsTexts) {
  const std::string turns = R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])";
  const std::string quoted =
      R"("[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"}]")";
  for (const auto& [name, content] :
       {std::pair{"a.json", "[" + turns + "]"}, std::pair{"a.jsonl", turns},
        std::pair{"b.jsonl", "{\"messages\":" + quoted + "}"},
        std::pair{"b.json", "{\"train\":[" + turns + "]}"}}) {
    const std::vector<Row> rows = rows_of(name, content);
    ASSERT_EQ(rows.size(), 1U) << name;
    ASSERT_EQ(rows[0].messages.size(), 2U) << name;
    EXPECT_EQ(rows[0].messages[1].content, "a") << name;
  }
}

TEST(Rows, NamesTheColumnsThatNothingReads) {
  const Folder folder;
  std::set<std::string> unread;
  read_rows(folder.write("a.jsonl", R"({"id":1,"question":"q","answer":"a","source":"x"})"),
            {.unread = &unread});
  EXPECT_EQ(unread, (std::set<std::string>{"id", "source"}));
}

TEST(Rows, ReadsCompressedFiles) {
  if (!parquet_available()) GTEST_SKIP() << "needs Arrow";
  for (const char* name : {"rows.jsonl.gz", "rows.csv.zst"}) {
    const std::vector<Row> rows = read_rows(data_file(name));
    ASSERT_EQ(rows.size(), 2U) << name;
    EXPECT_EQ(rows[1].output, "zwölf") << name;
  }
  const Folder folder;
  EXPECT_CONTAINS(message_of([&] { read_rows(folder.write("a.jsonl.gz", "no")); }), "gzip");
}

TEST(Rows, ReadsTablesWithQuotesAndLineBreaks) {
  const std::vector<Row> rows = rows_of("a.csv",
                                        "instruction,input,output\r\n"
                                        "\"What, \"\"now\"\"?\",,yes\n"
                                        "\"two\nlines\",i,\n");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].instruction, "What, \"now\"?");
  EXPECT_EQ(rows[0].input, "");
  EXPECT_EQ(rows[1].instruction, "two\nlines");
  EXPECT_EQ(rows[1].output, "");
  EXPECT_EQ(rows_of("a.tsv", "question\tanswer\na, b\tc\n").at(0).instruction, "a, b");
  EXPECT_CONTAINS(refusal("a.csv", "question,answer\na,b\nc\n"),
                  "a.csv:3: 1 fields, but the first line names 2 columns");
  EXPECT_CONTAINS(refusal("a.csv", "question,question\na,b\n"), "two columns are named");
  EXPECT_CONTAINS(refusal("a.csv", "frage,antwort\na,b\n"), "columns found: frage, antwort");
  EXPECT_CONTAINS(refusal("a.csv", "question,answer\n"), "holds no rows");
}

TEST(Rows, SystemTextStandsBeforeTheFirstQuestion) {
  const std::vector<Row> rows = rows_of(
      "a.jsonl",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})");
  EXPECT_EQ(rows[0].instruction, "s\n\nq");
}

TEST(Rows, SplitsConversationsIntoPairs) {
  const std::vector<Row> pairs =
      split_conversations(rows_of("a.jsonl",
                                  "{\"conversations\":[\"q1\",\"a1\",\"q2\",\"a2\",\"q3\"]}\n"
                                  "{\"instruction\":\"q\",\"output\":\"a\"}"));
  ASSERT_EQ(pairs.size(), 3U);
  EXPECT_EQ(pairs[1].instruction, "q2");
  EXPECT_EQ(pairs[1].output, "a2");
  EXPECT_EQ(pairs[2].output, "a");
}

TEST(Rows, NamesWhatARowLacks) {
  const std::string text =
      refusal("a.json", R"([{"instruction":"q","output":"a"},{"prompt":"p","answer":"x"}])");
  EXPECT_CONTAINS(text, "a.json: row 2: no \"output\"");
  EXPECT_CONTAINS(text, "prompt, answer");
  EXPECT_CONTAINS(refusal("a.jsonl", "\n\n{\"instruction\":\"q\",\"output\":null}"),
                  "a.jsonl:3: no \"output\"");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"instruction":"q","output":null})"),
                  "columns found: instruction, output (null)");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"messages":[{"role":"user","content":null}]})"),
                  "found: role, content (null)");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"output":"q"})"), "no \"instruction\"");
}

TEST(Rows, RefusesWrongTypes) {
  EXPECT_CONTAINS(refusal("a.json", R"([{"instruction":5,"output":"a"}])"),
                  "row 1: \"instruction\" is a number");
  EXPECT_CONTAINS(refusal("a.json", R"([{"instruction":"q","output":["a"]}])"),
                  "\"output\" is an array");
  EXPECT_CONTAINS(
      refusal("a.json", R"([{"instruction":"q","output":"a"},3])"),
      "row 2: a row must be an object {…}, or an array of the turns of a chat, but this "
      "is number");
  EXPECT_CONTAINS(refusal("a.json", R"([[{"role":"user"}]])"),
                  "row 1, turn 1: a turn needs \"role\" and \"content\"");
  EXPECT_CONTAINS(refusal("a.json", R"({"rows":[],"meta":1})"),
                  "an object with the keys meta, rows");
  EXPECT_CONTAINS(refusal("a.json", R"({"data":{"a":[]}})"), "an object with the keys data");
  EXPECT_CONTAINS(refusal("a.json", "17"), "must be an array of rows");
  EXPECT_CONTAINS(refusal("a.jsonl", "17"), "a.jsonl:1: a row must be an object");
  EXPECT_CONTAINS(refusal("a.jsonl", "[]"), "a.jsonl:1: the chat has no");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"messages":"hi"})"), "must be an array of turns");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"messages":[{"role":"user"}]})"), "turn 1: a turn needs");
  EXPECT_CONTAINS(refusal("a.jsonl", R"({"messages":[{"role":"user","content":"q"}]})"),
                  "answered by");
}

TEST(Rows, RefusesBrokenJsonWithItsLine) {
  EXPECT_CONTAINS(refusal("a.json", "[\n{\"instruction\":\"q\",\n\"output\" \"a\"}]"),
                  "a.json:3: not valid JSON");
  EXPECT_CONTAINS(refusal("a.jsonl", "{\"instruction\":\"q\",\"output\":\"a\"}\n{\"instr"),
                  "a.jsonl:2: not valid JSON");
  EXPECT_CONTAINS(refusal("a.json", "[{\"instruction\":\"q\",\"output\":\"a\"}"), "not valid JSON");
  // Lines of objects by the name of an array.
  EXPECT_CONTAINS(refusal("a.json", "{\"instruction\":\"q\",\"output\":\"a\"}\n{\"instr"),
                  "a.json:2: not valid JSON");
  EXPECT_CONTAINS(refusal("a.json", "{\"instruction\":\"q\"\n}\n{\"instruction\":\"q\"}"),
                  ".jsonl");
  for (const std::string number : {"NaN", "Infinity", "-Infinity"}) {
    const std::string row = R"({"instruction":"q","input":)" + number + R"(,"output":"a"})";
    EXPECT_CONTAINS(refusal("a.jsonl", row), "write null");
    EXPECT_CONTAINS(refusal("a.json", "[" + row + "]"), "write null");
  }
}

TEST(Rows, EveryTruncationIsRefusedOrShorter) {
  const std::string whole =
      R"([{"instruction":"q\u00e9","input":"é","output":"a","extra":[1.5e3,true,null]},{"instruction":"x","output":"y"}])";
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(rows_of("a.json", whole.substr(0, length)), UserError) << length;
}

TEST(Rows, RefusesDuplicateKeysInATurn) {
  EXPECT_CONTAINS(refusal("a.json", R"([{"messages":[{"role":"user","content":"q"},)"
                                    R"({"role":"assistant","content":"a","content":"b"}]}])"),
                  "row 1: the key \"content\" is given twice");
}

TEST(Rows, RefusesDuplicateKeysInARow) {
  EXPECT_CONTAINS(refusal("a.json", R"([{"instruction":"q","output":"a","output":"b"}])"),
                  "row 1: the key \"output\" is given twice");
  EXPECT_CONTAINS(refusal("a.json", R"({"data":[],"data":[]})"), "\"data\" is given twice");
}

TEST(Rows, RefusesDeepNestingAndHugeNumbers) {
  const std::string deep(1 << 20, '[');
  EXPECT_CONTAINS(refusal("a.json", "[{\"x\":" + deep), "nest deeper");
  EXPECT_CONTAINS(refusal("a.jsonl", "{\"x\":" + deep), "a.jsonl:1: brackets nest deeper");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_CONTAINS(refusal("a.json", objects), "nest deeper");
  EXPECT_CONTAINS(refusal("a.json", R"([{"instruction":"q","output":"a","x":1e99999}])"),
                  "number overflow");
  EXPECT_EQ(rows_of("a.json", R"([{"instruction":"q","output":"a","x":)" +
                                  std::string(5000, '9').substr(0, 200) + "}]")
                .size(),
            1U);
}

TEST(Rows, RefusesInvalidUtf8WithItsPlace) {
  EXPECT_CONTAINS(refusal("a.json", "[\n{\"instruction\":\"\xFF\"}]"),
                  "a.json:2: byte 18 (0xff) is not valid UTF-8");
  // A lone half of a surrogate pair cannot be written as UTF-8.
  EXPECT_CONTAINS(refusal("a.json", R"([{"instruction":"\ud800","output":"a"}])"),
                  "not valid JSON");
}

TEST(Rows, RefusesEmptyFilesFoldersAndUnknownEndings) {
  EXPECT_CONTAINS(refusal("a.json", ""), "is empty");
  EXPECT_CONTAINS(refusal("a.jsonl", " \r\n\n"), "is empty");
  EXPECT_CONTAINS(refusal("a.json", "[]"), "holds no rows");
  EXPECT_CONTAINS(refusal("a.json", R"({"data":[]})"), "holds no rows");
  EXPECT_CONTAINS(refusal("a.txt", "x"), "must end in .json");
  const Folder folder;
  EXPECT_CONTAINS(message_of([&] { read_rows(folder.path()); }), "is a folder");
  EXPECT_CONTAINS(message_of([&] { read_rows(folder.path() / "no.json"); }), "no.json");
}

TEST(Rows, ErrorsStayShortAndValidText) {
  std::string key;
  while (key.size() < (1 << 16)) key += "aé你\\n";
  for (const std::string& content :
       {"[{\"" + key + "\" 1}]", "[{\"" + key + "\":1}]", "{\"" + key + "\":1}",
        "[{\"" + key + "\":1,\"" + key + "\":1}]"}) {
    const std::string text = refusal("a.json", content);
    EXPECT_LT(text.size(), 700U);
    EXPECT_EQ(find_invalid_utf8(text), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace snug::data
