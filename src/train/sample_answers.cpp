// SPDX-License-Identifier: Apache-2.0
#include "train/sample_answers.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "data/pictures/picture_processor.h"
#include "data/pictures/picture_text.h"
#include "data/prompts.h"
#include "data/random.h"
#include "use/caption/evaluate_captions.h"
#include "use/generate/prompts.h"
#include "use/generate/text_generator.h"

namespace snug::train {
namespace {

// One line, and not longer than a terminal's.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  constexpr size_t kMost = 200;
  if (text.size() <= kMost) return text;
  size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
  return text.substr(0, cut) + "…";
}

size_t first_index(const SampleAnswerOptions& options, size_t count) {
  if (options.first == "first") return 0;
  if (options.first == "random") return data::derive(options.seed, 0).below(count);
  size_t index = 0;
  const char* end = options.first.data() + options.first.size();
  const auto parsed = std::from_chars(options.first.data(), end, index);
  if (parsed.ec != std::errc() || parsed.ptr != end || index >= count)
    throw UserError(
        "eval.evaluate_example = \"{}\" must be first, random or the index of one of the {} "
        "held-out questions kept as text (0 to {})",
        options.first, count, count - 1);
  return index;
}

// The pictures of the first question, which is the one that is answered.
std::vector<data::PreparedPicture> pictures_of(const data::Row& row,
                                               const data::PictureProcessor& processor) {
  if (row.pictures.empty()) return {};
  const auto shown = static_cast<size_t>(data::count_marks(row.instruction));
  return processor.prepare(std::span(row.pictures).first(shown));
}

}  // namespace

void check_sample_options(const data::Dataset& dataset, const SampleAnswerOptions& options) {
  if (options.count > 0 && !dataset.validation_rows.empty())
    first_index(options, dataset.validation_rows.size());
}

std::vector<SampleAnswer> answer_samples(const engine::Engine& engine, models::Model& model,
                                         const tokenizer::Tokenizer& tokenizer,
                                         const data::Dataset& dataset,
                                         const SampleAnswerOptions& options) {
  const data::TextEncoder encoder = data::make_encoder(tokenizer);
  const auto style = data::PromptStyle::make(dataset.prompt_style, encoder);
  use::TextGenerator generator(*engine.executor, model, tokenizer, engine.precision.compute);
  std::vector<SampleAnswer> answers;
  const std::vector<data::Row>& rows = dataset.validation_rows;
  if (rows.empty()) return answers;
  const size_t first = first_index(options, rows.size());
  const size_t count = std::min(rows.size(), static_cast<size_t>(options.count));
  const int64_t positions = model.dimensions().max_positions;
  for (size_t i = 0; i < rows.size() && answers.size() < count; ++i) {
    const data::Row& row = rows[(first + i) % rows.size()];
    const use::Prompt prompt =
        use::prompt_with_pictures(model, style.encoder_of_prompts(encoder), style.prompt(row),
                                  pictures_of(row, dataset.processor));
    if (options.max_seq_length > 0 && std::ssize(prompt.ids) > options.max_seq_length) continue;
    model.prepare(engine.device,
                  std::min(positions, std::ssize(prompt.ids) + options.max_new_tokens));
    const use::Generation generation = generator.generate(
        {.prompt = prompt,
         .options = {.max_new_tokens = options.max_new_tokens, .sampling = {.temperature = 0}}});
    const std::string question =
        row.input.empty() ? row.instruction : row.instruction + " " + row.input;
    answers.push_back({one_line(question), one_line(row.output), one_line(generation.text)});
  }
  if (answers.empty())
    throw UserError("no held-out question fits into train.max_seq_length = {}",
                    options.max_seq_length);
  return answers;
}

std::string show_answers(const std::vector<SampleAnswer>& before,
                         const std::vector<SampleAnswer>& after) {
  std::string text;
  const auto line = [&](const char* label, const std::string& value) {
    text += label + printable(value) + "\n";
  };
  for (size_t i = 0; i < before.size(); ++i) {
    line("  question  ", before[i].question);
    line("  expected  ", before[i].expected);
    line("  before    ", before[i].answer);
    if (i < after.size()) line("  after     ", after[i].answer);
    text += "\n";
  }
  return text;
}

// Sample answers where the questions are pictures.

std::vector<SampleAnswer> caption_held_out(const engine::Engine& engine, models::Model& model,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const data::Dataset& dataset,
                                           const SampleAnswerOptions& options) {
  if (!dataset.validation_pictures.rows || options.count <= 0) return {};
  const int64_t longest = dataset.validation.longest() + options.max_new_tokens;
  model.prepare(engine.device, std::min(model.dimensions().max_positions, longest));
  use::TextGenerator generator(*engine.executor, model, tokenizer, engine.precision.compute);
  const use::CaptionSet set{dataset.validation, dataset.validation_pictures, dataset.processor};
  std::vector<SampleAnswer> answers;
  for (use::WrittenCaption& written : use::caption_samples(
           generator, set,
           {.max_new_tokens = options.max_new_tokens, .sampling = {.temperature = 0}},
           /*batch_size=*/1, options.count))
    answers.push_back(
        {std::move(written.picture), written.references.front(), std::move(written.caption)});
  return answers;
}

}  // namespace snug::train
