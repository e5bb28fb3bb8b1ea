// `--data Synthetic`: generated samples, for measuring a model without data files or a tokenizer.
// Every sample has the recipe's maximum length, so every micro-batch has the largest size. The rule
// is a Markov chain over a part of the vocabulary whose symbols each have four successors, taken
// with 1/2, 1/4, 1/8 and 1/8: training can bring the loss from ln V down to ln 4 + … = 1.21 nats a
// token (1.75 bits), but the trained model is useless.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/dataset.h"
#include "data/pictures/picture_rows.h"
#include "data/random.h"

namespace snug::data {

// The Markov chain of a seed, over ids of a vocabulary without a picture's placeholder.
class SyntheticRule {
 public:
  SyntheticRule(int64_t vocabulary, const Reading& reading, uint64_t seed);

  // Entropy of a token given the rule and the previous token, in nats.
  static constexpr double kEntropy = 1.75 * 0.69314718055994531;

  int64_t num_symbols() const { return static_cast<int64_t>(ids_.size()); }
  int32_t id(int64_t symbol) const { return ids_[static_cast<size_t>(symbol)]; }
  int64_t draw_successor(int64_t symbol, SplitMix& random) const;

 private:
  std::vector<int32_t> ids_;                    // of the symbols
  std::vector<std::vector<int64_t>> branches_;  // successors by branch and symbol
};

// A sample of `length` tokens; with an encoder, source and target have that length each. A
// picture's placeholders come first; text fills the rest. `next` returns the text's ids in order.
Sample full_length_sample(int64_t length, const Reading& reading,
                          const std::function<int32_t()>& next);

// The colour and shape in picture `index`; its caption begins with the symbols of both.
struct SyntheticPicture {
  static constexpr int64_t kColours = 8, kShapes = 4;
  int64_t colour = 0, shape = 0;
};
SyntheticPicture synthetic_picture(int64_t index);

// Makes options.max_samples samples (default kSyntheticSamples) of options.max_seq_length tokens
// over options.vocabulary; both of the latter are required. A fraction is held out. Beyond 2^22
// tokens samples repeat. Throws UserError for more than kMostSyntheticSamples.
inline constexpr int64_t kSyntheticSamples = 256, kMostSyntheticSamples = 1 << 20;
Dataset load_synthetic(const DatasetOptions& options);

// Its pictures, drawn on demand: one coloured shape on a shaded background, encoded as PNG, so that
// workers do the same work as for real data.
class SyntheticPictures : public PictureRows {
 public:
  // `size`: pixels per side.
  SyntheticPictures(int64_t count, int64_t size) : count_(count), size_(size) {}

  int64_t count() const override { return count_; }
  // Always none: these captions are ids without text.
  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override;
  PictureBytes picture(int64_t row) const override;
  std::string where(int64_t row) const override;

 private:
  int64_t count_, size_;
};

}  // namespace snug::data
