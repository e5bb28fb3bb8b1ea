// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

// The words of the pre-tokenizer Whitespace, whose \w includes the two joiners, as in Rust.
constexpr std::string_view kWordPattern = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What a split does with its delimiters.
enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

Behavior read_behavior(const Node& node) {
  const std::string& name = node.string();
  if (name == "Removed") return Behavior::Removed;
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  node.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Receives a text's delimiters and the text between them, in order, and emits the parts.
class PartCollector {
 public:
  PartCollector(const Word& word, Behavior behavior, const WordSink& sink)
      : word_(word), behavior_(behavior), sink_(sink) {}

  void add(size_t begin, size_t end, bool is_delimiter) {
    if (begin == end) return;
    if (begin > held_begin_ && !joins(is_delimiter)) flush(begin);
    // After a Removed delimiter the next part starts behind it.
    if (is_delimiter && behavior_ == Behavior::Removed) held_begin_ = end;
    last_was_delimiter_ = is_delimiter;
  }
  void finish() { flush(word_.text.size()); }

 private:
  bool joins(bool is_delimiter) const {
    switch (behavior_) {
      case Behavior::MergedWithPrevious:
        return is_delimiter && !last_was_delimiter_;
      case Behavior::MergedWithNext:
        return !is_delimiter && last_was_delimiter_;
      case Behavior::Contiguous:
        return is_delimiter == last_was_delimiter_;
      default:
        return false;
    }
  }
  void flush(size_t end) {
    if (end > held_begin_) {
      sink_(
          {word_.text.substr(held_begin_, end - held_begin_), word_.at_start && held_begin_ == 0});
    }
    held_begin_ = end;
  }

  const Word& word_;
  const Behavior behavior_;
  const WordSink& sink_;
  size_t held_begin_ = 0;  // the part that is still open
  bool last_was_delimiter_ = false;
};

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(TextPattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(const Word& word, const WordSink& sink) const override {
    PartCollector parts(word, behavior_, sink);
    size_t done = 0;
    while (done < word.text.size()) {
      const auto [begin, end] = pattern_.find(word.text, done);
      if (begin == std::string_view::npos) break;
      parts.add(done, begin, invert_);
      parts.add(begin, end, !invert_);
      done = end;
    }
    parts.add(done, word.text.size(), invert_);
    parts.finish();
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool invert_;
};

// Splits at every character for which a predicate is true.
class CharacterSplit : public PreTokenizer {
 public:
  using Predicate = bool (*)(char32_t);
  CharacterSplit(Predicate is_delimiter, Behavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}

  void split(const Word& word, const WordSink& sink) const override {
    PartCollector parts(word, behavior_, sink);
    size_t done = 0;
    for (size_t i = 0; i < word.text.size();) {
      const size_t begin = i;
      if (!is_delimiter_(next_code_point(word.text, i))) continue;
      parts.add(done, begin, false);
      parts.add(begin, i, true);
      done = i;
    }
    parts.add(done, word.text.size(), false);
    parts.finish();
  }

 private:
  Predicate is_delimiter_;
  Behavior behavior_;
};

class PrefixSpace : public PreTokenizer {
 public:
  void split(const Word& word, const WordSink& sink) const override {
    if (word.text.starts_with(' ')) return sink(word);
    const std::string prefixed = " " + std::string(word.text);
    sink({prefixed, word.at_start});
  }
};

class ByteLetters : public PreTokenizer {
 public:
  void split(const Word& word, const WordSink& sink) const override {
    const std::string letters = to_byte_letters(word.text);
    sink({letters, word.at_start});
  }
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const Node& node)
      : replacement_(node.string_or("replacement", "▁")), split_(node.boolean_or("split", true)) {
    const bool legacy_prefix = node.boolean_or("add_prefix_space", true);
    scheme_ = node.string_or("prepend_scheme", legacy_prefix ? "always" : "never");
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never") {
      node["prepend_scheme"].refuse("always, first or never");
    }
  }

  void split(const Word& word, const WordSink& sink) const override {
    std::string text;
    for (const char c : word.text) {
      if (c == ' ')
        text += replacement_;
      else
        text += c;
    }
    const bool prepends = scheme_ == "always" || (scheme_ == "first" && word.at_start);
    if (prepends && !text.starts_with(replacement_)) text.insert(0, replacement_);
    const Word whole{text, word.at_start};
    if (!split_) return sink(whole);
    PartCollector parts(whole, Behavior::MergedWithNext, sink);
    size_t done = 0;
    for (size_t at; (at = text.find(replacement_, done)) != std::string::npos;) {
      parts.add(done, at, false);
      parts.add(at, at + replacement_.size(), true);
      done = at + replacement_.size();
    }
    parts.add(done, text.size(), false);
    parts.finish();
  }

 private:
  std::string replacement_, scheme_;
  bool split_;
};

