// SPDX-License-Identifier: Apache-2.0
#include "data/sample.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/pictures/picture_sample.h"

namespace snug::data {
namespace {

// A part of a sample: prompt, or answer to be learnt.
struct Segment {
  std::string text;
  bool learnt = false;
  bool left_out = false;  // has no loss even where prompts have
};

// The turns up to the last answer: what comes after it has nothing to be learnt. Empty: no chat.
std::vector<Message> chat_of(const Row& row, const PromptStyle& style) {
  if (row.kind == RowKind::Text || !style.is_chat()) return {};
  if (row.messages.empty()) return {style.question(row), {"assistant", row.output}};
  std::vector<Message> turns = row.messages;
  while (!turns.empty() && turns.back().role != "assistant") turns.pop_back();
  return turns;
}

Segment answer_of(const Message& turn, const std::string& text) {
  return {text, turn.learnt && !turn.in_prompt, !turn.learnt};
}

// Cuts a chat, as the template writes it, at the borders of the assistant's turns. Templates exist
// that write earlier turns differently once later ones follow; then only the last answer is learnt,
// except where they do no more than end every text (Phi-3) with the end of sequence, `eos`.
// Answers are what the template makes of them, without the line breaks behind them.
std::vector<Segment> chat_segments(std::span<const Message> turns, const PromptStyle& style,
                                   std::string_view tools, const std::string& eos) {
  std::vector<Segment> segments;
  const std::string prompt = style.render(turns.first(turns.size() - 1), true, tools);
  const std::string answer = style.render_answer(prompt, turns, tools);
  size_t written = 0;
  for (size_t i = 0; i + 1 < turns.size(); ++i) {
    if (turns[i].role != "assistant") continue;
    const std::string before = i == 0 ? std::string() : style.render(turns.first(i), true, tools);
    std::string after = style.render(turns.first(i + 1), false, tools);
    if (!prompt.starts_with(after) && !eos.empty() && after.ends_with(eos))
      after.resize(after.size() - eos.size());
    if (before.size() < written || !after.starts_with(before) || !prompt.starts_with(after))
      return {{prompt, false}, answer_of(turns.back(), answer)};
    std::string earlier = after.substr(before.size());
    earlier.erase(earlier.find_last_not_of(" \t\r\n") + 1);
    segments.push_back({before.substr(written), false});
    segments.push_back(answer_of(turns[i], earlier));
    written = before.size() + earlier.size();
  }
  segments.push_back({prompt.substr(written), false});
  segments.push_back(answer_of(turns.back(), answer));
  return segments;
}

std::vector<Segment> segments_of(const Row& row, std::span<const Message> chat,
                                 const PromptStyle& style, const std::string& eos) {
  if (row.kind == RowKind::Text) return {{row.output, true}};
  if (!chat.empty()) return chat_segments(chat, style, row.tools, eos);
  if (row.needs_template)
    throw UserError(
        "an answer calls tools (\"tool_calls\"), which prompt style {} does not write; use a model "
        "with a chat template and data.prompt_style: chat, or put the call into \"content\"",
        style.name());
  return {{style.prompt(row), false}, {row.output, true}};
}

// Puts the pictures in their places. Returns how many the model sees, with their tiles.
int64_t insert_pictures(std::vector<Segment>& segments, std::span<const Grid> grids, int64_t places,
                        const std::string& style) {
  int64_t marks = 0, num_pictures = 0;
  for (const Segment& segment : segments) {
    const int64_t own = count_marks(segment.text);
    if (own > 0 && segment.learnt)
      throw UserError("an answer has {}, and pictures can only be in questions; leave it out",
                      kPictureMark);
    marks += own;
  }
  if (marks != std::ssize(grids))
    throw UserError(
        "the row has {} picture{}, and its text as prompt style {} writes it has {} {} times; "
        "write it once for each picture; the style chat takes the later questions of a chat too",
        grids.size(), grids.size() == 1 ? "" : "s", style, kPictureMark, marks);
  for (Segment& segment : segments) {
    const auto own = grids.first(static_cast<size_t>(count_marks(segment.text)));
    num_pictures += insert_pictures(segment.text, own, places);
    grids = grids.subspan(own.size());
  }
  return num_pictures;
}

// Ids cut to `limit`; an end of sequence that an encoder reads stays its last token.
struct Cut {
  std::vector<int32_t> ids;
  int64_t cut_tokens = 0;
};

Cut cut_to(std::vector<int32_t> ids, int64_t limit, int32_t last) {
  Cut cut{.ids = std::move(ids)};
  if (limit <= 0 || std::ssize(cut.ids) <= limit) return cut;
  cut.cut_tokens = std::ssize(cut.ids) - limit;
  cut.ids.resize(static_cast<size_t>(limit));
  if (last >= 0) cut.ids.back() = last;
  return cut;
}

std::vector<int32_t> encode_source(const std::string& text, const TextEncoder& encoder) {
  std::vector<int32_t> ids = encoder.encode_prompt(text);
  if (encoder.eos >= 0 && (ids.empty() || ids.back() != encoder.eos)) ids.push_back(encoder.eos);
  return ids;
}

// Appends ids, with labels of their own where they are learnt.
void append(Sample& sample, const Cut& cut, bool learnt, int32_t ignore_index) {
  sample.ids.insert(sample.ids.end(), cut.ids.begin(), cut.ids.end());
  if (learnt) sample.labels.insert(sample.labels.end(), cut.ids.begin(), cut.ids.end());
  sample.labels.resize(sample.ids.size(), ignore_index);
  sample.cut_tokens += cut.cut_tokens;
}

// The placeholders of the picture that a sample begins with.
void begin_with_picture(Sample& sample, const Reading& reading) {
  sample.ids.assign(static_cast<size_t>(reading.num_picture_tokens), reading.picture_token);
  sample.num_pictures = reading.num_picture_tokens > 0 ? 1 : 0;
}

// What an encoder reads, then what the decoder learns.
Sample source_and_target(const std::string& prompt, const std::string& answer,
                         const TextEncoder& encoder, const SampleOptions& options, int64_t limit) {
  Sample sample;
  begin_with_picture(sample, options.reading);
  append(sample, cut_to(encode_source(prompt, encoder), limit, encoder.eos), false,
         options.ignore_index);
  sample.source_tokens = std::ssize(sample.ids);
  if (sample.source_tokens == 0)
    throw UserError("the prompt is empty, but an encoder needs a token to read; give a prompt");
  append(sample, cut_to(encoder.encode_response(answer), limit, -1), true, options.ignore_index);
  return sample;
}

// Where a segment ends that begins at `begin` of the whole text's ids, if it is encoded there as by
// itself, but perhaps for a first token, the space before a text.
std::optional<std::vector<int32_t>::const_iterator> end_of(
    const std::vector<int32_t>& alone, std::vector<int32_t>::const_iterator begin,
    std::vector<int32_t>::const_iterator last) {
  for (const std::ptrdiff_t skipped : {0, 1}) {
    const std::ptrdiff_t count = std::ssize(alone) - skipped;
    if (count >= skipped && count <= last - begin &&
        std::equal(alone.begin() + skipped, alone.end(), begin))
      return begin + count;
  }
  return std::nullopt;
}

// The ids of each segment, cut out of those of the whole text: tokenizers that put a space before a
// text would put one before each segment. A token over a border is the later segment's.
std::vector<std::vector<int32_t>> encode_chat(std::span<const Segment> segments,
                                              const TextEncoder& encoder) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  const std::vector<int32_t> whole = encoder.with_eos(encoder.encode_prompt(text));
  std::vector<std::vector<int32_t>> ids;
  auto begin = whole.begin();
  size_t length = 0;
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    length += segments[i].text.size();
    std::optional<std::vector<int32_t>::const_iterator> end;
    if (i > 0) end = end_of(encoder.encode(segments[i].text), begin, whole.end());
    if (!end) {
      const auto before = encoder.encode_prompt(std::string_view(text).substr(0, length));
      end = std::max(begin, std::ranges::mismatch(whole, before).in1);
    }
    ids.emplace_back(begin, *end);
    begin = *end;
  }
  ids.emplace_back(begin, whole.end());
  return ids;
}

