// Beam search for one sequence: keeps the best unfinished beams and the best finished texts.
// Choices, scores and stopping are those of transformers' generate(). The caller runs the model and
// gives the scores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace snug::use {

// When a search ends before max_new_tokens. No: when no beam, scored at its current length, beats
// the worst finished text. Yes: when num_beams texts are finished. Never: when no beam can beat the
// worst finished text at any length.
enum class EarlyStopping { No, Yes, Never };

struct BeamOptions {
  int64_t num_beams = 5;
  double length_penalty = 1.0;  // score: log probability / tokens^length_penalty
  EarlyStopping early_stopping = EarlyStopping::No;
  int64_t max_new_tokens = 50;
  std::vector<int32_t> end_ids;  // without duplicates
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

  // The number of continuations that step() needs, so that num_beams remain even if some end.
  static int64_t num_continuations(const BeamOptions& options);

  // Takes the likeliest continuations of all beams, best first.
  void step(std::span<const Continuation> best);
  bool done() const { return done_; }

  struct Beam {
    std::vector<int32_t> ids;
    float score = 0;
    int64_t parent = 0;  // its beam in the previous step
  };
  const std::vector<Beam>& beams() const { return beams_; }

  // The best text so far, with its end token if it has one.
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
