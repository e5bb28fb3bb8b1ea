// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/document_sample.h"
#include "data/mismatched.h"
#include "data/named_sets.h"
#include "data/pictures/picture_dataset.h"
#include "data/rows/hugging_face.h"
#include "data/rows/label_rows.h"
#include "data/rows/text_files.h"
#include "data/sampler.h"
#include "data/synthetic.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;

// Written last into a set's folder: the names of the files that make it whole, one a line.
constexpr const char* kListName = "files.list";

// The files that an earlier run fetched, or none if anything is missing.
std::vector<fs::path> cached_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::is_regular_file(folder / kListName)) return files;
  const std::string list = read_file(folder / kListName, size_t{1} << 20);
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find('\n', at), list.size());
    if (end > at) files.push_back(folder / list.substr(at, end - at));
    at = end + 1;
  }
  const bool whole = std::all_of(files.begin(), files.end(),
                                 [](const fs::path& path) { return fs::is_regular_file(path); });
  return whole ? files : std::vector<fs::path>();
}

std::vector<fs::path> fetch(const NamedSet& set, const std::vector<std::string>& patterns,
                            const fs::path& folder, const DownloadFunction& download) {
  std::vector<fs::path> files = cached_files(folder);
  if (!files.empty()) return files;
  if (!download)
    throw UserError("data {} is not in {} and nothing can fetch it here", set.name,
                    folder.string());
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw UserError("cannot make the folder {}: {}", folder.string(), failure.message());
  files = download({set.repo_id, patterns, folder});
  if (files.empty())
    throw UserError("the hub's data set {} has no file that matches {}", set.repo_id,
                    fmt::join(patterns, ", "));
  std::string list;
  for (const fs::path& file : files) list += file.lexically_proximate(folder).string() + "\n";
  write_file_atomically(folder / kListName, list);
  return files;
}