// The ids of each segment by itself.
std::vector<std::vector<int32_t>> encode_parts(std::span<const Segment> segments,
                                               const TextEncoder& encoder) {
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < segments.size(); ++i)
    ids.push_back(i == 0 ? encoder.encode_prompt(segments[i].text)
                         : encoder.encode(segments[i].text));
  ids.back() = encoder.with_eos(std::move(ids.back()));
  return ids;
}

// How many tokens of text stand beside a picture.
int64_t room_for_text(const SampleOptions& options) {
  if (options.max_seq_length <= 0) return kCaptionTokens;
  const int64_t room = options.max_seq_length - options.reading.num_picture_tokens;
  if (room < 2)
    throw UserError(
        "train.max_seq_length = {} leaves no room for text behind the {} places of a picture; use "
        "{} or more",
        options.max_seq_length, options.reading.num_picture_tokens,
        options.reading.num_picture_tokens + 2);
  return room;
}

int64_t count_left_out(const Row& row, std::span<const Segment> segments, bool last_alone) {
  const auto answers = std::ranges::count_if(row.messages, [](const Message& turn) {
    return turn.role == "assistant" && turn.learnt && !turn.in_prompt;
  });
  const auto learnt = last_alone ? 1 : std::ranges::count(segments, true, &Segment::learnt);
  return std::max<int64_t>(0, answers - learnt);
}

