// SPDX-License-Identifier: Apache-2.0
#include "use/generate/generate_ids.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>

#include "base/error.h"

namespace snug::use {
namespace {

// With duplicates removed.
std::vector<int32_t> distinct(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The tokens before a sequence's new ones, for the rules about repetition.
std::vector<int32_t> begun(const NextLogits& model, const Prompt& prompt) {
  const std::optional<int32_t> start = model.decoder_start();
  return start ? std::vector<int32_t>{*start} : prompt.ids;
}

GeneratedIds without_end(std::vector<int32_t> ids, const std::vector<int32_t>& end_ids) {
  const bool ended = !ids.empty() && std::ranges::find(end_ids, ids.back()) != end_ids.end();
  if (ended) ids.pop_back();
  return {std::move(ids), ended};
}

// Greedy search or sampling: one token per sequence and step until all end.
class Single {
 public:
  Single(NextLogits& model, std::span<const Prompt> prompts, const GenerationOptions& options,
         const OnToken& on_token)
      : model_(model), options_(options), on_token_(on_token), results_(prompts.size()) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      SamplingOptions own = options.sampling;
      own.seed += i;
      samplers_.emplace_back(own);
      alive_.push_back(i);
      seen_.push_back(begun(model, prompts[i]));
    }
  }

  std::vector<GeneratedIds> run(std::span<const Prompt> prompts) {
    at::Tensor logits = model_.start(prompts, options_.max_new_tokens);
    for (int64_t made = 0;; ++made) {
      const std::vector<int32_t> chosen = choose(logits, made);
      const std::vector<int32_t> kept = keep(chosen);
      if (kept.empty() || made + 1 >= options_.max_new_tokens) break;
      if (options_.stop && options_.stop()) break;
      logits = model_.next(kept);
    }
    return std::move(results_);
  }

 private:
  std::vector<int32_t> choose(at::Tensor& logits, int64_t made) {
    if (options_.rules.any()) apply_rules(options_.rules, seen_, made, options_.end_ids, logits);
    std::vector<int32_t> chosen;
    if (options_.sampling.temperature <= 0) {
      const auto [greatest, places] = at::max(logits, 1);  // NaN if any is
      // The next token is chosen on the host.
      const at::Tensor values = greatest.cpu(), best = places.cpu();
      for (int64_t row = 0; row < best.size(0); ++row) {
        check_logit(values.const_data_ptr<float>()[row]);
        chosen.push_back(static_cast<int32_t>(best.const_data_ptr<int64_t>()[row]));
      }
      return chosen;
    }
    const at::Tensor rows = logits.cpu().contiguous();
    const auto vocabulary = static_cast<size_t>(rows.size(1));
    for (size_t row = 0; row < alive_.size(); ++row)
      chosen.push_back(samplers_[alive_[row]].next(
          {rows.const_data_ptr<float>() + row * vocabulary, vocabulary}));
    return chosen;
  }

  // Appends the tokens and drops sequences that end; returns the tokens of the others.
  std::vector<int32_t> keep(const std::vector<int32_t>& chosen) {
    std::vector<int32_t> kept;
    std::vector<int64_t> from;
    std::vector<size_t> alive;
    std::vector<std::vector<int32_t>> seen;
    for (size_t row = 0; row < chosen.size(); ++row) {
      GeneratedIds& result = results_[alive_[row]];
      const int32_t id = chosen[row];
      if (std::ranges::find(options_.end_ids, id) != options_.end_ids.end()) {
        result.ended = true;
        continue;
      }
      result.ids.push_back(id);
      if (on_token_) on_token_(alive_[row], id);
      kept.push_back(id);
      from.push_back(static_cast<int64_t>(row));
      alive.push_back(alive_[row]);
      seen.push_back(std::move(seen_[row]));
      seen.back().push_back(id);
    }
    if (kept.size() < chosen.size() && !kept.empty()) model_.select(from);
    alive_ = std::move(alive);
    seen_ = std::move(seen);
    return kept;
  }

  NextLogits& model_;
  const GenerationOptions& options_;
  const OnToken& on_token_;
  std::vector<GeneratedIds> results_;
  std::vector<TokenSampler> samplers_;
  std::vector<size_t> alive_;               // indices of unfinished sequences
  std::vector<std::vector<int32_t>> seen_;  // their tokens so far
};

// A beam search for each prompt. The model's batch holds all beams, search by search.
class Searches {
 public:
  Searches(NextLogits& model, std::span<const Prompt> prompts, const GenerationOptions& options)
      : model_(model),
        options_(options),
        beams_(options.num_beams),
        beam_options_{.num_beams = options.num_beams,
                      .length_penalty = options.length_penalty,
                      .early_stopping = options.early_stopping,
                      .max_new_tokens = options.max_new_tokens,
                      .end_ids = options.end_ids} {
    for (size_t i = 0; i < prompts.size(); ++i) {
      searches_.emplace_back(beam_options_);
      alive_.push_back(i);
      begun_.push_back(begun(model, prompts[i]));
    }
  }

