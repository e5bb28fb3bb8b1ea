// Prompts and samples against LitGPT's own (tests/oracles/data.py).
// SPDX-License-Identifier: Apache-2.0
#include "data/sample.h"

#include <nlohmann/json.hpp>

#include "data/micro_batch.h"
#include "data_fixtures.h"
#include "text/template/chat_template.h"

namespace snug::data {
namespace {

using nlohmann::json;

struct Oracle {
  json file = json::parse(read_file(data_file("sft.json")));
  std::vector<Row> rows;
  Oracle() {
    for (const json& row : file["rows"])
      rows.push_back({row["instruction"], row["input"], row["output"], {}});
  }
};

std::string text_of(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids)
    text += id == kEos        ? "$"
            : id < kFirstByte ? "#"
                              : std::string(1, static_cast<char>(id - kFirstByte));
  return text;
}

// The learnt stretches of a sample, others as dots.
std::string labels_of(const Sample& sample) {
  std::string text;
  for (const int32_t label : sample.labels) text += label < 0 ? "." : text_of({label});
  return text;
}

TEST(PromptStyle, EqualsLitGptToTheLetter) {
  const Oracle oracle;
  for (const auto& [style, prompts] : oracle.file["prompts"].items()) {
    const PromptStyle ours = PromptStyle::make(style, byte_encoder(true));
    for (size_t i = 0; i < oracle.rows.size(); ++i)
      EXPECT_EQ(ours.prompt(oracle.rows[i]), prompts[i].get<std::string>())
          << style << " row " << i;
  }
}

TEST(PromptStyle, PlainAndChatJoinTheInput) {
  const Row row = {"do", "this", "done", {}};
  for (const char* name : {"plain", "default", "none"})
    EXPECT_EQ(PromptStyle::make(name, byte_encoder(true)).prompt(row), "do\nthis");
  EXPECT_EQ(PromptStyle::make("chat", chat_encoder()).prompt(row),
            "<user>do\n\nthis/user><assistant>");
}

TEST(PromptStyle, NamesTheNearestStyle) {
  EXPECT_CONTAINS(message_of([] { PromptStyle::make("alpacca", byte_encoder(true)); }),
                  "did you mean alpaca?");
  EXPECT_CONTAINS(message_of([] { PromptStyle::make("chat", byte_encoder(true)); }),
                  "no chat template");
}

TEST(Sample, EqualsLitGptTokenForToken) {
  const Oracle oracle;
  for (const json& wanted : oracle.file["cases"]) {
    const TextEncoder encoder = byte_encoder(wanted["use_bos"]);
    const PromptStyle style = PromptStyle::make(wanted["style"].get<std::string>(), encoder);
    const SampleOptions options = {.mask_prompt = wanted["mask_prompt"],
                                   .max_seq_length = wanted["max_seq_length"]};
    for (size_t i = 0; i < oracle.rows.size(); ++i) {
      const Sample sample = make_sample(oracle.rows[i], style, encoder, options);
      EXPECT_EQ(sample.ids, wanted["ids"][i].get<std::vector<int32_t>>()) << i;
      EXPECT_EQ(sample.labels, wanted["labels"][i].get<std::vector<int32_t>>()) << i;
      EXPECT_EQ(sample.raw_tokens, wanted["raw"][i].get<int64_t>()) << i;
    }
  }
}

TEST(Sample, PaddedBatchEqualsLitGptsCollation) {
  const Oracle oracle;
  for (const json& wanted : oracle.file["cases"]) {
    const TextEncoder encoder = byte_encoder(wanted["use_bos"]);
    const PromptStyle style = PromptStyle::make(wanted["style"].get<std::string>(), encoder);
    std::vector<Sample> samples;
    for (const Row& row : oracle.rows)
      samples.push_back(make_sample(
          row, style, encoder,
          {.mask_prompt = wanted["mask_prompt"], .max_seq_length = wanted["max_seq_length"]}));
    const MicroBatch batch = make_micro_batch(samples, {.packing = false});
    const auto ids = wanted["batch_ids"].get<std::vector<std::vector<int32_t>>>();
    const auto labels = wanted["batch_labels"].get<std::vector<std::vector<int32_t>>>();
    const size_t length = ids[0].size();
    ASSERT_EQ(batch.input_ids.size(), ids.size() * length);
    EXPECT_EQ(batch.padded_tokens, static_cast<int64_t>(ids.size() * length));
    for (size_t s = 0; s < ids.size(); ++s)
      for (size_t t = 0; t < length; ++t) {
        EXPECT_EQ(batch.input_ids[s * length + t], ids[s][t]);
        EXPECT_EQ(batch.targets[s * length + t], t + 1 < length ? labels[s][t + 1] : -100);
      }
  }
}

TEST(Sample, CutsAtTheLimitAndSaysSo) {
  const TextEncoder encoder = byte_encoder(true);
  const PromptStyle style = PromptStyle::make("plain", encoder);
  const Row row = {"abc", "", "de", {}};
  EXPECT_EQ(text_of(make_sample(row, style, encoder, {}).ids), "#abcde$");
  EXPECT_EQ(make_sample(row, style, encoder, {.max_seq_length = 7}).cut_tokens, 0);
  const Sample cut = make_sample(row, style, encoder, {.mask_prompt = true, .max_seq_length = 5});
  EXPECT_EQ(cut.cut_tokens, 2);
  EXPECT_EQ(text_of(cut.ids), "#abcd");
  EXPECT_EQ(labels_of(cut), "....d");
}

TEST(Sample, HasOneBeginAndOneEndHoweverTheTokenizerBehaves) {
  TextEncoder encoder = byte_encoder(true);
  const auto bytes = encoder.encode;
  encoder.encode = [bytes](std::string_view text) {
    std::vector<int32_t> ids = bytes(text);
    ids.insert(ids.begin(), kBos);
    ids.push_back(kEos);
    return ids;
  };
  EXPECT_EQ(text_of(encoder.encode_prompt("a")), "#a$");
  EXPECT_EQ(text_of(encoder.encode_response("a")), "#a$");
  encoder.eos = -1;
  encoder.encode = bytes;
  EXPECT_EQ(text_of(encoder.encode_response("a")), "a");
}

Row conversation() {
  return {"q1",
          "",
          "a1",
          {{"system", "s"},
           {"user", "q1"},
           {"assistant", "a1"},
           {"user", "q2"},
           {"assistant", "a2"},
           {"user", "q3"}}};
}

TEST(Sample, ChatLearnsEveryAnswerAndNothingElse) {
  const TextEncoder encoder = chat_encoder();
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const Sample sample = make_sample(conversation(), style, encoder, {.mask_prompt = true});
  EXPECT_EQ(text_of(sample.ids),
            "<system>s/system><user>q1/user><assistant>a1/assistant><user>q2/user><assistant>a2/"
            "assistant><user>q3/user>");
  EXPECT_EQ(labels_of(sample), std::string(42, '.') + "a1/assistant>" + std::string(25, '.') +
                                   "a2/assistant>" + std::string(14, '.'));
  EXPECT_EQ(make_sample(conversation(), style, encoder, {}).labels, sample.labels)
      << "by default too";
  const Sample whole = make_sample(conversation(), style, encoder, {.mask_prompt = false});
  EXPECT_EQ(whole.ids, whole.labels);
  EXPECT_EQ(whole.ids, sample.ids);
  EXPECT_TRUE(sample.left_out.empty());
}

TEST(Sample, ChatLeavesMarkedAnswersOut) {
  const TextEncoder encoder = chat_encoder();
  const PromptStyle style = PromptStyle::make("chat", encoder);
  Row row = conversation();
  row.messages[2].learnt = false;
  Sample sample = make_sample(row, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(labels_of(sample), std::string(80, '.') + "a2/assistant>" + std::string(14, '.'));
  EXPECT_TRUE(sample.left_out.empty());
  row.messages[2].learnt = true;
  row.messages[4].learnt = false;
  sample = make_sample(row, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(labels_of(sample), std::string(42, '.') + "a1/assistant>" + std::string(52, '.'));
  sample = make_sample(row, style, encoder, {.mask_prompt = false});
  const std::string all = text_of(sample.ids);
  EXPECT_EQ(labels_of(sample), all.substr(0, 80) + std::string(13, '.') + all.substr(93));
}

TEST(Sample, ChatLearnsNoAnswerOfAPromptUnlessPromptsAreLearnt) {
  const TextEncoder encoder = chat_encoder();
  const PromptStyle style = PromptStyle::make("chat", encoder);
  Row row = conversation();
  row.messages[2].in_prompt = true;
  const Sample sample = make_sample(row, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(labels_of(sample), std::string(80, '.') + "a2/assistant>" + std::string(14, '.'));
  const Sample whole = make_sample(row, style, encoder, {.mask_prompt = false});
  EXPECT_EQ(whole.labels, whole.ids);
}

TEST(Sample, EmptyAnswersTeachNothingUnlessTheyAreAskedFor) {
  const TextEncoder encoder = chat_encoder();
  const PromptStyle style = PromptStyle::make("chat", encoder);
  Row row = conversation();
  row.messages[2].content = " ";
  const Sample sample = make_sample(row, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(labels_of(sample), std::string(79, '.') + "a2/assistant>" + std::string(14, '.'));
  ASSERT_EQ(sample.left_out.size(), 1);
  EXPECT_EQ(sample.left_out[0].what, "answer without words");
  EXPECT_EQ(sample.left_out[0].token, 42);
  const Sample kept =
      make_sample(row, style, encoder, {.mask_prompt = true, .keep_empty_answers = true});
  EXPECT_EQ(labels_of(kept).substr(0, 54), std::string(42, '.') + " /assistant>");
  row.messages[2].more = R"({"reasoning_content": "Say nothing."})";
  EXPECT_EQ(labels_of(make_sample(row, style, encoder, {.mask_prompt = true})), labels_of(kept));
}

// As sentencepiece's vocabularies do, which put a space before a text.
TEST(Sample, ChatIsEncodedAsOneText) {
  TextEncoder encoder = chat_encoder();
  encoder.encode = [inner = encoder.encode](std::string_view text) {
    return inner("_" + std::string(text));
  };
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const Sample sample = make_sample(conversation(), style, encoder, {.mask_prompt = true});
  EXPECT_EQ(text_of(sample.ids),
            "_<system>s/system><user>q1/user><assistant>a1/assistant><user>q2/user><assistant>a2/"
            "assistant><user>q3/user>");
  EXPECT_EQ(labels_of(sample), std::string(43, '.') + "a1/assistant>" + std::string(25, '.') +
                                   "a2/assistant>" + std::string(14, '.'));
}

TEST(Sample, TokenOverTheBorderOfAnAnswerIsLearnt) {
  static constexpr int32_t kPair = 900;  // ">a"
  TextEncoder encoder = chat_encoder();
  encoder.encode = [inner = encoder.encode](std::string_view text) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with(">a"))
        ids.push_back(kPair), ++i;
      else
        ids.push_back(inner(text.substr(i, 1)).front());
    }
    return ids;
  };
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const Sample sample = make_sample(conversation(), style, encoder, {.mask_prompt = true});
  const auto learnt = [&](size_t at) { return sample.labels[at] == sample.ids[at]; };
  int pairs = 0;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.ids[i] != kPair) continue;
    ++pairs;
    EXPECT_TRUE(learnt(i) && !learnt(i - 1)) << i;
  }
  EXPECT_EQ(pairs, 2);
  const std::string answer = "1/assistant>";
  EXPECT_EQ(std::ranges::count_if(sample.labels, [](int32_t label) { return label >= 0; }),
            2 * (1 + std::ssize(answer)));
}

