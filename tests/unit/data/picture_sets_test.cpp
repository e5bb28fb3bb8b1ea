// Data sets of pictures: those that Hugging Face's libraries wrote (tests/oracles/picture_sets.py),
// and folders with a metadata file.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "data/dataset.h"
#include "data/pictures/picture_dataset.h"
#include "data/pictures/picture_folder.h"
#include "data/rows/hugging_face.h"
#include "data_fixtures.h"

namespace snug::data {
namespace picture_sets_test {

std::filesystem::path sets() {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/picture_sets";
}

std::filesystem::path picture_file(const std::string& name) {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/pictures" / name;
}

std::string text_of(const PictureBytes& picture) {
  return {reinterpret_cast<const char*>(picture.bytes.data()), picture.bytes.size()};
}

std::vector<std::optional<std::string>> all_captions(const PictureRows& rows) {
  std::vector<int64_t> indices(static_cast<size_t>(rows.count()));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  return rows.captions(indices);
}

using Captions = std::vector<std::optional<std::string>>;
const Captions kCaptions = {"a red square", "Grüße vom Meer", std::nullopt, std::nullopt,
                            "a dog, a cat"};
constexpr const char* kNames[] = {"420.jpg", "rgba.png", "lossy.webp", "turned6.jpg",
                                  "palette4.png"};

constexpr Reading kPictures = {.image_size = 8, .num_picture_tokens = 3, .picture_token = 900};

DatasetOptions options_for(const std::string& name, const std::filesystem::path& path) {
  return {.name = name,
          .val_split_fraction = 0,
          .path = path,
          .reading = kPictures,
          .processor = {.size = 8}};
}

class HuggingFace : public testing::Test {
 protected:
  void SetUp() override {
    if (!parquet_available()) GTEST_SKIP() << "this build has no Arrow";
  }
};

TEST_F(HuggingFace, SavedAndParquetSetsGiveTheSameRows) {
  for (const char* name : {"dict", "dict/train", "parquet", "parquet/data"}) {
    const auto rows = open_hugging_face_pictures({.path = sets() / name});
    ASSERT_NE(rows, nullptr) << name;
    EXPECT_EQ(all_captions(*rows), kCaptions) << name;
    for (int64_t i = 0; i < rows->count(); ++i)
      EXPECT_EQ(text_of(rows->picture(i)), read_file(picture_file(kNames[i]))) << name << " " << i;
  }
  const auto test = open_hugging_face_pictures({.path = sets() / "dict", .split = "test"});
  EXPECT_EQ(test->count(), 1);
  EXPECT_CONTAINS(test->where(0), "data-00000-of-00001.arrow: row 1");
}

TEST_F(HuggingFace, ListsOfCaptionsGiveTheirFirst) {
  const auto rows = open_hugging_face_pictures({.path = sets() / "lists"});
  EXPECT_EQ(all_captions(*rows), (Captions{"one", std::nullopt, "three", "four", "five"}));
}

TEST_F(HuggingFace, ReferencesAreAllCaptionsOfARow) {
  using Texts = std::vector<std::string>;
  const auto lists = open_hugging_face_pictures({.path = sets() / "lists"});
  const std::vector<Texts> expected = {{"one", "two"}, {}, {"three"}, {"four"}, {"five"}};
  for (int64_t i = 0; i < lists->count(); ++i)
    EXPECT_EQ(lists->references(i), expected[static_cast<size_t>(i)]) << i;
  const auto single = open_hugging_face_pictures({.path = sets() / "parquet"});
  EXPECT_EQ(single->references(1), Texts{"Grüße vom Meer"});
  EXPECT_EQ(single->references(3), Texts{});
}

TEST_F(HuggingFace, ARowWithoutAPictureIsNamed) {
  const auto rows = open_hugging_face_pictures({.path = sets() / "nulls"});
  EXPECT_NO_THROW(rows->picture(0));
  EXPECT_CONTAINS(message_of([&] { rows->picture(1); }),
                  "nulls/data-00000-of-00001.arrow: row 2: there is no picture");
}

// As save_to_disk writes it.
TEST_F(HuggingFace, ASavedSetWithoutRowsIsSaidToHaveNone) {
  const Folder folder;
  folder.write("state.json", R"({"_data_files": [], "_split": null})");
  EXPECT_CONTAINS(message_of([&] { open_hugging_face_pictures({.path = folder.path()}); }),
                  "state.json names no files: the data set was saved without rows");
}

// A column of captions that nobody calls so: only who needs captions is asked for its name.
TEST_F(HuggingFace, PicturesAloneWillDoWhereCaptionsAreNotNeeded) {
  const std::filesystem::path set = sets() / "lists";
  EXPECT_CONTAINS(
      message_of([&] { open_hugging_face_pictures({.path = set, .text_column = "photo"}); }),
      "but captions are text");
  const auto rows = open_hugging_face_pictures({.path = set, .captions_needed = false});
  EXPECT_TRUE(rows->has_captions()) << "they are there";
  EXPECT_EQ(rows->references(0).size(), 2);
}

TEST_F(HuggingFace, TextAloneIsRowsOfText) {
  const std::vector<Row> rows = read_hugging_face_rows({.path = sets() / "text"});
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1].instruction, "Say hi.");
  EXPECT_EQ(open_hugging_face_pictures({.path = sets() / "text"}), nullptr);
}

