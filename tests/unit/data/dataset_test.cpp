// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "data/prompts.h"
#include "data/rows/hugging_face.h"
#include "data_fixtures.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;

std::string lines(int count, const std::string& row) {
  std::string text;
  for (int i = 0; i < count; ++i) text += row + "\n";
  return text;
}

// A hub that holds the files of one test; counts how often it is asked.
struct FakeHub {
  std::map<std::string, std::string> files;  // pattern -> content
  int calls = 0;
  std::vector<DownloadRequest> requests = {};

  DownloadFunction function() {
    return [this](const DownloadRequest& request) {
      ++calls;
      requests.push_back(request);
      std::vector<fs::path> written;
      for (const std::string& pattern : request.patterns) {
        if (!files.contains(pattern)) continue;
        std::string name = pattern;
        for (char& c : name)
          if (c == '*') c = '0';
        fs::create_directories((request.folder / name).parent_path());
        write_file_atomically(request.folder / name, files[pattern]);
        written.push_back(request.folder / name);
      }
      return written;
    };
  }
};

TEST(Dataset, KnowsTheSystemMessageThatAllChatsBeginWith) {
  const Folder folder;
  const auto system_of = [&](const std::string& rows) {
    DatasetOptions options;
    options.json_path = folder.write("a.jsonl", rows);
    return load_dataset(options, byte_encoder(true), nullptr).system;
  };
  const auto chat = [](const std::string& system) {
    const std::string turn =
        system.empty() ? "" : R"({"role":"system","content":")" + system + R"("},)";
    return R"({"messages":[)" + turn +
           R"({"role":"user","content":"q"},{"role":"assistant","content":"a"}]})" + "\n";
  };
  EXPECT_EQ(system_of(chat("Be brief.") + chat("Be brief.")), "Be brief.");
  EXPECT_EQ(system_of(chat("Be brief.") + chat("Be long.")), "");
  EXPECT_EQ(system_of(chat("Be brief.") + chat("")), "");
  EXPECT_EQ(system_of(chat("") + chat("Be brief.")), "");
  EXPECT_EQ(system_of(R"({"instruction":"q","output":"a"})"), "");
}

TEST(Dataset, ReadsAJsonFileAndSplitsIt) {
  const Folder folder;
  DatasetOptions options;
  options.json_path = folder.write("a.jsonl", lines(20, R"({"instruction":"q","output":"a"})"));
  options.val_split_fraction = 0.25;
  const Dataset dataset = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(dataset.train.count(), 15);
  EXPECT_EQ(dataset.validation.count(), 5);
  EXPECT_EQ(dataset.validation_rows.size(), 5U);
  EXPECT_EQ(dataset.prompt_style, "alpaca");
  options.val_split_fraction.reset();
  EXPECT_EQ(load_dataset(options, byte_encoder(true), nullptr).validation.count(), 0);
}

TEST(Dataset, ReadsAFolderAndRefusesAFractionBesideIt) {
  const Folder folder;
  folder.write("train.json", R"([{"instruction":"t","output":"a"}])");
  folder.write("val.json", R"([{"instruction":"v","output":"a"}])");
  DatasetOptions options;
  options.json_path = folder.path();
  EXPECT_EQ(load_dataset(options, byte_encoder(true), nullptr).validation.count(), 1);
  options.val_split_fraction = 0.5;
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(true), nullptr); }),
                  "leave one out");
}

// One id a byte, and one at each document's beginning and end.
TEST(Dataset, MakesBlocksOfTextFiles) {
  const Folder folder;
  fs::create_directories(folder.path() / "b/.hidden");
  folder.write("a.txt",
               "\xEF\xBB\xBF"
               "Once upon");
  folder.write("b/c.md", "# A title");
  folder.write("b/d.jsonl", R"({"text":"a row"})"
                            "\n"
                            R"({"text":"and one more"})"
                            "\n");
  folder.write("b/.hidden/e.txt", "not read");
  folder.write("b/picture.png", "neither");
  folder.write("empty.txt", " \n");
  DatasetOptions options;
  options.name = "TextFiles";
  options.path = folder.path();
  options.val_split_fraction = 0;
  options.max_seq_length = 16;
  const Dataset dataset = load_dataset(options, byte_encoder(true), nullptr);
  constexpr int64_t kTokens = (9 + 2) + (9 + 2) + (5 + 2) + (12 + 2);
  EXPECT_EQ(dataset.train.total_tokens(), kTokens);
  EXPECT_EQ(dataset.train.count(), 3);
  EXPECT_EQ(dataset.train.length(0), 16);
  EXPECT_EQ(dataset.train.length(1), 16);
  EXPECT_EQ(dataset.train.num_documents(0), 2);
  EXPECT_EQ(dataset.train.sample(0).ids.front(), kBos);
  EXPECT_EQ(dataset.train_numbers.size(), 3U);
  EXPECT_EQ(dataset.prompt_style, "plain");
  // A validation file of its own, and the length that nobody gave.
  options.val_path = folder.path() / "a.txt";
  options.max_seq_length = 0;
  const Dataset whole = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(whole.train.count(), 1);
  EXPECT_EQ(whole.validation.total_tokens(), 11);
}

