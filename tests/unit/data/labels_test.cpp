// Rows with labels: which rows are read, what their labels are called and numbered, and the
// documents that become of them.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "data/document_sample.h"
#include "data/rows/label_rows.h"
#include "data_fixtures.h"

namespace snug::data {
namespace {

using Names = std::vector<std::string>;

Row labelled(std::string_view row, const Names* labels = nullptr) {
  const Folder folder;
  return read_rows(folder.write("a.jsonl", row), {.classes = true, .labels = labels}).at(0);
}

std::string refusal_of_label(std::string_view row, const Names* labels = nullptr) {
  return message_of([&] { labelled(row, labels); });
}

Names names_of(const Names& labels) {
  std::vector<Row> rows;
  for (const std::string& label : labels) rows.push_back({.label = label});
  return label_names(rows, "rows");
}

TEST(Labels, AreReadBesideTextsChatsAndAnswers) {
  EXPECT_EQ(labelled(R"({"text": "a", "label": "x"})").output, "a");
  EXPECT_EQ(labelled(R"({"prompt": "b", "label": 3})").output, "b");
  EXPECT_EQ(labelled(R"({"instruction": "c", "input": "d", "label": true})").output, "c\n\nd");
  EXPECT_EQ(labelled(R"({"instruction": "c", "input": "d", "label": true})").label, "true");
  EXPECT_EQ(labelled(R"({"text": "a", "label": 2.0})").label, "2");
  const Row answered = labelled(R"({"question": "q", "answer": "r", "label": 0})");
  EXPECT_EQ(answered.instruction + answered.output, "qr");
  // Who speaks last is whoever does.
  const Row chat =
      labelled(R"({"messages": [{"role": "user", "content": "hello"}], "label": "greeting"})");
  ASSERT_EQ(chat.messages.size(), 1U);
  EXPECT_EQ(chat.messages[0].content, "hello");
  const Folder folder;
  const auto rows =
      read_rows(folder.write("a.csv", "label,text\n1,one\n0,none\n"), {.classes = true});
  EXPECT_EQ(rows.at(0).label, "1");
  EXPECT_EQ(rows.at(1).output, "none");
}

TEST(Labels, ThatAreNumbersStayThem) {
  EXPECT_EQ(names_of({"2", "0", "2"}), (Names{"0", "1", "2"}));
  EXPECT_EQ(names_of({"10", "9", "1"}), (Names{"1", "9", "10"}));
  EXPECT_EQ(names_of({"-1", "1"}), (Names{"-1", "1"}));
  EXPECT_EQ(names_of({"10", "9", "b"}), (Names{"10", "9", "b"}));
  EXPECT_EQ(names_of({"pos", "neg"}), (Names{"neg", "pos"}));
  EXPECT_NE(message_of([] { names_of({"a", "a"}); }).find("fewer than two"), std::string::npos);
  const Names words{"neg", "pos"}, numbers{"1", "2", "3"};
  EXPECT_EQ(label_number(words, "pos"), 1);
  EXPECT_EQ(label_number(words, "1"), 1);
  EXPECT_EQ(label_number(words, "2"), std::nullopt);
  EXPECT_EQ(label_number(numbers, "3"), 2);
  EXPECT_EQ(label_number(numbers, "0"), std::nullopt);
}

TEST(Labels, ThatCannotBeAreRefusedWithTheirPlace) {
  EXPECT_NE(refusal_of_label(R"({"text": "a"})").find("a.jsonl:1: no \"label\""),
            std::string::npos);
  EXPECT_NE(refusal_of_label(R"({"text": "a", "label": 0.25})").find("0.25"), std::string::npos);
  EXPECT_NE(refusal_of_label(R"({"text": "a", "label": [1]})").find("[1]"), std::string::npos);
  EXPECT_NE(refusal_of_label(R"({"label": 1})").find("no text"), std::string::npos);
  EXPECT_NE(refusal_of_label(R"({"text": "", "label": 1})").find("is empty"), std::string::npos);
  const Names labels{"neg", "pos"};
  EXPECT_EQ(labelled(R"({"text": "a", "label": "pos"})", &labels).value, 1);
  EXPECT_NE(refusal_of_label(R"({"text": "a", "label": "so"})", &labels)
                .find("\"so\" (column \"label\")"),
            std::string::npos);
  // And rows of other objectives have none.
  const Folder folder;
  EXPECT_NE(message_of([&] {
              read_rows(folder.write("b.jsonl", R"({"text": "a", "label": 1})"));
            }).find("--objective classification"),
            std::string::npos);
}

TEST(Labels, MarginsAreNumbers) {
  const Folder folder;
  const auto margin = [&](const std::string& value) {
    return read_rows(folder.write("m.jsonl",
                                  R"({"prompt": "a", "chosen": "b", "rejected": "c", "margin": )" +
                                      value + "}"),
                     {.preferences = true, .margins = true})
        .at(0)
        .value;
  };
  EXPECT_EQ(margin("1.5"), 1.5);
  EXPECT_EQ(margin("\"-0.5\""), -0.5);
  EXPECT_EQ(margin("null"), 0);
  EXPECT_NE(message_of([&] { margin("\"much\""); }).find("m.jsonl:1: \"margin\" is"),
            std::string::npos);
}

TEST(Labels, DocumentsAreScoredAtTheirLastTokenThatIsNoFilling) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(scored_tokens(Ids{5, 6, 7}, 0), 3);
  EXPECT_EQ(scored_tokens(Ids{5, 0, 7, 0, 0}, 0), 3);
  EXPECT_EQ(scored_tokens(Ids{~5, ~0}, 0), 1);
  EXPECT_EQ(scored_tokens(Ids{0, 0}, 0), 1);
  EXPECT_EQ(scored_tokens(Ids{5, 0}, -1), 2);
}

TEST(Labels, AnswersAreScoredBehindThePromptThatTheyShare) {
  SampleStore pairs;
  const std::vector<int32_t> learnt{-100, -100, -100, 8};
  pairs.append({.ids = {5, 6, 7, 8}, .labels = learnt});
  pairs.append({.ids = {5, 6, 7, 9, 0}, .labels = {-100, -100, -100, 9, 0}});
  pairs.append({.ids = {0, 0, 0, 8}, .labels = learnt});
  pairs.append({.ids = {0, 0, 0, 0}, .labels = {-100, -100, -100, 0}});
  pairs.group(2);
  pairs.share_prompts(/*least=*/0);
  ASSERT_EQ(pairs.shared_tokens(1), 2);
  add_score_columns(pairs, std::vector<int64_t>{4, 9}, {{4, 0.5}, {9, 1.5}}, /*pad_token=*/0);
  const auto tokens = [&](int64_t index, int64_t document) {
    return pairs.numbers(pairs.columns()[0], index, document).front();
  };
  EXPECT_EQ(tokens(0, 0), 4);
  EXPECT_EQ(tokens(0, 1), 4);
  // A row of its own, though nothing but filling is there.
  EXPECT_EQ(tokens(1, 1), 3);
  EXPECT_EQ(pairs.numbers(pairs.columns()[1], 1, 1).front(), 1.5F);
}

TEST(Labels, AreOfWholeTexts) {
  const Folder folder;
  DatasetOptions options;
  options.json_path = folder.write("a.jsonl", R"({"text": "0123456789", "label": "x"})"
                                              "\n"
                                              R"({"text": "01", "label": "y"})"
                                              "\n");
  options.max_seq_length = 6;
  options.warns = false;
  options.classes = true;
  options.reading.scores_documents = true;
  options.labels = find_labels({options});
  EXPECT_EQ(options.labels, (Names{"x", "y"}));
  const auto found = [&](LongRows long_rows) {
    options.long_rows = long_rows;
    const SampleStore samples = load_dataset(options, byte_encoder(false), nullptr).train;
    std::map<int64_t, float> labels;  // by the text's length
    for (int64_t i = 0; i < samples.count(); ++i)
      labels[samples.length(i)] = samples.numbers(samples.columns()[1], i, 0).front();
    return labels;
  };
  using Found = std::map<int64_t, float>;
  EXPECT_EQ(found(LongRows::Cut), (Found{{2, 1}, {6, 0}}));
  EXPECT_EQ(found(LongRows::Auto), (Found{{2, 1}, {6, 0}}));
  EXPECT_EQ(found(LongRows::Drop), (Found{{2, 1}}));
  EXPECT_CONTAINS(message_of([&] { found(LongRows::Split); }), "one of a whole text");
  options.name = "TextFiles";
  EXPECT_CONTAINS(message_of([&] { find_labels({options}); }), "have no labels");
}

}  // namespace
}  // namespace snug::data
