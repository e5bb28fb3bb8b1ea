// Byte-pair encoding. A word becomes a linked list of symbols; a heap of the adjacent pairs that
// have a merge gives the best one next, so that a word of n symbols costs n log n however long it
// is. Frequent words are answered from a cache.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

// The merges of a byte-pair encoding: (left id, right id) to rank and merged id. Open addressing,
// since this lookup is where BPE spends its time.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  void reserve(size_t count) { slots_.assign(std::bit_ceil(count * 2 + 2), Slot{}); }

  // A pair given twice takes its later rank. No more pairs than were reserved.
  void add(int32_t left, int32_t right, Merge merge) {
    slot_of(left, right) = {key(left, right), merge};
  }

  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = const_cast<MergeTable*>(this)->slot_of(left, right);
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge{};
  };

  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Slot& slot_of(int32_t left, int32_t right) {
    const uint64_t wanted = key(left, right);
    const size_t mask = slots_.size() - 1;
    size_t slot = (wanted * 0x9E3779B97F4A7C15ull) >> 32 & mask;
    while (slots_[slot].key != wanted && slots_[slot].key != kFree) slot = (slot + 1) & mask;
    return slots_[slot];
  }

  std::vector<Slot> slots_;
};

struct Symbol {
  int32_t id;
  int32_t previous, next;  // -1 at the ends; id -1: merged into the one before
};

struct Candidate {
  uint32_t rank;
  int32_t position;  // of the left symbol
  int32_t merged_id;
  // std::push_heap keeps the largest in front, and we want the lowest rank, leftmost first.
  bool operator<(const Candidate& other) const {
    return std::tie(rank, position) > std::tie(other.rank, other.position);
  }
};

struct BpeScratch : Model::Scratch {
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<int32_t> word_ids;
};

class Bpe : public Model {
 public:
  explicit Bpe(const Node& node);
  std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<BpeScratch>(); }
  void encode(std::string_view word, bool byte_level, Scratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  void read_vocabulary(const Node& vocab);
  void read_merges(const Node& merges);
  void encode_uncached(std::string_view word, bool byte_level, BpeScratch& scratch) const;
  void start_symbols(std::string_view text, std::vector<int32_t>& ids) const;
  bool append_fallback(std::string_view character, std::vector<int32_t>& ids) const;
  void merge(BpeScratch& scratch) const;
  void push_candidate(BpeScratch& scratch, int32_t left) const;

  MergeTable merges_;
  std::string subword_prefix_, word_suffix_;
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  std::array<int32_t, 256> letter_ids_{};    // of each byte's letter
  std::array<int32_t, 256> fallback_ids_{};  // of <0x00> … <0xFF>
  bool has_all_letters_ = false;
};

Bpe::Bpe(const Node& node) {
  read_vocabulary(node["vocab"]);
  subword_prefix_ = node.string_or("continuing_subword_prefix", "");
  word_suffix_ = node.string_or("end_of_word_suffix", "");
  fuse_unk_ = node.boolean_or("fuse_unk", false);
  byte_fallback_ = node.boolean_or("byte_fallback", false);
  ignore_merges_ = node.boolean_or("ignore_merges", false);
  if (const auto unk = node.find("unk_token")) {
    unk_id_ = vocabulary_.find(unk->string());
    if (unk_id_ < 0) unk->refuse("a token that model.vocab holds");
  }
  for (int byte = 0; byte < 256; ++byte) {
    letter_ids_[byte] = vocabulary_.find(byte_letters()[byte]);
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  }
  has_all_letters_ = subword_prefix_.empty() && word_suffix_.empty() &&
                     std::find(letter_ids_.begin(), letter_ids_.end(), -1) == letter_ids_.end();
  read_merges(node["merges"]);
}

void Bpe::read_vocabulary(const Node& vocab) {
  if (!vocab.is_object()) vocab.refuse("an object of token: id");
  for (const auto& [token, id] : vocab.json().items()) {
    vocabulary_.add(token, Node(id, vocab.where()).token_id(), vocab.where());
  }
}

void Bpe::read_merges(const Node& merges) {
  if (!merges.is_array()) merges.refuse("a list of merges");
  merges_.reserve(merges.size());
  std::string merged;
  const auto find = [&](std::string_view token, size_t rank) {
    const int32_t id = vocabulary_.find(token);
    if (id < 0) {
      throw UserError(
          "{}[{}]: the merge names '{}', which is not in model.vocab; the file is damaged",
          merges.where(), rank, token);
    }
    return id;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& merge = merges.json()[rank];
    std::string_view left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        merges.item(rank).refuse("two tokens with a space between");
      }
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else {
      merges.item(rank).refuse("a pair of tokens");
    }
    const int32_t left_id = find(left, rank), right_id = find(right, rank);
    merged = left;
    merged += right.substr(right.starts_with(subword_prefix_) ? subword_prefix_.size() : 0);
    merges_.add(left_id, right_id, {static_cast<uint32_t>(rank), find(merged, rank)});
  }
}