TEST(Dataset, RefusesTextFilesThatAreNone) {
  const Folder folder;
  DatasetOptions options;
  options.name = "TextFiles";
  const auto refusal = [&](const fs::path& path) {
    options.path = path;
    return message_of([&] { load_dataset(options, byte_encoder(true), nullptr); });
  };
  EXPECT_CONTAINS(refusal(folder.path() / "absent"), "does not exist");
  EXPECT_CONTAINS(refusal(folder.path()), "no text in it");
  EXPECT_CONTAINS(refusal(folder.write("a.bin", "x")), ".txt, .md");
  EXPECT_CONTAINS(refusal(folder.write("a.txt", "good\nbad \xff")), "a.txt:2: byte 9");
  EXPECT_CONTAINS(refusal(folder.write("b.jsonl", R"({"instruction":"q","output":"a"})")),
                  "row 1 is a question and its answer");
  options.preferences = true;
  EXPECT_CONTAINS(refusal(folder.path()), "--objective sft");
}

// Of texts nothing is lost unless asked; answers are cut unless asked.
TEST(Dataset, LongRowsAreCutSplitOrDropped) {
  const Folder folder;
  DatasetOptions options;
  options.json_path = folder.write("a.jsonl", R"({"text":"0123456789"})"
                                              "\n"
                                              R"({"text":"01"})"
                                              "\n"
                                              R"({"prompt":"abcdefg","completion":"hij"})"
                                              "\n");
  options.max_seq_length = 6;
  options.warns = false;
  const auto lengths = [&](LongRows long_rows) {
    options.long_rows = long_rows;
    const Dataset dataset = load_dataset(options, byte_encoder(false), nullptr);
    std::vector<int64_t> found;
    for (int64_t i = 0; i < dataset.train.count(); ++i) found.push_back(dataset.train.length(i));
    EXPECT_EQ(dataset.train_numbers.size(), found.size());
    std::ranges::sort(found);  // rows come in an order of their own
    return found;
  };
  using Lengths = std::vector<int64_t>;
  EXPECT_EQ(lengths(LongRows::Cut), (Lengths{3, 6, 6}));
  EXPECT_EQ(lengths(LongRows::Auto), (Lengths{3, 5, 6, 6}));
  EXPECT_EQ(lengths(LongRows::Split), (Lengths{3, 5, 5, 6, 6}));
  EXPECT_EQ(lengths(LongRows::Drop), (Lengths{3}));
  options.overlap = 2;
  EXPECT_EQ(lengths(LongRows::Auto), (Lengths{3, 3, 6, 6, 6}));
  options.overlap = 6;
  EXPECT_CONTAINS(message_of([&] { lengths(LongRows::Split); }), "data.overlap = 6");
  options.overlap = 0;
  options.max_seq_length = 2;
  EXPECT_CONTAINS(message_of([&] { lengths(LongRows::Drop); }), "all 3 samples are longer");
  options.preferences = true;
  options.json_path = folder.write("b.jsonl", R"({"prompt":"q","chosen":"a","rejected":"b"})");
  EXPECT_CONTAINS(message_of([&] { lengths(LongRows::Split); }), "cannot be compared");
}

TEST(Dataset, FetchesANamedSetOnce) {
  const Folder folder;
  FakeHub hub{
      .files = {{"databricks-dolly-15k.jsonl",
                 lines(10, R"({"instruction":"q","context":"c","response":"a","category":"x"})")}}};
  DatasetOptions options;
  options.name = "litgpt.data.Dolly";
  options.prompt_style = "plain";
  options.cache_folder = folder.path();
  const Dataset dataset = load_dataset(options, byte_encoder(false), hub.function());
  EXPECT_EQ(hub.requests[0].repo_id, "databricks/databricks-dolly-15k");
  EXPECT_EQ(dataset.train.count(), 9);
  EXPECT_EQ(dataset.validation.count(), 1);
  EXPECT_EQ(dataset.train.length(0), 5);  // q \n c a and the end
  load_dataset(options, byte_encoder(false), nullptr);
  EXPECT_EQ(hub.calls, 1);
  fs::remove(folder.path() / "Dolly/train/databricks-dolly-15k.jsonl");
  load_dataset(options, byte_encoder(false), hub.function());
  EXPECT_EQ(hub.calls, 2);
}