std::vector<Row> read_all(const std::vector<fs::path>& files, const Columns& columns) {
  std::vector<Row> rows;
  for (const fs::path& file : files) {
    std::vector<Row> more = read_rows(file, columns);
    rows.insert(rows.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
  }
  return rows;
}

// The columns of rows that anybody may have written, for this model.
Columns columns_for(const DatasetOptions& options, std::set<std::string>& unread) {
  return {.pictures = options.reading.image_size > 0,
          .preferences = options.preferences,
          .margins = options.preferences && options.reading.scores_documents,
          .ratings = options.ratings,
          .classes = options.classes,
          .labels = options.classes ? &options.labels : nullptr,
          .unread = &unread};
}

Split read_json_data(const DatasetOptions& options, const Columns& columns) {
  const fs::path& path = options.json_path;
  if (path.empty())
    throw UserError(
        "--data JSON needs --data.json_path: a .json, .jsonl or .parquet file, or a folder "
        "with train and val files");
  if (!fs::exists(path)) throw UserError("data.json_path: {} does not exist", path.string());
  if (!fs::is_directory(path)) {
    Split split;
    split.train = read_rows(path, columns);
    if (!options.val_path.empty()) split.validation = read_rows(options.val_path, columns);
    return split;
  }
  if (options.val_split_fraction)
    throw UserError(
        "data.val_split_fraction = {} is set, but {} is a folder with a val file of its own; leave "
        "one out",
        *options.val_split_fraction, path.string());
  return read_split_folder(path, columns);
}

Split read_named_data(const DatasetOptions& options, const NamedSet& set,
                      const DownloadFunction& download) {
  const fs::path cache =
      options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
  const fs::path folder = cache / set.name;
  Split split;
  split.train = read_all(fetch(set, set.train_patterns, folder / "train", download), set.columns);
  if (set.validation_patterns.empty()) return split;
  if (options.val_split_fraction)
    throw UserError(
        "data.val_split_fraction = {} is set, but {} has a validation part of its own; "
        "leave it out",
        *options.val_split_fraction, set.name);
  split.validation =
      read_all(fetch(set, set.validation_patterns, folder / "validation", download), set.columns);
  return split;
}

// Recipes write litgpt.data.Alpaca2k or Alpaca2k. Null: JSON.
const NamedSet* find_set(const std::string& given) {
  const std::string name = given.substr(given.rfind('.') + 1);
  if (name == "JSON" || name == "HFDataset" || name == "ImageFolder" || name == "TextFiles")
    return nullptr;
  for (const NamedSet& set : named_sets())
    if (set.name == name) return &set;
  const std::string near = nearest_name(name, dataset_names());
  throw UserError("--data {} is not known{}; there are {}", given,
                  near.empty() ? "" : "; did you mean " + near + "?",
                  fmt::join(dataset_names(), ", "));
}

std::string reason_left_out(const std::string& what, const std::string& style,
                            const DatasetOptions& options) {
  if (what == "answer" && options.reading.source)
    return "an encoder-decoder learns the last answer of each";
  if (what == "answer" && style != "chat")
    return fmt::format(
        "prompt style {} takes the first question and answer of each chat; --data.prompt_style "
        "chat trains on all of them, --data.include_multiturn_conversations true makes each a "
        "sample",
        style);
  if (what == "answer without words")
    return "nothing is learnt of them; --data.keep_empty_answers true learns to say nothing";
  if (what == "thought")
    return options.split_turns
               ? "the model's chat template does not write them"
               : "the model's chat template does not write them there, as many do not for earlier "
                 "answers; --data.split_turns true makes each answer a sample with its own thought";
  return "the model's chat template does not write them; snug data show shows where";
}

// `is_left_out`: samples without a token to learn are.
void report(const SampleStore& store, const char* part, const std::string& style,
            const DatasetOptions& options, bool is_left_out = false) {
  if (!options.warns) return;
  const std::string name = options.source.empty() ? part : options.source + ": " + part;
  if (store.num_truncated() > 0)
    warn(
        "{} data: {} of {} samples are longer than {} tokens (train.max_seq_length, or all that "
        "the "
        "model takes) and were cut there: {} of their tokens, {:.1f} % of all, are left out{}",
        name, with_commas(store.num_truncated()), with_commas(store.count()),
        options.max_seq_length, with_commas(store.cut_tokens()),
        100.0 * static_cast<double>(store.cut_tokens()) /
            static_cast<double>(store.cut_tokens() + store.total_tokens()),
        options.preferences || options.ratings || options.classes || options.reading.source ||
                options.reading.image_size > 0
            ? ""
            : "; --data.long_rows split makes samples of them");
  for (const auto& [what, count] : store.left_out())
    warn("{} data: {} {} left out: {}", name, counted(count, what), count == 1 ? "is" : "are",
         reason_left_out(what, style, options));
  if (store.num_without_loss() == 0 || options.classes) return;
  const std::string without = fmt::format(
      "{} data: {} of {} samples have no token to learn from: their prompts fill "
      "train.max_seq_length = {} (raise it, or shorten the prompts), or their answers are {}{}",
      name, with_commas(store.num_without_loss()), with_commas(store.count()),
      options.max_seq_length,
      store.documents_per_sample() > 1 ? "empty or equal" : "empty or without loss",
      is_left_out ? "; they are left out" : "");
  const bool none_is_left = store.num_without_loss() == store.count();
  if (none_is_left && std::string_view(part) != "validation") throw UserError("{}", without);
  warn("{}", without);
}

bool is_text(const DatasetOptions& options) { return options.name == "TextFiles"; }

Split read_hugging_face_data(const DatasetOptions& options, const Columns& columns) {
  HuggingFaceOptions own{.path = options.path, .split = options.split, .subset = options.subset};
  Split split{.train = read_hugging_face_rows(own, columns), .validation = {}};
  own.split = options.val_split;
  if (!own.split.empty()) split.validation = read_hugging_face_rows(own, columns);
  return split;
}

Split read_text_data(const DatasetOptions& options, const Columns& columns) {
  Split split;
  split.train = read_text_files(options.path, columns);
  if (!options.val_path.empty()) split.validation = read_text_files(options.val_path, columns);
  return split;
}

void take_some(std::vector<Row>& rows, const DatasetOptions& options) {
  if (!options.max_samples || *options.max_samples >= std::ssize(rows)) return;
  std::vector<Row> taken;
  for (const int64_t i : choose_rows(std::ssize(rows), options.max_samples, options.seed))
    taken.push_back(std::move(rows[static_cast<size_t>(i)]));
  rows = std::move(taken);
}

// `marks`: their places count too, for a model to which these are more than text.
bool have_pictures(const std::vector<Row>& rows, bool marks) {
  const auto has_mark = [](const Message& turn) { return count_marks(turn.content) > 0; };
  return std::ranges::any_of(rows, [&](const Row& row) {
    return !row.pictures.empty() ||
           (marks && (count_marks(row.instruction) > 0 || count_marks(row.input) > 0 ||
                      std::ranges::any_of(row.messages, has_mark)));
  });
}

// Whether samples have pictures.
bool shows_pictures(const Split& split, const Reading& reading) {
  const bool marks = reading.pictures_anywhere;
  if (!have_pictures(split.train, marks) && !have_pictures(split.validation, marks)) return false;
  if (!reading.pictures_anywhere)
    throw UserError(
        "rows have pictures among their turns, and this model {}; take a model such as SmolVLM, or "
        "rows without \"image\", \"images\" and parts of this type",
        reading.image_size > 0 ? "reads one picture before a caption (--data ImageFolder)"
                               : "reads none");
  return true;
}

Reading text_alone(Reading reading) {
  reading.image_size = reading.num_picture_tokens = 0;
  return reading;
}

void number_rows(std::vector<Row>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) rows[i].number = static_cast<int64_t>(i) + 1;
}

