// Rows that say of one answer whether it is good, and what becomes of them: samples with a label
// beside each, and their prompts with answers to others. That these are TRL's is a test of
// tests/parity/kto_parity_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "data/mismatched.h"
#include "data/sample.h"
#include "data/sample_store.h"
#include "data/survey.h"
#include "data_fixtures.h"
#include "support/source_dir.h"

namespace snug::data {
namespace ratings_test {

using nlohmann::json;

std::vector<Row> rows_of(const std::string& name, std::string_view content) {
  const Folder folder;
  return unpaired(read_rows(folder.write(name, content), {.ratings = true}));
}

std::string refusal(std::string_view row) {
  return message_of([&] { rows_of("a.jsonl", row); });
}

// "+" or "-" before a chat as "role:content|…", an answer in parentheses where it is prompt, or
// before another row as "prompt>answer".
std::string shown(const Row& row) {
  std::string text = row.desirable ? "+" : "-";
  if (row.messages.empty()) return text + row.instruction + ">" + row.output;
  for (const Message& message : row.messages)
    text += message.role + ":" +
            (message.in_prompt ? "(" + message.content + ")" : message.content) + "|";
  return text;
}

std::string shown(const std::string& row) {
  const std::vector<Row> rows = rows_of("a.jsonl", row);
  std::string text;
  for (const Row& own : rows) text += (text.empty() ? "" : " ") + shown(own);
  return text;
}

const std::string kUser = R"({"role":"user","content":"q"})",
                  kAnswer = R"({"role":"assistant","content":"a"})";

TEST(Ratings, AreReadInTheFormsOfTrlAndLlamaFactory) {
  EXPECT_EQ(shown(R"({"prompt":"q","completion":"a","label":true})"), "+q>a");
  EXPECT_EQ(shown(R"({"prompt":"q","completion":"a","label":0})"), "-q>a");
  EXPECT_EQ(shown(R"({"prompt":"q","completion":"a","label":"False"})"), "-q>a");
  EXPECT_EQ(shown(R"({"prompt":"q","completion":"a","label":"1"})"), "+q>a");
  EXPECT_EQ(shown(R"({"instruction":"q","input":"","output":"a","kto_tag":false})"), "-q>a");
  // Chats in any of their forms, of which only the last answer counts.
  const std::string chat = "-user:(q)|assistant:a|";
  for (const std::string& row :
       {R"({"prompt":[)" + kUser + R"(],"completion":[)" + kAnswer + R"(],"label":false})",
        R"({"prompt":[)" + kUser + R"(],"completion":"a","label":false})",
        R"({"prompt":"q","completion":[)" + kAnswer + R"(],"label":false})",
        R"({"completion":[)" + kUser + "," + kAnswer + R"(],"label":false})"})
    EXPECT_EQ(shown(row), chat) << row;
  EXPECT_EQ(shown(R"({"messages":[["p","o"],["q","a"]],"kto_tag":true})"),
            "+user:p|assistant:(o)|user:q|assistant:a|");
  EXPECT_EQ(shown(R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}],)"
                  R"("label":true})"),
            "+user:q|assistant:a|");
  // Turns as their text, as tables hold them.
  const json as_text{
      {"prompt", "[" + kUser + "]"}, {"completion", "[" + kAnswer + "]"}, {"label", "false"}};
  EXPECT_EQ(shown(as_text.dump()), chat);
}

TEST(Ratings, OfTablesAreRead) {
  const std::vector<Row> rows =
      rows_of("a.csv", "prompt,completion,label\nq,a,True\np,b,false\nr,c,0\n");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(shown(rows[0]) + shown(rows[1]) + shown(rows[2]), "+q>a-p>b-r>c");
  EXPECT_EQ(shown(rows_of("a.json", R"([{"prompt":"q","completion":"a","label":false}])")[0]),
            "-q>a");
}

// As TRL's unpair_preference_dataset: the chosen answers, then the rejected ones.
TEST(Ratings, APairIsAGoodAndABadAnswer) {
  EXPECT_EQ(shown(R"({"prompt":"q","chosen":"a","rejected":"b"})"), "+q>a -q>b");
  const std::string two = R"({"prompt":"p","chosen":"a","rejected":"b"})"
                          "\n"
                          R"({"prompt":"q","chosen":"c","rejected":"d","label":true})";
  EXPECT_EQ(shown(two), "+p>a +q>c -p>b -q>d");
  EXPECT_EQ(shown(R"({"chosen":[)" + kUser + "," + kAnswer + R"(],"rejected":[)" + kUser +
                  R"(,{"role":"assistant","content":"b"}]})"),
            "+user:(q)|assistant:a| -user:(q)|assistant:b|");
}

TEST(Ratings, SayWhatARowLacks) {
  const std::string without = refusal(R"({"prompt":"q","completion":"a"})");
  EXPECT_CONTAINS(without, "a.jsonl:1: no \"label\"");
  EXPECT_CONTAINS(without, "--objective sft");
  EXPECT_CONTAINS(refusal(R"({"prompt":"q","completion":"a","label":3})"), "\"label\" is 3");
  EXPECT_CONTAINS(refusal(R"({"prompt":"q","completion":"a","label":"good"})"), "true or false");
  EXPECT_CONTAINS(refusal(R"({"prompt":"q","label":true})"), "a.jsonl:1");
  EXPECT_CONTAINS(refusal(R"({"text":"t","label":true})"), "no prompt");
  EXPECT_CONTAINS(refusal(R"({"completion":[)" + kAnswer + R"(],"label":true})"), "\"prompt\"");
}

