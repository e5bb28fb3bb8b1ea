// Captions for the pictures of a data set, compared with the captions that the data set has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "use/generate/text_generator.h"
#include "use/scores/caption_scores.h"

namespace snug::use {

struct CaptionSet {
  const data::SampleStore& samples;
  const data::PictureIndex& pictures;
  const data::PictureProcessor& processor;
};

struct WrittenCaption {
  std::string picture = {};  // where its row is
  std::string file = {};     // the picture's own path or name
  std::string caption = {};
  std::vector<std::string> references = {};  // of all rows with this picture
};

// Rows that hold the same picture count as one, with all their captions. The prompts are those of
// the samples. `num_samples`: the first so many; 0: all.
std::vector<WrittenCaption> caption_samples(TextGenerator& generator, const CaptionSet& set,
                                            const GenerationOptions& options, int64_t batch_size,
                                            int64_t num_samples = 0);

// Of those that have references.
scores::CaptionScores score_captions(const std::vector<WrittenCaption>& captions);

// "BLEU-4 71.3, ROUGE-L …" in hundredths.
std::string scores_line(const scores::CaptionScores& scores, int64_t num_pictures);

}  // namespace snug::use