std::vector<int64_t> numbers_of(const std::vector<Row>& rows) {
  std::vector<int64_t> numbers;
  numbers.reserve(rows.size());
  for (const Row& row : rows) numbers.push_back(row.number);
  return numbers;
}

void count_rows(const std::vector<Row>& rows, RowCounts& counts) {
  for (const Row& row : rows) {
    if (row.kind == RowKind::Completion)
      ++counts.completions;
    else if (row.kind == RowKind::Text)
      ++counts.texts;
    else if (!row.messages.empty())
      ++counts.chats;
    else if (row.input.empty())
      ++counts.questions;
    else
      ++counts.questions_with_input;
  }
}

// What speaks for the style that usual_style() found.
std::string usual_reason(const std::string& style, const RowCounts& counts) {
  if (style == "chat") return "rows of turns, and the model has a chat template";
  if (style == "plain") return "prompts and texts are taken as they are";
  return counts.chats > 0 ? "the model has no chat template" : "questions and answers";
}

// Throws UserError where rows are of a kind that the objective cannot learn from.
void check_answers(const DatasetOptions& options, const NamedSet* set) {
  if (!options.classes && !options.preferences && !options.ratings) return;
  if (set)
    throw UserError("--data {}: its rows have {}; give a file", set->name,
                    options.classes   ? "no labels"
                    : options.ratings ? "one answer, which nobody rated"
                                      : "one answer, and preferences compare two");
  if (is_text(options))
    throw UserError("--data TextFiles: texts {}; use --objective sft",
                    options.classes ? "in files have no labels" : "are no answers to compare");
}

