// Samples of pictures that stand among text: what is read, what is learned, how many pictures. What
// stands for a picture is held to transformers' in picture_processor_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_sample.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/dataset.h"
#include "data_fixtures.h"
#include "files/pictures/picture.h"
#include "text/template/chat_template.h"

namespace snug::data {
namespace picture_sample_test {

constexpr int32_t kPlace = 900;
constexpr Reading kTiles = {
    .image_size = 8, .num_picture_tokens = 3, .picture_token = kPlace, .pictures_anywhere = true};

// Bytes, but the mark is one token, and a dollar ends a sequence.
TextEncoder marking_encoder() {
  TextEncoder encoder = byte_encoder(true);
  encoder.encode = [bytes = encoder.encode](std::string_view text) {
    std::vector<int32_t> ids;
    while (true) {
      const size_t at = std::min(text.find(kPictureMark), text.size());
      for (const int32_t id : bytes(text.substr(0, at)))
        ids.push_back(id == '$' + kFirstByte ? kEos : id);
      if (at == text.size()) return ids;
      ids.push_back(kPlace);
      text.remove_prefix(at + kPictureMark.size());
    }
  };
  return encoder;
}

std::string text_with_places(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids)
    text += id == kPlace ? '*'
            : id == kBos ? '#'
            : id == kEos ? '$'
                         : static_cast<char>(id - kFirstByte);
  return text;
}

std::string learned(const Sample& sample) {
  std::vector<int32_t> ids;
  for (const int32_t label : sample.labels)
    if (label >= 0) ids.push_back(label);
  return text_with_places(ids);
}

TEST(PictureSample, PictureStandsWhereThePromptSaysOrBeforeIt) {
  const TextEncoder encoder = marking_encoder();
  const PromptStyle plain = PromptStyle::make("plain", encoder);
  const std::string whole = "<fake_token_around_image><global-img>***<fake_token_around_image>";
  const Sample before =
      make_picture_sample("what?", "a cat", {}, plain, encoder, {.reading = kTiles});
  EXPECT_EQ(text_with_places(before.ids), "#" + whole + "what? a cat$");
  EXPECT_EQ(learned(before), " a cat$");
  EXPECT_EQ(before.num_pictures, 1);
  const Sample within = make_picture_sample("see <image>:\n", "a <image>cat", {}, plain, encoder,
                                            {.reading = kTiles});
  EXPECT_EQ(text_with_places(within.ids), "#see " + whole + ":\na cat$");
  const Sample tiles = make_picture_sample("", "cat", {.rows = 2, .columns = 3}, plain, encoder,
                                           {.reading = kTiles});
  EXPECT_EQ(tiles.num_pictures, 7);
  EXPECT_EQ(std::ranges::count(tiles.ids, kPlace), 21);
  EXPECT_CONTAINS(message_of([&] {
                    make_picture_sample("<image><image>", "", {}, plain, encoder,
                                        {.reading = kTiles});
                  }),
                  "2 times for 1 picture");
}

// What the template writes behind the beginning of an answer is learned.
TEST(PictureSample, TurnsAreThoseOfTheTemplate) {
  TextEncoder encoder = chat_encoder(
      "{% for m in messages %}{{ m['role'] | capitalize }}:"
      "{% if m['content'][0]['type'] != 'image' %} {% endif %}"
      "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
      "{% elif part['type'] == 'image' %}<image>{% endif %}{% endfor %}$\n{% endfor %}"
      "{% if add_generation_prompt %}Assistant:{% endif %}");
  encoder.encode = marking_encoder().encode;
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const Sample sample =
      make_picture_sample("what?", "a cat", {}, style, encoder, {.reading = kTiles});
  EXPECT_EQ(text_with_places(sample.ids),
            "User:<fake_token_around_image><global-img>***<fake_token_around_image>what?$\n"
            "Assistant: a cat$\n");
  EXPECT_EQ(learned(sample), " a cat$\n");
  const Sample later =
      make_picture_sample("see <image>", "", {}, style, encoder, {.reading = kTiles});
  EXPECT_TRUE(text_with_places(later.ids).starts_with("User: see <fake_token"));
}

TEST(PictureSample, AnswersAreCutAndPicturesAreNot) {
  const TextEncoder encoder = marking_encoder();
  const PromptStyle plain = PromptStyle::make("plain", encoder);
  const std::string answer(200, 'x');
  const auto make = [&](int64_t limit) {
    return make_picture_sample("", answer, {.rows = 1, .columns = 2}, plain, encoder,
                               {.max_seq_length = limit, .reading = kTiles});
  };
  const auto question = std::ssize(make(0).ids) - kCaptionTokens;
  EXPECT_EQ(make(0).cut_tokens, 201 - kCaptionTokens);
  EXPECT_EQ(std::ssize(make(question + 7).ids), question + 7);
  EXPECT_CONTAINS(message_of([&] { make(question); }), "which leaves none of train.max_seq_length");
  TextEncoder another = encoder;
  another.encode = byte_encoder(true).encode;
  EXPECT_CONTAINS(
      message_of([&] { make_picture_sample("", "x", {}, plain, another, {.reading = kTiles}); }),
      "have 0 places of token 900 for 3");
}

// Several pictures in several turns. Only answers have loss, as the template writes them.
TEST(PictureSample, ChatsHavePicturesInTheirQuestions) {
  TextEncoder encoder = chat_encoder(
      "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '$\n' }}{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}");
  encoder.encode = marking_encoder().encode;
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const std::vector<Grid> grids = {{}, {.rows = 1, .columns = 2}};
  const Row row{.messages = {{"user", "<image>a"},
                             {"assistant", "one"},
                             {"user", "and <image>?"},
                             {"assistant", "two"}}};
  const auto make = [&](const Row& chat, std::span<const Grid> shown, int64_t limit = 0) {
    return make_sample(chat, style, encoder, {.max_seq_length = limit, .reading = kTiles}, shown);
  };
  const Sample sample = make(row, grids);
  std::string first = text_of_picture(grids[0], 3), second = text_of_picture(grids[1], 3);
  for (std::string* text : {&first, &second})
    for (size_t at; (at = text->find(kPictureMark)) != text->npos;)
      text->replace(at, kPictureMark.size(), "*");
  EXPECT_EQ(text_with_places(sample.ids), "user: " + first + "a$\nassistant: one$\nuser: and " +
                                              second + "?$\nassistant: two$\n");
  EXPECT_EQ(learned(sample), " one$\n two$\n");
  EXPECT_EQ(sample.num_pictures, 1 + 3);
  // One that the assistant opens.
  const Row opened{
      .messages = {{"assistant", "hello"}, {"user", "<image>a"}, {"assistant", "one"}}};
  const Sample answered = make(opened, std::span(grids).first(1));
  EXPECT_EQ(text_with_places(answered.ids),
            "assistant: hello$\nuser: " + first + "a$\nassistant: one$\n");
  EXPECT_EQ(learned(answered), " hello$\n one$\n");
  EXPECT_CONTAINS(message_of([&] { make(row, {}); }),
                  "has 0 pictures, and its text as prompt style chat writes it has <image> 2");
  EXPECT_CONTAINS(message_of([&] { make(row, grids, 90); }), "take more than the 90 tokens");
  Row shows = row;
  shows.messages[3].content = "<image>";
  EXPECT_CONTAINS(message_of([&] { make(shows, grids); }), "an answer has <image>");
}

// Rows without a picture among others, and a picture that is missing.
TEST(PictureSample, ChatsAreBatchedWithTheirTiles) {
  const Folder folder;
  const std::vector<std::byte> png = files::encode_png(
      {.width = 8, .height = 8, .rgb = std::vector<uint8_t>(size_t{8 * 8 * 3}, uint8_t{99})});
  folder.write("a.png", {reinterpret_cast<const char*>(png.data()), png.size()});
  const auto line = [](const char* question, const char* images) {
    return std::string(R"({"conversations":[{"from":"human","value":")") + question +
           R"("},{"from":"gpt","value":"x"}],"image":)" + images + "}\n";
  };
  DatasetOptions options = {
      .json_path =
          folder.write("rows.jsonl", line("<image>or<image>", R"(["a.png","a.png"])") +
                                         line("none", "null") + line("gone", R"("b.png")")),
      .prompt_style = "plain",
      .reading = kTiles,
      .processor = {
          .size = 8, .resampling = Resampling::Lanczos, .longest_side = 16, .cuts = true}};
  const Dataset dataset = load_dataset(options, marking_encoder(), {});
  ASSERT_EQ(dataset.train.count(), 3);
  EXPECT_EQ(dataset.train.most_pictures(1), 10);
  EXPECT_EQ(dataset.train.most_pictures(3), 11);
  const auto source = dataset.train_batches();
  std::vector<int64_t> order;  // rows are shuffled
  for (const int64_t number : {2, 1, 3})
    order.push_back(std::ranges::find(dataset.train_numbers, number) -
                    dataset.train_numbers.begin());
  const MicroBatch batch = *source->make(order);
  EXPECT_EQ(batch.num_pictures, 11);
  std::vector<uint8_t> pixels(size_t{11 * 8 * 8 * 3}, 99);
  std::fill(pixels.begin() + 10 * 8 * 8 * 3, pixels.end(), uint8_t{0});
  EXPECT_EQ(batch.pixels, pixels);
  EXPECT_EQ(source->num_unreadable(), 1);
  options.json_path = folder.write("marks.jsonl", line("a <image>", "null"));
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, marking_encoder(), {}); }),
                  "the row has 0 pictures");
  options.json_path = folder.path() / "rows.jsonl";
  options.reading = {};
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, marking_encoder(), {}); }),
                  "this model reads none");
  options.reading = {.image_size = 8, .num_picture_tokens = 3, .picture_token = kPlace};
  EXPECT_CONTAINS(message_of([&] { load_dataset(options, marking_encoder(), {}); }),
                  "reads one picture before a caption");
}

