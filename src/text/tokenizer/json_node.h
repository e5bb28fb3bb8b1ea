// Reads a tokenizer's JSON with errors that name file and key: a Node is a value with its path.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::tokenizer {

class Node {
 public:
  Node(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const nlohmann::json& json() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }

  // operator[]: a required key; the other: one that may be absent or null.
  Node operator[](const char* key) const;
  std::optional<Node> find(const char* key) const;
  size_t size() const { return value_->size(); }
  Node item(size_t index) const;
  std::vector<Node> items() const;  // of an array

  const std::string& string() const;
  bool boolean() const;
  int64_t integer() const;
  double number() const;
  std::string string_or(const char* key, std::string fallback) const;
  bool boolean_or(const char* key, bool fallback) const;
  // A token id: 0 … 2^24 - 1, so that a file cannot require gigabytes of empty ids.
  int32_t token_id() const;

  [[noreturn]] void refuse(std::string_view wanted) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

// Throws UserError with the file and the offset of the first invalid byte.
nlohmann::json parse_json(std::string_view text, const std::string& where);
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace snug::tokenizer
