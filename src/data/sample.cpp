// SPDX-License-Identifier: Apache-2.0
#include "data/sample.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/document_sample.h"
#include "data/pictures/picture_sample.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

constexpr size_t kWordsBytes = 80;

// A part of a sample: prompt, or answer to be learnt.
struct Segment {
  std::string text;
  bool learnt = false;
  bool left_out = false;  // has no loss even where prompts have
  bool is_answer = false;
  bool is_open = false;  // an answer behind which the template writes nothing of its own
};

struct Segments {
  std::vector<Segment> parts;
  std::vector<LeftOut> left_out;  // `token`: the part before which it is shown
};

bool is_blank(std::string_view text) { return trimmed(text).empty(); }

// Empty: no chat.
std::vector<Message> chat_of(const Row& row, const PromptStyle& style) {
  if (row.kind == RowKind::Text || !style.is_chat()) return {};
  if (row.messages.empty()) return {style.question(row), {"assistant", row.output}};
  return row.messages;
}

// Whether a template writes nothing of its own behind an answer.
bool is_open(const Message& turn, std::string_view text) {
  constexpr std::string_view kThought = "</think>";
  std::string_view words = turn.content;
  if (const size_t thought = words.rfind(kThought); thought != words.npos)
    words.remove_prefix(thought + kThought.size());
  return is_blank(words) || turn.calls_tools() || trimmed(text).ends_with(trimmed(words));
}

// The text of a chat, cut where the words of an assistant begin and end.
Segments chat_segments(std::span<const Message> turns, const PromptStyle& style,
                       const std::string& tools, const SampleOptions& options) {
  const tokenizer::RenderedChat chat = style.render_chat(turns, tools);
  Segments segments;
  size_t written = 0;
  auto left_out = chat.left_out.begin();
  const auto add = [&](size_t end, Segment segment) {
    while (left_out != chat.left_out.end() && left_out->at <= written) {
      segments.left_out.push_back(
          {std::ssize(segments.parts), left_out->what, shortened(left_out->words, kWordsBytes)});
      ++left_out;
    }
    if (end <= written) return;
    segment.text = chat.text.substr(written, end - written);
    segments.parts.push_back(std::move(segment));
    written = end;
  };
  const auto add_until = [&](size_t end, const Segment& segment) {
    while (left_out != chat.left_out.end() && left_out->at < end)
      add(std::max(left_out->at, written), segment);
    add(end, segment);
  };
  for (const tokenizer::RenderedChat::Answer& answer : chat.answers) {
    add_until(answer.begin, {});
    const Message& turn = turns[answer.turn];
    const bool calls =
        turn.calls_tools() && std::ranges::none_of(chat.left_out, [&](const auto& left_out) {
          return left_out.what == "call" && left_out.turn == answer.turn;
        });
    const bool is_silent = is_blank(turn.content) || turn.calls_are_content;
    const bool says_nothing =
        !options.keep_empty_answers && is_silent && turn.thought().empty() && !calls;
    if (says_nothing)
      segments.left_out.push_back({std::ssize(segments.parts), "answer without words", ""});
    const std::string_view text =
        std::string_view(chat.text).substr(answer.begin, answer.end - answer.begin);
    add_until(answer.end, {.learnt = turn.learnt && !turn.in_prompt && !says_nothing,
                           .left_out = !turn.learnt || says_nothing,
                           .is_answer = true,
                           .is_open = is_open(turn, text)});
  }
  add_until(chat.text.size(), {});
  add(written, {});
  return segments;
}