TEST(Dataset, TakesBothPartsOfSetsThatHaveThem) {
  const Folder folder;
  FakeHub hub{
      .files = {{"train/*_10templates_train.jsonl", lines(3, R"({"inputs":"q","targets":"a"})")},
                {"test/*_10templates_test.jsonl", lines(2, R"({"inputs":"q","targets":"a"})")}}};
  DatasetOptions options;
  options.name = "FLAN";
  options.cache_folder = folder.path();
  const Dataset dataset = load_dataset(options, byte_encoder(false), hub.function());
  EXPECT_EQ(dataset.prompt_style, "flan");
  EXPECT_EQ(dataset.train.count(), 3);
  EXPECT_EQ(dataset.validation.count(), 2);
  EXPECT_EQ(hub.calls, 2);
  options.val_split_fraction = 0.1;
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(false), hub.function()); }),
                  "leave it out");
}

TEST(Dataset, SplitsConversationsOnRequest) {
  const Folder folder;
  FakeHub hub{.files = {{"train.jsonl", lines(10, R"({"conversations":["q1","a1","q2","a2"]})")}}};
  DatasetOptions options;
  options.name = "LIMA";
  options.cache_folder = folder.path();
  EXPECT_EQ(load_dataset(options, byte_encoder(false), hub.function()).train.count(), 9);
  options.include_multiturn_conversations = true;
  EXPECT_EQ(load_dataset(options, byte_encoder(false), hub.function()).train.count(), 18);
}

TEST(Dataset, ReadsTheParquetOfAlpaca2k) {
  if (!parquet_available()) GTEST_SKIP() << "this build has no Arrow";
  const Folder folder;
  FakeHub hub{.files = {{"*.parquet", read_file(data_file("rows-snappy.parquet"))}}};
  DatasetOptions options;
  options.name = "Alpaca2k";
  options.val_split_fraction = 0.5;
  options.cache_folder = folder.path();
  const Dataset dataset = load_dataset(options, byte_encoder(false), hub.function());
  EXPECT_EQ(dataset.train.count(), 3);
  EXPECT_EQ(dataset.validation.count(), 3);
}

// Told once, with figures; a sample without a token to learn from is told once too.
TEST(Dataset, SaysHowMuchIsCut) {
  const Folder folder;
  std::vector<std::string> told;
  const LogSinkGuard sink([&](const std::string& text) { told.push_back(text); });
  DatasetOptions options;
  options.json_path = folder.write("rows.jsonl", R"({"instruction":"abc","output":"de"})"
                                                 "\n"
                                                 R"({"instruction":"abcdef","output":"gh"})"
                                                 "\n"
                                                 R"({"instruction":"a","output":"b"})");
  options.prompt_style = "plain";
  options.mask_prompt = true;
  options.max_seq_length = 5;
  const Dataset dataset = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(dataset.train.num_truncated(), 2);
  EXPECT_EQ(dataset.train.cut_tokens(), 2 + 5);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_CONTAINS(told[0], "2 of 3 samples are longer than 5 tokens");
  EXPECT_CONTAINS(told[0], "7 of their tokens, 33.3 % of all, are left out");
  EXPECT_CONTAINS(told[1], "1 of 3 samples have no token to learn from");
  EXPECT_CONTAINS(told[1], "train.max_seq_length = 5");
  EXPECT_CONTAINS(told[1], "or their answers are empty or without loss; they are left out");
}

TEST(Dataset, RefusesRowsOfWhichNoneHasAnythingToLearn) {
  const Folder folder;
  DatasetOptions options;
  options.json_path = folder.write("rows.jsonl", R"({"instruction":"abcdef","output":"gh"})"
                                                 "\n"
                                                 R"({"instruction":"abcdefg","output":"b"})");
  options.prompt_style = "plain";
  options.mask_prompt = true;
  options.max_seq_length = 5;
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(true), nullptr); }),
                  "training data: 2 of 2 samples have no token to learn from");
}