TEST_F(HuggingFace, WrongNamesListWhatThereIs) {
  const auto refusal = [](HuggingFaceOptions options) {
    return message_of([&] { open_hugging_face_pictures(options); });
  };
  EXPECT_CONTAINS(refusal({.path = sets() / "dict", .split = "valid"}),
                  "no split valid (data.split); splits found: train, test");
  EXPECT_CONTAINS(refusal({.path = sets() / "dict", .image_column = "imgae"}),
                  "no column imgae (data.image_column); did you mean image?; columns found: id, "
                  "image, text");
  EXPECT_CONTAINS(refusal({.path = sets() / "dict", .image_column = "id"}), "holds int64");
  EXPECT_CONTAINS(refusal({.path = sets() / "dict", .text_column = "image"}),
                  "but captions are text");
  EXPECT_CONTAINS(refusal({.path = sets() / "parquet", .split = "test"}), "splits found: train");
  EXPECT_CONTAINS(refusal({.path = sets() / "nowhere"}), "does not exist");
  EXPECT_CONTAINS(refusal({}), "needs --data.path");
  const Folder folder;
  EXPECT_CONTAINS(refusal({.path = folder.path()}), "no data set of Hugging Face's");
}

TEST_F(HuggingFace, CutShortOrDamagedIsRefused) {
  const std::string whole = read_file(sets() / "dict/train/data-00000-of-00001.arrow");
  const Folder folder;
  for (size_t size = 0; size < whole.size() - 8; size += 97) {
    const auto path = folder.write("x.arrow", whole.substr(0, size));
    EXPECT_CONTAINS(message_of([&] { open_hugging_face_pictures({.path = path}); }), "x.arrow");
  }
}

TEST_F(HuggingFace, RowsWithoutCaptionAreLeftOut) {
  const Dataset dataset =
      load_dataset(options_for("HFDataset", sets() / "dict"), byte_encoder(true), {});
  EXPECT_EQ(dataset.train.count(), 3);
  std::vector<int64_t> rows = dataset.train_pictures.row_of;
  for (int64_t i = 0; i < 3; ++i) {
    const Sample sample = dataset.train.sample(i);
    const std::string caption = *kCaptions[rows[i]];
    EXPECT_EQ(sample.ids.size(), 3 + 1 + caption.size() + 1);
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 1, 4}));
  DatasetOptions some = options_for("HFDataset", sets() / "dict");
  some.val_split_fraction = 0.5;
  some.max_samples = 4;
  const Dataset split = load_dataset(some, byte_encoder(true), {});
  EXPECT_EQ(split.train.count() + split.validation.count(),
            std::ssize(split.train_pictures.row_of) + std::ssize(split.validation_pictures.row_of));
  EXPECT_EQ(std::ssize(split.validation_rows), split.validation.count());
}

TEST_F(HuggingFace, TextModelsReadInstructionSets) {
  DatasetOptions options = options_for("HFDataset", sets() / "text");
  options.reading = {};
  const Dataset dataset = load_dataset(options, byte_encoder(true), {});
  EXPECT_EQ(dataset.train.count(), 2);
  EXPECT_EQ(dataset.train_pictures.rows, nullptr);
  EXPECT_TRUE(dataset.train_batches()->make(std::vector<int64_t>{0, 1})->pixels.empty());
}

class PictureFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) std::filesystem::copy_file(picture_file(name), folder_ / name);
  }
  std::string refusal(PictureFolderOptions options = {}) {
    options.path = folder_.path();
    return message_of([&] { open_picture_folder(options); });
  }
  Folder folder_;
};

