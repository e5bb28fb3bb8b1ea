// Statistics of a prepared data set: lengths of samples, tokens that are learned, duplicates.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace snug::data {

// A sample of the training or the held-out part.
struct SampleAt {
  bool held_out = false;
  int64_t index = 0;
};

struct LengthBin {
  int64_t from = 0, to = 0;  // tokens, both included
  int64_t samples = 0;
};

struct DataSurvey {
  int64_t training = 0, held_out = 0;  // samples
  int64_t tokens = 0, learnt_tokens = 0;
  int64_t shortest = 0, median = 0, longest = 0;  // tokens per sample
  std::vector<LengthBin> lengths;
  int64_t cut_samples = 0, cut_tokens = 0;  // by max_seq_length
  int64_t without_loss = 0;
  std::map<std::string, int64_t> left_out;  // what rows have and samples have not
  int64_t duplicates = 0;                   // samples with the same tokens as an earlier row
  int64_t held_out_in_training = 0;         // held-out samples that are also trained on
  int64_t nearly_empty = 0;                 // with one token to learn, such as an answer's end
  // Some of each, by their rows: a sample beside the one before it, and beside one trained on.
  std::vector<std::pair<SampleAt, SampleAt>> repeated, in_both;
  std::vector<SampleAt> short_of_words;
};

// Samples in each of those lists, at most.
inline constexpr size_t kNamedSamples = 100;

DataSurvey survey(const Dataset& dataset);

// How many samples have which rating.
struct RatingCounts {
  int64_t desirable = 0, undesirable = 0;
};
RatingCounts count_ratings(const SampleStore& samples);
bool is_desirable(const SampleStore& samples, int64_t index);

// The row that a sample came from, counted from 1, of a mix in its source.
int64_t row_number(const Dataset& dataset, SampleAt at);
// The source of a mix that a sample came from. Null: the data set is no mix.
const MixedSource* source_of(const Dataset& dataset, SampleAt at);
// All samples, by their rows.
std::vector<SampleAt> samples_by_row(const Dataset& dataset);
// How many tokens of a sample's document d are targets.
int64_t learnt_tokens(const SampleStore& store, int64_t index, int64_t d = 0);

}  // namespace snug::data
