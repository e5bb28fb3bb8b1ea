// SPDX-License-Identifier: Apache-2.0
#include "use/caption/caption.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/each_index.h"
#include "data/pictures/picture_processor.h"
#include "data/prompts.h"
#include "engine/host.h"
#include "engine/language_model.h"
#include "report/progress_line.h"
#include "use/caption/caption_source.h"
#include "use/caption/caption_writer.h"
#include "use/caption/evaluate_captions.h"
#include "use/generate/prompts.h"

namespace snug::use {
namespace {

struct Loaded {
  data::PreparedPicture picture;        // empty if there is a fault
  std::pair<size_t, size_t> content;    // size and hash of the encoded picture
  std::vector<std::string> references;  // the data set's captions
  std::string fault;
};

size_t hash_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>()(
      std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Unreadable reference captions fail a picture only if they are needed for scores.
std::vector<std::string> references_of(const data::PictureRows& rows, int64_t row, bool needed) {
  try {
    return rows.references(row);
  } catch (const UserError& error) {
    if (needed) throw;
    warn("{}", error.what());
    return {};
  }
}

Loaded load(const data::PictureRows& rows, int64_t row, const data::PictureProcessor& processor,
            bool references_needed) {
  try {
    const data::PictureBytes encoded = rows.picture(row);
    Loaded loaded{.picture = processor.prepare(encoded.bytes, rows.where(row)),
                  .content = {encoded.bytes.size(), hash_of(encoded.bytes)},
                  .references = references_of(rows, row, references_needed),
                  .fault = {}};
    return loaded;
  } catch (const UserError& error) {
    return {.picture = {}, .content = {}, .references = {}, .fault = error.what()};
  }
}

// Captions the pictures of a source, batch by batch.
class Run {
 public:
  Run(const recipe::CaptionOptions& options, const engine::LanguageModel& lm,
      const CaptionSource& source)
      : options_(options),
        lm_(lm),
        source_(source),
        encoder_(data::make_encoder(*lm.tokenizer)),
        generator_(*lm.executor, *lm.model, *lm.tokenizer, lm.precision.compute),
        generation_(generation_options(options.max_new_tokens,
                                       {.temperature = options.temperature,
                                        .top_k = options.top_k,
                                        .top_p = options.top_p,
                                        .seed = options.seed},
                                       options.beams, options.temperature > 0 ? 1 : 5)),
        style_(style_of_questions("auto", lm, lm.adapters.empty() ? nullptr : &lm.adapters.front(),
                                  encoder_)),
        processor_(data::read_picture_processor(lm.path, lm.model->reads())),
        writer_(options),
        progress_("pictures", static_cast<size_t>(source.count), !writer_.shows()) {}

  // Returns the number of pictures that could not be read.
  int64_t caption() {
    const auto load_from = [&](int64_t begin) { return load_batch(begin); };
    std::future<std::vector<Loaded>> next = std::async(std::launch::async, load_from, 0);
    for (int64_t begin = 0; begin < source_.count; begin += options_.batch_size) {
      std::vector<Loaded> loaded = next.get();
      const int64_t end = begin + std::ssize(loaded);
      // The next batch is read while this one is captioned.
      if (end < source_.count) next = std::async(std::launch::async, load_from, end);
      write_batch(begin, std::move(loaded));
      progress_.show(static_cast<size_t>(end));
    }
    progress_.clear();
    const int64_t captions = source_.count - unreadable_;
    if (captions > 0)
      std::fprintf(stderr, "(%ld captions, %.1f pictures/s)\n", static_cast<long>(captions),
                   static_cast<double>(source_.count) / progress_.seconds());
    if (options_.score) score();
    return unreadable_;
  }

 private:
  std::vector<Loaded> load_batch(int64_t begin) const {
    const int64_t count = std::min(options_.batch_size, source_.count - begin);
    std::vector<Loaded> all(static_cast<size_t>(count));
    data::for_each_index(all.size(), static_cast<int>(options_.data.num_workers), [&](size_t i) {
      all[i] = load(*source_.rows, begin + static_cast<int64_t>(i), processor_, options_.score);
    });
    return all;
  }

  // Captions the rows from `begin` on and writes the captions. Those of a data set are kept, for
  // pictures that occur again and for scores.
  void write_batch(int64_t begin, std::vector<Loaded> loaded) {
    std::vector<size_t> pictures(loaded.size());  // indices in captions_
    std::vector<Prompt> prompts;
    const size_t first = captions_.size();
    for (size_t i = 0; i < loaded.size(); ++i) {
      Prompt prompt = prompt_of(begin + static_cast<int64_t>(i), loaded[i]);
      if (!loaded[i].fault.empty()) {
        report_fault(loaded[i].fault);
        continue;
      }
      pictures[i] = place_of(loaded[i]);
      if (pictures[i] == first + prompts.size()) prompts.push_back(std::move(prompt));
    }
    std::vector<std::string> texts = write(prompts);
    for (size_t k = 0; k < texts.size(); ++k) captions_[first + k].caption = std::move(texts[k]);
    for (size_t i = 0; i < loaded.size(); ++i)
      if (loaded[i].fault.empty())
        write_line(begin + static_cast<int64_t>(i), captions_[pictures[i]], loaded[i].references);
    if (!source_.is_data) captions_.clear();
  }

  // Takes the picture. One that leaves no room for a caption is a fault of its own.
  Prompt prompt_of(int64_t row, Loaded& loaded) const {
    if (!loaded.fault.empty()) return {};
    try {
      return picture_prompt(*lm_.model, encoder_, style_, options_.prompt,
                            std::move(loaded.picture));
    } catch (const UserError& error) {
      loaded.fault = fmt::format("{}: {}", source_.rows->where(row), error.what());
      return {};
    }
  }

  // The index in captions_. A picture in several rows of a data set is captioned once.
  size_t place_of(const Loaded& loaded) {
    if (source_.is_data) {
      const auto [place, is_new] = known_.try_emplace(loaded.content, captions_.size());
      if (!is_new) return place->second;
    }
    captions_.emplace_back();
    return captions_.size() - 1;
  }

  std::vector<std::string> write(const std::vector<Prompt>& prompts) {
    if (prompts.empty()) return {};
    GenerationOptions own = generation_;
    own.sampling.seed += num_captioned_;
    num_captioned_ += prompts.size();
    return write_captions(generator_, prompts, own, options_.batch_size);
  }

  void write_line(int64_t row, WrittenCaption& written,
                  const std::vector<std::string>& references) {
    CaptionLine line{
        .file = source_.rows->file(row), .caption = written.caption, .index = {}, .references = {}};
    if (source_.is_data) {
      line.index = row;
      line.references = references;
    }
    writer_.write(line);
    if (options_.score)
      written.references.insert(written.references.end(), references.begin(), references.end());
  }

  void report_fault(const std::string& fault) {
    ++unreadable_;
    progress_.clear();
    std::fprintf(stderr, "snug: %s\n", printable(fault).c_str());
  }

  void score() const {
    const int64_t scored = std::ranges::count_if(
        captions_, [](const WrittenCaption& written) { return !written.references.empty(); });
    if (scored == 0)
      throw UserError("--score: the data has no reference caption for any of these pictures");
    std::fprintf(stderr, "%s\n", scores_line(score_captions(captions_), scored).c_str());
  }

  const recipe::CaptionOptions& options_;
  const engine::LanguageModel& lm_;
  const CaptionSource& source_;
  data::TextEncoder encoder_;
  TextGenerator generator_;
  GenerationOptions generation_;
  data::PromptStyle style_;
  data::PictureProcessor processor_;
  CaptionWriter writer_;
  report::ProgressLine progress_;
  std::vector<WrittenCaption> captions_;               // for a data set, of all distinct pictures
  std::map<std::pair<size_t, size_t>, size_t> known_;  // indices in captions_, by content
  int64_t unreadable_ = 0;
  uint64_t num_captioned_ = 0;
};

}  // namespace

std::vector<std::string> write_captions(TextGenerator& generator, std::span<const Prompt> prompts,
                                        const GenerationOptions& options, int64_t batch_size) {
  std::vector<std::string> captions;
  for (const Generation& made : generator.generate_all(prompts, options, batch_size)) {
    std::string text = made.text;
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const size_t end = text.find_last_not_of(' ') + 1;
    captions.push_back(begin < end ? text.substr(begin, end - begin) : "");
  }
  return captions;
}

int caption(const recipe::CaptionOptions& options) {
  set_verbose(options.verbose);
  const CaptionSource source = open_caption_source(options);
  if (source.count == 0) return 0;
  check_caption_output(options);
  const engine::Host host =
      engine::prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  std::vector<std::string> adapters;
  if (!options.adapter.empty()) adapters.push_back(options.adapter);
  const engine::LanguageModel lm = engine::open_language_model(
      options.checkpoint_dir, host.device,
      {.precision = options.precision, .quantize = options.quantize, .adapters = adapters});
  check_reads_pictures(*lm.model, options.checkpoint_dir);
  const int64_t unreadable = Run(options, lm, source).caption();
  if (unreadable == 0) return 0;
  std::fprintf(stderr, "snug: %ld of %ld pictures could not be read\n",
               static_cast<long>(unreadable), static_cast<long>(source.count));
  return 2;
}

}  // namespace snug::use