TEST_F(PictureFolderTest, ReadsLinesOfJson) {
  folder_.write("metadata.jsonl",
                "{\"file_name\": \"420.jpg\", \"text\": \"a cat\"}\n\n"
                "{\"file_name\": \"rgba.png\", \"text\": [\"one\", \"two\"], \"more\": 1}\r\n"
                "{\"file_name\": \"gone.png\", \"text\": null}");
  const auto rows = open_picture_folder({.path = folder_.path()});
  EXPECT_EQ(all_captions(*rows), (Captions{"a cat", "one", std::nullopt}));
  EXPECT_EQ(text_of(rows->picture(1)), read_file(picture_file("rgba.png")));
  EXPECT_CONTAINS(rows->where(0), "metadata.jsonl: row 1 (420.jpg)");
  EXPECT_CONTAINS(message_of([&] { rows->picture(2); }), "metadata.jsonl: row 3: ");
  EXPECT_CONTAINS(message_of([&] { rows->picture(2); }), "gone.png");
}

TEST_F(PictureFolderTest, ReadsCsvWithQuotes) {
  std::filesystem::create_directory(folder_ / "train");
  folder_.write(
      "train/metadata.csv",
      "file_name,caption\r\n../420.jpg,\"a \"\"red\"\" cat,\na dog\"\r\n../rgba.png,sea\n");
  const auto rows = open_picture_folder({.path = folder_.path()});
  EXPECT_EQ(all_captions(*rows), (Captions{"a \"red\" cat,\na dog", "sea"}));
  EXPECT_EQ(text_of(rows->picture(1)), read_file(picture_file("rgba.png")));
}

// Inches are no quotes: only a field's beginning opens them.
TEST_F(PictureFolderTest, QuotesInsideOfCsvFieldsAreText) {
  folder_.write("metadata.csv", "file_name,text\n420.jpg,a 5\" nail\nrgba.png,a 6\" nail\n");
  const auto rows = open_picture_folder({.path = folder_.path()});
  EXPECT_EQ(all_captions(*rows), (Captions{"a 5\" nail", "a 6\" nail"}));
}

TEST_F(PictureFolderTest, QuotesThatAreNeverClosedAreRefusedWithTheirLine) {
  const std::string begin = "file_name,text\n420.jpg,\"a cat,\non two lines\"\n";
  folder_.write("metadata.csv", begin + "rgba.png,\"a dog\n420.jpg,a bird\n");
  EXPECT_CONTAINS(refusal(), "metadata.csv: line 4: the double quotes that open here are not");
  folder_.write("metadata.csv", begin + "rgba.png,\"a dog\n420.jpg,\"a bird\"\n");
  EXPECT_CONTAINS(refusal(), "metadata.csv: line 4: the double quotes that open here are not");
  folder_.write("metadata.csv", "\"file_name,text\n420.jpg,a cat\n");
  EXPECT_CONTAINS(refusal(), "metadata.csv: line 1: the double quotes");
  folder_.write("metadata.csv", begin + "rgba.png,\"a dog\"");
  EXPECT_EQ(all_captions(*open_picture_folder({.path = folder_.path()})),
            (Captions{"a cat,\non two lines", "a dog"}));
}

// As spreadsheets of half of Europe write it, and with tabs.
TEST_F(PictureFolderTest, ReadsOtherSeparators) {
  for (const char separator : {';', '\t'}) {
    std::string text = "filename,alt_text\n420.jpg,a cat|a dog\n";
    std::replace(text.begin(), text.end(), ',', separator);
    std::replace(text.begin(), text.end(), '|', ',');
    folder_.write("metadata.csv", "\xEF\xBB\xBF" + text);
    const auto rows = open_picture_folder({.path = folder_.path()});
    EXPECT_EQ(all_captions(*rows), (Captions{"a cat,a dog"}));
    EXPECT_EQ(rows->file(0), (folder_ / "420.jpg").string());
  }
}

TEST_F(PictureFolderTest, ReadsAMetadataFileOfAnyName) {
  const auto file = folder_.write("my captions.csv", "image,caption\n420.jpg,a cat\n");
  EXPECT_CONTAINS(refusal(), "if " + file.string() + " says it, name it with --data.path");
  const auto rows = open_picture_folder({.path = file});
  EXPECT_EQ(all_captions(*rows), (Captions{"a cat"}));
  EXPECT_EQ(text_of(rows->picture(0)), read_file(picture_file("420.jpg")));
}

