// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/normalizer.h"

#include <functional>
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

}  // namespace snug::tokenizer
