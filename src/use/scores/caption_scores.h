// Scores of captions against reference captions: BLEU (Papineni et al. 2002), ROUGE-L (Lin 2004)
// and CIDEr-D (Vedantam et al. 2015), with the numbers of pycocoevalcap, which papers report.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::scores {

using Words = std::vector<std::string>;

struct ScoredCaption {
  Words caption;
  std::vector<Words> references;  // one or more
};

struct CaptionScores {
  std::array<double, 4> bleu{};  // BLEU-1 to BLEU-4, 0 to 1
  double rouge_l = 0;            // 0 to 1
  double cider = 0;              // CIDEr-D, 0 to 10
};

// Over all captions: the share of n-grams that occur in a reference, each counted at most as often
// as in one reference, with a penalty for captions that are too short.
std::array<double, 4> bleu(std::span<const ScoredCaption> captions);

// The mean F-measure of the longest common subsequence, with recall weighted by 1.2².
double rouge_l(std::span<const ScoredCaption> captions);

// The mean similarity of n-grams, weighted by their rarity in the references of all captions given
// here. With a single caption no n-gram is rare, and the score is 0.
double cider(std::span<const ScoredCaption> captions);

// All three; 0 without captions.
CaptionScores caption_scores(std::span<const ScoredCaption> captions);

}  // namespace snug::scores
