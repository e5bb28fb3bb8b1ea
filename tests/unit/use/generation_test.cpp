// Generation from a model made of a table: what each option does, and that neighbours do not
// matter. tests/parity compares with transformers.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>

#include "base/error.h"
#include "use/generate/generate_ids.h"
#include "use/generate/stop_texts.h"

namespace snug::use {
namespace {

// However it comes in pieces, an answer ends before the first of the texts, and nothing of it is
// lost that only began like one.
TEST(StopTexts, EndAnAnswerWhereverPiecesAreCut) {
  const std::vector<std::string> stops = {"User:", "\n\n"};
  for (const auto& [whole, wanted, found] :
       {std::tuple("an answer. User: next", "an answer. ", true),
        std::tuple("one\n\ntwo User:", "one", true), std::tuple("Use a User", "Use a User", false),
        std::tuple("UsUser: x", "Us", true), std::tuple("", "", false)}) {
    const std::string text = whole;
    for (size_t size = 1; size <= text.size() + 1; ++size) {
      StopTexts until(stops);
      std::string answer;
      for (size_t at = 0; at < text.size(); at += size) answer += until.push(text.substr(at, size));
      answer += until.flush();
      EXPECT_EQ(answer, wanted) << size;
      EXPECT_EQ(until.found(), found) << size;
    }
  }
}

constexpr int64_t kVocabulary = 12;
constexpr int32_t kEnd = 11;

// The next token depends on the last two.
class TableModel : public NextLogits {
 public:
  explicit TableModel(uint64_t seed) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    table_ = at::randn({kVocabulary, kVocabulary, kVocabulary}, generator).mul_(2);
  }
  at::Tensor start(std::span<const Prompt> prompts, int64_t /*max_new_tokens*/) override {
    sequences_.clear();
    for (const Prompt& prompt : prompts) sequences_.push_back(prompt.ids);
    return logits();
  }
  at::Tensor next(std::span<const int32_t> ids) override {
    SNUG_CHECK(ids.size() == sequences_.size(), "{} tokens", ids.size());
    for (size_t i = 0; i < ids.size(); ++i) sequences_[i].push_back(ids[i]);
    return logits();
  }
  void select(const std::vector<int64_t>& from) override {
    std::vector<std::vector<int32_t>> selected;
    for (const int64_t i : from) selected.push_back(sequences_.at(static_cast<size_t>(i)));
    sequences_ = std::move(selected);
  }
  std::optional<int32_t> decoder_start() const override { return std::nullopt; }

  // The logit of one token, whatever the last two.
  void set_column(int64_t token, float logit) { table_.select(2, token).fill_(logit); }

  double log_probability(std::vector<int32_t> sequence, const std::vector<int32_t>& ids) const {
    double sum = 0;
    for (const int32_t id : ids) {
      sum += at::log_softmax(row(sequence), 0)[id].item<double>();
      sequence.push_back(id);
    }
    return sum;
  }

 private:
  at::Tensor row(const std::vector<int32_t>& ids) const {
    return table_[ids[ids.size() - 2]][ids.back()];
  }
  at::Tensor logits() const {
    std::vector<at::Tensor> rows;
    for (const auto& ids : sequences_) rows.push_back(row(ids));
    return at::stack(rows);
  }

  at::Tensor table_;
  std::vector<std::vector<int32_t>> sequences_;
};

const std::vector<Prompt> kPrompts = {
    {.ids = {1, 2}}, {.ids = {3, 4}}, {.ids = {5, 6}}, {.ids = {2, 9}}};

GenerationOptions greedy(int64_t max_new_tokens = 12) {
  return {.max_new_tokens = max_new_tokens, .sampling = {.temperature = 0}, .end_ids = {kEnd}};
}

std::vector<int32_t> flat(const std::vector<GeneratedIds>& all) {
  std::vector<int32_t> ids;
  for (const GeneratedIds& one : all) {
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    ids.push_back(one.ended ? -1 : -2);
  }
  return ids;
}

TEST(Generation, SequencesDoNotSeeEachOther) {
  std::vector<GenerationOptions> all;
  for (const int64_t beams : {1, 2, 5}) {
    all.push_back(greedy());
    all.back().num_beams = beams;
    all.push_back(all.back());
    all.back().rules = {.repetition_penalty = 1.4, .no_repeat_ngram_size = 2, .min_new_tokens = 3};
  }
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const GenerationOptions& options : all) {
      TableModel model(seed);
      const auto together = generate_ids(model, kPrompts, options);
      for (size_t i = 0; i < kPrompts.size(); ++i)
        EXPECT_EQ(flat({together[i]}), flat(generate_ids(model, {&kPrompts[i], 1}, options)))
            << "seed " << seed << ", beams " << options.num_beams << ", sequence " << i;
    }
}

