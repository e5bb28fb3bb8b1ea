// SPDX-License-Identifier: Apache-2.0
#include "use/caption/evaluate_captions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "report/progress_line.h"
#include "use/caption/caption.h"
#include "use/generate/prompts.h"
#include "use/scores/caption_words.h"

namespace snug::use {
namespace {

// Samples with the same picture, byte for byte; the prompt is that of the first.
struct Picture {
  int64_t sample = 0, row = 0;
  std::vector<int64_t> rows;
};

// Runs `read` for a picture. Returns false, warns and counts if it cannot be read, so that the
// others are still scored.
class Skipping {
 public:
  ~Skipping() {
    if (skipped_ > kShown) warn("{} pictures could not be read and have no caption", skipped_);
  }
  template <class Read>
  bool operator()(const Read& read) {
    try {
      read();
      return true;
    } catch (const UserError& error) {
      if (++skipped_ <= kShown) warn("no caption: {}", error.what());
      return false;
    }
  }

 private:
  static constexpr int64_t kShown = 3;
  int64_t skipped_ = 0;
};

std::vector<Picture> distinct_pictures(const data::PictureIndex& index, int64_t num_samples,
                                       Skipping& readable) {
  std::vector<Picture> pictures;
  std::map<std::pair<size_t, size_t>, size_t> known;  // size and hash of the bytes
  for (int64_t i = 0; i < num_samples; ++i) {
    const int64_t row = index.row_of.at(static_cast<size_t>(i));
    data::PictureBytes encoded;
    if (!readable([&] { encoded = index.rows->picture(row); })) continue;
    const std::string_view text(reinterpret_cast<const char*>(encoded.bytes.data()),
                                encoded.bytes.size());
    const auto [place, is_new] =
        known.try_emplace({text.size(), std::hash<std::string_view>()(text)}, pictures.size());
    if (is_new) pictures.push_back({.sample = i, .row = row, .rows = {}});
    pictures[place->second].rows.push_back(row);
  }
  return pictures;
}

Prompt prompt_of(const CaptionSet& set, const Picture& picture) {
  const data::PictureBytes encoded = set.pictures.rows->picture(picture.row);
  data::PreparedPicture prepared =
      set.processor.prepare(encoded.bytes, set.pictures.rows->where(picture.row));
  return sample_prompt(set.samples.sample(picture.sample), std::move(prepared.pixels));
}

}  // namespace

std::vector<WrittenCaption> caption_samples(TextGenerator& generator, const CaptionSet& set,
                                            const GenerationOptions& options, int64_t batch_size,
                                            int64_t num_samples) {
  const int64_t count = set.samples.count();
  Skipping readable;
  const std::vector<Picture> pictures = distinct_pictures(
      set.pictures, num_samples > 0 ? std::min(num_samples, count) : count, readable);
  const report::ProgressLine progress("pictures", pictures.size(), true);
  std::vector<WrittenCaption> written;
  for (size_t begin = 0; begin < pictures.size(); begin += static_cast<size_t>(batch_size)) {
    const size_t end = std::min(pictures.size(), begin + static_cast<size_t>(batch_size));
    std::vector<Prompt> prompts;
    std::vector<const Picture*> shown;
    for (size_t i = begin; i < end; ++i)
      if (readable([&] { prompts.push_back(prompt_of(set, pictures[i])); }))
        shown.push_back(&pictures[i]);
    std::vector<std::string> texts = write_captions(generator, prompts, options, batch_size);
    for (size_t i = 0; i < shown.size(); ++i) {
      written.push_back({.picture = set.pictures.rows->where(shown[i]->row),
                         .file = set.pictures.rows->file(shown[i]->row),
                         .caption = std::move(texts[i]),
                         .references = {}});
      for (const int64_t row : shown[i]->rows)
        for (std::string& reference : set.pictures.rows->references(row))
          written.back().references.push_back(std::move(reference));
    }
    progress.show(end);
  }
  return written;
}

scores::CaptionScores score_captions(const std::vector<WrittenCaption>& captions) {
  std::vector<scores::ScoredCaption> all;
  for (const WrittenCaption& written : captions) {
    if (written.references.empty()) continue;
    scores::ScoredCaption scored{.caption = scores::caption_words(written.caption),
                                 .references = {}};
    for (const std::string& reference : written.references)
      scored.references.push_back(scores::caption_words(reference));
    all.push_back(std::move(scored));
  }
  return scores::caption_scores(all);
}

std::string scores_line(const scores::CaptionScores& scores, int64_t num_pictures) {
  return fmt::format(
      "BLEU-4 {:.1f}, ROUGE-L {:.1f}, CIDEr-D {:.1f} (hundredths; captions of {} pictures)",
      100 * scores.bleu[3], 100 * scores.rouge_l, 100 * scores.cider, with_commas(num_pictures));
}

}  // namespace snug::use
