// SPDX-License-Identifier: Apache-2.0
#include "use/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/text.h"
#include "data/rows/label_rows.h"
#include "data/survey.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/export/vocabulary.h"
#include "engine/open_data.h"
#include "models/family.h"
#include "recipe/tables/objectives.h"
#include "report/tables.h"
#include "report/text_width.h"
#include "use/source_records.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A model without its weights: its tokenizer and, if there is a config.json, what it reads.
struct TokenizerOf {
  fs::path path;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<models::Model> model;  // null: assume a decoder without a length limit
};

// A GGUF file, or a folder with one, has the tokenizer in it.
bool is_gguf(const fs::path& path) {
  if (!fs::is_directory(path)) return true;
  return !fs::exists(path / "config.json") &&
         std::ranges::any_of(fs::directory_iterator(path), [](const fs::directory_entry& entry) {
           return entry.path().extension() == ".gguf";
         });
}

TokenizerOf open_tokenizer_of(const fs::path& given, const recipe::DataOptions& data) {
  const bool is_adapter = engine::is_adapter_directory(given);
  const fs::path path = is_adapter ? engine::find_base(given) : given;
  TokenizerOf found{.path = path, .tokenizer = {}, .model = {}};
  if (!fs::exists(path)) throw UserError("model {} does not exist", path.string());
  models::Checkpoint checkpoint;
  if (is_gguf(path))
    checkpoint = models::open_checkpoint(path);
  else
    checkpoint.path = path;
  found.tokenizer = engine::open_tokenizer(checkpoint, is_adapter ? given : fs::path(), data);
  if (is_gguf(path))
    found.model = std::move(checkpoint.model);
  else if (fs::exists(path / "config.json"))
    found.model = models::model_from_config(path / "config.json");
  return found;
}

// Consecutive tokens of a sample as text, all with loss or all without.
struct Part {
  std::string text;
  bool is_learnt = false;
  std::string left_out;  // before the text
};

// Split where the mask changes, and where something is left out. Each text is what its tokens add
// to the text before, since a tokenizer may decode a token differently at the start.
std::vector<Part> parts_of(const data::Sample& sample, int32_t ignore_index,
                           const tokenizer::Tokenizer& tokenizer,
                           std::span<const data::LeftOut> left_out) {
  std::vector<Part> parts;
  std::string before;
  const auto left_out_at = [&](size_t i) {
    std::string text;
    for (const data::LeftOut& part : left_out)
      if (part.token == static_cast<int64_t>(i))
        text += fmt::format("[left out: {}{}]", part.what,
                            part.words.empty() ? "" : ": " + printable(part.words));
    return text;
  };
  const auto is_learnt = [&](size_t i) { return i > 0 && sample.labels[i] != ignore_index; };
  for (size_t begin = 0; begin < sample.ids.size();) {
    size_t end = begin + 1;
    while (end < sample.ids.size() && is_learnt(end) == is_learnt(begin) &&
           left_out_at(end).empty())
      ++end;
    const std::span<const int32_t> ids(sample.ids);
    std::string all = tokenizer.decode(ids.first(end), /*skip_special_tokens=*/false);
    parts.push_back({all.starts_with(before)
                         ? all.substr(before.size())
                         : tokenizer.decode(ids.subspan(begin, end - begin), false),
                     is_learnt(begin), left_out_at(begin)});
    before = std::move(all);
    begin = end;
  }
  if (std::string rest = left_out_at(sample.ids.size()); !rest.empty())
    parts.push_back({"", false, std::move(rest)});
  return parts;
}

// What the model sees, in letters that a terminal shows: line ends of Windows too.
std::string visible(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += c == '\r' ? std::string("\\r") : std::string(1, c);
  return printable_lines(shown);
}

std::string text_with_mask(const std::vector<Part>& parts, bool colours) {
  std::string text;
  for (const Part& part : parts) {
    const std::string shown = visible(part.text);
    if (!part.left_out.empty())
      text += colours ? "\x1b[9m" + part.left_out + "\x1b[0m" : part.left_out;
    if (shown.empty()) continue;
    if (colours)
      text += (part.is_learnt ? "\x1b[1m" : "\x1b[2m") + shown + "\x1b[0m";
    else
      text += part.is_learnt ? shown : "[mask]" + shown + "[/mask]";
  }
  return text;
}

std::string text_of(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) text += visible(part.text);
  return text;
}

std::string plural(int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", with_commas(count), count == 1 ? one : many);
}

