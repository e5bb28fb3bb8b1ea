// SPDX-License-Identifier: Apache-2.0
#include "use/scores/caption_scores.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace snug::scores {
namespace {

constexpr size_t kLongest = 4;  // words of an n-gram

// N-grams, joined by a character that no word contains, with their counts.
using Counts = std::unordered_map<std::string, double>;

Counts count_groups(const Words& words, size_t n) {
  Counts counts;
  for (size_t begin = 0; begin + n <= words.size(); ++begin) {
    std::string group;
    for (size_t i = begin; i < begin + n; ++i) group += words[i] + '\n';
    counts[group] += 1;
  }
  return counts;
}

double found(const Counts& counts, const std::string& group) {
  const auto it = counts.find(group);
  return it == counts.end() ? 0.0 : it->second;
}

// The n-grams of the caption that occur in a reference, each counted at most as often as in one of
// them.
double num_shared(const ScoredCaption& scored, size_t n) {
  Counts most;
  for (const Words& reference : scored.references)
    for (const auto& [group, count] : count_groups(reference, n))
      most[group] = std::max(most[group], count);
  double shared = 0;
  for (const auto& [group, count] : count_groups(scored.caption, n))
    shared += std::min(count, found(most, group));
  return shared;
}

// The length of the reference nearest in length; of two equally near, the shorter.
size_t nearest_length(const ScoredCaption& scored) {
  const auto distance = [&](size_t length) {
    const size_t own = scored.caption.size();
    return std::pair(length > own ? length - own : own - length, length);
  };
  size_t nearest = scored.references.front().size();
  for (const Words& reference : scored.references)
    if (distance(reference.size()) < distance(nearest)) nearest = reference.size();
  return nearest;
}

size_t common_subsequence(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

double rouge_l_of(const ScoredCaption& scored) {
  if (scored.caption.empty()) return 0;
  constexpr double kBeta2 = 1.2 * 1.2;
  double precision = 0, recall = 0;
  for (const Words& reference : scored.references) {
    if (reference.empty()) continue;
    const auto common = static_cast<double>(common_subsequence(reference, scored.caption));
    precision = std::max(precision, common / static_cast<double>(scored.caption.size()));
    recall = std::max(recall, common / static_cast<double>(reference.size()));
  }
  if (precision == 0 || recall == 0) return 0;
  return (1 + kBeta2) * precision * recall / (recall + kBeta2 * precision);
}

// A caption as CIDEr compares it: n-grams weighted by their rarity.
struct Weighed {
  std::array<Counts, kLongest> weights;
  std::array<double, kLongest> norms{};
  double pairs = 0;  // number of word pairs, which CIDEr uses as length
};

class Cider {
 public:
  explicit Cider(std::span<const ScoredCaption> captions)
      : log_captions_(std::log(static_cast<double>(captions.size()))) {
    for (const ScoredCaption& scored : captions) {
      std::unordered_set<std::string> groups;
      for (const Words& reference : scored.references)
        for (size_t n = 1; n <= kLongest; ++n)
          for (const auto& [group, count] : count_groups(reference, n)) groups.insert(group);
      for (const std::string& group : groups) num_captions_[group] += 1;
    }
  }

  double score(const ScoredCaption& scored) const {
    const Weighed caption = weigh(scored.caption);
    double sum = 0;
    for (const Words& reference : scored.references) sum += likeness(caption, weigh(reference));
    return 10.0 * sum / static_cast<double>(scored.references.size());
  }

 private:
  Weighed weigh(const Words& words) const {
    Weighed result;
    result.pairs = words.empty() ? 0 : static_cast<double>(words.size() - 1);
    for (size_t n = 0; n < kLongest; ++n) {
      double squares = 0;
      for (const auto& [group, count] : count_groups(words, n + 1)) {
        const double weight =
            count * (log_captions_ - std::log(std::max(1.0, found(num_captions_, group))));
        result.weights[n][group] = weight;
        squares += weight * weight;
      }
      result.norms[n] = std::sqrt(squares);
    }
    return result;
  }

  // The mean over n of the cosine, without gain from repeated n-grams and with a penalty for a
  // different length.
  static double likeness(const Weighed& caption, const Weighed& reference) {
    constexpr double kSigma = 6.0;
    const double delta = caption.pairs - reference.pairs;
    double sum = 0;
    for (size_t n = 0; n < kLongest; ++n) {
      double product = 0;
      for (const auto& [group, weight] : caption.weights[n]) {
        const double other = found(reference.weights[n], group);
        product += std::min(weight, other) * other;
      }
      const double norms = caption.norms[n] * reference.norms[n];
      if (norms != 0) sum += product / norms;
    }
    return sum / kLongest * std::exp(-delta * delta / (2 * kSigma * kSigma));
  }

  Counts num_captions_;  // captions whose references contain the n-gram
  double log_captions_;
};

void check(std::span<const ScoredCaption> captions) {
  for (const ScoredCaption& scored : captions)
    SNUG_CHECK(!scored.references.empty(), "a caption without a reference cannot be scored");
}

}  // namespace

std::array<double, 4> bleu(std::span<const ScoredCaption> captions) {
  // Only avoids a division by zero.
  constexpr double kSmall = 1e-9, kTiny = 1e-15;
  check(captions);
  std::array<double, kLongest> shared{}, groups{};
  double length = 0, reference_length = 0;
  for (const ScoredCaption& scored : captions) {
    const size_t words = scored.caption.size();
    length += static_cast<double>(words);
    reference_length += static_cast<double>(nearest_length(scored));
    for (size_t n = 0; n < kLongest; ++n) {
      groups[n] += static_cast<double>(words > n ? words - n : 0);
      shared[n] += num_shared(scored, n + 1);
    }
  }
  const double ratio = (length + kTiny) / (reference_length + kSmall);
  const double brevity = ratio < 1 ? std::exp(1 - 1 / ratio) : 1.0;
  std::array<double, kLongest> result{};
  double product = 1;
  for (size_t n = 0; n < kLongest; ++n) {
    product *= (shared[n] + kTiny) / (groups[n] + kSmall);
    result[n] = brevity * std::pow(product, 1.0 / static_cast<double>(n + 1));
  }
  return result;
}

double rouge_l(std::span<const ScoredCaption> captions) {
  check(captions);
  double sum = 0;
  for (const ScoredCaption& scored : captions) sum += rouge_l_of(scored);
  return captions.empty() ? 0 : sum / static_cast<double>(captions.size());
}

double cider(std::span<const ScoredCaption> captions) {
  check(captions);
  if (captions.empty()) return 0;
  const Cider cider(captions);
  double sum = 0;
  for (const ScoredCaption& scored : captions) sum += cider.score(scored);
  return sum / static_cast<double>(captions.size());
}

CaptionScores caption_scores(std::span<const ScoredCaption> captions) {
  if (captions.empty()) return {};
  return {.bleu = bleu(captions), .rouge_l = rouge_l(captions), .cider = cider(captions)};
}

}  // namespace snug::scores