// As captions of Flickr, LAVIS and COCO are written, whose pictures lie in a folder beside them.
TEST_F(PictureFolderTest, ReadsListsAndTablesOfOthers) {
  std::filesystem::create_directory(folder_ / "Images");
  for (const char* name : {"1.jpg", "2.jpg"})
    std::filesystem::copy_file(picture_file("420.jpg"), folder_ / "Images" / name);
  for (
      const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
          {"captions.txt", "image,caption\n1.jpg,a cat .\n2.jpg,\"a dog, too\"\n"},
          {"captions.tsv", "image\tcaption\n1.jpg\ta cat .\n2.jpg\ta dog, too\n"},
          {"list.json",
           R"([{"image":"1.jpg","caption":"a cat ."},{"image":"2.jpg","caption":["a dog, too"]}])"},
          {"coco.json",
           R"({"info":{},"images":[{"id":7,"file_name":"2.jpg"},{"id":3,"file_name":"1.jpg"}],
             "annotations":[{"image_id":3,"id":1,"caption":"a cat ."},{"image_id":7,"id":2,"caption":"a dog, too"}]})"}}) {
    const auto rows = open_picture_folder({.path = folder_.write(name, text)});
    EXPECT_EQ(all_captions(*rows), (Captions{"a cat .", "a dog, too"})) << name;
    EXPECT_EQ(rows->file(1), (folder_ / "Images" / "2.jpg").string()) << name;
  }
  std::filesystem::create_directory(folder_ / "annotations");
  const auto beside =
      folder_.write("annotations/a.json", R"([{"image":"1.jpg","caption":"a cat"}])");
  EXPECT_EQ(open_picture_folder({.path = beside})->file(0),
            (folder_ / "Images" / "1.jpg").string());
  const auto refused = [&](const char* text) {
    return message_of([&] { open_picture_folder({.path = folder_.write("a.json", text)}); });
  };
  EXPECT_CONTAINS(refused("{\"a\":1}\n{}"), "not JSON; lines of JSON are a .jsonl file");
  EXPECT_CONTAINS(refused("{\"images\":[]}"), "neither a list of objects nor COCO's annotations");
  EXPECT_CONTAINS(refused("7"), "neither a list of objects nor COCO's annotations");
  EXPECT_CONTAINS(refused("[7]"), "row 1 is not an object");
  EXPECT_CONTAINS(refused("[]"), "holds no rows");
  EXPECT_CONTAINS(
      refused(R"({"images":[{"id":1,"file_name":"1.jpg"}],"annotations":[{"image_id":2}]})"),
      "a caption is of the picture 2");
  EXPECT_CONTAINS(refused(R"({"images":[4],"annotations":[]})"), "an entry has no \"id\"");
}

TEST_F(PictureFolderTest, ReadsTextsBesidePictures) {
  folder_.write("420.txt", "a cat\n");
  const auto rows = open_picture_folder({.path = folder_.path()});
  Captions all = all_captions(*rows);
  EXPECT_EQ(rows->count(), std::ssize(kNames));
  EXPECT_EQ(std::ranges::count(all, std::optional<std::string>("a cat")), 1);
  EXPECT_EQ(std::ranges::count(all, std::optional<std::string>()), rows->count() - 1);
  folder_.write("420.txt", "\xff");
  EXPECT_CONTAINS(refusal(), "420.txt: not valid UTF-8");
}

TEST_F(PictureFolderTest, NeedsNoCaptionsWhereNobodyAsksForThem) {
  folder_.write("metadata.jsonl", "{\"file_name\": \"420.jpg\", \"words\": \"x\"}\n");
  const auto rows = open_picture_folder({.path = folder_.path(), .captions_needed = false});
  EXPECT_FALSE(rows->has_captions());
  EXPECT_EQ(all_captions(*rows), (Captions{std::nullopt}));
  EXPECT_TRUE(rows->references(0).empty());
}

TEST_F(PictureFolderTest, ReferencesAreAllTextsOfAList) {
  using Texts = std::vector<std::string>;
  folder_.write("metadata.jsonl",
                "{\"file_name\": \"420.jpg\", \"text\": [null, \"one\", \"two\"]}\n"
                "{\"file_name\": \"420.jpg\", \"text\": []}\n"
                "{\"file_name\": \"420.jpg\", \"text\": [3]}\n"
                "{\"file_name\": \"420.jpg\", \"text\": [\"\", \" \", \"three\"]}\n"
                "{\"file_name\": \"420.jpg\", \"text\": \"\"}\n");
  const auto rows = open_picture_folder({.path = folder_.path()});
  EXPECT_EQ(rows->references(0), (Texts{"one", "two"}));
  EXPECT_EQ(rows->references(1), Texts{});
  EXPECT_CONTAINS(message_of([&] { rows->references(2); }), "row 3: \"text\" is a number");
  // Blank ones are none.
  EXPECT_EQ(rows->references(3), Texts{"three"});
  EXPECT_EQ(rows->references(4), Texts{});
  EXPECT_EQ(rows->captions(std::array<int64_t, 2>{3, 4}), (Captions{"three", std::nullopt}));
}