Segments segments_of(const Row& row, std::span<const Message> chat, const PromptStyle& style,
                     const SampleOptions& options) {
  const Segment answer{.text = row.output, .learnt = true, .is_answer = true};
  if (row.kind == RowKind::Text) return {{answer}, {}};
  if (!chat.empty()) return chat_segments(chat, style, row.tools, options);
  if (row.needs_template)
    throw UserError(
        "an answer calls tools (\"tool_calls\"), which prompt style {} does not write; use a model "
        "with a chat template and data.prompt_style: chat, or put the call into \"content\"",
        style.name());
  Segments segments{{{.text = style.prompt(row)}, answer}, {}};
  // These styles take the first question and answer of a chat.
  bool is_first = true;
  for (const Message& turn : row.messages) {
    if (turn.role != "assistant" || !turn.learnt || turn.in_prompt) continue;
    if (!std::exchange(is_first, false))
      segments.left_out.push_back({2, "answer", shortened(turn.content, kWordsBytes)});
  }
  return segments;
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

// LitGPT's "raw" count: the instruction and the answer without template, each under the limit.
int64_t count_raw(const Row& row, const TextEncoder& encoder, int64_t limit) {
  const auto limited = [limit](const std::vector<int32_t>& ids) {
    const auto count = static_cast<int64_t>(ids.size());
    return limit > 0 ? std::min(count, limit) : count;
  };
  return limited(encoder.encode_prompt(row.instruction)) +
         limited(encoder.encode_response(row.output));
}

// The last answer, behind all that comes before it.
Sample read_and_answered(const Row& row, std::span<const Message> chat, const Segments& all,
                         const TextEncoder& encoder, SampleOptions options) {
  // The number of parts before it; all of them where there is none.
  size_t last = all.parts.size();
  for (size_t i = 0; i < all.parts.size(); ++i)
    if (all.parts[i].is_answer) last = i;
  std::string prompt, answer;
  int64_t earlier = 0;
  for (const Segment& part : std::span(all.parts).first(last)) {
    prompt += part.text;
    earlier += part.is_answer && part.learnt ? 1 : 0;
  }
  if (last < all.parts.size()) answer = all.parts[last].text;
  for (const Message& turn : chat)
    if (turn.role == "assistant") answer = turn.content;
  options.reading.num_picture_tokens = 0;
  Sample sample = source_and_target(prompt, answer, encoder, options, options.max_seq_length);
  sample.raw_tokens = count_raw(row, encoder, options.max_seq_length);
  for (int64_t i = 0; i < earlier; ++i) sample.left_out.push_back({0, "answer", ""});
  for (const LeftOut& left_out : all.left_out)
    sample.left_out.push_back({0, left_out.what, left_out.words});
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
  const std::vector<int32_t> whole = encoder.encode(text);
  std::vector<std::vector<int32_t>> ids;
  auto begin = whole.begin();
  size_t length = 0;
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    length += segments[i].text.size();
    std::optional<std::vector<int32_t>::const_iterator> end;
    if (i > 0) end = end_of(encoder.encode(segments[i].text), begin, whole.end());
    if (!end) {
      const auto before = encoder.encode(std::string_view(text).substr(0, length));
      end = std::max(begin, std::ranges::mismatch(whole, before).in1);
    }
    ids.emplace_back(begin, *end);
    begin = *end;
  }
  ids.emplace_back(begin, whole.end());
  return ids;
}

// The ids of each segment by itself.
std::vector<std::vector<int32_t>> encode_parts(std::span<const Segment> segments, bool is_chat,
                                               const TextEncoder& encoder) {
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < segments.size(); ++i)
    ids.push_back(i == 0 && !is_chat ? encoder.encode_prompt(segments[i].text)
                                     : encoder.encode(segments[i].text));
  if (!is_chat) ids.back() = encoder.with_eos(std::move(ids.back()));
  return ids;
}

