// The mixed text of tests/oracles/tokenizer_text.py, drawn step by step as there from the same
// seed; and the hashes by which its encodings are compared.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::test {

inline std::filesystem::path data_path(const std::string& name) {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/tokenizer" / name;
}

inline nlohmann::ordered_json read_data(const std::string& name) {
  std::ifstream file(data_path(name));
  return nlohmann::ordered_json::parse(file);
}

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t bound) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % bound;
  }

 private:
  uint64_t state_;
};

class MixedText {
 public:
  explicit MixedText(uint64_t seed) : pieces_(read_data("pieces.json")), random_(seed) {}

  std::vector<std::string> lines(size_t count) {
    std::vector<std::string> out;
    for (size_t i = 0; i < count; ++i) {
      std::string line;
      const uint64_t num_draws = 1 + random_.below(20);
      for (uint64_t k = 0; k < num_draws; ++k) {
        line += draw();
        if (random_.below(4) != 0) line += ' ';
      }
      out.push_back(line + pick(pieces_["endings"]));
    }
    return out;
  }

 private:
  std::string pick(const nlohmann::json& list) { return list[random_.below(list.size())]; }

  std::string draw() {
    const uint64_t kind = random_.below(16);
    if (kind < 9) return pick(pieces_["groups"][random_.below(pieces_["groups"].size())]);
    if (kind < 11) return draw_range();
    if (kind < 12) {
      uint64_t bound = 10;
      for (uint64_t i = random_.below(12); i > 0; --i) bound *= 10;
      return std::to_string(random_.below(bound));
    }
    if (kind < 13) return repeat("spaces", 5);
    if (kind < 14) return std::string(1 + random_.below(20), ' ');
    if (kind < 15) {
      std::string word = pick(pieces_["words"]);
      for (char& c : word) c = static_cast<char>(std::toupper(c));
      return word;
    }
    return repeat("words", 4);
  }

  std::string draw_range() {
    const auto& range = pieces_["ranges"][random_.below(pieces_["ranges"].size())];
    const uint64_t first = range[0], last = range[1];
    std::string out;
    for (uint64_t count = 1 + random_.below(8); count > 0; --count) {
      append_utf8(out, static_cast<char32_t>(first + random_.below(last - first + 1)));
    }
    return out;
  }

  std::string repeat(const char* key, uint64_t most) {
    std::string out;
    for (uint64_t count = 1 + random_.below(most); count > 0; --count) out += pick(pieces_[key]);
    return out;
  }

  nlohmann::json pieces_;
  SplitMix random_;
};

// FNV-1a, its low 32 bits as eight hexadecimal digits.
inline std::string hash_bytes(const void* data, size_t size) {
  uint64_t value = 0xCBF29CE484222325ull;
  for (size_t i = 0; i < size; ++i) {
    value = (value ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3ull;
  }
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", static_cast<uint32_t>(value));
  return text;
}
inline std::string hash_ids(std::span<const int32_t> ids) {
  return hash_bytes(ids.data(), ids.size_bytes());
}
inline std::string hash_text(const std::string& text) {
  return hash_bytes(text.data(), text.size());
}

}  // namespace snug::tokenizer::test
