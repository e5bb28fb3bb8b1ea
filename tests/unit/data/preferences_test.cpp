// Rows with a chosen and a rejected answer, and the pairs of documents that become of them. Where
// both begin with their prompt, it is the one that TRL finds (tests/oracles/preference_rows.py).
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "data/micro_batch.h"
#include "data/sample.h"
#include "data/sample_store.h"
#include "data/survey.h"
#include "data_fixtures.h"
#include "support/source_dir.h"

namespace snug::data {
namespace {

using nlohmann::json;

Row pair_of(std::string_view row) {
  const Folder folder;
  return read_rows(folder.write("a.jsonl", row), {.preferences = true}).at(0);
}

std::string refusal(std::string_view row) {
  return message_of([&] { pair_of(row); });
}

// A chat as "role:content|…", other rows as "prompt>answer".
std::string shown(const Row& row) {
  if (row.messages.empty()) return row.instruction + ">" + row.output;
  std::string text;
  for (const Message& message : row.messages) text += message.role + ":" + message.content + "|";
  return text;
}

std::string both(const Row& row) { return shown(row) + " / " + shown(row.others.at(0)); }

std::string expected(const json& prompt, const json& answer) {
  if (prompt.is_string()) return prompt.get<std::string>() + ">" + answer.get<std::string>();
  std::string text;
  for (const json* turns : {&prompt, &answer})
    for (const json& turn : *turns)
      text += turn["role"].get<std::string>() + ":" + turn["content"].get<std::string>() + "|";
  return text;
}

TEST(Preferences, HaveThePromptThatTrlFinds) {
  const json cases =
      json::parse(read_file(tests::source_dir() / "tests" / "data" / "data" / "preferences.json"));
  ASSERT_GT(cases.size(), 100U);
  for (const json& one : cases) {
    SCOPED_TRACE(one["row"].dump());
    const Row row = pair_of(one["row"].dump());
    EXPECT_EQ(shown(row), expected(one["prompt"], one["chosen"]));
    EXPECT_EQ(shown(row.others.at(0)), expected(one["prompt"], one["rejected"]));
    // A ready prompt is no question of a prompt style.
    EXPECT_EQ(row.kind == RowKind::Completion, one["prompt"].is_string());
  }
}

TEST(Preferences, AreReadInTheFormsOfOtherPrograms) {
  // LLaMA-Factory's ShareGPT and Alpaca, ms-swift's, and columns of data sets on the hub.
  const std::string chat = "user:q|assistant:a| / user:q|assistant:b|";
  for (const char* row :
       {R"({"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"},)"
        R"("rejected":{"from":"gpt","value":"b"}})",
        R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],)"
        R"("rejected_response":"b"})",
        R"({"messages":[["q","a"]],"rejected_response":"b"})",
        R"({"prompt":"q","chosen":[{"role":"user","content":"q"},)"
        R"({"role":"assistant","content":"a"}],"rejected":[{"role":"user","content":"q"},)"
        R"({"role":"assistant","content":"b"}]})"})
    EXPECT_EQ(both(pair_of(row)), chat) << row;
  // UltraFeedback's and ms-swift's whole conversations, with a copy of the better one beside them.
  const std::string user = R"({"role":"user","content":"q"},)";
  const std::string a = R"({"role":"assistant","content":"a"})",
                    b = R"({"role":"assistant","content":"b"})";
  EXPECT_EQ(both(pair_of(R"({"prompt":"q","messages":[)" + user + a + R"(],"chosen":[)" + user + a +
                         R"(],"rejected":[)" + user + b + "]}")),
            chat);
  EXPECT_EQ(
      both(pair_of(R"({"messages":[)" + user + a + R"(],"rejected_messages":[)" + user + b + "]}")),
      chat);
  // The prompt beside answers that repeat it.
  EXPECT_EQ(both(pair_of(R"({"prompt":[{"role":"user","content":"q"}],"chosen":[)" + user + a +
                         R"(],"rejected":[)" + user + b + "]}")),
            chat);
  EXPECT_EQ(both(pair_of(R"({"prompt":"q: ","chosen":"q: a","rejected":"q: b"})")),
            "q: >a / q: >b");
  // Answers before are no part of these.
  const Row later =
      pair_of(R"({"instruction":"q","history":[["p","o"]],"chosen":"a","rejected":"b"})");
  EXPECT_EQ(both(later),
            "user:p|assistant:o|user:q|assistant:a| / "
            "user:p|assistant:o|user:q|assistant:b|");
  for (const Row* own : {&later, &later.others.front()}) {
    EXPECT_TRUE(own->messages[1].in_prompt);
    EXPECT_FALSE(own->messages[3].in_prompt);
  }
  // Turns as their text, as tables hold them.
  const json as_text{{"chosen", "[" + user + a + "]"}, {"rejected", "[" + user + b + "]"}};
  EXPECT_EQ(both(pair_of(as_text.dump())), chat);
  // What the question is asked of.
  EXPECT_EQ(both(pair_of(R"({"instruction":"q","input":"i","chosen":[)" + a + R"(],"rejected":[)" +
                         b + "]}")),
            "user:q\n\ni|assistant:a| / user:q\n\ni|assistant:b|");
  // A score beside both is no verdict on one answer.
  EXPECT_EQ(both(pair_of(R"({"prompt":"q","chosen":"a","rejected":"b","label":1})")), "q>a / q>b");
  const Row alpaca = pair_of(R"({"instruction":"q","input":"i","chosen":"a","rejected":"b"})");
  EXPECT_EQ(both(alpaca), "q>a / q>b");
  EXPECT_EQ(alpaca.others[0].input, "i");
  EXPECT_EQ(both(pair_of(R"({"question":"q","chosen_response":"a","rejected_response":"b"})")),
            "q>a / q>b");
  EXPECT_EQ(both(pair_of(R"({"question":"q","answer":"a","rejected":"b"})")), "q>a / q>b");
  // What comes before is both answers'.
  const Row with_system = pair_of(
      R"({"system":"s","prompt":[{"role":"user","content":"q"}],"chosen":"a","rejected":"b"})");
  EXPECT_EQ(both(with_system), "system:s|user:q|assistant:a| / system:s|user:q|assistant:b|");
}

