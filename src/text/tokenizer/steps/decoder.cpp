// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/decoder.h"

#include <charconv>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

using Tokens = Decoder::Tokens;

class FunctionDecoder : public Decoder {
 public:
  using Function = std::function<Tokens(Tokens)>;
  explicit FunctionDecoder(Function function) : function_(std::move(function)) {}
  Tokens apply(Tokens tokens) const override { return function_(std::move(tokens)); }

 private:
  Function function_;
};

class SequenceDecoder : public Decoder {
 public:
  SequenceDecoder(const Node& node, int depth) {
    if (depth >= kMaxSequenceDepth) node.refuse("decoders that are nested less deeply");
    for (const Node& step : node["decoders"].items()) {
      if (auto made = make_decoder(step, depth + 1)) steps_.push_back(std::move(made));
    }
  }
  Tokens apply(Tokens tokens) const override {
    for (const auto& step : steps_) tokens = step->apply(std::move(tokens));
    return tokens;
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

Tokens fuse(const Tokens& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token;
  return {text};
}

Tokens decode_byte_level(const Tokens& tokens) {
  std::string bytes;
  // An added token may have characters that do not stand for bytes; it is kept as text.
  for (const auto& token : tokens) bytes += from_byte_letters(token).value_or(token);
  return {repair_utf8(bytes)};
}

// <0x41> is the byte 0x41. A run of bytes that is not valid UTF-8 gives one U+FFFD per byte.
Tokens decode_byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (find_invalid_utf8(bytes) == std::string::npos) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (const auto& token : tokens) {
    unsigned byte = 0;
    if (token.size() == 6 && token.starts_with("<0x") && token.back() == '>' &&
        std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

std::string strip(std::string_view token, std::string_view content, int64_t left, int64_t right) {
  while (left-- > 0 && token.starts_with(content)) token.remove_prefix(content.size());
  while (right-- > 0 && token.ends_with(content)) token.remove_suffix(content.size());
  return std::string(token);
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (size_t at; (at = text.find(what)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(by);
    text.remove_prefix(at + what.size());
  }
  return out.append(text);
}

template <class Function>
std::unique_ptr<Decoder> per_token(Function function) {
  return std::make_unique<FunctionDecoder>([function](Tokens tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = function(tokens[i], i, tokens.size());
    }
    return tokens;
  });
}

std::unique_ptr<Decoder> make_strip(const Node& node) {
  return per_token([content = node["content"].string(), left = node["start"].integer(),
                    right = node["stop"].integer()](const std::string& token, size_t, size_t) {
    return content.empty() ? token : strip(token, content, left, right);
  });
}

std::unique_ptr<Decoder> make_replace(const Node& node) {
  auto pattern = std::make_shared<TextPattern>(node["pattern"]);  // std::function wants a copy
  return per_token(
      [pattern, content = node["content"].string()](const std::string& token, size_t, size_t) {
        return pattern->replace_all(token, content);
      });
}

std::unique_ptr<Decoder> make_metaspace(const Node& node) {
  const bool prepends = node.string_or("prepend_scheme", "always") != "never" &&
                        node.boolean_or("add_prefix_space", true);
  const std::string replacement = node.string_or("replacement", "▁");
  if (replacement.empty()) node["replacement"].refuse("a character");
  return per_token([prepends, replacement](const std::string& token, size_t index, size_t) {
    return replace_all(token, replacement, index == 0 && prepends ? "" : " ");
  });
}

std::unique_ptr<Decoder> make_bpe_decoder(const Node& node) {
  const std::string suffix = node.string_or("suffix", "</w>");
  if (suffix.empty()) node["suffix"].refuse("a suffix");
  return per_token([suffix](const std::string& token, size_t index, size_t count) {
    return replace_all(token, suffix, index + 1 == count ? "" : " ");
  });
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Node& node, int depth) {
  if (node.is_null()) return nullptr;
  const std::string& type = node["type"].string();
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(node, depth);
  if (type == "ByteLevel") return std::make_unique<FunctionDecoder>(decode_byte_level);
  if (type == "ByteFallback") return std::make_unique<FunctionDecoder>(decode_byte_fallback);
  if (type == "Fuse") return std::make_unique<FunctionDecoder>(fuse);
  if (type == "Strip") return make_strip(node);
  if (type == "Replace") return make_replace(node);
  if (type == "Metaspace") return make_metaspace(node);
  if (type == "BPEDecoder") return make_bpe_decoder(node);
  throw UserError(
      "{}: the decoder '{}' is unknown; supported: Sequence, ByteLevel, ByteFallback, Fuse, Strip, "
      "Replace, Metaspace, BPEDecoder",
      node.where(), type);
}

}  // namespace snug::tokenizer
