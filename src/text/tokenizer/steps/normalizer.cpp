// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/normalizer.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

// Most normalizers are one function of the text.
class FunctionNormalizer : public Normalizer {
 public:
  using Function = std::function<std::string(std::string)>;
  explicit FunctionNormalizer(Function function) : function_(std::move(function)) {}
  std::string apply(std::string text) const override { return function_(std::move(text)); }

 private:
  Function function_;
};

class SequenceNormalizer : public Normalizer {
 public:
  SequenceNormalizer(const Node& node, int depth) {
    if (depth >= kMaxSequenceDepth) node.refuse("normalizers that are nested less deeply");
    for (const Node& step : node["normalizers"].items()) {
      if (auto made = make_normalizer(step, depth + 1)) steps_.push_back(std::move(made));
    }
  }
  std::string apply(std::string text) const override {
    for (const auto& step : steps_) text = step->apply(std::move(text));
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const Node& node)
      : pattern_(node["pattern"]), content_(node["content"].string()) {}
  std::string apply(std::string text) const override {
    return pattern_.replace_all(text, content_);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

std::string strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t next = 0;
    if (!is_white_space(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    const size_t last = previous_offset(text, text.size());
    size_t offset = last;
    if (!is_white_space(next_code_point(text, offset))) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::unique_ptr<Normalizer> of(FunctionNormalizer::Function function) {
  return std::make_unique<FunctionNormalizer>(std::move(function));
}

std::unique_ptr<Normalizer> of(NormalForm form) {
  return of([form](std::string text) { return normalize_form(text, form); });
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Node& node, int depth) {
  if (node.is_null()) return nullptr;
  const std::string& type = node["type"].string();
  if (type == "Sequence") return std::make_unique<SequenceNormalizer>(node, depth);
  if (type == "NFC") return of(NormalForm::Nfc);
  if (type == "NFD") return of(NormalForm::Nfd);
  if (type == "NFKC") return of(NormalForm::Nfkc);
  if (type == "NFKD") return of(NormalForm::Nfkd);
  if (type == "Lowercase") return of([](std::string text) { return lower_case(text); });
  if (type == "StripAccents") return of([](std::string text) { return strip_accents(text); });
  if (type == "ByteLevel") return of([](std::string text) { return to_byte_letters(text); });
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(node);
  if (type == "Precompiled") return make_charsmap(node);
  if (type == "Prepend") {
    return of([prefix = node["prepend"].string()](std::string text) {
      return text.empty() ? text : prefix + text;
    });
  }
  if (type == "Strip") {
    return of([left = node.boolean_or("strip_left", true),
               right = node.boolean_or("strip_right", true)](std::string text) {
      return strip(text, left, right);
    });
  }
  throw UserError(
      "{}: the normalizer '{}' is unknown; supported: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, "
      "StripAccents, ByteLevel, Replace, Precompiled, Prepend, Strip",
      node.where(), type);
}

// sentencepiece's precompiled character map: base64 of a double-array trie over UTF-8 and of the
// texts that replace matches. As in Hugging Face's tokenizers, a whole grapheme of under six bytes
// is looked up first, then character by character, and the shortest match counts.
namespace {

constexpr size_t kMaxGraphemeBytes = 5;

std::string decode_base64(const Node& node) {
  std::string out;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : node.string()) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = c - 'A';
    else if (c >= 'a' && c <= 'z')
      value = c - 'a' + 26;
    else if (c >= '0' && c <= '9')
      value = c - '0' + 52;
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else if (c == '=')
      break;
    else
      node.refuse("base64");
    bits = (bits << 6 | value) & 0xFFFFFF;
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      out += static_cast<char>(bits >> num_bits);
    }
  }
  return out;
}

class Charsmap : public Normalizer {
 public:
  explicit Charsmap(const Node& node) {
    const std::string blob = decode_base64(node);
    uint32_t trie_bytes = 0;
    if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
    if (blob.size() < 4 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
      throw UserError("{}: the character map is damaged ({} bytes, a trie of {})", node.where(),
                      blob.size(), trie_bytes);
    }
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
    texts_ = blob.substr(4 + trie_bytes);
  }

  std::string apply(std::string text) const override {
    std::string out;
    size_t begin = 0;
    for (const size_t end : grapheme_ends(text)) {
      const auto grapheme = std::string_view(text).substr(begin, end - begin);
      begin = end;
      const auto whole = grapheme.size() <= kMaxGraphemeBytes ? find(grapheme) : std::nullopt;
      if (whole) {
        out += *whole;
        continue;
      }
      for (size_t i = 0; i < grapheme.size();) {
        const auto character = grapheme.substr(i, utf8_length(grapheme[i]));
        i += character.size();
        out += find(character).value_or(character);
      }
    }
    return out;
  }

 private:
  // Units of the double array: bit 31 marks a value, bit 8 "has a leaf", bits 10… the offset to the
  // children (scaled by 256 where bit 9 is set), the low byte the label.
  std::optional<std::string_view> find(std::string_view key) const {
    if (units_.empty()) return std::nullopt;
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    size_t position = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      position ^= byte;
      if (position >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[position];
      if ((unit & (1u << 31 | 0xFF)) != byte) return std::nullopt;
      position ^= offset(unit);
      if ((unit >> 8 & 1) != 0) {
        if (position >= units_.size()) return std::nullopt;
        return text_at(units_[position] & 0x7FFFFFFF);
      }
    }
    return std::nullopt;
  }

  std::optional<std::string_view> text_at(size_t start) const {
    if (start >= texts_.size()) return std::nullopt;
    const size_t end = std::min(texts_.find('\0', start), texts_.size());
    return std::string_view(texts_).substr(start, end - start);
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_charsmap(const Node& node) {
  const auto map = node.find("precompiled_charsmap");
  if (!map || map->string().empty()) return nullptr;
  return std::make_unique<Charsmap>(*map);
}

}  // namespace snug::tokenizer
