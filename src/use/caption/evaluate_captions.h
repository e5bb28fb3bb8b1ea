// Captions the pictures of a data set and compares them with its reference captions.
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
  std::string picture = {};  // the place of its row
  std::string file = {};     // the picture's path or name
  std::string caption = {};
  std::vector<std::string> references = {};  // of all rows with this picture
};

// Rows with the same picture count as one, with all their references. The prompts are those of the
// samples. `num_samples`: at most this many samples; 0: all.
std::vector<WrittenCaption> caption_samples(TextGenerator& generator, const CaptionSet& set,
                                            const GenerationOptions& options, int64_t batch_size,
                                            int64_t num_samples = 0);

// The scores of those with references.
scores::CaptionScores score_captions(const std::vector<WrittenCaption>& captions);

// "BLEU-4 71.3, ROUGE-L …" in hundredths.
std::string scores_line(const scores::CaptionScores& scores, int64_t num_pictures);

}  // namespace snug::use