struct ShownDocument {
  int64_t learnt = 0;
  std::vector<int32_t> ids;
  std::vector<Part> parts;
  std::vector<data::LeftOut> left_out;
};

struct ShownSample {
  int64_t row = 0;
  std::string source;  // of a mix
  bool held_out = false;
  bool is_pair = false;
  std::vector<ShownDocument> documents;  // one, or a pair's, or a block's
  int64_t shared = 0;                    // tokens that a pair's begin with
  std::optional<bool> is_desirable;      // of a rated answer
  std::string label;                     // of a text that is sorted
};

ShownDocument shown_document(const data::SampleStore& store, int64_t index, int64_t d,
                             const tokenizer::Tokenizer& tokenizer) {
  const data::Sample sample = store.sample(index, d);
  const std::span<const data::LeftOut> left_out = store.left_out_of(index, d);
  return {.learnt = data::learnt_tokens(store, index, d),
          .ids = sample.ids,
          .parts = parts_of(sample, store.ignore_index(), tokenizer, left_out),
          .left_out = {left_out.begin(), left_out.end()}};
}

std::vector<ShownSample> choose_samples(const data::Dataset& dataset,
                                        const recipe::ShowDataOptions& options,
                                        const std::vector<std::string>& labels,
                                        const tokenizer::Tokenizer& tokenizer) {
  std::vector<ShownSample> shown;
  // At least one of each source, whose first rows come first.
  const int64_t most =
      options.num_samples == 0 ? 0 : std::max(options.num_samples, std::ssize(dataset.sources));
  for (const data::SampleAt at : data::samples_by_row(dataset)) {
    const int64_t row = data::row_number(dataset, at);
    if (options.row ? row != *options.row : std::ssize(shown) >= most) continue;
    const data::SampleStore& store = at.held_out ? dataset.validation : dataset.train;
    ShownSample& sample = shown.emplace_back();
    sample.row = row;
    if (const data::MixedSource* source = data::source_of(dataset, at))
      sample.source = source->name;
    sample.held_out = at.held_out;
    if (recipe::learns_from_ratings(options.objective))
      sample.is_desirable = data::is_desirable(store, at.index);
    sample.is_pair = store.documents_per_sample() > 1;
    for (int64_t d = 0; d < store.num_documents(at.index); ++d)
      sample.documents.push_back(shown_document(store, at.index, d, tokenizer));
    if (!labels.empty()) {
      const auto number = store.numbers(store.columns()[1], at.index, 0).front();
      sample.label = labels.at(static_cast<size_t>(number));
    }
    const auto &first = sample.documents.front().ids, &last = sample.documents.back().ids;
    sample.shared = std::ranges::mismatch(first, last).in1 - first.begin();
  }
  if (options.row && shown.empty())
    throw UserError("--row {}: the {} samples have no such row", *options.row,
                    with_commas(dataset.train.count() + dataset.validation.count()));
  return shown;
}

std::string words_on_kinds(const data::Dataset& dataset) {
  const data::RowCounts& counts = dataset.row_counts;
  std::vector<std::string> words;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) words.push_back(fmt::format("{} {}", with_commas(count), what));
  };
  add(counts.questions, "with question and answer");
  add(counts.questions_with_input, "with question, input and answer");
  add(counts.chats, "with the turns of a chat");
  add(counts.completions, "with prompt and completion");
  add(counts.texts, "with text only");
  if (dataset.train_pictures.are_captions()) words.emplace_back("pictures with captions");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string bars_of(const data::DataSurvey& found, bool unicode) {
  constexpr double kColumns = 40;
  int64_t most = 1;
  for (const data::LengthBin& bin : found.lengths) most = std::max(most, bin.samples);
  const size_t digits = with_commas(found.longest).size();
  std::string text;
  for (const data::LengthBin& bin : found.lengths) {
    const double share = static_cast<double>(bin.samples) / static_cast<double>(most);
    const auto full = static_cast<int>(share * kColumns + 0.5);
    std::string bar;
    for (int i = 0; i < std::max(full, bin.samples > 0 ? 1 : 0); ++i) bar += unicode ? "█" : "#";
    const std::string range = bin.from == bin.to
                                  ? with_commas(bin.from)
                                  : fmt::format("{} {} {}", with_commas(bin.from),
                                                unicode ? "–" : "-", with_commas(bin.to));
    const size_t blanks = 2 * digits + 3 - report::display_width(range);
    text += fmt::format("  {}{}  {}{}{}\n", std::string(blanks, ' '), range, bar,
                        bar.empty() ? "" : " ", with_commas(bin.samples));
  }
  return text;
}