// An answer behind which the template writes nothing ends with the mark of the turn behind it, from
// which it gets that token; behind the last one stands an end of sequence.
void end_answers(std::span<const Segment> segments, std::vector<std::vector<int32_t>>& ids,
                 const TextEncoder& encoder) {
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i].is_open || !segments[i].learnt) continue;
    // </tool_call> and the like are marks that end no turn.
    const auto closes_tag = [&](int32_t id) {
      return id != encoder.eos && encoder.text_of && encoder.text_of(id).starts_with("</") &&
             encoder.text_of(id) != "</s>";
    };
    const auto is_text = [&](int32_t id) {
      return !encoder.text_of || !is_blank(encoder.text_of(id));
    };
    const auto last = std::ranges::find_if(ids[i].rbegin(), ids[i].rend(), is_text);
    if (last != ids[i].rend() && encoder.ends_turn(*last) && !closes_tag(*last)) continue;
    if (i + 1 == segments.size()) {
      ids[i] = encoder.with_eos(std::move(ids[i]));
    } else if (!ids[i + 1].empty() && encoder.ends_turn(ids[i + 1].front())) {
      ids[i].push_back(ids[i + 1].front());
      ids[i + 1].erase(ids[i + 1].begin());
    }
  }
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

// Tokens to which the row's sample is cut; 0: it is not.
int64_t limit_of(const Row& row, const SampleOptions& options) {
  const bool is_cut = options.long_rows == LongRows::Cut ||
                      (options.long_rows == LongRows::Auto && row.kind != RowKind::Text);
  return is_cut ? std::max<int64_t>(options.max_seq_length, 0) : 0;
}

// Tokenizers have tokens for which the model has no row, such as those of pictures in a model that
// sees none; a text that has one would read beyond the embedding.
void check_tokens(const Sample& sample, const TextEncoder& encoder, const SampleOptions& options) {
  if (options.vocabulary <= 0) return;
  for (const int32_t id : sample.ids)
    if (id >= options.vocabulary && id != options.reading.picture_token)
      throw UserError(
          "it has the token {}{}, and the model's embedding has {} rows; take the token out, or "
          "the "
          "tokenizer that belongs to the model",
          id, encoder.text_of ? " (" + encoder.text_of(id) + ")" : "", options.vocabulary);
}

}  // namespace

std::string counted(int64_t count, const std::string& what) {
  std::string words = with_commas(count) + " " + what;
  if (count != 1) words.insert(std::min(words.find(' ', words.find(' ') + 1), words.size()), "s");
  return words;
}

Sample make_sample(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                   const SampleOptions& options, std::span<const Grid> grids) {
  SNUG_CHECK(options.ignore_index < 0, "ignore_index {}", options.ignore_index);
  if (options.is_document) {
    Sample document = make_document(row, style, encoder, options);
    check_tokens(document, encoder, options);
    return document;
  }
  const bool has_pictures = options.reading.image_size > 0;
  const std::vector<Message> chat = chat_of(row, style);
  Segments all = segments_of(row, chat, style, options);
  std::vector<Segment>& segments = all.parts;
  if (options.reading.source) {
    if (row.kind == RowKind::Text)
      throw UserError(
          "the row is a text alone, and this model's encoder reads a question; give it columns "
          "such as \"instruction\" and \"output\"");
    Sample sample = read_and_answered(row, chat, all, encoder, options);
    check_tokens(sample, encoder, options);
    return sample;
  }
  Sample sample;
  if (has_pictures)
    sample.num_pictures =
        insert_pictures(segments, grids, options.reading.num_picture_tokens, style.name());
  std::vector<std::vector<int32_t>> parts = chat.empty() || has_pictures
                                                ? encode_parts(segments, !chat.empty(), encoder)
                                                : encode_chat(segments, encoder);
  end_answers(segments, parts, encoder);
  const auto take_left_out = [&](int64_t part) {
    for (const LeftOut& left_out : all.left_out)
      if (left_out.token == part)
        sample.left_out.push_back({std::ssize(sample.ids), left_out.what, left_out.words});
  };
  const bool masks = has_pictures || options.mask_prompt.value_or(row.kind == RowKind::Question &&
                                                                  !row.messages.empty());
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::vector<int32_t>& ids = parts[i];
    take_left_out(static_cast<int64_t>(i));
    sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
    if (segments[i].learnt || !(masks || segments[i].left_out))
      sample.labels.insert(sample.labels.end(), ids.begin(), ids.end());
    else
      sample.labels.resize(sample.ids.size(), options.ignore_index);
  }
  if (has_pictures) check_places(sample, options.reading);
  check_tokens(sample, encoder, options);
  const auto limit = static_cast<size_t>(limit_of(row, options));
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
  take_left_out(std::ssize(segments));
  sample.raw_tokens = count_raw(row, encoder, static_cast<int64_t>(limit));
  return sample;
}

