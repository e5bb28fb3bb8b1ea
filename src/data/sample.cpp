// SPDX-License-Identifier: Apache-2.0
#include "data/sample.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace snug::data {
namespace {

// A stretch of a sample: prompt, or answer to be learnt.
struct Segment {
  std::string text;
  bool learnt = false;
};

// The turns up to the last answer: what comes after it has nothing to be learnt.
std::span<const Message> answered_turns(const Row& row) {
  size_t count = row.messages.size();
  while (count > 0 && row.messages[count - 1].role != "assistant") --count;
  return {row.messages.data(), count};
}

// Cuts a chat, as the template writes it, at the borders of the assistant's turns. Templates exist
// that write earlier turns differently once later ones follow; then only the last answer is learnt.
std::vector<Segment> chat_segments(std::span<const Message> turns, const PromptStyle& style) {
  std::vector<Segment> segments;
  const Message& last = turns.back();
  const std::string prompt = style.render(turns.first(turns.size() - 1), true);
  size_t written = 0;
  for (size_t i = 0; i + 1 < turns.size(); ++i) {
    if (turns[i].role != "assistant") continue;
    const std::string before = i == 0 ? std::string() : style.render(turns.first(i), true);
    const std::string after = style.render(turns.first(i + 1), false);
    if (before.size() < written || !after.starts_with(before) || !prompt.starts_with(after))
      return {{prompt, false}, {last.content, true}};
    segments.push_back({before.substr(written), false});
    segments.push_back({after.substr(before.size()), true});
    written = after.size();
  }
  segments.push_back({prompt.substr(written), false});
  segments.push_back({last.content, true});
  return segments;
}

std::vector<Segment> segments_of(const Row& row, const PromptStyle& style) {
  if (style.is_chat() && !row.messages.empty()) return chat_segments(answered_turns(row), style);
  return {{style.prompt(row), false}, {row.output, true}};
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
                   const SampleOptions& options) {
  SNUG_CHECK(options.ignore_index < 0, "ignore_index {}", options.ignore_index);
  const std::vector<Segment> segments = segments_of(row, style);
  Sample sample;
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::string& text = segments[i].text;
    const std::vector<int32_t> ids = i == 0                     ? encoder.encode_prompt(text)
                                     : i + 1 == segments.size() ? encoder.encode_response(text)
                                                                : encoder.encode(text);
    sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
    if (segments[i].learnt || !options.mask_prompt)
      sample.labels.insert(sample.labels.end(), ids.begin(), ids.end());
    else
      sample.labels.resize(sample.ids.size(), options.ignore_index);
  }
  const auto limit = static_cast<size_t>(std::max<int64_t>(options.max_seq_length, 0));
  if (limit > 0 && sample.ids.size() > limit) {
    sample.cut_tokens = std::ssize(sample.ids) - static_cast<int64_t>(limit);
    sample.ids.resize(limit);
    sample.labels.resize(limit);
  }
  sample.raw_tokens = count_raw(row, encoder, options.max_seq_length);
  return sample;
}

}  // namespace snug::data