TEST_F(PictureFolderTest, SaysWhatLiesThereInstead) {
  EXPECT_CONTAINS(refusal(), R"(write one line a picture: {"file_name": "0001.jpg")");
  std::filesystem::create_directory(folder_ / "training");
  folder_.write("training/metadata.jsonl", "{}");
  EXPECT_CONTAINS(refusal(), "splits found: training; choose one with --data.split");
  const Folder empty;
  EXPECT_CONTAINS(message_of([&] { open_picture_folder({.path = empty.path()}); }), "is empty");
  const Folder parquet;
  parquet.write("train.parquet", "");
  EXPECT_CONTAINS(message_of([&] { open_picture_folder({.path = parquet.path()}); }),
                  "--data HFDataset");
  EXPECT_CONTAINS(message_of([&] { open_picture_folder({.path = folder_ / "420.jpg"}); }),
                  "neither a folder nor a .jsonl, .json, .csv, .tsv or .txt file");
  folder_.write("metadata.csv", "file_name,text\n420.jpg,a cat, a dog\n");
  EXPECT_CONTAINS(refusal(), "a text with \",\" in it stands in double quotes");
}

TEST_F(PictureFolderTest, ASplitThatIsNotThereIsRefused) {
  folder_.write("metadata.csv", "file_name,text\n420.jpg,a cat\n");
  EXPECT_CONTAINS(
      message_of([&] { open_picture_folder({.path = folder_.path(), .split = "vall"}); }),
      "no split vall");
}

TEST_F(PictureFolderTest, SaysWhatIsWrong) {
  EXPECT_CONTAINS(refusal(), "neither metadata.jsonl nor metadata.csv");
  folder_.write("metadata.jsonl", "");
  EXPECT_CONTAINS(refusal(), "holds no rows");
  folder_.write("metadata.jsonl", "{\"file_name\": \"a.jpg\", \"words\": \"x\"}\n");
  EXPECT_CONTAINS(refusal(),
                  "which column holds the captions? Name it with --data.text_column; "
                  "columns found: file_name, words");
  EXPECT_CONTAINS(refusal({.text_column = "word"}), "did you mean words?");
  folder_.write("metadata.jsonl", "[1]\n");
  EXPECT_CONTAINS(refusal(), "row 1: not a JSON object on one line; of a list write one element");
  std::filesystem::remove(folder_ / "metadata.jsonl");
  folder_.write("metadata.csv", "file_name,text\na.jpg\n");
  EXPECT_CONTAINS(refusal(), "row 1: 1 fields, but the first line names 2");
  DatasetOptions text_model = options_for("ImageFolder", folder_.path());
  text_model.reading = {};
  EXPECT_CONTAINS(message_of([&] { load_dataset(text_model, byte_encoder(true), {}); }),
                  "this model reads none");
}

// Pictures of a folder, some of which are damaged, as micro-batches.
class PictureBatches : public PictureFolderTest {
 protected:
  void SetUp() override {
    PictureFolderTest::SetUp();
    folder_.write("broken.jpg", read_file(picture_file("420.jpg")).substr(0, 400));
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines += nlohmann::json{{"file_name", i % 10 == 7 ? "broken.jpg" : kNames[i % 5]},
                              {"text", "caption " + std::to_string(i)}}
                   .dump() +
               "\n";
    folder_.write("metadata.jsonl", lines);
  }
  Dataset load(int num_workers) {
    DatasetOptions options = options_for("ImageFolder", folder_.path());
    options.num_workers = num_workers;
    return load_dataset(options, byte_encoder(true), {});
  }
};