  std::vector<GeneratedIds> run(std::span<const Prompt> prompts) {
    at::Tensor logits = model_.start(prompts, options_.max_new_tokens);
    std::vector<int64_t> each;
    for (int64_t i = 0; i < std::ssize(prompts); ++i)
      each.insert(each.end(), static_cast<size_t>(beams_), i);
    model_.select(each);
    logits = logits.index_select(0, at::tensor(each, at::kLong).to(logits.device()));
    for (int64_t made = 0;; ++made) {
      step(logits, made);
      const std::vector<int32_t> tokens = go_on();
      if (tokens.empty()) break;
      logits = model_.next(tokens);
    }
    std::vector<GeneratedIds> results;
    for (const BeamSearch& search : searches_)
      results.push_back(without_end(search.best(), options_.end_ids));
    return results;
  }

 private:
  void step(const at::Tensor& logits, int64_t made) {
    at::Tensor scores = at::log_softmax(logits, 1);
    if (options_.rules.any()) apply_rules(options_.rules, seen(), made, options_.end_ids, scores);
    std::vector<float> so_far;
    for (const size_t i : alive_)
      for (const BeamSearch::Beam& beam : searches_[i].beams()) so_far.push_back(beam.score);
    scores.add_(at::tensor(so_far, at::kFloat).to(scores.device()).unsqueeze(1));
    const int64_t vocabulary = scores.size(1);
    scores = scores.view({std::ssize(alive_), beams_ * vocabulary});
    const int64_t wanted =
        std::min(BeamSearch::num_continuations(beam_options_), beams_ * vocabulary);
    const auto [values, places] = at::topk(scores, wanted, 1);
    const at::Tensor best = values.cpu().contiguous(), where = places.cpu().contiguous();
    std::vector<Continuation> continuations(static_cast<size_t>(wanted));
    for (size_t row = 0; row < alive_.size(); ++row) {
      check_logit(best.const_data_ptr<float>()[row * continuations.size()]);  // NaN if any is
      for (size_t i = 0; i < continuations.size(); ++i) {
        const size_t at = row * continuations.size() + i;
        const int64_t place = where.const_data_ptr<int64_t>()[at];
        continuations[i] = {best.const_data_ptr<float>()[at], place / vocabulary,
                            static_cast<int32_t>(place % vocabulary)};
      }
      searches_[alive_[row]].step(continuations);
    }
  }

  // Rearranges the model's sequences to match the kept beams; returns their newest tokens.
  std::vector<int32_t> go_on() {
    std::vector<int32_t> tokens;
    std::vector<int64_t> from;
    std::vector<size_t> alive;
    for (size_t row = 0; row < alive_.size(); ++row) {
      const BeamSearch& search = searches_[alive_[row]];
      if (search.done()) continue;
      alive.push_back(alive_[row]);
      for (const BeamSearch::Beam& beam : search.beams()) {
        tokens.push_back(beam.ids.back());
        from.push_back(static_cast<int64_t>(row) * beams_ + beam.parent);
      }
    }
    if (!tokens.empty()) model_.select(from);
    alive_ = std::move(alive);
    return tokens;
  }

  std::vector<std::vector<int32_t>> seen() const {
    std::vector<std::vector<int32_t>> all;
    for (const size_t i : alive_)
      for (const BeamSearch::Beam& beam : searches_[i].beams()) {
        all.push_back(begun_[i]);
        all.back().insert(all.back().end(), beam.ids.begin(), beam.ids.end());
      }
    return all;
  }

  NextLogits& model_;
  const GenerationOptions& options_;
  int64_t beams_;
  BeamOptions beam_options_;
  std::vector<BeamSearch> searches_;
  std::vector<size_t> alive_;  // indices of unfinished searches
  std::vector<std::vector<int32_t>> begun_;
};

}  // namespace

std::vector<GeneratedIds> generate_ids(NextLogits& model, std::span<const Prompt> prompts,
                                       const GenerationOptions& given, const OnToken& on_token) {
  SNUG_CHECK(given.num_beams > 0 && given.max_new_tokens > 0, "{} beams, {} tokens",
             given.num_beams, given.max_new_tokens);
  if (prompts.empty()) return {};
  GenerationOptions options = given;
  options.end_ids = distinct(std::move(options.end_ids));
  if (options.num_beams > 1) return Searches(model, prompts, options).run(prompts);
  return Single(model, prompts, options, on_token).run(prompts);
}

}  // namespace snug::use