// Where the last `fraction` of a text begins: behind an end of line or a blank, or at a letter.
size_t end_of_beginning(const std::string& text, double fraction) {
  const auto wanted = static_cast<size_t>((1 - fraction) * static_cast<double>(text.size()));
  for (const char* marks : {"\n", " \t"}) {
    // Not so far that most of the end would be left.
    const size_t found = text.find_first_of(marks, wanted);
    if (found != text.npos && found - wanted < (text.size() - wanted) / 2) return found + 1;
  }
  size_t at = wanted;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

// Holds out the end of each document.
Split hold_out_ends(std::vector<Row> documents, double fraction) {
  Split split{.train = std::move(documents), .validation = {}};
  for (Row& document : split.train) {
    const size_t end = end_of_beginning(document.output, fraction);
    if (end == 0 || end >= document.output.size()) continue;
    Row held_out = document;
    held_out.output.erase(0, end);
    document.output.resize(end);
    split.validation.push_back(std::move(held_out));
  }
  return split;
}

Split read_split(const DatasetOptions& options, const NamedSet* set,
                 const DownloadFunction& download, std::set<std::string>& unread) {
  const Columns columns = columns_for(options, unread);
  check_answers(options, set);
  Split split = set                           ? read_named_data(options, *set, download)
                : options.name == "HFDataset" ? read_hugging_face_data(options, columns)
                : is_text(options)            ? read_text_data(options, columns)
                                              : read_json_data(options, columns);
  number_rows(split.train);
  number_rows(split.validation);
  take_some(split.train, options);
  if (options.include_multiturn_conversations) {
    split.train = split_conversations(split.train);
    split.validation = split_conversations(split.validation);
  }
  if (options.split_turns) {
    split.train = split_turns(split.train);
    split.validation = split_turns(split.validation);
  }
  if (!split.validation.empty()) return split;
  const double otherwise = set ? set->val_split_fraction
                           : options.name == "HFDataset" || is_text(options) ? kUsualHeldOut
                                                                             : 0;
  const double fraction = options.val_split_fraction.value_or(otherwise);
  // A document more or less would be too much of a few.
  const bool are_few = fraction * static_cast<double>(split.train.size()) < 1;
  if (is_text(options) && fraction > 0 && fraction < 1 && are_few)
    return hold_out_ends(std::move(split.train), fraction);
  return split_rows(std::move(split.train), fraction, options.seed,
                    set ? set->rounding : SplitRounding::Down);
}

// The number beside each row, by its own in the data set: what its sample is scored against.
std::unordered_map<int64_t, double> values_of(const std::vector<Row>& rows) {
  std::unordered_map<int64_t, double> values;
  for (const Row& row : rows) values[row.number] = row.value;
  return values;
}

// Empty where rows are no chats, or begin in different ways.
std::string shared_system(std::span<const Row> rows) {
  const auto begins_as = [&](const Row& row) {
    return !row.messages.empty() && row.messages.front().role == "system" &&
           row.messages.front().content == rows.front().messages.front().content;
  };
  const bool all =
      !rows.empty() && !rows.front().messages.empty() && std::ranges::all_of(rows, begins_as);
  return all ? rows.front().messages.front().content : "";
}

using NoneReadable = PictureBatchSource::NoneReadable;

std::unique_ptr<BatchSource> batches_of(const Dataset& dataset, const SampleStore& samples,
                                        const SampleStore& others, const PictureIndex& pictures,
                                        NoneReadable none_readable) {
  if (pictures.rows == nullptr)
    return std::make_unique<TokenBatchSource>(samples, others, dataset.batch_options);
  return std::make_unique<PictureBatchSource>(samples, pictures, dataset.batch_options,
                                              dataset.processor, dataset.num_workers,
                                              none_readable);
}

Dataset load_picture_dataset(std::shared_ptr<const PictureRows> pictures,
                             const DatasetOptions& options, const TextEncoder& encoder) {
  const bool takes_chat = options.reading.pictures_anywhere;
  DatasetOptions own = options;
  if (own.prompt_style.empty()) own.prompt_style = takes_chat && encoder.chat ? "chat" : "plain";
  if (own.prompt_style != "plain" && !(takes_chat && own.prompt_style == "chat"))
    throw UserError(
        "data.prompt_style = {}: captions have no questions; put the text before every caption "
        "into data.prompt",
        options.prompt_style);
  Dataset dataset = load_captions(std::move(pictures), own, encoder);
  dataset.prompt_style = own.prompt_style;
  dataset.prompt_style_reason = !options.prompt_style.empty() ? "given"
                                : own.prompt_style == "chat"  ? "the model has a chat template"
                                                              : "captions have no questions";
  report(dataset.train, options.part, dataset.prompt_style, options);
  report(dataset.validation, "validation", dataset.prompt_style, options);
  return dataset;
}

// Leaves out samples that teach nothing, and of ratings their rows.
void drop_without_loss(SampleStore& samples, std::vector<int64_t>& numbers, std::vector<Row>& rows,
                       const DatasetOptions& options) {
  if (!options.ratings) return samples.drop_without_loss(numbers);
  std::vector<int64_t> kept(numbers.size());
  std::iota(kept.begin(), kept.end(), 0);
  samples.drop_without_loss(kept);
  if (kept.size() == numbers.size()) return;
  std::vector<int64_t> own;
  std::vector<Row> own_rows;
  for (const int64_t i : kept) {
    own.push_back(numbers[static_cast<size_t>(i)]);
    own_rows.push_back(std::move(rows[static_cast<size_t>(i)]));
  }
  numbers = std::move(own);
  rows = std::move(own_rows);
}

void set_ratings(SampleStore& samples, const std::vector<Row>& rows) {
  if (samples.empty()) return;
  ColumnOfNumbers labels;
  for (const Row& row : rows) labels.values.push_back(row.desirable ? 1 : 0);
  samples.set_columns({std::move(labels)});
}

// The prompts of rated answers with answers to other prompts.
SampleStore others_of(const SampleStore& samples, const DatasetOptions& options, const char* part) {
  if (samples.empty()) return {};
  const int64_t back = mismatch(samples);
  const std::string what = fmt::format(
      "{} data: {} with the same prompt; kto sees how far the model moves by answers to "
      "other prompts, of which it needs at least one more",
      part, counted(samples.num_different(), "answer"));
  const bool is_needed = !options.keep_without_loss && std::string_view(part) != "validation";
  if (back == 0 && is_needed) throw UserError("{}", what);
  if (back == 0 && options.warns) warn("{}", what);
  return mismatched(samples, back, options.max_seq_length);
}

}  // namespace

