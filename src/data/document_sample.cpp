// SPDX-License-Identifier: Apache-2.0
#include "data/document_sample.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace snug::data {
namespace {

// What is said, for a template.
std::vector<Message> scored_turns(const Row& row) {
  if (!row.messages.empty()) return row.messages;
  if (row.kind == RowKind::Text) return {{"user", row.output}};
  return {PromptStyle::question(row), {"assistant", row.output}};
}

std::string scored_text(const Row& row, const PromptStyle& style) {
  if (row.kind == RowKind::Text) return row.output;
  if (row.messages.empty()) return style.prompt(row) + row.output;
  std::string text;
  for (const Message& turn : row.messages) text += (text.empty() ? "" : "\n\n") + turn.content;
  return text;
}

std::vector<int32_t> scored_ids(const Row& row, const PromptStyle& style,
                                const TextEncoder& encoder) {
  if (!style.is_chat()) return encoder.encode_prompt(scored_text(row, style));
  return encoder.encode(
      style.render(scored_turns(row), /*add_generation_prompt=*/false, row.tools));
}

}  // namespace

Sample make_document(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                     const SampleOptions& options) {
  Sample sample;
  sample.ids = scored_ids(row, style, encoder);
  if (sample.ids.empty())
    throw UserError("the text is empty, and a label needs a token to be scored at; give a text");
  const int64_t limit = options.long_rows == LongRows::Cut ? options.max_seq_length : 0;
  if (limit > 0 && std::ssize(sample.ids) > limit) {
    sample.cut_tokens = std::ssize(sample.ids) - limit;
    sample.ids.resize(static_cast<size_t>(limit));
  }
  sample.labels.assign(sample.ids.size(), options.ignore_index);
  sample.raw_tokens = std::ssize(sample.ids);
  return sample;
}

int64_t scored_tokens(std::span<const int32_t> stored, int32_t pad_token) {
  const auto is_text = [&](int32_t id) { return (id < 0 ? ~id : id) != pad_token; };
  const auto last = std::ranges::find_if(stored.rbegin(), stored.rend(), is_text);
  return std::max<int64_t>(1, stored.rend() - last);
}

void add_score_columns(SampleStore& samples, std::span<const int64_t> row_numbers,
                       const std::unordered_map<int64_t, double>& values, int32_t pad_token) {
  if (samples.empty()) return;
  ColumnOfNumbers tokens, numbers;
  for (int64_t i = 0; i < samples.num_different(); ++i)
    for (int64_t d = 0; d < samples.documents_per_sample(); ++d) {
      // A row of its own is scored, even of an answer that is all padding.
      const int64_t others_rows = d > 0 ? samples.shared_tokens(i) : 0;
      tokens.values.push_back(static_cast<float>(
          std::max(others_rows + 1, scored_tokens(samples.document(i, d).stored, pad_token))));
      numbers.values.push_back(static_cast<float>(values.at(row_numbers[static_cast<size_t>(i)])));
    }
  samples.set_columns({std::move(tokens), std::move(numbers)});
}

}  // namespace snug::data
