// Parquet files as pyarrow writes them (tests/oracles/data_parquet.py), whole and damaged.
// SPDX-License-Identifier: Apache-2.0
#include "data/rows/hugging_face.h"

#include <nlohmann/json.hpp>

#include "data/random.h"
#include "data_fixtures.h"

namespace snug::data {
namespace {

class Parquet : public testing::Test {
 protected:
  void SetUp() override {
    if (!parquet_available()) GTEST_SKIP() << "this build has no Arrow";
  }
};

TEST(ParquetStub, SaysHowToMendIt) {
  if (parquet_available()) GTEST_SKIP() << "this build has Arrow";
  EXPECT_CONTAINS(message_of([] { read_rows(data_file("chats.parquet")); }), "SNUG_ARROW_DIR");
}

TEST_F(Parquet, ReadsEveryCodec) {
  const auto wanted = nlohmann::json::parse(read_file(data_file("sft.json")))["rows"];
  for (const char* codec : {"snappy", "zstd", "gzip", "none"}) {
    const std::vector<Row> rows = read_rows(data_file(std::string("rows-") + codec + ".parquet"));
    ASSERT_EQ(rows.size(), wanted.size()) << codec;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].instruction, wanted[i]["instruction"].get<std::string>());
      EXPECT_EQ(rows[i].input, wanted[i]["input"].get<std::string>());
      EXPECT_EQ(rows[i].output, wanted[i]["output"].get<std::string>());
    }
  }
}

TEST_F(Parquet, ReadsChats) {
  const std::vector<Row> chats = read_rows(data_file("chats.parquet"));
  ASSERT_EQ(chats.size(), 2U);
  EXPECT_EQ(chats[0].instruction, "Be brief.\n\nHi");
  ASSERT_EQ(chats[1].messages.size(), 4U);
  EXPECT_EQ(chats[1].messages[3].content, "two");
  const std::vector<Row> turns = read_rows(data_file("turns.parquet"));
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_EQ(turns[1].instruction, "q2");
  EXPECT_EQ(turns[1].output, "a2");
}

nlohmann::ordered_json without_nulls(const nlohmann::ordered_json& value) {
  nlohmann::ordered_json kept = value;
  if (value.is_object()) {
    kept = nlohmann::ordered_json::object();
    for (const auto& [key, own] : value.items())
      if (!own.is_null()) kept[key] = without_nulls(own);
  } else if (value.is_array()) {
    kept = nlohmann::ordered_json::array();
    for (const auto& own : value) kept.push_back(without_nulls(own));
  }
  return kept;
}

// As pyarrow's to_pylist() has it; keys that are null are as good as missing.
TEST_F(Parquet, ReadsEveryType) {
  const auto wanted = nlohmann::ordered_json::parse(read_file(data_file("types.json")));
  const std::vector<Row> rows = read_rows(data_file("types.parquet"));
  ASSERT_EQ(rows.size(), wanted.size());
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    const auto found = nlohmann::ordered_json::parse(rows[i].tools)[0];
    const auto own = without_nulls(wanted[i]);
    for (const auto& [key, value] : own.items()) EXPECT_EQ(found[key], value) << i << " " << key;
    EXPECT_EQ(found.size(), own.size()) << i;
  }
}

TEST_F(Parquet, ReadsTheColumnsThatJsonMayHave) {
  const std::vector<Row> pairs = read_rows(data_file("pairs.parquet"));
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[1].instruction, "q2");
  EXPECT_EQ(pairs[1].output, "a2");
  const std::vector<Row> chats = read_rows(data_file("pictures.parquet"), {.pictures = true});
  ASSERT_EQ(chats.size(), 2U);
  EXPECT_EQ(chats[0].pictures, std::vector{data_file("1.png").string()});
  EXPECT_EQ(chats[1].pictures, std::vector{data_file("2.png").string()});
  EXPECT_EQ(chats[1].messages[0].content, "<image>And?");
  EXPECT_TRUE(read_rows(data_file("pictures.parquet"))[1].pictures.empty()) << "for a text model";
  const std::vector<Row> set =
      read_hugging_face_rows({.path = data_file("pictures.parquet")}, {.pictures = true});
  EXPECT_EQ(set[1].pictures, chats[1].pictures);
  EXPECT_CONTAINS(
      message_of([] { read_rows(data_file("stored-pictures.parquet"), {.pictures = true}); }),
      "row 1: the picture is stored as bytes; save it as a file");
}

TEST_F(Parquet, RefusesRowsWithoutAnAnswerAndWrongTypes) {
  EXPECT_CONTAINS(message_of([] { read_rows(data_file("missing-output.parquet")); }),
                  "row 2: no \"output\"");
  EXPECT_CONTAINS(message_of([] { read_rows(data_file("numbers.parquet")); }),
                  "row 1: \"instruction\" is a number");
  EXPECT_CONTAINS(message_of([] {
                    read_rows(data_file("numbers.parquet"), {"a", "b", "c"});
                  }),
                  "row 1: no \"c\"");
  EXPECT_CONTAINS(message_of([] { read_rows(data_file("scores.parquet")); }),
                  "columns found: id, score");
}

TEST_F(Parquet, RefusesFilesCutAnywhere) {
  const Folder folder;
  for (const char* name : {"rows-snappy.parquet", "chats.parquet"}) {
    const std::string whole = read_file(data_file(name));
    for (size_t length = 0; length < whole.size(); length += 13)
      EXPECT_THROW(read_rows(folder.write("cut.parquet", whole.substr(0, length))), UserError)
          << length;
  }
}

// A flipped bit may still leave a readable file; it must never do worse than a refusal.
TEST_F(Parquet, SurvivesDamage) {
  const Folder folder;
  int refused = 0;
  for (const char* name :
       {"rows-none.parquet", "rows-zstd.parquet", "chats.parquet", "turns.parquet"}) {
    const std::string whole = read_file(data_file(name));
    SplitMix random(11);
    for (int round = 0; round < 150; ++round) {
      std::string damaged = whole;
      for (uint64_t flips = 1 + random.below(3); flips > 0; --flips)
        damaged[random.below(damaged.size())] ^= static_cast<char>(1U << random.below(8));
      try {
        read_rows(folder.write("damaged.parquet", damaged));
      } catch (const UserError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

// What is declared and what a few bytes may stand for have no bounds of their own.
TEST_F(Parquet, RefusesWhatItsSizeCannotHold) {
  EXPECT_CONTAINS(message_of([] { read_rows(data_file("wrong-count.parquet")); }),
                  "row group 0 says it holds 123614527484 rows, in a file of 2.75 KiB");
  EXPECT_CONTAINS(message_of([] { read_rows(data_file("swollen.parquet")); }),
                  "row group 0 takes more than the 1.00 GiB that a file of this size may take");
}

}  // namespace
}  // namespace snug::data