std::string usual_style(std::span<const Row> rows, const TextEncoder& encoder) {
  const auto is_chat = [](const Row& row) { return !row.messages.empty(); };
  const auto is_ready = [](const Row& row) { return row.kind != RowKind::Question; };
  if (encoder.chat && std::ranges::any_of(rows, is_chat)) return "chat";
  return !rows.empty() && std::ranges::all_of(rows, is_ready) ? "plain" : "alpaca";
}

namespace {

// Whether rows are cut where they are tokenized, since what is left of them could not stand alone.
LongRows long_rows_of(const DatasetOptions& options, const Reading& reading) {
  const bool stands_together = reading.source || reading.image_size > 0;
  const bool is_cut = options.long_rows == LongRows::Cut || options.long_rows == LongRows::Auto;
  if (is_cut && (stands_together || options.classes || options.max_seq_length <= 0))
    return LongRows::Cut;
  if (stands_together)
    throw UserError(
        "data.long_rows = {}: samples of pictures, and those of an encoder and a decoder, are cut; "
        "leave it out",
        options.long_rows == LongRows::Drop ? "drop" : "split");
  if (options.ratings && !is_cut)
    throw UserError("data.long_rows: answers that are rated are cut; leave it out");
  if (options.preferences && options.long_rows == LongRows::Split)
    throw UserError(
        "data.long_rows = split: a part of an answer cannot be compared; use cut or drop");
  if (options.classes && options.long_rows == LongRows::Split)
    throw UserError("data.long_rows = split: a label is one of a whole text; use cut or drop");
  return options.long_rows;
}

// Samples of at most max_seq_length tokens, of those that were not cut.
void shorten(SampleStore& store, std::vector<int64_t>& numbers, const char* part, LongRows way,
             const DatasetOptions& options) {
  const int64_t length = options.max_seq_length;
  const bool joins = is_text(options);
  if ((way == LongRows::Cut && !joins) || length <= 0 || store.empty()) return;
  if (way == LongRows::Drop) {
    const int64_t all = store.count(), dropped = store.drop_longer(length, numbers);
    if (store.empty())
      throw UserError(
          "{} data: all {} samples are longer than {} tokens (train.max_seq_length), and "
          "data.long_rows = drop leaves them out; raise the length, or use split or cut",
          part, with_commas(all), length);
    if (dropped > 0 && options.warns)
      warn(
          "{} data: {} of {} samples are longer than {} tokens (train.max_seq_length) and left out",
          part, with_commas(dropped), with_commas(all), length);
    if (!joins) return;
  }
  if (store.documents_per_sample() > 1) return;
  if (length < 2 || options.overlap >= length)
    throw UserError(
        "data.overlap = {}: a piece has {} tokens (train.max_seq_length); use fewer, so that it "
        "has some of its own",
        options.overlap, length);
  store.cut_into_blocks({.length = length, .overlap = options.overlap, .joins = joins}, numbers);
}

}  // namespace