constexpr const char* kChatRow =
    R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
    R"({"role":"user","content":"r"},{"role":"assistant","content":"b"}]})";

// Two answers of one token and an end each; with the first exchange alone one would be lost.
TEST(Dataset, TurnsGoByTheModelsOwnTemplate) {
  const Folder folder;
  DatasetOptions options{.json_path = folder.write("a.jsonl", lines(4, kChatRow)),
                         .mask_prompt = true};
  testing::internal::CaptureStderr();
  const Dataset chat = load_dataset(options, chat_encoder(), nullptr);
  EXPECT_EQ(chat.prompt_style, "chat");
  EXPECT_EQ(chat.train.left_out("answer"), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");

  testing::internal::CaptureStderr();
  const Dataset without = load_dataset(options, byte_encoder(true), nullptr);
  EXPECT_EQ(without.prompt_style, "alpaca") << "a model without a template";
  EXPECT_EQ(without.train.left_out("answer"), 4);
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(),
                  "4 answers are left out: prompt style alpaca takes the first");
  options.include_multiturn_conversations = true;
  EXPECT_EQ(load_dataset(options, byte_encoder(true), nullptr).train.count(), 8);
}

// A step of them alone would change the weights by their decay, and its loss is no 0.
TEST(Dataset, RowsWithoutLossAreLeftOutAndCounted) {
  const Folder folder;
  const std::string silent =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0}]})";
  DatasetOptions options{.json_path = folder.write("a.jsonl", lines(3, kChatRow) + silent + "\n"),
                         .mask_prompt = true};
  testing::internal::CaptureStderr();
  const Dataset dataset = load_dataset(options, chat_encoder(), nullptr);
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(), "1 of 4 samples have no token to learn");
  EXPECT_EQ(dataset.train.count(), 3);
  EXPECT_EQ(dataset.train.num_without_loss(), 1);
  ASSERT_EQ(dataset.train_numbers.size(), 3U);
  EXPECT_EQ(std::ranges::count(dataset.train_numbers, 4), 0);
  for (int64_t i = 0; i < 3; ++i) EXPECT_GT(dataset.train.num_targets(i), 0);
  options.keep_without_loss = true;
  EXPECT_EQ(load_dataset(options, chat_encoder(), nullptr).train.count(), 4);
}

TEST(Dataset, NamesTheRowWhoseTokenTheModelDoesNotHave) {
  const Folder folder;
  DatasetOptions options{
      .json_path = folder.write("a.jsonl", "{\"text\":\"aa\"}\n{\"text\":\"az\"}\n"),
      .vocabulary = 'z' + kFirstByte};
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, byte_encoder(true), nullptr); }),
                  "data row 2: it has the token 125, and the model's embedding has 125 rows");
  options.vocabulary += 1;
  EXPECT_EQ(load_dataset(options, byte_encoder(true), nullptr).train.count(), 2);
}

TEST(Dataset, ReadyPromptsStayAsTheyAre) {
  const Folder folder;
  const DatasetOptions options{
      .json_path = folder.write("a.jsonl", lines(2, R"({"prompt":"1+1=","completion":"2"})"))};
  const Dataset dataset = load_dataset(options, chat_encoder(), nullptr);
  EXPECT_EQ(dataset.prompt_style, "plain");
  EXPECT_EQ(dataset.train.length(0), 7);  // with a beginning and an end
}

TEST(PromptRecord, IsReadAsItWasWritten) {
  const Folder folder;
  EXPECT_FALSE(read_prompt_record(folder.path()));
  write_prompt_record(folder.path(), {.style = "chat", .mask_prompt = true});
  EXPECT_EQ(read_prompt_record(folder.path())->style, "chat");
  EXPECT_EQ(read_prompt_record(folder.path())->mask_prompt, true);
  EXPECT_EQ(read_prompt_record(folder.path())->system, "");
  write_prompt_record(folder.path(), {.style = "chat", .system = "Be \"brief\"."});
  EXPECT_EQ(read_prompt_record(folder.path())->system, "Be \"brief\".");
  folder.write("prompt_style.json", R"({"class_path": "litgpt.prompts.Alpaca"})");
  EXPECT_EQ(read_prompt_record(folder.path())->style, "alpaca") << "LitGPT's file";
  EXPECT_FALSE(read_prompt_record(folder.path())->mask_prompt);
  testing::internal::CaptureStderr();
  folder.write("prompt_style.json", R"({"class_path": "litgpt.prompts.Phi3"})");
  EXPECT_FALSE(read_prompt_record(folder.path()));
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(),
                  "prompt_style.json is ignored: it names no known prompt style");
  for (const char* foreign : {"[1]", "{", "", R"({"prompt_style": 3})"}) {
    folder.write("prompt_style.json", foreign);
    EXPECT_FALSE(read_prompt_record(folder.path())) << foreign;
  }
}