// LitGPT's "raw" count: the instruction and the answer without template, each under the limit.
int64_t count_raw(const Row& row, const TextEncoder& encoder, int64_t limit) {
  const auto limited = [limit](const std::vector<int32_t>& ids) {
    const auto count = static_cast<int64_t>(ids.size());
    return limit > 0 ? std::min(count, limit) : count;
  };
  return limited(encoder.encode_prompt(row.instruction)) +
         limited(encoder.encode_response(row.output));
}

}  // namespace

Sample make_sample(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                   const SampleOptions& options, std::span<const Grid> grids) {
  SNUG_CHECK(options.ignore_index < 0, "ignore_index {}", options.ignore_index);
  const bool has_pictures = options.reading.image_size > 0;
  const std::vector<Message> chat = chat_of(row, style);
  std::vector<Segment> segments = segments_of(row, chat, style, encoder.eos_text);
  if (options.reading.source) {
    std::string prompt;
    if (row.kind == RowKind::Text)
      throw UserError(
          "the row is a text alone, and this model's encoder reads a question; give it columns "
          "such "
          "as \"instruction\" and \"output\"");
    for (size_t i = 0; i + 1 < segments.size(); ++i) prompt += segments[i].text;
    SampleOptions text_alone = options;
    text_alone.reading.num_picture_tokens = 0;
    const std::string& answer = chat.empty() ? segments.back().text : chat.back().content;
    Sample sample = source_and_target(prompt, answer, encoder, text_alone, options.max_seq_length);
    sample.raw_tokens = count_raw(row, encoder, options.max_seq_length);
    sample.left_out_answers = count_left_out(row, segments, true);
    return sample;
  }
  Sample sample;
  if (has_pictures)
    sample.num_pictures =
        insert_pictures(segments, grids, options.reading.num_picture_tokens, style.name());
  const std::vector<std::vector<int32_t>> parts = chat.empty() || has_pictures
                                                      ? encode_parts(segments, encoder)
                                                      : encode_chat(segments, encoder);
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::vector<int32_t>& ids = parts[i];
    sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
    const bool with_prompts = !(options.mask_prompt || has_pictures || segments[i].left_out);
    if (segments[i].learnt || with_prompts)
      sample.labels.insert(sample.labels.end(), ids.begin(), ids.end());
    else
      sample.labels.resize(sample.ids.size(), options.ignore_index);
  }
  if (has_pictures) check_places(sample, options.reading);
  const auto limit = static_cast<size_t>(std::max<int64_t>(options.max_seq_length, 0));
  if (limit > 0 && sample.ids.size() > limit) {
    sample.cut_tokens = std::ssize(sample.ids) - static_cast<int64_t>(limit);
    sample.ids.resize(limit);
    if (has_pictures && std::ranges::count(sample.ids, options.reading.picture_token) !=
                            sample.num_pictures * options.reading.num_picture_tokens)
      throw UserError(
          "pictures and questions take more than the {} tokens of train.max_seq_length; raise it, "
          "or let preprocessor_config.json cut pictures into fewer tiles (size.longest_edge, "
          "do_image_splitting)",
          limit);
    sample.labels.resize(limit);
  }
  sample.raw_tokens = count_raw(row, encoder, options.max_seq_length);
  sample.left_out_answers = count_left_out(row, segments, false);
  return sample;
}

Sample make_caption_sample(const std::string& asked, const std::string& told,
                           const TextEncoder& encoder, const SampleOptions& options) {
  const std::string prompt = without_marks(asked), caption = without_marks(told);
  const int64_t limit = room_for_text(options);
  const auto raw_tokens = static_cast<int64_t>(encoder.encode(caption).size());
  Sample sample;
  if (options.reading.source) {
    sample = source_and_target(prompt, caption, encoder, options, limit);
  } else {
    begin_with_picture(sample, options.reading);
    const Cut before = cut_to(encoder.encode_prompt(prompt), limit, -1);
    append(sample, before, false, options.ignore_index);
    // Tokenizers that put a word's space in front of it see "prompt caption" as these two parts.
    const bool spaced = prompt.empty() || prompt.ends_with(' ') || prompt.ends_with('\n');
    const int64_t left = limit - std::ssize(before.ids);
    Cut after = cut_to(encoder.encode_response(spaced ? caption : " " + caption), left, -1);
    if (left <= 0) after = {{}, std::ssize(after.ids)};
    append(sample, after, true, options.ignore_index);
  }
  sample.raw_tokens = std::min(raw_tokens, limit);
  return sample;
}

}  // namespace snug::data
