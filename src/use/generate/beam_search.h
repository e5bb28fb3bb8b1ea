// One sequence's beam search: which beginnings are worth going on with, and which ended texts are
// best so far. The choices, scores and the moment to stop are those of transformers' generate().
// Pure bookkeeping: the scores come from whoever runs the model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace snug::use {

// When a search ends before the longest text is reached: No: once no beginning, as long as it is
// now, is better than the worst of the texts found. Yes: once as many texts as beams are found.
// Never: once no beginning can become better, however long.
enum class EarlyStopping { No, Yes, Never };

struct BeamOptions {
  int64_t num_beams = 5;
  double length_penalty = 1.0;  // a text's score is its log probability / tokens^this
  EarlyStopping early_stopping = EarlyStopping::No;
  int64_t max_new_tokens = 50;
  std::vector<int32_t> end_ids;  // each once
};

// A beam with one more token; `score` is the log probability of both together.
struct Continuation {
  float score = 0;
  int64_t beam = 0;
  int32_t token = 0;
};

class BeamSearch {
 public:
  explicit BeamSearch(const BeamOptions& options);

  // How many continuations step() wants, so that enough go on even where each beam may end.
  static int64_t num_continuations(const BeamOptions& options);

  // Takes the likeliest continuations of all beams, best first.
  void step(std::span<const Continuation> best);
  bool done() const { return done_; }

  struct Beam {
    std::vector<int32_t> ids;
    float score = 0;
    int64_t parent = 0;  // the beam of the step before that it goes on from
  };
  const std::vector<Beam>& beams() const { return beams_; }

  // The best text so far, with the token that ended it if one did.
  const std::vector<int32_t>& best() const { return texts_.front().ids; }

 private:
  struct Text {
    std::vector<int32_t> ids;
    float score;
    bool found;
  };
  bool ends(int32_t token) const;
  void keep_texts(std::span<const Continuation> best, const std::vector<bool>& stops);
  void keep_beams(std::span<const Continuation> best, const std::vector<bool>& stops);
  bool all_found() const;
  bool improvable() const;

  BeamOptions options_;
  std::vector<Beam> beams_;
  std::vector<Text> texts_;  // best first, as many as beams
  int64_t length_ = 0;       // tokens of each beam
  bool improvable_ = true;
  bool done_ = false;
};

}  // namespace snug::use
