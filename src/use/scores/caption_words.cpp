// SPDX-License-Identifier: Apache-2.0
#include "use/scores/caption_words.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "text/tokenizer/unicode.h"

namespace snug::scores {
namespace {

using Characters = std::u32string;

constexpr std::array<std::u32string_view, 31> kAbbreviations = {
    U"mr",   U"mrs", U"ms",  U"dr",  U"prof", U"st",  U"ave", U"inc",  U"co",  U"ltd", U"jr",
    U"sr",   U"vs",  U"etc", U"jan", U"feb",  U"mar", U"apr", U"jun",  U"jul", U"aug", U"sep",
    U"sept", U"oct", U"nov", U"dec", U"blvd", U"gen", U"gov", U"corp", U"ph.d"};
constexpr std::array<std::u32string_view, 6> kContracted = {U"'s",  U"'m",  U"'d",
                                                            U"'ll", U"'re", U"'ve"};
struct Fused {
  std::u32string_view whole, first, second;
};
constexpr std::array<Fused, 7> kFused = {{{U"cannot", U"can", U"not"},
                                          {U"gonna", U"gon", U"na"},
                                          {U"gotta", U"got", U"ta"},
                                          {U"wanna", U"wan", U"na"},
                                          {U"gimme", U"gim", U"me"},
                                          {U"lemme", U"lem", U"me"},
                                          {U"'tis", U"'t", U"is"}}};

bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }

bool is_word(char32_t c) {
  constexpr char32_t kNonJoiner = 0x200C, kJoiner = 0x200D;  // inside emoji
  return c != kNonJoiner && c != kJoiner && (c < 0xFE00 || c > 0xFE0F) &&
         tokenizer::is_word_char(c);
}
bool is_letter(char32_t c) { return is_word(c) && !is_digit(c) && c != U'_'; }

bool is_emoji(char32_t c) {
  return c >= 0x1F000 || (c >= 0x2600 && c <= 0x27BF) || (c >= 0xFE00 && c <= 0xFE0F) ||
         (c >= 0x200B && c <= 0x200F);
}

// Punctuation, which does not count as a word.
bool is_dropped(char32_t c) {
  constexpr std::u32string_view kDropped = U".?!,:-;'`\"\u2010\u2013\u2014\u2018\u201C\u201D\u2026";
  return kDropped.find(c) != std::u32string_view::npos || is_emoji(c);
}

Characters read(std::string_view caption) {
  const std::string text = tokenizer::lower_case(tokenizer::repair_utf8(caption));
  Characters characters;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = tokenizer::next_code_point(text, offset);
    if (c == U'\u2019')
      characters += U'\'';
    else if (c == U'\u00BD')
      characters += U"1/2";
    else if (c == U'\u00BC')
      characters += U"1/4";
    else if (c == U'\u00BE')
      characters += U"3/4";
    else
      characters += c;
  }
  return characters;
}

class Reader {
 public:
  explicit Reader(Characters text) : text_(std::move(text)) {}

  std::vector<std::string> words() {
    while (at_ < text_.size()) {
      if (tokenizer::is_white_space(text_[at_]))
        ++at_;
      else if (is_address())
        take(end_of_chunk());
      else if (is_word(text_[at_]) || opens_word())
        read_word();
      else
        read_mark();
    }
    return std::move(words_);
  }

 private:
  char32_t peek(size_t offset) const { return offset < text_.size() ? text_[offset] : U'\0'; }

  void add(std::u32string_view word) {
    if (word.empty()) return;
    std::string utf8;
    for (const char32_t c : word) tokenizer::append_utf8(utf8, c);
    words_.push_back(std::move(utf8));
  }
  void take(size_t end) {
    add(std::u32string_view(text_).substr(at_, end - at_));
    at_ = end;
  }

  size_t end_of_chunk() const {
    size_t end = at_;
    while (end < text_.size() && !tokenizer::is_white_space(text_[end])) ++end;
    return end;
  }
  bool is_address() const {
    return is_letter(text_[at_]) &&
           std::u32string_view(text_).substr(at_, end_of_chunk() - at_).find(U"://") !=
               std::u32string_view::npos;
  }