// A picture of 8 × 8 pixels is made 16 × 16 and cut into four; one of 16 × 4 into two.
TEST(PictureSample, BatchesHaveAllTilesOfTheirSamples) {
  const Folder folder;
  const auto add = [&](const char* name, int64_t width, int64_t height) {
    const std::vector<std::byte> png = files::encode_png(
        {.width = width,
         .height = height,
         .rgb = std::vector<uint8_t>(static_cast<size_t>(width * height * 3), uint8_t{99})});
    folder.write(name, {reinterpret_cast<const char*>(png.data()), png.size()});
  };
  add("square.png", 8, 8);
  add("wide.png", 16, 4);
  folder.write("metadata.jsonl",
               "{\"file_name\": \"square.png\", \"text\": \"a square\"}\n"
               "{\"file_name\": \"wide.png\", \"text\": \"a bar\"}\n");
  const DatasetOptions options = {
      .name = "ImageFolder",
      .val_split_fraction = 0,
      .path = folder.path(),
      .reading = kTiles,
      .processor = {
          .size = 8, .resampling = Resampling::Lanczos, .longest_side = 16, .cuts = true}};
  const Dataset dataset = load_dataset(options, marking_encoder(), {});
  ASSERT_EQ(dataset.train.count(), 2);
  EXPECT_EQ(dataset.prompt_style, "plain");
  EXPECT_EQ(dataset.train.most_pictures(1), 5);
  EXPECT_EQ(dataset.train.most_pictures(2), 5 + 3);
  EXPECT_EQ(dataset.train.mean_pictures(), 4);
  const auto source = dataset.train_batches();
  const MicroBatch batch = *source->make(std::vector<int64_t>{0, 1});
  EXPECT_EQ(batch.num_pictures, 8);
  EXPECT_EQ(batch.picture_rows.size(), 8 * 3);
  EXPECT_EQ(batch.pixels, std::vector<uint8_t>(8 * 8 * 8 * 3, 99));
  for (const int32_t row : batch.picture_rows)
    EXPECT_EQ(batch.input_ids[static_cast<size_t>(row)], kPlace);
  EXPECT_EQ(source->num_unreadable(), 0);
}

}  // namespace picture_sample_test
}  // namespace snug::data