TEST(Ratings, AreRefusedByObjectivesOfOtherRowsThatNameTheirs) {
  const Folder folder;
  const auto path = folder.write("a.jsonl", R"({"prompt":"q","completion":"a","label":true})");
  for (const bool preferences : {false, true}) {
    const std::string message = message_of([&] { read_rows(path, {.preferences = preferences}); });
    EXPECT_CONTAINS(message, "a.jsonl:1: the column \"label\"");
    EXPECT_CONTAINS(message, "--objective kto");
  }
}

// Prompts by letter, answers by digit.
SampleStore store_of(const std::vector<std::string>& rows) {
  SampleStore store;
  for (const std::string& row : rows) {
    Sample sample;
    for (const char c : row) {
      sample.ids.push_back(c);
      sample.labels.push_back(c >= 'a' ? -100 : c);
    }
    store.append(sample);
  }
  return store;
}

std::string text_of(const SampleStore& store) {
  std::string text;
  for (int64_t i = 0; i < store.count(); ++i) {
    if (i > 0) text += " ";
    const Sample sample = store.sample(i);
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      text += static_cast<char>(sample.ids[t]);
      EXPECT_EQ(sample.labels[t] >= 0, sample.ids[t] < 'a') << text;
    }
  }
  return text;
}

TEST(Mismatched, PutsAnswersBehindOtherPrompts) {
  const SampleStore store = store_of({"ab12", "c3", "d45"});
  EXPECT_EQ(mismatch(store), 1);
  EXPECT_EQ(text_of(mismatched(store, 1, 0)), "ab45 c12 d3");
  // Too long ones lose the beginning of their prompt first, as samples do.
  EXPECT_EQ(text_of(mismatched(store, 1, 3)), "b45 c12 d3");
}

// Several answers to each prompt, one after the other: each is taken once, by another prompt.
TEST(Mismatched, GoesAsFarBackAsAnotherPrompt) {
  const SampleStore store = store_of({"a1", "a2", "a3", "b4", "b5", "b6", "c7", "c8", "c9"});
  EXPECT_EQ(mismatch(store), 3);
  EXPECT_EQ(text_of(mismatched(store, 3, 0)), "a7 a8 a9 b1 b2 b3 c4 c5 c6");
  // Where it cannot be helped, as few as can be have their own.
  EXPECT_EQ(mismatch(store_of({"a1", "a2", "b3"})), 1);
  EXPECT_EQ(mismatch(store_of({"a1", "a2", "a3"})), 0);
  EXPECT_EQ(mismatch(store_of({"a1"})), 0);
}

TEST(Mismatched, OfRepeatedSamplesAreRepeated) {
  SampleStore store = store_of({"a1", "b2"});
  store.repeat_to(5);
  EXPECT_EQ(text_of(mismatched(store, 1, 0)), "a2 b1 a2 b1 a2");
}

TEST(Ratings, AreDataSetsLikeOthers) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += R"({"prompt":"question )" + std::to_string(i) + R"(","completion":")" +
             (i == 3       ? ""
              : i % 4 == 0 ? "good"
                           : "bad") +
             R"(","label":)" + (i % 4 == 0 ? "true" : "false") + "}\n";
  DatasetOptions options{.name = "JSON",
                         .json_path = folder.write("rated.jsonl", lines),
                         .val_split_fraction = 0.25,
                         .prompt_style = "plain"};
  options.ratings = true;
  const Dataset dataset = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(masks_prompts(dataset, std::nullopt), true);
  // The verdict stays with its answer, of which one without words is left out.
  int64_t desirable = 0;
  for (const auto* part : {&dataset.train, &dataset.validation})
    for (int64_t i = 0; i < part->count(); ++i) {
      EXPECT_EQ(is_desirable(*part, i), part->num_targets(i) == 5);
      desirable += is_desirable(*part, i) ? 1 : 0;
    }
  EXPECT_EQ(desirable, 5);
  EXPECT_EQ(dataset.train_others.count(), dataset.train.count());
  EXPECT_EQ(dataset.validation_others.count(), dataset.validation.count());
  const auto batches = dataset.train_batches();
  ASSERT_NE(batches->others(), nullptr);
  const std::vector<int64_t> indices = {1};
  EXPECT_EQ(batches->others()->make(indices)->loss_tokens, dataset.train.num_targets(0));
  const RatingCounts counts = count_ratings(dataset.train);
  EXPECT_EQ(counts.desirable + counts.undesirable, dataset.train.count());
  // Both answers of a pair are on one side.
  std::string pairs;
  for (int i = 0; i < 20; ++i)
    pairs += R"({"prompt":"question )" + std::to_string(i) +
             R"(","chosen":"good","rejected":"bad"})" + "\n";
  options.json_path = folder.write("pairs.jsonl", pairs);
  const Dataset of_pairs = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(of_pairs.validation.count(), 10);
  EXPECT_EQ(count_ratings(of_pairs.validation).desirable, 5);
  EXPECT_EQ(survey(of_pairs).held_out_in_training, 0);
  // Nothing can be compared with.
  options.json_path = folder.write("one.jsonl", R"({"prompt":"q","completion":"a","label":true})"
                                                "\n"
                                                R"({"prompt":"q","completion":"b","label":false})");
  options.val_split_fraction = {};
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(true), nullptr); }),
                  "with the same prompt");
  options.name = "Alpaca";
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(true), nullptr); }),
                  "nobody rated");
}

}  // namespace ratings_test
}  // namespace snug::data