  // #tag, @name, '80s and 'tis begin with a mark that is part of the word.
  bool opens_word() const {
    const char32_t c = text_[at_];
    if (c == U'#' || c == U'@') return is_letter(peek(at_ + 1));
    if (c != U'\'') return false;
    const bool decade = (at_ == 0 || !is_word(text_[at_ - 1])) && is_digit(peek(at_ + 1)) &&
                        is_digit(peek(at_ + 2)) && !is_digit(peek(at_ + 3));
    return decade || text_.compare(at_, 4, U"'tis") == 0 || starts_contraction(at_);
  }

  // "'s" and similar endings, with no more letters after them.
  bool starts_contraction(size_t offset) const {
    return std::ranges::any_of(kContracted, [&](std::u32string_view suffix) {
      return text_.compare(offset, suffix.size(), suffix) == 0 &&
             !is_word(peek(offset + suffix.size()));
    });
  }

  // Whether the mark at `offset`, inside a word, is part of the word.
  bool joins(size_t offset) const {
    const char32_t before = text_[offset - 1], after = peek(offset + 1);
    if (!is_word(after)) return false;
    switch (text_[offset]) {
      case U'-':
      case U'/':
      case U'@':
        return true;
      case U'.':
        return is_digit(before) == is_digit(after);
      case U',':
      case U':':
        return is_digit(before) && is_digit(after);
      case U'\'':
        return is_letter(before) && is_letter(after) && !starts_contraction(offset);
      default:
        return false;
    }
  }

  // 1.5m and 7:45pm are a number and its unit.
  static bool is_number_with_marks(std::u32string_view word) {
    return word.find_first_of(U".,:") != std::u32string_view::npos &&
           std::ranges::all_of(
               word, [](char32_t c) { return is_digit(c) || c == U'.' || c == U',' || c == U':'; });
  }

  size_t end_of_word() const {
    size_t end = at_ + 1;
    while (end < text_.size()) {
      const std::u32string_view word = std::u32string_view(text_).substr(at_, end - at_);
      if (is_word(text_[end]) && is_letter(text_[end]) && is_number_with_marks(word)) break;
      if (is_word(text_[end]) || (is_word(text_[end - 1]) && joins(end)))
        ++end;
      else
        break;
    }
    return end;
  }

  static bool keeps_stop(std::u32string_view word) {
    if (std::ranges::find(kAbbreviations, word) != kAbbreviations.end()) return true;
    for (size_t i = 0; i < word.size(); ++i)  // a.m, u.s, e
      if (i % 2 == 0 ? !is_letter(word[i]) : word[i] != U'.') return false;
    return word.size() % 2 == 1;
  }

  void read_word() {
    size_t end = end_of_word();
    const std::u32string_view word = std::u32string_view(text_).substr(at_, end - at_);
    for (const Fused& fused : kFused)
      if (word == fused.whole) {
        add(fused.first);
        add(fused.second);
        at_ = end;
        return;
      }
    constexpr std::u32string_view kNot = U"n't";
    if (word.size() > kNot.size() && word.ends_with(kNot)) {
      take(end - kNot.size());
      return take(end);
    }
    if (peek(end) == U'.' && peek(end + 1) != U'.' && keeps_stop(word)) ++end;
    take(end);
  }

  void read_mark() {
    const char32_t c = text_[at_];
    constexpr std::u32string_view kBrackets = U"()[]{}";
    static constexpr std::array<std::u32string_view, 6> kNames = {U"-lrb-", U"-rrb-", U"-lsb-",
                                                                  U"-rsb-", U"-lcb-", U"-rcb-"};
    if (const size_t bracket = kBrackets.find(c); bracket != std::u32string_view::npos) {
      add(kNames[bracket]);
      ++at_;
    } else if (c == U'!' || c == U'?') {  // one ends a sentence, several are a word
      size_t end = at_;
      while (peek(end) == U'!' || peek(end) == U'?') ++end;
      if (end - at_ > 1) return take(end);
      ++at_;
    } else if (text_.compare(at_, 3, U"'n'") == 0) {
      take(at_ + 3);
    } else if (is_dropped(c)) {
      ++at_;
    } else {
      take(at_ + 1);
    }
  }

  Characters text_;
  size_t at_ = 0;
  std::vector<std::string> words_;
};

}  // namespace

std::vector<std::string> caption_words(std::string_view caption) {
  return Reader(read(caption)).words();
}

}  // namespace snug::scores