class SequenceSplit : public PreTokenizer {
 public:
  explicit SequenceSplit(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void split(const Word& word, const WordSink& sink) const override { run(0, word, sink); }

 private:
  void run(size_t step, const Word& word, const WordSink& sink) const {
    if (step + 1 == steps_.size()) return steps_[step]->split(word, sink);
    steps_[step]->split(word, [&](const Word& part) { run(step + 1, part, sink); });
  }
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

void add_split(const Node& node, Steps& steps) {
  steps.push_back(std::make_unique<PatternSplit>(TextPattern(node["pattern"]),
                                                 read_behavior(node["behavior"]),
                                                 node.boolean_or("invert", false)));
}

TextPattern fixed_pattern(std::string_view expression, const Node& node) {
  const nlohmann::json pattern = {{"Regex", expression}};
  return TextPattern(Node(pattern, node.where()));
}

void add_byte_level(const Node& node, Steps& steps) {
  if (node.boolean_or("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpace>());
  if (node.boolean_or("use_regex", true)) {
    steps.push_back(std::make_unique<PatternSplit>(fixed_pattern(kGpt2Pattern, node),
                                                   Behavior::Isolated, false));
  }
  steps.push_back(std::make_unique<ByteLetters>());
}

void add_step(const Node& node, int depth, Steps& steps) {
  const std::string& type = node["type"].string();
  const auto add = [&](CharacterSplit::Predicate predicate, Behavior behavior) {
    steps.push_back(std::make_unique<CharacterSplit>(predicate, behavior));
  };
  if (type == "Sequence") {
    if (depth >= kMaxSequenceDepth) node.refuse("pre-tokenizers that are nested less deeply");
    for (const Node& step : node["pretokenizers"].items()) add_step(step, depth + 1, steps);
  } else if (type == "ByteLevel") {
    add_byte_level(node, steps);
  } else if (type == "Split") {
    add_split(node, steps);
  } else if (type == "Digits") {
    const bool individual = node.boolean_or("individual_digits", false);
    add(is_numeric, individual ? Behavior::Isolated : Behavior::Contiguous);
  } else if (type == "Metaspace") {
    steps.push_back(std::make_unique<Metaspace>(node));
  } else if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    add(is_punctuation, behavior ? read_behavior(*behavior) : Behavior::Isolated);
  } else if (type == "WhitespaceSplit") {
    add(is_white_space, Behavior::Removed);
  } else if (type == "Whitespace") {
    steps.push_back(
        std::make_unique<PatternSplit>(fixed_pattern(kWordPattern, node), Behavior::Removed, true));
  } else if (type == "BertPreTokenizer") {
    add(is_white_space, Behavior::Removed);
    add(is_punctuation, Behavior::Isolated);
  } else {
    throw UserError(
        "{}: the pre-tokenizer '{}' is unknown; supported: Sequence, ByteLevel, Split, Digits, "
        "Metaspace, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer",
        node.where(), type);
  }
}

}  // namespace

PreTokenization make_pre_tokenization(const Node& node) {
  PreTokenization made;
  if (node.is_null()) return made;
  Steps steps;
  add_step(node, 0, steps);
  if (!steps.empty() && dynamic_cast<const ByteLetters*>(steps.back().get()) != nullptr) {
    made.byte_level = true;
    steps.pop_back();
  }
  if (!steps.empty()) made.steps = std::make_unique<SequenceSplit>(std::move(steps));
  return made;
}

}  // namespace snug::tokenizer
