// A data set mixed of several sources, each read by itself: a file of chats, a named set, a folder
// of texts. An epoch has so many samples of each as its weight or share says; the sampler draws
// them in an order of all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace snug::data {

struct MixSource {
  std::string name;
  DatasetOptions options;
  std::optional<double> weight;  // how often an epoch has each of its samples; empty: once
  std::optional<double> share;   // of the samples of an epoch, instead
};

// How many training samples of each source an epoch has, of which `counts` are there: weight ×
// count, rounded, at least 1, and with a share so many that they are this part of all. Where all
// have shares, an epoch has as many samples as there are. Throws UserError where shares add up to
// more than 1, to less with nobody to take the rest, or to 1 with somebody left.
std::vector<int64_t> samples_per_epoch(std::span<const MixSource> sources,
                                       std::span<const int64_t> counts);

// Loads all of them. Their model and their objective are the same, and none has pictures. Samples
// that an epoch has several times are there as often, unless they are only looked at
// (keep_without_loss). Answers are shown in the prompt style that most of an epoch's samples have.
Dataset load_mix(std::span<const MixSource> sources, const TextEncoder& encoder,
                 const DownloadFunction& download);

// For the sampler; empty where the data set is no mix.
std::vector<SampleRange> ranges_of(const Dataset& dataset);

// Of the training samples and how often an epoch has them: a run is resumed with the same.
uint64_t fingerprint(const Dataset& dataset);

// How many samples an epoch has, whatever else limits it.
int64_t samples_of_epoch(const SampleStore& samples, std::span<const SampleRange> ranges);

// Tokens of the samples that an epoch has, on average.
double tokens_of_epoch(const SampleStore& samples, std::span<const SampleRange> ranges);

}  // namespace snug::data
