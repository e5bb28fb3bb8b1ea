// Reads fields of a config.json, with errors that name the file, the key and the expected type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace snug::models {

// Whether the head has the embedding's weight.
inline constexpr const char* kTied = "tie_word_embeddings";

// Whether the key is present and not null.
inline bool has_field(const nlohmann::json& object, const char* key) {
  return object.contains(key) && !object[key].is_null();
}

class ConfigFields {
 public:
  // Borrows `object`; `where` names it in errors, such as "model/config.json: text_config". Throws
  // UserError if it is not an object.
  ConfigFields(const nlohmann::json& object, std::string where);

  bool has(const char* key) const { return has_field(object_, key); }
  const std::string& where() const { return where_; }

  // Each throws UserError for a value of another type, and for a missing one without a fallback.
  int64_t integer(const char* key, std::optional<int64_t> fallback = {}) const;
  double number(const char* key, std::optional<double> fallback = {}) const;
  bool boolean(const char* key, bool fallback) const;
  std::string text(const char* key, std::optional<std::string> fallback = {}) const;
  std::vector<double> numbers(const char* key) const;
  // A number or a list of numbers.
  std::vector<int64_t> ids(const char* key) const;

  // Throws UserError for a value outside the range.
  int64_t integer_between(const char* key, int64_t least, int64_t most,
                          std::optional<int64_t> fallback = {}) const;
  // A finite number above 0.
  double positive(const char* key, std::optional<double> fallback = {}) const;
  // From 0 to less than 1.
  double probability(const char* key, double fallback) const;

 private:
  template <class T>
  T absent(const char* key, const std::optional<T>& fallback) const;
  [[noreturn]] void wrong(const char* key, const char* wanted) const;

  const nlohmann::json& object_;
  std::string where_;
};

// The inverse of `ids`: null, a number or a list.
nlohmann::json ids_or_number(const std::vector<int64_t>& ids);

}  // namespace snug::models