TEST(Preferences, SayWhatARowLacks) {
  EXPECT_CONTAINS(refusal(R"({"question":"q","answer":"a"})"), "no \"rejected\"");
  EXPECT_CONTAINS(refusal(R"({"question":"q","answer":"a"})"), "--objective sft");
  EXPECT_CONTAINS(refusal(R"({"prompt":"q","rejected":"b"})"), "without \"chosen\"");
  EXPECT_CONTAINS(refusal(R"({"prompt":"q","chosen":3,"rejected":"b"})"), "the chosen answer is a");
  EXPECT_CONTAINS(refusal(R"({"prompt":"q","completion":"a","label":true})"), "--objective kto");
  EXPECT_CONTAINS(refusal(R"({"chosen":["a"],"rejected":"b"})"), "both");
  EXPECT_CONTAINS(refusal(R"({"chosen":[{"role":"user","content":"p"},)"
                          R"({"role":"assistant","content":"a"}],"rejected":)"
                          R"([{"role":"user","content":"q"},{"role":"assistant","content":"b"}]})"),
                  "different turns");
  EXPECT_CONTAINS(
      refusal(R"({"messages":[{"role":"user","content":"q"}],"rejected_response":"b"})"),
      "does not end with an answer");
}

Row row_of(const std::string& prompt, const std::string& chosen, const std::string& rejected) {
  Row row{.instruction = prompt, .output = chosen};
  row.others.push_back({.instruction = prompt, .output = rejected});
  return row;
}

std::string text_of(const Sample& sample) {
  std::string text;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const int32_t id = sample.ids[i];
    const std::string one = id == kEos        ? "$"
                            : id < kFirstByte ? "#"
                                              : std::string(1, static_cast<char>(id - kFirstByte));
    text += sample.labels[i] < 0 ? "(" + one + ")" : one;
  }
  return text;
}

