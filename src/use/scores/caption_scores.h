// How near captions come to what people wrote: BLEU (Papineni et al. 2002), ROUGE-L (Lin 2004) and
// CIDEr-D (Vedantam et al. 2015), with the numbers of pycocoevalcap, which papers report.
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

// Over all together: pairs of words, …, quads that a caption shares with any of its references,
// each counted at most as often as in one of them; captions that are too short pay for it.
std::array<double, 4> bleu(std::span<const ScoredCaption> captions);

// The mean over captions of the longest common subsequence's F, recall weighing 1.2² times.
double rouge_l(std::span<const ScoredCaption> captions);

// The mean likeness of word groups, weighed by how rare they are in the references of all captions
// given here. With a single caption no n-gram is rare, and it is 0.
double cider(std::span<const ScoredCaption> captions);

// All three; 0 where there are no captions.
CaptionScores caption_scores(std::span<const ScoredCaption> captions);

}  // namespace snug::scores
