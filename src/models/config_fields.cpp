// SPDX-License-Identifier: Apache-2.0
#include "models/config_fields.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace snug::models {

using nlohmann::json;

ConfigFields::ConfigFields(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw UserError("{} is not a JSON object", where_);
}

template <class T>
T ConfigFields::absent(const char* key, const std::optional<T>& fallback) const {
  if (fallback) return *fallback;
  throw UserError("{}: \"{}\" is missing", where_, key);
}

void ConfigFields::wrong(const char* key, const char* wanted) const {
  throw UserError("{}: \"{}\" is {}, {} is wanted", where_, key, object_[key].dump().substr(0, 80),
                  wanted);
}

int64_t ConfigFields::integer(const char* key, std::optional<int64_t> fallback) const {
  if (!has(key)) return absent(key, fallback);
  if (!object_[key].is_number_integer()) wrong(key, "a whole number");
  return object_[key].get<int64_t>();
}

double ConfigFields::number(const char* key, std::optional<double> fallback) const {
  if (!has(key)) return absent(key, fallback);
  if (!object_[key].is_number()) wrong(key, "a number");
  return object_[key].get<double>();
}

bool ConfigFields::boolean(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_boolean()) wrong(key, "true or false");
  return object_[key].get<bool>();
}

std::string ConfigFields::text(const char* key, std::optional<std::string> fallback) const {
  if (!has(key)) return absent(key, fallback);
  if (!object_[key].is_string()) wrong(key, "a text");
  return object_[key].get<std::string>();
}

std::vector<double> ConfigFields::numbers(const char* key) const {
  std::vector<double> values;
  if (!has(key)) return values;
  if (!object_[key].is_array()) wrong(key, "a list of numbers");
  for (const json& value : object_[key]) {
    if (!value.is_number()) wrong(key, "a list of numbers");
    values.push_back(value.get<double>());
  }
  return values;
}

std::vector<int64_t> ConfigFields::ids(const char* key) const {
  std::vector<int64_t> values;
  if (!has(key)) return values;
  const json list = object_[key].is_array() ? object_[key] : json::array({object_[key]});
  for (const json& value : list) {
    if (!value.is_number_integer()) wrong(key, "token ids");
    values.push_back(value.get<int64_t>());
  }
  return values;
}

int64_t ConfigFields::integer_between(const char* key, int64_t least, int64_t most,
                                      std::optional<int64_t> fallback) const {
  const int64_t value = integer(key, fallback);
  if (value < least || value > most)
    throw UserError("{}: {} = {} is out of range ({} to {})", where_, key, value, least, most);
  return value;
}

double ConfigFields::positive(const char* key, std::optional<double> fallback) const {
  const double value = number(key, fallback);
  if (!std::isfinite(value) || value <= 0)
    throw UserError("{}: {} = {} must be positive", where_, key, value);
  return value;
}

double ConfigFields::probability(const char* key, double fallback) const {
  const double value = number(key, fallback);
  if (!(value >= 0) || !(value < 1))
    throw UserError("{}: {} = {} is out of range (0 to less than 1)", where_, key, value);
  return value;
}

json ids_or_number(const std::vector<int64_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? json(ids.front()) : json(ids);
}

}  // namespace snug::models
