// `--data Synthetic`: samples made from a rule, for measuring a model where there are no files and
// no tokenizer. Every sample is exactly as long as the recipe allows, so that each micro-batch is
// the largest one. The rule is a Markov chain over a part of the vocabulary whose symbols each have
// four successors, taken with 1/2, 1/4, 1/8 and 1/8: training can bring the loss from ln V down to
// ln 4 + … = 1.21 nats a token (1.75 bits), and what it learns is of no use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/dataset.h"
#include "data/random.h"

namespace snug::data {

// The chain of one seed, over ids of a vocabulary; never a picture's placeholder.
class SyntheticRule {
 public:
  SyntheticRule(int64_t vocabulary, const Reading& reading, uint64_t seed);

  // Mean surprise of a token, in nats, for whoever knows the rule and the token before it.
  static constexpr double kEntropy = 1.75 * 0.69314718055994531;

  int64_t num_symbols() const { return static_cast<int64_t>(ids_.size()); }
  int32_t id(int64_t symbol) const { return ids_[static_cast<size_t>(symbol)]; }
  int64_t draw_successor(int64_t symbol, SplitMix& random) const;

 private:
  std::vector<int32_t> ids_;                    // of the symbols
  std::vector<std::vector<int64_t>> branches_;  // successors by branch and symbol
};

// A sample of `length` tokens; for an encoder, of as many on either side. A picture's places come
// first and leave the rest to the text. `next` gives the ids of text in their order.
Sample full_length_sample(int64_t length, const Reading& reading,
                          const std::function<int32_t()>& next);

// What is painted in picture `index`; its caption begins with the symbols of both.
struct SyntheticPicture {
  static constexpr int64_t kColours = 8, kShapes = 4;
  int64_t colour = 0, shape = 0;
};
SyntheticPicture synthetic_picture(int64_t index);

// options.max_samples samples (none said: kSyntheticSamples) of options.max_seq_length tokens over
// options.vocabulary, both of which must be given; a share of them is held out.
inline constexpr int64_t kSyntheticSamples = 256;
Dataset load_synthetic(const DatasetOptions& options);

}  // namespace snug::data