std::string share_text(int64_t part, int64_t whole) {
  return fmt::format(
      "{:.1f} %", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

data::RatingCounts ratings_of(const data::Dataset& dataset) {
  data::RatingCounts all = data::count_ratings(dataset.train);
  const data::RatingCounts held_out = data::count_ratings(dataset.validation);
  all.desirable += held_out.desirable;
  all.undesirable += held_out.undesirable;
  return all;
}

// What the objective compares in them; empty where answers are learnt.
std::string words_on_answers(const data::Dataset& dataset, const data::DatasetOptions& read) {
  if (read.preferences) return "pairs of answers, ";
  if (!read.ratings) return "";
  const data::RatingCounts counts = ratings_of(dataset);
  return fmt::format("{} and {} bad, ", plural(counts.desirable, "good answer", "good answers"),
                     with_commas(counts.undesirable));
}

// "7", of a mix "7 of rows.jsonl".
std::string words_on_row(const data::Dataset& dataset, data::SampleAt at) {
  const data::MixedSource* source = data::source_of(dataset, at);
  return with_commas(data::row_number(dataset, at)) +
         (source != nullptr ? " of " + printable(source->name) : "");
}

constexpr size_t kNamedRows = 3;

std::string words_on_rows(const data::Dataset& dataset, const std::vector<data::SampleAt>& all) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < std::min(kNamedRows, all.size()); ++i)
    rows.push_back(words_on_row(dataset, all[i]));
  return fmt::format("{} {}{}", all.size() == 1 ? "row" : "rows", fmt::join(rows, ", "),
                     all.size() > kNamedRows ? ", …" : "");
}

std::string words_on_pairs(const data::Dataset& dataset,
                           const std::vector<std::pair<data::SampleAt, data::SampleAt>>& all) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < std::min(kNamedRows, all.size()); ++i)
    rows.push_back(fmt::format("{} and {}", words_on_row(dataset, all[i].first),
                               words_on_row(dataset, all[i].second)));
  return fmt::format("rows {}{}", fmt::join(rows, ", "), all.size() > kNamedRows ? ", …" : "");
}

std::string totals_text(const data::Dataset& dataset, const data::DataSurvey& found,
                        const data::DatasetOptions& read, bool unicode) {
  const int64_t samples = found.training + found.held_out;
  std::string text =
      fmt::format("Samples   {}: {} to train on, {} held out\n", with_commas(samples),
                  with_commas(found.training), with_commas(found.held_out));
  text += fmt::format("Rows      {}{}\n", words_on_answers(dataset, read), words_on_kinds(dataset));
  const auto masks = data::masks_prompts(dataset, read.mask_prompt);
  text += fmt::format(
      "Style     {} ({}); {}\n", dataset.prompt_style,
      dataset.prompt_style_reason == "given" ? "--data.prompt_style" : dataset.prompt_style_reason,
      read.reading.scores_documents        ? "each text is scored at its last token"
      : !masks && !dataset.sources.empty() ? "what counts in the loss is each source's own"
      : !masks ? "prompts of chats do not count in the loss, those of other rows do"
      : *masks ? "prompts do not count in the loss"
               : "prompts count in the loss too");
  if (read.reading.scores_documents)
    text += fmt::format("Tokens    {}\n", with_commas(found.tokens));
  else
    text += fmt::format("Tokens    {}, of which {} count in the loss ({})\n",
                        with_commas(found.tokens), with_commas(found.learnt_tokens),
                        share_text(found.learnt_tokens, found.tokens));
  if (read.classes)
    text += fmt::format("Labels    {}: {}\n", read.labels.size(), data::listed_labels(read.labels));
  text += fmt::format("Lengths   {} to {} tokens{}, median {}\n", with_commas(found.shortest),
                      with_commas(found.longest), read.preferences ? " a pair" : "",
                      with_commas(found.median));
  text += bars_of(found, unicode);
  if (read.max_seq_length > 0)
    text +=
        fmt::format("Cut       {} longer than {} tokens, {} left out ({})\n",
                    plural(found.cut_samples, "sample", "samples"),
                    with_commas(read.max_seq_length), plural(found.cut_tokens, "token", "tokens"),
                    share_text(found.cut_tokens, found.cut_tokens + found.tokens));
  text += fmt::format("Repeated  {}", plural(found.duplicates, "sample", "samples"));
  if (!found.repeated.empty())
    text += fmt::format(" equal to an earlier one: {}", words_on_pairs(dataset, found.repeated));
  text += "\n";
  if (found.held_out_in_training > 0)
    text += fmt::format("Shared    {} both held out and trained on: {}\n",
                        plural(found.held_out_in_training, "sample", "samples"),
                        words_on_pairs(dataset, found.in_both));
  if (found.nearly_empty > 0 && !read.classes)
    text += fmt::format("Short     {} with one token to learn: {}\n",
                        plural(found.nearly_empty, "sample", "samples"),
                        words_on_rows(dataset, found.short_of_words));
  if (found.without_loss > 0 && !read.classes)
    text += fmt::format("No loss   {} with no token to learn{}\n",
                        plural(found.without_loss, "sample", "samples"),
                        read.preferences ? ", or equal answers" : "");
  if (!dataset.unread.empty())
    text += fmt::format("Unread    columns {}\n",
                        printable(fmt::format("{}", fmt::join(dataset.unread, ", "))));
  std::vector<std::string> left_out;
  for (const auto& [what, count] : found.left_out) left_out.push_back(data::counted(count, what));
  if (!left_out.empty()) text += fmt::format("Left out  {}\n", fmt::join(left_out, ", "));
  if (!dataset.sources.empty())
    text += "\n" + report::source_table({.sources = source_records(dataset)});
  return text;
}