namespace {

// The tokens that all begin with and that have no loss.
int64_t shared_prompt(const std::vector<Sample>& samples, int32_t ignore_index) {
  const Sample& first = samples.front();
  int64_t count = 0;
  const auto is_shared = [&](const Sample& sample) {
    const auto at = static_cast<size_t>(count);
    return count < std::ssize(sample.ids) && sample.ids[at] == first.ids[at] &&
           sample.labels[at] == ignore_index;
  };
  while (std::ranges::all_of(samples, is_shared)) ++count;
  return count;
}

// A ready prompt's continuations, each encoded with it as one text. They begin where the tokens of
// any of them depart from the prompt's own, as in TRL: a token over the border is theirs.
std::vector<Sample> continuations(const std::string& prompt, std::span<const Row* const> rows,
                                  const TextEncoder& encoder, int32_t ignore_index) {
  const std::vector<int32_t> asked = encoder.encode_prompt(prompt);
  auto shared = std::ssize(asked);
  std::vector<Sample> samples;
  for (const Row* row : rows) {
    Sample& sample = samples.emplace_back();
    sample.ids = encoder.with_eos(encoder.encode_prompt(prompt + row->output));
    sample.raw_tokens = std::ssize(sample.ids);
    shared = std::min(shared, std::ranges::mismatch(asked, sample.ids).in1 - asked.begin());
  }
  for (Sample& sample : samples) {
    sample.labels = sample.ids;
    std::fill_n(sample.labels.begin(), shared, ignore_index);
  }
  return samples;
}

}  // namespace

void cut_together(std::vector<Sample>& samples, int64_t limit, int32_t ignore_index) {
  int64_t beyond = 0;
  for (const Sample& sample : samples) beyond = std::max(beyond, std::ssize(sample.ids) - limit);
  if (limit <= 0 || beyond <= 0) return;
  const auto front =
      static_cast<std::ptrdiff_t>(std::min(beyond, shared_prompt(samples, ignore_index)));
  for (Sample& sample : samples)
    for (std::vector<int32_t>* tokens : {&sample.ids, &sample.labels}) {
      const auto size = std::ssize(*tokens);
      tokens->erase(tokens->begin(), tokens->begin() + front);
      if (std::ssize(*tokens) > limit) tokens->resize(static_cast<size_t>(limit));
      if (tokens == &sample.ids) sample.cut_tokens += size - std::ssize(*tokens);
    }
}

std::vector<Sample> make_samples(const Row& row, const PromptStyle& style,
                                 const TextEncoder& encoder, const SampleOptions& options) {
  SampleOptions whole = options;
  whole.mask_prompt = true;
  whole.long_rows = LongRows::Cut;
  whole.max_seq_length = 0;
  std::vector<const Row*> rows{&row};
  for (const Row& other : row.others) rows.push_back(&other);
  const bool continues = !style.is_chat() && std::ranges::all_of(rows, [&](const Row* own) {
    return own->kind == RowKind::Completion && own->instruction == row.instruction;
  });
  std::vector<Sample> samples;
  if (continues)
    samples = continuations(style.prompt(row), rows, encoder, options.ignore_index);
  else
    for (const Row* own : rows) samples.push_back(make_sample(*own, style, encoder, whole));
  if (options.long_rows != LongRows::Drop)
    cut_together(samples, options.max_seq_length, options.ignore_index);
  return samples;
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