std::string texts_of(const std::vector<Sample>& samples) {
  return text_of(samples.at(0)) + " " + text_of(samples.at(1));
}

std::vector<Sample> samples_of(const Row& row, int64_t limit = 0) {
  const TextEncoder encoder = byte_encoder(true);
  // Whatever is said of prompts, those of pairs have no loss.
  return make_samples(row, PromptStyle::make("plain", encoder), encoder,
                      {.mask_prompt = false, .max_seq_length = limit});
}

TEST(Preferences, TooLongPairsLoseTheBeginningOfTheirPromptFirst) {
  const Row row = row_of("pqr", "ab", "c");
  EXPECT_EQ(texts_of(samples_of(row)), "(#)(p)(q)(r)ab$ (#)(p)(q)(r)c$");
  // Both as much, so that they still share what they begin with.
  EXPECT_EQ(texts_of(samples_of(row, 5)), "(q)(r)ab$ (q)(r)c$");
  // An answer's end only where the prompt is not enough; one token of it stays with each.
  EXPECT_EQ(texts_of(samples_of(row, 2)), "ab c$");
  EXPECT_EQ(samples_of(row, 2)[0].cut_tokens, 5);
  EXPECT_EQ(samples_of(row, 2)[1].cut_tokens, 4);
}

TEST(Preferences, ATokenOverTheBorderOfPromptAndAnswerIsTheAnswers) {
  // "pa" is one token here, "pb" two.
  TextEncoder encoder = byte_encoder(false);
  encoder.encode = [plain = encoder.encode](std::string_view text) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i)
      if (text.substr(i).starts_with("pa")) {
        ids.push_back(1000);
        ++i;
      } else {
        ids.push_back(plain(text.substr(i, 1))[0]);
      }
    return ids;
  };
  Row row = row_of("qp", "a", "b");
  row.kind = row.others[0].kind = RowKind::Completion;
  const std::vector<Sample> samples =
      make_samples(row, PromptStyle::make("plain", encoder), encoder, {});
  const int32_t q = 'q' + kFirstByte, p = 'p' + kFirstByte, b = 'b' + kFirstByte;
  EXPECT_EQ(samples[0].ids, (std::vector<int32_t>{q, 1000, kEos}));
  EXPECT_EQ(samples[0].labels, (std::vector<int32_t>{-100, 1000, kEos}));
  EXPECT_EQ(samples[1].ids, (std::vector<int32_t>{q, p, b, kEos}));
  EXPECT_EQ(samples[1].labels, (std::vector<int32_t>{-100, p, b, kEos}));
}

SampleStore store_of(const std::vector<Row>& rows, int64_t limit = 0) {
  const TextEncoder encoder = byte_encoder(true);
  return SampleStore::tokenize(rows, PromptStyle::make("plain", encoder), encoder,
                               {.max_seq_length = limit}, 2);
}

TEST(Preferences, ASampleIsBothDocuments) {
  const SampleStore store = store_of({row_of("p", "ab", "c"), row_of("pq", "a", "bcd")});
  EXPECT_EQ(store.documents_per_sample(), 2);
  EXPECT_EQ(store.count(), 2);
  EXPECT_EQ(store.length(0), 5 + 4);
  EXPECT_EQ(store.num_targets(1), 2 + 4);
  EXPECT_EQ(store.longest_document(1), 7);
  EXPECT_EQ(store.longest(), 7);
  EXPECT_EQ(store.total_tokens(), 9 + 12);
  EXPECT_EQ(text_of(store.sample(1, 0)), "(#)(p)(q)a$");
  EXPECT_EQ(text_of(store.sample(1, 1)), "(#)(p)(q)bcd$");
  const std::vector<int64_t> indices = {1};
  const MicroBatch batch = make_micro_batch(store, indices, {});
  EXPECT_EQ(batch.cu_seqlens, (std::vector<int32_t>{0, 5, 12}));
  EXPECT_EQ(batch.loss_tokens, 6);
  EXPECT_EQ(batch.max_seqlen, 7);
  const MicroBatch padded = make_micro_batch(store, indices, {.packing = false});
  EXPECT_EQ(padded.cu_seqlens, (std::vector<int32_t>{0, 7, 14}));
  EXPECT_EQ(padded.loss_tokens, 6);
}