void print_text(const std::vector<ShownSample>& shown, const std::string& totals, bool colours) {
  std::string text;
  for (const ShownSample& sample : shown) {
    text += fmt::format("Row {}{}{}: ", with_commas(sample.row),
                        sample.source.empty() ? "" : " of " + printable(sample.source),
                        sample.held_out ? " (held out)" : "");
    const bool is_block = !sample.is_pair && sample.documents.size() > 1;
    if (is_block) text += fmt::format("a block of {} documents\n", sample.documents.size());
    if (sample.is_pair)
      text += fmt::format("a pair, {} shared\n", plural(sample.shared, "token", "tokens"));
    if (sample.is_desirable) text += *sample.is_desirable ? "good, " : "bad, ";
    for (const ShownDocument& document : sample.documents) {
      if (sample.is_pair)
        text += &document == &sample.documents.front() ? "Chosen: " : "Rejected: ";
      const std::string tokens = plural(std::ssize(document.ids), "token", "tokens");
      text += sample.label.empty()
                  ? fmt::format("{}, {} in the loss\n{}\n", tokens, with_commas(document.learnt),
                                text_with_mask(document.parts, colours))
                  : fmt::format("label {}, {}\n{}\n", printable(sample.label), tokens,
                                text_of(document.parts));
    }
    text += "\n";
  }
  std::fputs((text + totals).c_str(), stdout);
}

json as_json(const ShownDocument& document) {
  json parts = json::array();
  for (const Part& part : document.parts)
    parts.push_back({{"text", part.text}, {"learnt", part.is_learnt}});
  json left_out = json::array();
  for (const data::LeftOut& part : document.left_out)
    left_out.push_back({{"before_token", part.token}, {"what", part.what}, {"words", part.words}});
  return {{"tokens", document.ids.size()},
          {"learnt_tokens", document.learnt},
          {"ids", document.ids},
          {"parts", parts},
          {"left_out", left_out}};
}

