// SPDX-License-Identifier: Apache-2.0
#include "use/generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace snug::use {
namespace {

// Below any log probability: marks forbidden continuations and empty places.
constexpr float kRuledOut = -1.0e9F;

// The `count` best of these scores, best first; equal ones in their order.
std::vector<size_t> best_of(const std::vector<float>& scores, size_t count) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(count, order.size()));
  return order;
}

std::vector<int32_t> extended(const std::vector<int32_t>& ids, int32_t token) {
  std::vector<int32_t> result = ids;
  result.push_back(token);
  return result;
}

}  // namespace

BeamSearch::BeamSearch(const BeamOptions& options) : options_(options) {
  SNUG_CHECK(options.num_beams > 0 && options.max_new_tokens > 0, "{} beams, {} tokens",
             options.num_beams, options.max_new_tokens);
  // All beams start equal, so only the first counts.
  beams_.assign(static_cast<size_t>(options.num_beams), {.ids = {}, .score = kRuledOut});
  beams_.front().score = 0;
  texts_.assign(static_cast<size_t>(options.num_beams), {{}, kRuledOut, false});
}

int64_t BeamSearch::num_continuations(const BeamOptions& options) {
  return std::max<int64_t>(2, 1 + std::ssize(options.end_ids)) * options.num_beams;
}

bool BeamSearch::ends(int32_t token) const {
  return std::ranges::find(options_.end_ids, token) != options_.end_ids.end();
}

bool BeamSearch::all_found() const {
  return std::ranges::all_of(texts_, [](const Text& text) { return text.found; });
}

void BeamSearch::step(std::span<const Continuation> best) {
  SNUG_CHECK(!done_ && best.size() >= beams_.size(), "{} continuations of {} beams", best.size(),
             beams_.size());
  const bool last = length_ + 1 >= options_.max_new_tokens;
  std::vector<bool> stops(best.size());
  for (size_t i = 0; i < best.size(); ++i) stops[i] = last || ends(best[i].token);
  keep_texts(best, stops);
  keep_beams(best, stops);
  ++length_;
  improvable_ = improvable_ && improvable();
  const bool full = all_found() && options_.early_stopping == EarlyStopping::Yes;
  const bool stuck = std::ranges::all_of(stops, [](bool stop) { return stop; });
  done_ = !improvable_ || full || stuck;
}

// Texts that end in this step replace worse ones.
void BeamSearch::keep_texts(std::span<const Continuation> best, const std::vector<bool>& stops) {
  const bool full = all_found() && options_.early_stopping == EarlyStopping::Yes;
  const auto norm =
      static_cast<float>(std::pow(static_cast<double>(length_ + 1), options_.length_penalty));
  std::vector<float> scores;
  for (const Text& text : texts_) scores.push_back(text.score);
  // Continuations after the first num_beams may only continue, not end.
  const auto may_end = [&](size_t i) { return stops[i] && i < beams_.size(); };
  for (size_t i = 0; i < best.size(); ++i) {
    float score = best[i].score / norm;
    if (full) score += kRuledOut;
    if (!improvable_) score += kRuledOut;
    if (!may_end(i)) score += kRuledOut;
    scores.push_back(score);
  }
  std::vector<Text> kept;
  for (const size_t i : best_of(scores, texts_.size())) {
    if (i < texts_.size()) {
      kept.push_back(texts_[i]);
      continue;
    }
    const Continuation& from = best[i - texts_.size()];
    kept.push_back({extended(beams_[static_cast<size_t>(from.beam)].ids, from.token), scores[i],
                    may_end(i - texts_.size())});
  }
  texts_ = std::move(kept);
}

void BeamSearch::keep_beams(std::span<const Continuation> best, const std::vector<bool>& stops) {
  std::vector<float> scores;
  for (size_t i = 0; i < best.size(); ++i)
    scores.push_back(best[i].score + (stops[i] ? kRuledOut : 0.0F));
  std::vector<Beam> kept;
  for (const size_t i : best_of(scores, beams_.size()))
    kept.push_back({.ids = extended(beams_[static_cast<size_t>(best[i].beam)].ids, best[i].token),
                    .score = scores[i],
                    .parent = best[i].beam});
  beams_ = std::move(kept);
}

// Whether the best beam may still beat the worst finished text. With a penalty above 0 scores may
// rise with length, so No is a heuristic, while Never is exact.
bool BeamSearch::improvable() const {
  const bool any_length =
      options_.early_stopping == EarlyStopping::Never && options_.length_penalty > 0;
  const auto length = static_cast<double>(any_length ? options_.max_new_tokens : length_);
  const float hoped =
      beams_.front().score / static_cast<float>(std::pow(length, options_.length_penalty));
  float worst = texts_.front().score;
  for (const Text& text : texts_) worst = std::min(worst, text.score);
  return std::ranges::any_of(
      texts_, [&](const Text& text) { return hoped > (text.found ? worst : kRuledOut); });
}

}  // namespace snug::use