TEST(Preferences, LongestByWhatTheyArePaddedToMayBeOthers) {
  const SampleStore store = store_of({row_of("p", "aaaa", "bbbb"), row_of("p", "aaaaaa", "b")});
  EXPECT_EQ(store.longest_samples(1), std::vector<int64_t>{0});
  EXPECT_EQ(store.longest_samples(1, /*packing=*/false), std::vector<int64_t>{1});
}

TEST(Preferences, NumbersBesideThemAreByDocument) {
  SampleStore store = store_of({row_of("p", "ab", "c"), row_of("pq", "a", "bcd")});
  store.set_columns({{.values = {1, 2, 3, 4}}});
  EXPECT_EQ(store.numbers(store.columns()[0], 1, 0)[0], 3);
  const std::vector<int64_t> indices = {1, 0};
  const MicroBatch batch = make_micro_batch(store, indices, {});
  EXPECT_EQ(batch.columns.at(0).values, (std::vector<float>{3, 4, 1, 2}));
}

// Nothing is learnt of two equal answers, and cut ones may become equal.
TEST(Preferences, EqualAnswersAreLeftOut) {
  SampleStore store =
      store_of({row_of("p", "ab", "ab"), row_of("p", "abc", "abd"), row_of("p", "ab", "b")}, 2);
  EXPECT_EQ(store.num_without_loss(), 2);
  std::vector<int64_t> rows = {7, 8, 9};
  store.drop_without_loss(rows);
  EXPECT_EQ(store.count(), 1);
  EXPECT_EQ(store.documents_per_sample(), 2);
  EXPECT_EQ(rows, std::vector<int64_t>{9});
  EXPECT_EQ(store.num_without_loss(), 2);
  EXPECT_EQ(store.num_truncated(), 3) << "pairs, not answers";
}

TEST(Preferences, RepeatedPairsAreThoseThatAreThere) {
  SampleStore store = store_of({row_of("p", "ab", "c"), row_of("p", "a", "bcd")});
  const int64_t tokens = store.length(0);
  store.repeat_to(3);
  store.set_columns({{.values = {1, 2, 3, 4}}});
  EXPECT_EQ(store.numbers(store.columns()[0], 2, 1)[0], 2);
  EXPECT_EQ(store.count(), 3);
  EXPECT_EQ(text_of(store.sample(2, 1)), text_of(store.sample(0, 1)));
  EXPECT_EQ(store.total_tokens(), 2 * tokens + store.length(1));
}

TEST(Preferences, AreDataSetsLikeOthers) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += R"({"prompt":"question )" + std::to_string(i) + R"(","chosen":"good","rejected":")" +
             (i == 3 ? "good" : "bad") + "\"}\n";
  DatasetOptions options{.name = "JSON",
                         .json_path = folder.write("pairs.jsonl", lines),
                         .val_split_fraction = 0.25,
                         .prompt_style = "plain"};
  options.preferences = true;
  const Dataset dataset = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(dataset.train.count() + dataset.validation.count(), 19);
  EXPECT_EQ(dataset.validation.documents_per_sample(), 2);
  EXPECT_EQ(masks_prompts(dataset, std::nullopt), true);
  // Also of those that are held out.
  for (const SampleStore* part : {&dataset.train, &dataset.validation})
    for (int64_t i = 0; i < part->count(); ++i) EXPECT_GT(part->num_targets(i), 0);
  options.name = "Alpaca";
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(true), nullptr); }),
                  "preferences compare two");
  const DataSurvey found = survey(dataset);
  EXPECT_EQ(found.without_loss, 1);
  EXPECT_EQ(found.learnt_tokens, 19 * (5 + 4));
}

}  // namespace
}  // namespace snug::data