Dataset load_dataset(const DatasetOptions& options, const TextEncoder& encoder,
                     const DownloadFunction& download) {
  if (options.name == "Synthetic") return load_synthetic(options);
  if (is_text(options) && options.max_seq_length <= 0) {
    DatasetOptions blocks = options;
    blocks.max_seq_length = kUsualBlock;
    return load_dataset(blocks, encoder, download);
  }
  const NamedSet* set = find_set(options.name);
  if (options.name == "HFDataset" || options.name == "ImageFolder")
    if (auto pictures = open_pictures(options))
      return load_picture_dataset(std::move(pictures), options, encoder);
  const std::string chosen = !options.prompt_style.empty() ? options.prompt_style
                             : set                         ? set->prompt_style
                                                           : "";
  // A style that cannot be is refused before anything is read.
  std::optional<PromptStyle> style;
  if (!chosen.empty()) style = PromptStyle::make(chosen, encoder);
  if (encoder.eos < 0 && !options.reading.scores_documents)
    warn(
        "the tokenizer has no end-of-sequence token, so the model will not learn where answers "
        "end");
  std::set<std::string> unread;
  Split split = read_split(options, set, download, unread);
  // After rows were held out: both answers of a pair stay on one side.
  if (options.ratings) {
    split.train = unpaired(std::move(split.train));
    split.validation = unpaired(std::move(split.validation));
  }
  if (!style) style = PromptStyle::make(usual_style(split.train, encoder), encoder);
  const bool pictures = shows_pictures(split, options.reading);
  const Reading reading = pictures ? options.reading : text_alone(options.reading);
  const LongRows long_rows = long_rows_of(options, reading);
  const SampleOptions sample_options = {
      .mask_prompt = options.mask_prompt,
      .ignore_index = options.ignore_index,
      .max_seq_length = options.max_seq_length,
      .long_rows = long_rows,
      .keep_empty_answers = options.keep_empty_answers,
      .answers_alone = options.ratings,
      .is_document = options.classes,
      .vocabulary = options.vocabulary,
      .reading = pictures ? options.reading : text_alone(options.reading)};
  Dataset dataset;
  count_rows(split.train, dataset.row_counts);
  count_rows(split.validation, dataset.row_counts);
  dataset.train_numbers = numbers_of(split.train);
  dataset.validation_numbers = numbers_of(split.validation);
  dataset.prompt_style_reason = !options.prompt_style.empty() ? "given"
                                : set                         ? "the usual one of " + set->name
                                      : usual_reason(style->name(), dataset.row_counts);
  dataset.batch_options = batch_options(options, sample_options.reading, encoder.pad);
  dataset.prompt_style = style->name();
  dataset.system = shared_system(split.train);
  dataset.unread.assign(unread.begin(), unread.end());
  if (options.warns && !unread.empty())
    log_detail(fmt::format("columns of the data that nothing reads: {}", fmt::join(unread, ", ")));
  const auto tokenize = [&](const std::vector<Row>& rows, PictureIndex& index) {
    return pictures
               ? tokenize_with_pictures(rows, *style, encoder, sample_options, options, index)
               : SampleStore::tokenize(rows, *style, encoder, sample_options, options.num_workers);
  };
  dataset.train = tokenize(split.train, dataset.train_pictures);
  shorten(dataset.train, dataset.train_numbers, options.part, long_rows, options);
  const bool drops = !pictures && !options.keep_without_loss && !options.classes;
  report(dataset.train, options.part, dataset.prompt_style, options, drops);
  // A step of such samples alone would change the weights by their decay.
  if (drops) drop_without_loss(dataset.train, dataset.train_numbers, split.train, options);
  dataset.validation = tokenize(split.validation, dataset.validation_pictures);
  shorten(dataset.validation, dataset.validation_numbers, "validation", long_rows, options);
  const bool compares = (options.preferences || options.ratings) && drops;
  dataset.processor = options.processor;
  dataset.num_workers = options.num_workers;
  report(dataset.validation, "validation", dataset.prompt_style, options, compares);
  // Two equal answers would count as a pair that is not learnt.
  if (compares)
    drop_without_loss(dataset.validation, dataset.validation_numbers, split.validation, options);
  if (options.ratings) {
    set_ratings(dataset.train, split.train);
    set_ratings(dataset.validation, split.validation);
  }
  if (options.reading.scores_documents) {
    const int32_t pad = options.reading.pad_token;
    add_score_columns(dataset.train, dataset.train_numbers, values_of(split.train), pad);
    add_score_columns(dataset.validation, dataset.validation_numbers, values_of(split.validation),
                      pad);
  }
  split.validation.resize(std::min(kShownRows, split.validation.size()));
  dataset.validation_rows = std::move(split.validation);
  if (options.source.empty()) relate_samples(dataset, options);
  return dataset;
}