TEST(Dataset, SaysWhatIsMissing) {
  const Folder folder;
  DatasetOptions options;
  const auto refusal = [&](const DownloadFunction& download = nullptr) {
    return message_of([&] { load_dataset(options, byte_encoder(false), download); });
  };
  EXPECT_CONTAINS(refusal(), "--data.json_path");
  options.json_path = folder.path() / "no.json";
  EXPECT_CONTAINS(refusal(), "does not exist");
  options.name = "Alpaka2k";
  EXPECT_CONTAINS(refusal(), "did you mean Alpaca2k?");
  options.name = "Alpaca";
  options.cache_folder = folder.path();
  EXPECT_CONTAINS(refusal(), "nothing can fetch it");
  FakeHub empty;
  EXPECT_CONTAINS(refusal(empty.function()), "no file that matches alpaca_data_cleaned.json");
  options.cache_folder = folder.write("file", "x") / "below";
  EXPECT_CONTAINS(refusal(empty.function()), "cannot make the folder");
}

TEST(Dataset, CacheFolderFollowsTheEnvironment) {
  const char* before = std::getenv("SNUG_CACHE");
  const std::string kept = before ? before : "";
  ::setenv("SNUG_CACHE", "/some/where", 1);
  EXPECT_EQ(default_cache_folder(), fs::path("/some/where/data"));
  before ? ::setenv("SNUG_CACHE", kept.c_str(), 1) : ::unsetenv("SNUG_CACHE");
}

// What is held out of a book is its end, of a few books the end of each; a library holds out books.
TEST(Dataset, FewTextsHoldOutTheirEnds) {
  const Folder folder;
  fs::create_directories(folder / "books");
  const auto document = [](int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i) + "\n";
    return text;
  };
  DatasetOptions options{.name = "TextFiles",
                         .long_rows = LongRows::Auto,
                         .max_seq_length = 64,
                         .path = folder / "books"};
  const auto loaded = [&](int books) {
    for (int i = 0; i < books; ++i)
      folder.write("books/" + std::to_string(i) + ".txt", document(100));
    return load_dataset(options, byte_encoder(false), nullptr);
  };
  const auto text_of = [](const SampleStore& store) {
    std::string text;
    for (int64_t i = 0; i < store.count(); ++i)
      for (const int32_t stored : store.stored_ids(i)) {
        const int32_t id = stored < 0 ? ~stored : stored;
        if (id >= kFirstByte) text += static_cast<char>(id - kFirstByte);
      }
    return text;
  };
  const Dataset one = loaded(1);
  EXPECT_EQ(text_of(one.train) + text_of(one.validation), document(100)) << "nothing is lost";
  EXPECT_TRUE(text_of(one.validation).starts_with("line 9")) << text_of(one.validation);
  EXPECT_NEAR(static_cast<double>(text_of(one.validation).size()), 0.05 * 790, 10);
  const Dataset three = loaded(3);
  EXPECT_EQ(text_of(three.train).size() + text_of(three.validation).size(),
            3 * document(100).size());
  EXPECT_EQ(text_of(three.validation).size(), 3 * text_of(one.validation).size());
  const Dataset many = loaded(40);
  EXPECT_EQ(text_of(many.validation).size(), 2 * document(100).size());
  options.val_split_fraction = 0.0;
  EXPECT_TRUE(load_dataset(options, byte_encoder(false), nullptr).validation.empty());
}

// A text of one line is cut between words, one of other letters between those.
TEST(Dataset, AnEndThatIsHeldOutBeginsWithAWholeLetter) {
  const Folder folder;
  const auto split = [&](const std::string& text) {
    DatasetOptions options{.name = "TextFiles",
                           .val_split_fraction = 0.3,
                           .max_seq_length = 500,
                           .path = folder.write("a.txt", text)};
    const Dataset dataset = load_dataset(options, byte_encoder(false), nullptr);
    return dataset.validation_rows.at(0).output;
  };
  EXPECT_EQ(split("one two three four five six seven"), "six seven");
  EXPECT_EQ(split("äöüäöüäöüä"), "öüä");
}

}  // namespace
}  // namespace snug::data
