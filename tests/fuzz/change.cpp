// SPDX-License-Identifier: Apache-2.0
#include "fuzz/change.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace snug::fuzz {
namespace {

using nlohmann::json;

constexpr uint64_t kNasty[] = {0,          1,          0x7F,           0xFF,
                               0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,     uint64_t{1} << 32,
                               INT64_MAX,  UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63};

template <class T>
const T& one_of(const std::vector<T>& all, Random& random) {
  return all[random() % all.size()];
}

void assign(Bytes& bytes, std::string_view text) { bytes.assign(text.begin(), text.end()); }

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void change_bytes(Bytes& bytes, Random& random) {
  if (bytes.empty()) return;
  const size_t at = random() % bytes.size();
  const size_t length = std::min<size_t>(1 + random() % 16, bytes.size() - at);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  const auto end = begin + static_cast<std::ptrdiff_t>(length);
  switch (random() % 7) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 1:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.erase(begin, end);
      break;
    case 4: {
      const Bytes copy(begin, end);
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size()),
                   copy.begin(), copy.end());
      break;
    }
    case 5: {
      const uint64_t number = kNasty[random() % std::size(kNasty)];
      const size_t width = size_t{1} << random() % 4;
      std::memcpy(&bytes[at], &number, std::min(width, bytes.size() - at));
      break;
    }
    default:
      std::fill(begin, end, static_cast<uint8_t>(random() % 2 * 255));
      break;
  }
}

// ---- JSON

namespace {

constexpr size_t kMostNodes = 100'000;
constexpr size_t kMostBytes = size_t{1} << 20;

void collect(json& node, std::vector<json*>& nodes) {
  if (nodes.size() >= kMostNodes) return;
  nodes.push_back(&node);
  if (node.is_structured())
    for (json& child : node) collect(child, nodes);
}

json nasty_value(Random& random) {
  static const std::vector<json> values{nullptr,
                                        true,
                                        false,
                                        0,
                                        1,
                                        -1,
                                        2,
                                        7,
                                        0.5,
                                        1e308,
                                        -0.0,
                                        INT64_MAX,
                                        INT64_MIN,
                                        UINT64_MAX,
                                        1 << 16,
                                        int64_t{1} << 32,
                                        "",
                                        "\n",
                                        "../x",
                                        "\xf0\x9f\x98\x80",
                                        std::string(3000, 'a'),
                                        json::array(),
                                        json::object(),
                                        json::array({0}),
                                        json::array({-1, INT64_MAX})};
  return one_of(values, random);
}

void change_scalar(json& node, Random& random) {
  if (node.is_string()) {
    Bytes text;
    assign(text, node.get_ref<const std::string&>());
    change_bytes(text, random);
    node = std::string(text_of(text));
  } else if (node.is_number_integer()) {
    const int64_t steps[] = {-1, 1, 2, -2};
    // Unsigned: wraps where the value is the last of its type.
    node = static_cast<int64_t>(node.get<uint64_t>() +
                                static_cast<uint64_t>(steps[random() % std::size(steps)]));
  } else {
    node = nasty_value(random);
  }
}

void remove_child(json& node, Random& random) {
  if (!node.is_structured() || node.empty()) return;
  auto child = node.begin();
  std::advance(child, static_cast<std::ptrdiff_t>(random() % node.size()));
  node.erase(child);
}

void add_child(json& node, json value, Random& random) {
  if (node.is_array()) {
    node.insert(node.begin() + static_cast<std::ptrdiff_t>(random() % (node.size() + 1)),
                std::move(value));
  } else if (node.is_object() && !node.empty()) {
    auto child = node.begin();
    std::advance(child, static_cast<std::ptrdiff_t>(random() % node.size()));
    // Beside a key, one nearly called so.
    std::string key = child.key() + "_";
    if (random() % 2 == 0) key.erase(0, 1);
    node[key] = std::move(value);
  }
}

bool change_tree(json& tree, Random& random) {
  std::vector<json*> nodes;
  collect(tree, nodes);
  json& node = *one_of(nodes, random);
  const json other = *one_of(nodes, random);
  switch (random() % 6) {
    case 0:
      node = nasty_value(random);
      break;
    case 1:
      node = other;
      break;
    case 2:
      remove_child(node, random);
      break;
    case 3:
      add_child(node, other, random);
      break;
    case 4:
      add_child(node, nasty_value(random), random);
      break;
    default:
      change_scalar(node, random);
      break;
  }
  return true;
}

std::string written(const json& tree) {
  return tree.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The changed text, or empty where this is no JSON or would swell too far.
std::string changed_json(std::string_view text, Random& random) {
  if (text.size() > kMostBytes) return {};
  json tree = json::parse(text, nullptr, false, true);
  if (tree.is_discarded()) return {};
  change_tree(tree, random);
  std::string result = written(tree);
  return result.size() > kMostBytes ? std::string() : result;
}

}  // namespace

bool change_json(Bytes& bytes, Random& random) {
  const std::string text = changed_json(text_of(bytes), random);
  if (text.empty()) return false;
  assign(bytes, text);
  return true;
}

bool change_json_line(Bytes& bytes, Random& random) {
  if (bytes.empty()) return false;
  const auto somewhere = bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size());
  const auto end = std::find(somewhere, bytes.end(), '\n');
  const auto begin = std::find(std::reverse_iterator(somewhere), bytes.rend(), '\n').base();
  const std::string text = changed_json(
      {reinterpret_cast<const char*>(&*begin), static_cast<size_t>(end - begin)}, random);
  if (text.empty()) return false;
  Bytes result(bytes.begin(), begin);
  result.insert(result.end(), text.begin(), text.end());
  result.insert(result.end(), end, bytes.end());
  bytes = std::move(result);
  return true;
}