void relate_samples(Dataset& dataset, const DatasetOptions& options) {
  if (options.share_prompts) {
    dataset.train.share_prompts();
    dataset.validation.share_prompts();
  }
  if (!options.ratings) return;
  dataset.train_others = others_of(dataset.train, options, options.part);
  dataset.validation_others = others_of(dataset.validation, options, "validation");
}

std::vector<std::string> find_labels(const std::vector<DatasetOptions>& sources) {
  std::vector<Row> rows;
  std::string where;
  for (const DatasetOptions& options : sources) {
    DatasetOptions sorted = options;
    sorted.classes = true;
    check_answers(sorted, find_set(options.name));
    if (options.name == "ImageFolder")
      throw UserError("--data ImageFolder: pictures are captioned, not sorted; give rows of texts");
    const Columns columns{.classes = true};
    const bool is_hub = options.name == "HFDataset";
    std::vector<Row> own =
        (is_hub ? read_hugging_face_data(options, columns) : read_json_data(options, columns))
            .train;
    rows.insert(rows.end(), std::make_move_iterator(own.begin()),
                std::make_move_iterator(own.end()));
    where += (where.empty() ? "" : ", ") + (is_hub ? options.path : options.json_path).string();
  }
  return label_names(rows, where);
}

std::optional<bool> masks_prompts(const Dataset& dataset, std::optional<bool> given) {
  if (dataset.train_pictures.rows != nullptr) return true;
  if (!dataset.sources.empty()) {
    const std::optional<bool> first = dataset.sources.front().masks_prompts;
    const bool all = std::ranges::all_of(
        dataset.sources, [&](const MixedSource& one) { return one.masks_prompts == first; });
    return all ? first : std::nullopt;
  }
  if (dataset.train.documents_per_sample() > 1 || !dataset.train_others.empty()) return true;
  if (given) return given;
  const RowCounts& counts = dataset.row_counts;
  const int64_t others =
      counts.questions + counts.questions_with_input + counts.completions + counts.texts;
  if (counts.chats > 0 && others > 0) return std::nullopt;
  return counts.chats > 0;
}

std::string words_on_loss(std::optional<bool> masks) {
  if (!masks) return "the answers of chats, and on all of other rows";
  return *masks ? "answers only" : "prompts and answers";
}

MicroBatchOptions batch_options(const DatasetOptions& options, const Reading& reading,
                                int32_t pad) {
  if (options.padding_in_loss && pad < 0)
    throw UserError(
        "data.padding_in_loss: the tokenizer has no padding token to learn; name one as pad_token "
        "in its tokenizer_config.json, or leave the option out");
  if (options.padding_in_loss && options.vocabulary > 0 && pad >= options.vocabulary)
    throw UserError(
        "data.padding_in_loss: the tokenizer's padding token is {}, the model's embedding has {} "
        "rows",
        pad, options.vocabulary);
  // Elsewhere nothing looks at padding: a token that every model has.
  return {.packing = options.packing,
          .ignore_index = options.ignore_index,
          .pad_id = options.padding_in_loss ? pad : 0,
          .padding_in_loss = options.padding_in_loss,
          .reading = reading};
}

std::unique_ptr<BatchSource> Dataset::train_batches() const {
  return batches_of(*this, train, train_others, train_pictures, NoneReadable::Refuse);
}

std::unique_ptr<BatchSource> Dataset::validation_batches() const {
  return batches_of(*this, validation, validation_others, validation_pictures, NoneReadable::GoOn);
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names = {"JSON", "HFDataset", "ImageFolder", "TextFiles", "Synthetic"};
  for (const NamedSet& set : named_sets()) names.push_back(set.name);
  return names;
}

std::filesystem::path default_cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string cache = variable("SNUG_CACHE"); !cache.empty())
    return fs::path(cache) / "data";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "snug" / "data";
  const std::string home = variable("HOME");
  if (home.empty())
    throw UserError("no folder for fetched data: set SNUG_CACHE, since HOME is not set either");
  return fs::path(home) / ".cache" / "snug" / "data";
}

}  // namespace snug::data
