// Fields of a config.json, with errors that name the file, the key and what was wanted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace snug::models {

// The key is there and not null.
inline bool has_field(const nlohmann::json& object, const char* key) {
  return object.contains(key) && !object[key].is_null();
}

class ConfigFields {
 public:
  // Borrows `object`; `where` names it in errors, such as "model/config.json: text_config". Throws
  // UserError where it is no object.
  ConfigFields(const nlohmann::json& object, std::string where);

  bool has(const char* key) const { return has_field(object_, key); }
  const std::string& where() const { return where_; }

  // Each throws UserError for a value of another kind, and for an absent one without fallback.
  int64_t integer(const char* key, std::optional<int64_t> fallback = {}) const;
  double number(const char* key, std::optional<double> fallback = {}) const;
  bool boolean(const char* key, bool fallback) const;
  std::string text(const char* key, std::optional<std::string> fallback = {}) const;
  std::vector<double> numbers(const char* key) const;
  // A number or a list of numbers.
  std::vector<int64_t> ids(const char* key) const;

  // Throws UserError for a value outside.
  int64_t integer_between(const char* key, int64_t least, int64_t most,
                          std::optional<int64_t> fallback = {}) const;
  // A share, from 0 to less than 1.
  double probability(const char* key, double fallback) const;

 private:
  template <class T>
  T absent(const char* key, const std::optional<T>& fallback) const;
  [[noreturn]] void wrong(const char* key, const char* wanted) const;

  const nlohmann::json& object_;
  std::string where_;
};

// As `ids` reads them: null for none.
nlohmann::json ids_or_number(const std::vector<int64_t>& ids);

}  // namespace snug::models