bool change_safetensors(Bytes& bytes, Random& random) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length) return false;
  const std::string header = changed_json(text_of(bytes).substr(sizeof length, length), random);
  if (header.empty()) return false;
  const uint64_t new_length = header.size();
  Bytes result(sizeof new_length);
  std::memcpy(result.data(), &new_length, sizeof new_length);
  result.insert(result.end(), header.begin(), header.end());
  result.insert(result.end(), bytes.begin() + static_cast<std::ptrdiff_t>(sizeof length + length),
                bytes.end());
  bytes = std::move(result);
  return true;
}

// ---- words

namespace {

bool is_word(uint8_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c >= 0x80;
}

// Words, runs of blanks, and signs: those that come in pairs ("{%", "==") stay together.
std::vector<Bytes> words_of(const Bytes& text) {
  std::vector<Bytes> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (is_word(text[i])) {
      while (end < text.size() && is_word(text[end])) ++end;
    } else if (text[i] == ' ') {
      while (end < text.size() && text[end] == ' ') ++end;
    } else if (end < text.size() && !is_word(text[end]) && text[end] > ' ') {
      ++end;
    }
    words.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(i),
                       text.begin() + static_cast<std::ptrdiff_t>(end));
    i = end;
  }
  return words;
}

}  // namespace

bool change_words(Bytes& bytes, Random& random) {
  std::vector<Bytes> words = words_of(bytes);
  if (words.empty() || bytes.size() > kMostBytes) return false;
  const auto at = [&](size_t index) { return words.begin() + static_cast<std::ptrdiff_t>(index); };
  const size_t first = random() % words.size();
  const size_t count = std::min<size_t>(1 + random() % 12, words.size() - first);
  const std::vector<Bytes> some(at(first), at(first + count));
  switch (random() % 5) {
    case 0:
      words.erase(at(first), at(first + count));
      break;
    case 1:
      words.insert(at(random() % words.size()), some.begin(), some.end());
      break;
    case 2:
      words[first] = Bytes(one_of(words, random));
      break;
    case 3:
      std::swap(words[first], words[random() % words.size()]);
      break;
    default: {
      static const std::vector<std::string> values{"0",    "-1",   "1e400", "9223372036854775808",
                                                   "null", "true", "~",     "''",
                                                   "[]",   "{}",   "- ",    ": ",
                                                   "\"",   "'",    "#",     "&a",
                                                   "*a",   "|\n",  "\t",    "\n",
                                                   "\r\n"};
      assign(words[first], one_of(values, random));
      break;
    }
  }
  bytes.clear();
  for (const Bytes& word : words) bytes.insert(bytes.end(), word.begin(), word.end());
  return true;
}

}  // namespace snug::fuzz
