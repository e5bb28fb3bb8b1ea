// The Unigram model of sentencepiece: the split of a word into pieces with the highest sum of
// scores (Viterbi), with pieces from a trie. Scores are summed in double, as in Hugging Face's
// tokenizers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "base/error.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocabulary.h"

namespace snug::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;

struct BestPath {
  double score = 0;
  int32_t id = -1;
  int64_t begin = -1;  // -1: not reached yet
};

struct UnigramScratch : Model::Scratch {
  WordCache cache;
  std::vector<BestPath> ends;  // best way to reach each byte offset
  std::vector<int32_t> word_ids;
};

class Unigram : public Model {
 public:
  explicit Unigram(const Node& node);
  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<UnigramScratch>();
  }
  void encode(std::string_view word, bool byte_level, Scratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  void search(std::string_view text, std::vector<BestPath>& ends) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  std::string where_;
  PieceTrie trie_;
  std::vector<double> scores_;
  int32_t unk_id_ = -1;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_ids_{};
};

Unigram::Unigram(const Node& node) : where_(node.where()) {
  const Node vocab = node["vocab"];
  if (!vocab.is_array() || vocab.size() == 0) vocab.refuse("a list of [piece, score]");
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < vocab.size(); ++id) {
    const Node entry = vocab.item(id);
    const std::string& piece = entry.item(0).string();
    scores_.push_back(entry.item(1).number());
    lowest = std::min(lowest, scores_.back());
    vocabulary_.add(piece, static_cast<int32_t>(id), vocab.where());
    if (!piece.empty()) trie_.add(piece, static_cast<int32_t>(id));
  }
  unknown_score_ = lowest - kUnknownPenalty;
  if (const auto unk = node.find("unk_id")) {
    unk_id_ = unk->token_id();
    if (!vocabulary_.has(unk_id_)) unk->refuse("the id of a token in model.vocab");
  }
  byte_fallback_ = node.boolean_or("byte_fallback", false);
  for (int byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  }
}

void Unigram::encode(std::string_view word, bool byte_level, Scratch& lent,
                     std::vector<int32_t>& ids) const {
  SNUG_CHECK(!byte_level, "a Unigram model cannot encode byte-level letters");
  auto& scratch = static_cast<UnigramScratch&>(lent);
  if (word.empty() || scratch.cache.find(word, ids)) return;
  search(word, scratch.ends);
  // Follows the best path backwards; a run of unknown characters is one piece.
  auto& found = scratch.word_ids;
  found.clear();
  std::vector<int32_t> pieces;
  for (auto end = static_cast<int64_t>(word.size()); end > 0;) {
    const BestPath& last = scratch.ends[end];
    int64_t begin = last.begin;
    if (last.id != unk_id_) {
      found.push_back(last.id);
    } else {
      while (begin > 0 && scratch.ends[begin].id == unk_id_) begin = scratch.ends[begin].begin;
      pieces.clear();
      append_unknown(word.substr(begin, end - begin), pieces);
      found.insert(found.end(), pieces.rbegin(), pieces.rend());
    }
    end = begin;
  }
  std::reverse(found.begin(), found.end());
  scratch.cache.store(word, found);
  ids.insert(ids.end(), found.begin(), found.end());
}

void Unigram::search(std::string_view text, std::vector<BestPath>& ends) const {
  ends.assign(text.size() + 1, BestPath{});
  const auto reach = [&](size_t end, double score, int32_t id, size_t begin) {
    if (ends[end].begin < 0 || score > ends[end].score) {
      ends[end] = {score, id, static_cast<int64_t>(begin)};
    }
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = utf8_length(text[begin]);
    const double score = ends[begin].score;
    bool has_single = false;
    trie_.each_prefix(text.substr(begin), [&](size_t length, int32_t id) {
      reach(begin + length, score + scores_[id], id, begin);
      has_single |= length == character;
    });
    if (!has_single) {
      if (unk_id_ < 0) {
        throw UserError("{}: '{}' is not in the vocabulary and model.unk_id is missing", where_,
                        text.substr(begin, character));
      }
      reach(begin + character, score + unknown_score_, unk_id_, begin);
    }
    begin += character;
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const int32_t whole = vocabulary_.find(text);
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (whole >= 0) {
    ids.push_back(whole);
  } else if (byte_fallback_ &&
             std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : text) ids.push_back(id_of(byte));
  } else {
    ids.push_back(unk_id_);
  }
}

}  // namespace

std::unique_ptr<Model> make_unigram(const Node& node) { return std::make_unique<Unigram>(node); }

}  // namespace snug::tokenizer