TEST_F(PictureBatches, AreTheSameWithAnyNumberOfWorkersAndInAnyOrder) {
  const LogSinkGuard quiet([](const std::string&) {});
  const Dataset dataset = load(0);
  ASSERT_EQ(dataset.train.count(), 40);
  std::vector<std::vector<int64_t>> wanted;
  for (int64_t i = 0; i < 40; i += 4) wanted.push_back({i, i + 1, i + 2, i + 3});
  std::vector<MicroBatch> expected;
  const auto alone = dataset.train_batches();
  for (const auto& indices : wanted) expected.push_back(*alone->make(indices));
  for (const int num_workers : {1, 3}) {
    const Dataset same = load(num_workers);
    const auto source = same.train_batches();
    source->expect(wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Now and then something that nobody told, or told otherwise.
      if (i % 3 == 1) source->make(std::vector<int64_t>{39, 0});
      if (i == 5) source->expect({wanted.begin() + 5, wanted.end()});
      const MicroBatch batch = *source->make(wanted[i]);
      EXPECT_EQ(batch.pixels, expected[i].pixels);
      EXPECT_EQ(batch.targets, expected[i].targets);
      EXPECT_EQ(batch.picture_rows.size(), 12);
    }
    source->expect(wanted);  // and is then thrown away half done
  }
}

TEST_F(PictureBatches, UnreadableOnesTeachNothingAndAreNamed) {
  std::string said;
  const LogSinkGuard listen([&](const std::string& text) { said += text; });
  const Dataset dataset = load(2);
  {
    const auto source = dataset.train_batches();
    for (int64_t i = 0; i < 40; ++i) {
      const MicroBatch batch = *source->make(std::vector<int64_t>{i});
      const bool broken = dataset.train_pictures.row_of[static_cast<size_t>(i)] % 10 == 7;
      EXPECT_EQ(batch.loss_tokens > 0, !broken);
      EXPECT_EQ(batch.pixels.size(), 8 * 8 * 3);
    }
    EXPECT_EQ(dynamic_cast<PictureBatchSource&>(*source).num_unreadable(), 4);
  }
  EXPECT_CONTAINS(said, "(broken.jpg): not a readable JPEG: the file is cut short");
}

TEST_F(PictureBatches, ASetWithoutAnyReadablePictureIsRefused) {
  const LogSinkGuard quiet([](const std::string&) {});
  std::filesystem::remove_all(folder_ / "420.jpg");
  folder_.write("metadata.jsonl",
                "{\"file_name\": \"broken.jpg\", \"text\": \"x\"}\n"
                "{\"file_name\": \"gone.jpg\", \"text\": \"x\"}\n");
  const Dataset dataset = load(1);
  const auto source = dataset.train_batches();
  EXPECT_CONTAINS(message_of([&] {
                    source->make(std::vector<int64_t>{0, 1});
                  }),
                  "none of 2 pictures could be read; the last: ");
}

// What is only looked at does not end a run.
TEST_F(PictureBatches, AValidationPartWithoutAnyReadablePictureGivesNoTargets) {
  std::string said;
  const LogSinkGuard listen([&](const std::string& text) { said += text; });
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"file_name\": \"gone.jpg\", \"text\": \"x\"}\n";
  folder_.write("metadata.jsonl", lines);
  DatasetOptions options = options_for("ImageFolder", folder_.path());
  options.val_split_fraction = 0.95;
  const Dataset dataset = load_dataset(options, byte_encoder(true), {});
  ASSERT_EQ(dataset.validation.count(), 19);
  const auto source = dataset.validation_batches();
  for (int64_t i = 0; i < 19; ++i) EXPECT_EQ(source->make(std::vector<int64_t>{i})->loss_tokens, 0);
  EXPECT_CONTAINS(said, "gone.jpg");
}

TEST_F(PictureFolderTest, EmptyCaptionsCountInNeitherPart) {
  const LogSinkGuard quiet([](const std::string&) {});
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines +=
        nlohmann::json{{"file_name", "420.jpg"}, {"text", i < 80 ? "  " : "a cat"}}.dump() + "\n";
  folder_.write("metadata.jsonl", lines);
  DatasetOptions options = options_for("ImageFolder", folder_.path());
  options.val_split_fraction = 0.25;
  for (options.seed = 0; options.seed < 5; ++options.seed) {
    const Dataset dataset = load_dataset(options, byte_encoder(true), {});
    EXPECT_EQ(dataset.validation.count(), 5) << "a quarter of the 20 that have one";
    EXPECT_EQ(dataset.train.count(), 15);
  }
}

TEST_F(PictureFolderTest, RowsNameTheirFiles) {
  folder_.write("metadata.jsonl", "{\"file_name\": \"420.jpg\", \"text\": \"x\"}\n");
  EXPECT_EQ(open_picture_folder({.path = folder_.path()})->file(0), (folder_ / "420.jpg").string());
}

}  // namespace picture_sets_test
}  // namespace snug::data