TEST(Generation, ManyBeamsFindTheLikeliestText) {
  // With as many beams as texts there are, a search is exhaustive.
  constexpr int64_t kTokens = 2;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    TableModel model(seed);
    GenerationOptions options = greedy(kTokens);
    options.num_beams = kVocabulary * kVocabulary;
    options.length_penalty = 0;
    options.early_stopping = EarlyStopping::Never;
    const auto found = generate_ids(model, {kPrompts.data(), 1}, options);
    double best = -1e9;
    std::vector<int32_t> likeliest;
    for (int32_t a = 0; a < kVocabulary; ++a)
      for (int32_t b = 0; b < kVocabulary; ++b) {
        const std::vector<int32_t> ids = a == kEnd ? std::vector{a} : std::vector{a, b};
        const double score = model.log_probability(kPrompts[0].ids, ids);
        if (score > best) best = score, likeliest = ids;
      }
    if (likeliest.back() == kEnd) likeliest.pop_back();
    EXPECT_EQ(found[0].ids, likeliest) << "seed " << seed;
  }
}

TEST(Generation, RulesHold) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const int64_t beams : {1, 3}) {
      TableModel model(seed);
      GenerationOptions options = greedy(20);
      options.num_beams = beams;
      options.rules = {.no_repeat_ngram_size = 3, .min_new_tokens = 7};
      for (const GeneratedIds& made : generate_ids(model, kPrompts, options)) {
        EXPECT_GE(made.ids.size(), 7U);
        for (size_t i = 0; i + 3 <= made.ids.size(); ++i)
          for (size_t j = i + 1; j + 3 <= made.ids.size(); ++j)
            EXPECT_FALSE(std::equal(&made.ids[i], &made.ids[i] + 3, &made.ids[j]));
      }
    }
}

// Wherever it is in the vocabulary, for the best token, a drawn one and beams.
TEST(Generation, LogitsThatAreNoNumbersAreAnError) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity})
    for (const int64_t column : {int64_t{0}, kVocabulary - 1})
      for (const int64_t beams : {0, 1, 3}) {  // 0: draws
        TableModel model(7);
        model.set_column(column, bad);
        GenerationOptions options = greedy();
        options.num_beams = std::max<int64_t>(1, beams);
        if (beams == 0) options.sampling = {.temperature = 1, .top_k = 3};
        EXPECT_THROW(generate_ids(model, kPrompts, options, {}), UserError)
            << bad << " in column " << column << ", beams " << beams;
      }
}

TEST(Generation, DrawsAreEachSequencesOwn) {
  TableModel model(3);
  GenerationOptions options = greedy();
  options.sampling = {.temperature = 1.0, .top_k = {}, .top_p = 1.0, .seed = 40};
  const std::vector<Prompt> same(3, kPrompts[0]);
  const auto drawn = generate_ids(model, same, options);
  EXPECT_NE(flat({drawn[0]}), flat({drawn[1]}));
  EXPECT_EQ(flat(drawn), flat(generate_ids(model, same, options)));
  ++options.sampling.seed;
  EXPECT_EQ(flat({drawn[1]}), flat(generate_ids(model, {same.data(), 1}, options)));
}

TEST(Generation, EndsWhereItIsTold) {
  TableModel model(5);
  int asked = 0;
  const GenerationOptions options{
      .max_new_tokens = 5, .sampling = {.temperature = 0}, .end_ids = {}, .stop = [&] {
        return ++asked == 2;
      }};
  const Prompt prompt{.ids = {3, 4}};
  const auto made = generate_ids(model, {&prompt, 1}, options);
  EXPECT_EQ(made.front().ids.size(), 2U);
  EXPECT_FALSE(made.front().ended);
}

TEST(Generation, TokensAreToldAsTheyCome) {
  TableModel model(5);
  std::vector<std::vector<int32_t>> told(kPrompts.size());
  const auto made =
      generate_ids(model, kPrompts, greedy(), [&](size_t i, int32_t id) { told[i].push_back(id); });
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], made[i].ids);
}

TEST(BeamSearch, PrefersByLengthPenalty) {
  // After one token two texts end with -1.0; after two one ends with -1.5.
  const auto best_with = [](double penalty) {
    BeamSearch search({.num_beams = 2,
                       .length_penalty = penalty,
                       .early_stopping = EarlyStopping::Never,
                       .max_new_tokens = 2,
                       .end_ids = {kEnd}});
    search.step(std::vector<Continuation>{{-1.0F, 0, kEnd}, {-1.1F, 0, 1}, {-9, 0, 2}, {-9, 0, 3}});
    search.step(std::vector<Continuation>{{-1.5F, 0, kEnd}, {-9, 0, 2}, {-9, 1, 2}, {-9, 1, 3}});
    return search.best();
  };
  EXPECT_EQ(best_with(0.0), (std::vector<int32_t>{kEnd}));
  EXPECT_EQ(best_with(1.0), (std::vector<int32_t>{1, kEnd}));
}

}  // namespace
}  // namespace snug::use
