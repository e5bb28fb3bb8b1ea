// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_sample.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace snug::data {
namespace {

// What is read, and what is learned behind it.
struct Turns {
  std::string question, answer;
};

Turns chat_turns(const std::string& question, const std::string& answer, const PromptStyle& style) {
  const std::array<Message, 2> turns{Message{"user", question}, Message{"assistant", answer}};
  const tokenizer::RenderedChat chat = style.render_chat(turns);
  if (chat.answers.empty())
    throw UserError(
        "the model's chat template writes no answer; use another (chat_template.jinja), or the "
        "prompt style plain");
  const size_t begin = chat.answers.front().begin;
  return {chat.text.substr(0, begin), chat.text.substr(begin)};
}

Turns plain_turns(const std::string& question, const std::string& answer) {
  const bool spaced =
      question.ends_with(kPictureMark) || question.ends_with(' ') || question.ends_with('\n');
  return {question, spaced ? answer : " " + answer};
}

}  // namespace

int64_t room_for_answer(const Sample& question, const SampleOptions& options) {
  if (options.max_seq_length <= 0) return kCaptionTokens;
  const int64_t room = options.max_seq_length - std::ssize(question.ids);
  if (room < 1)
    throw UserError(
        "picture and prompt take {} tokens, which leaves none of train.max_seq_length = {} for the "
        "answer; raise it, or let preprocessor_config.json cut pictures into fewer tiles "
        "(size.longest_edge, do_image_splitting)",
        question.ids.size(), options.max_seq_length);
  return room;
}

std::string with_marks(const std::string& prompt, int64_t count) {
  const int64_t found = count_marks(prompt);
  if (found == count) return prompt;
  if (found > 0)
    throw UserError(
        "the prompt has {} {} times for {} picture{}: write it once for each, or not at all, which "
        "puts them before the text",
        kPictureMark, found, count, count == 1 ? "" : "s");
  std::string marks;
  for (int64_t i = 0; i < count; ++i) marks += kPictureMark;
  return marks + prompt;
}

int64_t insert_pictures(std::string& text, std::span<const Grid> grids, int64_t places) {
  int64_t num_pictures = 0;
  size_t at = 0;
  for (const Grid& grid : grids) {
    at = text.find(kPictureMark, at);
    SNUG_CHECK(at != text.npos, "{} pictures in a text with fewer marks", grids.size());
    const std::string picture = text_of_picture(grid, places);
    text.replace(at, kPictureMark.size(), picture);
    at += picture.size();
    num_pictures += grid.num_pictures();
  }
  return num_pictures;
}

void check_places(const Sample& sample, const Reading& reading) {
  const auto found = std::ranges::count(sample.ids, reading.picture_token);
  const int64_t wanted = sample.num_pictures * reading.num_picture_tokens;
  if (found != wanted)
    throw UserError(
        "pictures of {} tiles have {} places of token {} for {}: the tokenizer does not belong to "
        "this model, whose config.json says image_token_id = {} for {}",
        sample.num_pictures, found, reading.picture_token, wanted, reading.picture_token,
        kPictureMark);
}

Sample make_question(std::string text, std::span<const Grid> grids, const TextEncoder& encoder,
                     const SampleOptions& options) {
  if (count_marks(text) != std::ssize(grids))
    throw UserError(
        "the model's chat template leaves out pictures; use another (chat_template.jinja), or the "
        "prompt style plain");
  Sample sample;
  sample.num_pictures = insert_pictures(text, grids, options.reading.num_picture_tokens);
  sample.ids = encoder.encode_prompt(text);
  sample.labels.assign(sample.ids.size(), options.ignore_index);
  check_places(sample, options.reading);
  return sample;
}

Sample make_picture_sample(const std::string& prompt, const std::string& answer, const Grid& grid,
                           const PromptStyle& style, const TextEncoder& encoder,
                           const SampleOptions& options) {
  const std::string asked = with_marks(prompt, 1), told = without_marks(answer);
  Turns turns = style.is_chat() ? chat_turns(asked, told, style) : plain_turns(asked, told);
  Sample sample = make_question(std::move(turns.question), {&grid, 1},
                                style.encoder_of_prompts(encoder), options);
  const int64_t room = room_for_answer(sample, options);
  std::vector<int32_t> learned = encoder.encode(turns.answer);
  const bool ends = style.is_chat() &&
                    std::ranges::any_of(learned, [&](int32_t id) { return encoder.ends_turn(id); });
  if (!ends) learned = encoder.with_eos(std::move(learned));
  sample.cut_tokens = std::max<int64_t>(0, std::ssize(learned) - room);
  learned.resize(learned.size() - static_cast<size_t>(sample.cut_tokens));
  sample.ids.insert(sample.ids.end(), learned.begin(), learned.end());
  sample.labels.insert(sample.labels.end(), learned.begin(), learned.end());
  sample.raw_tokens = std::min(static_cast<int64_t>(encoder.encode(told).size()), room);
  return sample;
}

}  // namespace snug::data