void print_json(const std::vector<ShownSample>& shown, const data::Dataset& dataset,
                const data::DataSurvey& found, const data::DatasetOptions& read) {
  const data::RowCounts& counts = dataset.row_counts;
  const std::optional<bool> masks = data::masks_prompts(dataset, read.mask_prompt);
  json out{{"samples", {{"training", found.training}, {"held_out", found.held_out}}},
           {"rows",
            {{"questions", counts.questions},
             {"questions_with_input", counts.questions_with_input},
             {"chats", counts.chats},
             {"completions", counts.completions},
             {"texts", counts.texts}}},
           {"prompt_style", dataset.prompt_style},
           {"prompt_style_reason", dataset.prompt_style_reason},
           {"mask_prompt", masks ? json(*masks) : json()},
           {"max_seq_length", read.max_seq_length},
           {"tokens", found.tokens},
           {"learnt_tokens", found.learnt_tokens},
           {"cut", {{"samples", found.cut_samples}, {"tokens", found.cut_tokens}}},
           {"duplicates", found.duplicates},
           {"held_out_in_training", found.held_out_in_training},
           {"nothing_to_learn", found.without_loss},
           {"left_out", found.left_out},
           {"unread_columns", dataset.unread}};
  if (read.ratings) {
    const data::RatingCounts ratings = ratings_of(dataset);
    out["ratings"] = {{"desirable", ratings.desirable}, {"undesirable", ratings.undesirable}};
  }
  const auto row_of = [&](data::SampleAt at) {
    const data::MixedSource* source = data::source_of(dataset, at);
    const int64_t row = data::row_number(dataset, at);
    return source == nullptr ? json(row) : json{{"source", source->name}, {"row", row}};
  };
  const auto pairs_of = [&](const std::vector<std::pair<data::SampleAt, data::SampleAt>>& all) {
    json pairs = json::array();
    for (const auto& [one, other] : all) pairs.push_back({row_of(one), row_of(other)});
    return pairs;
  };
  out["duplicate_rows"] = pairs_of(found.repeated);
  out["first_duplicate"] = found.repeated.empty() ? json() : out["duplicate_rows"].front();
  out["held_out_rows_in_training"] = pairs_of(found.in_both);
  out["nearly_empty"] = found.nearly_empty;
  out["nearly_empty_rows"] = json::array();
  for (const data::SampleAt at : found.short_of_words)
    out["nearly_empty_rows"].push_back(row_of(at));
  out["lengths"] = {{"shortest", found.shortest},
                    {"median", found.median},
                    {"longest", found.longest},
                    {"histogram", json::array()}};
  for (const data::LengthBin& bin : found.lengths)
    out["lengths"]["histogram"].push_back(
        {{"from", bin.from}, {"to", bin.to}, {"samples", bin.samples}});
  for (const report::SourceRecord& source : source_records(dataset))
    out["sources"].push_back({{"name", source.name},
                              {"samples", source.samples},
                              {"held_out", source.held_out},
                              {"per_epoch", source.per_epoch},
                              {"style", source.style}});
  out["shown"] = json::array();
  for (const ShownSample& sample : shown) {
    json own = as_json(sample.documents.front());
    own["row"] = sample.row;
    if (!sample.source.empty()) own["source"] = sample.source;
    own["held_out"] = sample.held_out;
    if (sample.is_desirable) own["label"] = *sample.is_desirable;
    if (!sample.label.empty()) own["label"] = sample.label;
    if (sample.is_pair) {
      own["rejected"] = as_json(sample.documents.back());
      own["shared_tokens"] = sample.shared;
    } else if (sample.documents.size() > 1) {
      own["more_documents"] = json::array();
      for (size_t d = 1; d < sample.documents.size(); ++d)
        own["more_documents"].push_back(as_json(sample.documents[d]));
    }
    out["shown"].push_back(std::move(own));
  }
  std::puts(out.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

}  // namespace

void show_data(const recipe::ShowDataOptions& options) {
  set_verbose(options.verbose);
  const TokenizerOf found = open_tokenizer_of(options.checkpoint_dir, options.data);
  recipe::Recipe recipe;
  recipe.data = options.data;
  recipe.access_token = options.access_token;
  recipe.given_keys = options.given_keys;
  recipe.train.max_seq_length = options.max_seq_length;
  if (found.model) recipe.train.max_seq_length = engine::longest_sample(recipe, *found.model);
  data::DatasetOptions read = found.model
                                  ? engine::dataset_options(recipe.data, *found.model, found.path)
                                  : engine::dataset_options(recipe.data);
  read.preferences = recipe::learns_from_pairs(options.objective);
  read.ratings = recipe::learns_from_ratings(options.objective);
  read.classes = recipe::learns_labels(options.objective);
  read.reading.scores_documents = recipe::scores_documents(options.objective);
  if (read.classes) read.labels = found.model ? found.model->labels() : std::vector<std::string>();
  if (read.classes && read.labels.empty())
    read.labels = data::find_labels(engine::sources_of(recipe));
  read.warns = false;
  read.keep_without_loss = true;
  read.max_seq_length = recipe.train.max_seq_length.value_or(0);
  const data::Dataset dataset = engine::load_data(recipe, read, *found.tokenizer);
  const std::vector<ShownSample> shown =
      choose_samples(dataset, options, read.labels, *found.tokenizer);
  const data::DataSurvey all = data::survey(dataset);
  if (options.json) return print_json(shown, dataset, all, read);
  const TextStyle style = style_of(STDOUT_FILENO);
  print_text(shown, totals_text(dataset, all, read, style.unicode), style.colours);
}

}  // namespace snug::use