void Bpe::encode(std::string_view word, bool byte_level, Scratch& lent,
                 std::vector<int32_t>& ids) const {
  auto& scratch = static_cast<BpeScratch&>(lent);
  if (scratch.cache.find(word, ids)) return;
  encode_uncached(word, byte_level, scratch);
  scratch.cache.store(word, scratch.word_ids);
  ids.insert(ids.end(), scratch.word_ids.begin(), scratch.word_ids.end());
}

void Bpe::encode_uncached(std::string_view word, bool byte_level, BpeScratch& scratch) const {
  auto& ids = scratch.word_ids;
  ids.clear();
  std::string letters;
  if (byte_level && (ignore_merges_ || !has_all_letters_)) letters = to_byte_letters(word);
  const std::string_view text = letters.empty() ? word : letters;
  if (ignore_merges_) {
    const int32_t whole = vocabulary_.find(text);
    if (whole >= 0) {
      ids.push_back(whole);
      return;
    }
  }
  if (byte_level && has_all_letters_) {
    for (const char byte : word) ids.push_back(letter_ids_[static_cast<unsigned char>(byte)]);
  } else {
    start_symbols(text, ids);
  }
  if (ids.size() > 1) merge(scratch);
}

// One id per character. Characters outside the vocabulary fall back to bytes or to the unknown
// token; consecutive unknown ones are collected so that they can be fused.
void Bpe::start_symbols(std::string_view text, std::vector<int32_t>& ids) const {
  bool unknown_held = false;
  std::string affixed;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = begin + utf8_length(text[begin]);
    const std::string_view character = text.substr(begin, end - begin);
    std::string_view token = character;
    if ((begin > 0 && !subword_prefix_.empty()) || (end == text.size() && !word_suffix_.empty())) {
      affixed = begin > 0 ? subword_prefix_ : "";
      affixed += character;
      if (end == text.size()) affixed += word_suffix_;
      token = affixed;
    }
    begin = end;
    const int32_t id = vocabulary_.find(token);
    if (id >= 0) {
      if (unknown_held) ids.push_back(unk_id_);
      unknown_held = false;
      ids.push_back(id);
    } else if (!append_fallback(token, ids) && unk_id_ >= 0) {
      if (unknown_held && !fuse_unk_) ids.push_back(unk_id_);
      unknown_held = true;
    }
  }
  if (unknown_held) ids.push_back(unk_id_);
}

bool Bpe::append_fallback(std::string_view token, std::vector<int32_t>& ids) const {
  if (!byte_fallback_) return false;
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(token.begin(), token.end(), [&](char byte) { return id_of(byte) < 0; })) {
    return false;
  }
  for (const char byte : token) ids.push_back(id_of(byte));
  return true;
}

void Bpe::push_candidate(BpeScratch& scratch, int32_t left) const {
  const int32_t right = scratch.symbols[left].next;
  if (left < 0 || right < 0) return;
  const MergeTable::Merge* merge =
      merges_.find(scratch.symbols[left].id, scratch.symbols[right].id);
  if (!merge) return;
  scratch.heap.push_back({merge->rank, left, merge->id});
  std::push_heap(scratch.heap.begin(), scratch.heap.end());
}

void Bpe::merge(BpeScratch& scratch) const {
  auto& [cache, symbols, heap, ids] = scratch;
  const auto count = static_cast<int32_t>(ids.size());
  symbols.resize(count);
  heap.clear();
  for (int32_t i = 0; i < count; ++i) symbols[i] = {ids[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (const auto* merge = merges_.find(ids[i], ids[i + 1])) {
      heap.push_back({merge->rank, i, merge->id});
    }
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Symbol& left = symbols[best.position];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const MergeTable::Merge* current = merges_.find(left.id, right.id);
    if (!current || current->id != best.merged_id)
      continue;  // outdated: one side has been merged since
    left.id = best.merged_id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.position;
    if (left.previous >= 0) push_candidate(scratch, left.previous);
    push_candidate(scratch, best.position);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace

std::unique_ptr<Model> make_bpe(const Node& node) { return std::make_unique<Bpe>(node); }

}  // namespace snug::tokenizer