// A row of question and answer is a chat of two turns.
TEST(Sample, ChatEndsTheAnswerOfARowAsTheTemplateDoes) {
  const TextEncoder encoder = chat_encoder();
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const Sample sample = make_sample({"q", "i", "a", {}}, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(text_of(sample.ids), "<user>q\n\ni/user><assistant>a/assistant>");
  EXPECT_EQ(labels_of(sample), std::string(27, '.') + "a/assistant>");
}

// Whose text depends on what comes later.
TEST(Sample, ChatWhoseTemplateRewritesEarlierTurnsLearnsEachAnswer) {
  const TextEncoder encoder =
      chat_encoder("{{ messages | length }}" + std::string(kTurns) + "{{ messages | length }}");
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const Sample sample = make_sample(conversation(), style, encoder, {.mask_prompt = true});
  EXPECT_EQ(text_of(sample.ids).substr(0, 9), "6<system>");
  EXPECT_EQ(labels_of(sample), std::string(43, '.') + "a1/assistant>" + std::string(25, '.') +
                                   "a2/assistant>" + std::string(15, '.'));
  EXPECT_TRUE(sample.left_out.empty());
}

// A template that ends nothing itself; "$" is the mark of a turn for this encoder.
TEST(Sample, AnswersThatNothingEndsTakeTheNextMarkAndTheLastAnEnd) {
  TextEncoder encoder = chat_encoder(
      "{% for m in messages %}{{ '$' if m.role == 'user' else '%' }}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}%{% endif %}");
  encoder.is_special = [](int32_t id) { return id == '$' + kFirstByte || id == '%' + kFirstByte; };
  const PromptStyle style = PromptStyle::make("chat", encoder);
  Row row = conversation();
  row.messages.erase(row.messages.begin());
  row.messages.pop_back();
  const Sample sample = make_sample(row, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(sample.ids.back(), kEos);
  EXPECT_EQ(text_of(sample.ids), "$q1%a1$q2%a2$");
  EXPECT_EQ(labels_of(sample), "....a1$...a2$");
  const Sample whole = make_sample(row, style, encoder, {});
  EXPECT_EQ(whole.ids, sample.ids);
}

TEST(Sample, OtherStylesTakeTheFirstExchangeOfAChat) {
  const TextEncoder encoder = byte_encoder(false);
  const Sample sample =
      make_sample(conversation(), PromptStyle::make("plain", encoder), encoder, {});
  EXPECT_EQ(text_of(sample.ids), "q1a1$");
  ASSERT_EQ(sample.left_out.size(), 1);
  EXPECT_EQ(sample.left_out[0].what, "answer");
  EXPECT_EQ(sample.left_out[0].words, "a2");
}

TEST(Sample, ChatWhoseTemplateEndsEveryTextLearnsEachAnswer) {
  const TextEncoder encoder =
      chat_encoder(std::string(kTurns) + "{% if not add_generation_prompt %}.{% endif %}");
  const PromptStyle style = PromptStyle::make("chat", encoder);
  Row row = conversation();
  row.messages.pop_back();
  const Sample sample = make_sample(row, style, encoder, {.mask_prompt = true});
  EXPECT_EQ(labels_of(sample),
            std::string(42, '.') + "a1/assistant>" + std::string(25, '.') + "a2/assistant>.");
}

TEST(Sample, EachAnswerIsASampleWhereTurnsAreSplit) {
  const TextEncoder encoder = chat_encoder();
  const PromptStyle style = PromptStyle::make("chat", encoder);
  const std::vector<Row> rows = split_turns({conversation()});
  ASSERT_EQ(rows.size(), 2);
  const Sample first = make_sample(rows[0], style, encoder, {.mask_prompt = true});
  EXPECT_EQ(text_of(first.ids), "<system>s/system><user>q1/user><assistant>a1/assistant>");
  EXPECT_EQ(labels_of(first), std::string(42, '.') + "a1/assistant>");
  const Sample second = make_sample(rows[1], style, encoder, {.mask_prompt = true});
  EXPECT_EQ(labels_of(second), std::string(80, '.') + "a2/assistant>");
}

TEST(Sample, CallsOfToolsAreLearntAsTheTemplateWritesThem) {
  const TextEncoder encoder = chat_encoder(
      "{% if tools %}[{{ tools | tojson }}]{% endif %}{% for m in messages %}<{{ m.role }}>"
      "{{ m.content or '' }}{% for c in m.tool_calls or [] %}!{{ c.function.arguments | tojson }}"
      "{% endfor %}/{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const Row row{
      .instruction = "q",
      .messages = {{.role = "user", .content = "q"},
                   {.role = "assistant",
                    .content = "",
                    .more =
                        R"({"tool_calls":[{"function":{"arguments":{"z":1}}}],"content":null})"},
                   {.role = "tool", .content = "r"},
                   {.role = "assistant", .content = "x"}},
      .tools = R"([{"b":1,"a":2}])",
      .needs_template = true};
  const Sample sample =
      make_sample(row, PromptStyle::make("chat", encoder), encoder, {.mask_prompt = true});
  EXPECT_EQ(text_of(sample.ids),
            R"([[{"b": 1, "a": 2}]]<user>q/<assistant>!{"z": 1}/<tool>r/<assistant>x/)");
  EXPECT_EQ(labels_of(sample),
            std::string(39, '.') + R"(!{"z": 1}/)" + std::string(19, '.') + "x/");
  EXPECT_CONTAINS(
      message_of([&] { make_sample(row, PromptStyle::make("plain", encoder), encoder, {}); }),
      "tool_calls");
  const tokenizer::ChatTemplate blind("{% for m in messages %}{{ m.content }}{% endfor %}",
                                      "blind");
  EXPECT_CONTAINS(message_of([&] { blind.apply(row.messages, false, "", {}); }), "does not write");
}

TEST(Sample, ATextAloneIsLearntWhole) {
  const TextEncoder encoder = byte_encoder(true);
  const Row row{
      .instruction = "", .input = "", .output = "abc", .messages = {}, .kind = RowKind::Text};
  for (const char* style : {"alpaca", "plain"}) {
    const Sample sample =
        make_sample(row, PromptStyle::make(style, encoder), encoder, {.mask_prompt = true});
    EXPECT_EQ(sample.ids, (std::vector<int32_t>{kBos, 'a' + 3, 'b' + 3, 'c' + 3, kEos}));
    EXPECT_EQ(sample.labels, sample.ids);
  }
}

// People write the end of sequence into their texts.
TEST(Sample, ATextThatEndsItselfHasOneEnd) {
  TextEncoder encoder = byte_encoder(true);
  encoder.encode = [bytes = encoder.encode](std::string_view text) {
    std::vector<int32_t> ids = bytes(text);
    std::ranges::replace(ids, '$' + 3, kEos);
    return ids;
  };
  const PromptStyle style = PromptStyle::make("plain", encoder);
  for (const char* text : {"abc", "abc$"}) {
    const Row row{.output = text, .kind = RowKind::Text};
    const Sample sample = make_sample(row, style, encoder, {});
    EXPECT_EQ(sample.ids, (std::vector<int32_t>{kBos, 'a' + 3, 'b' + 3, 'c' + 3, kEos})) << text;
    EXPECT_EQ(sample.labels, sample.ids);
  }
}

constexpr Reading kEncoder = {.source = true, .decoder_start_token = 0};
constexpr Reading kPictures = {.image_size = 8, .num_picture_tokens = 3, .picture_token = 900};

TEST(SourceSample, PromptIsReadAndAnswerIsLearnt) {
  const TextEncoder encoder = byte_encoder(false);
  const PromptStyle style = PromptStyle::make("plain", encoder);
  const Row row = {"abc", "", "de", {}};
  const Sample sample = make_sample(row, style, encoder, {.reading = kEncoder});
  EXPECT_EQ(text_of(sample.ids), "abc$de$");
  EXPECT_EQ(sample.source_tokens, 4);
  EXPECT_EQ(text_of({sample.labels.begin() + 4, sample.labels.end()}), "de$");
  EXPECT_EQ(std::count(sample.labels.begin(), sample.labels.end(), -100), 4);
  // Each side has the limit to itself; what an encoder reads still ends.
  const Sample cut = make_sample(row, style, encoder, {.max_seq_length = 2, .reading = kEncoder});
  EXPECT_EQ(text_of(cut.ids), "a$de");
  EXPECT_EQ(cut.cut_tokens, 3);
  TextEncoder endless = encoder;
  endless.eos = -1;
  EXPECT_CONTAINS(message_of([&] {
                    make_sample({"", "", "x", {}}, style, endless, {.reading = kEncoder});
                  }),
                  "the prompt is empty");
}

TEST(CaptionSample, OnlyTheCaptionIsLearnt) {
  const TextEncoder encoder = byte_encoder(true);
  const SampleOptions options = {.reading = kPictures};
  const Sample plain = make_caption_sample("", "a cat", encoder, options);
  ASSERT_EQ(plain.ids.size(), 3 + 1 + 5 + 1);
  EXPECT_TRUE(
      std::all_of(plain.ids.begin(), plain.ids.begin() + 3, [](int32_t id) { return id == 900; }));
  EXPECT_EQ(text_of({plain.ids.begin() + 3, plain.ids.end()}), "#a cat$");
  EXPECT_EQ(std::count(plain.labels.begin(), plain.labels.begin() + 4, -100), 4);
  EXPECT_EQ(text_of({plain.labels.begin() + 4, plain.labels.end()}), "a cat$");
  const Sample asked = make_caption_sample("what?", "a cat", encoder, options);
  const Sample marked = make_caption_sample("<image>what?", "a <image>cat", encoder, options);
  EXPECT_EQ(marked.ids, asked.ids);
  EXPECT_EQ(text_of({asked.ids.begin() + 3, asked.ids.end()}), "#what? a cat$");
  EXPECT_EQ(text_of({asked.labels.begin() + 9, asked.labels.end()}), " a cat$");
}

TEST(CaptionSample, TextIsCutAndPlacesStay) {
  const TextEncoder encoder = byte_encoder(true);
  const std::string caption(200, 'x');
  const Sample usual = make_caption_sample("", caption, encoder, {.reading = kPictures});
  EXPECT_EQ(std::ssize(usual.ids), 3 + kCaptionTokens);
  const SampleOptions short_one = {.max_seq_length = 8, .reading = kPictures};
  EXPECT_EQ(make_caption_sample("", caption, encoder, short_one).ids.size(), 8);
  const Sample full = make_caption_sample("a long prompt", "caption", encoder, short_one);
  EXPECT_EQ(full.ids.size(), 8);
  EXPECT_EQ(full.labels, std::vector<int32_t>(8, -100));
  EXPECT_CONTAINS(message_of([&] {
                    make_caption_sample("", "x", encoder,
                                        {.max_seq_length = 4, .reading = kPictures});
                  }),
                  "leaves no room for text behind the 3 places of a picture; use 5 or more");
}

TEST(CaptionSample, EncoderReadsPictureAndPrompt) {
  const TextEncoder encoder = byte_encoder(false);
  Reading reading = kPictures;
  reading.source = true;
  reading.decoder_start_token = 0;
  const Sample sample = make_caption_sample("q:", "cat", encoder, {.reading = reading});
  EXPECT_EQ(sample.source_tokens, 3 + 2 + 1);
  EXPECT_EQ(text_of({sample.ids.begin() + 3, sample.ids.end()}), "q:$cat$");
  EXPECT_EQ(text_of({sample.labels.begin() + 6, sample.labels.end()}), "cat$");
}

}  // namespace
}  // namespace snug::data
