// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/json_node.h"

#include "base/error.h"
#include "base/files.h"
#include "text/tokenizer/vocabulary.h"

namespace snug::tokenizer {
namespace {

constexpr size_t kMaxJsonBytes = size_t{1} << 28;
constexpr int kMaxDepth = 200;

}  // namespace

Node Node::operator[](const char* key) const {
  if (!is_object()) refuse("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) throw UserError("{}: the key '{}' is missing", where_, key);
  return {*found, where_ + "." + key};
}

std::optional<Node> Node::find(const char* key) const {
  if (!is_object()) refuse("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return Node(*found, where_ + "." + key);
}

Node Node::item(size_t index) const {
  if (!is_array() || index >= size()) refuse("a longer list");
  return {(*value_)[index], where_ + "[" + std::to_string(index) + "]"};
}

std::vector<Node> Node::items() const {
  if (!is_array()) refuse("a list");
  std::vector<Node> out;
  for (size_t i = 0; i < size(); ++i) out.push_back(item(i));
  return out;
}

const std::string& Node::string() const {
  if (!is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

bool Node::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

int64_t Node::integer() const {
  if (!value_->is_number_integer()) refuse("a whole number");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX)
    refuse("a smaller number");
  return value_->get<int64_t>();
}

double Node::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

std::string Node::string_or(const char* key, std::string fallback) const {
  const auto found = find(key);
  return found ? found->string() : std::move(fallback);
}

bool Node::boolean_or(const char* key, bool fallback) const {
  const auto found = find(key);
  return found ? found->boolean() : fallback;
}

int32_t Node::token_id() const {
  const int64_t id = integer();
  if (id < 0 || id >= kMaxTokenId) refuse("a token id from 0 to 16777215");
  return static_cast<int32_t>(id);
}

void Node::refuse(std::string_view wanted) const {
  std::string found = value_->is_structured()
                          ? value_->type_name()
                          : value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 60) + "…";
  throw UserError("{}: found {}, expected {}", where_, found, wanted);
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  try {
    const auto limit_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      if (depth > kMaxDepth) throw UserError("{}: nested more than {} deep", where, kMaxDepth);
      return true;
    };
    return nlohmann::json::parse(text, limit_depth);
  } catch (const nlohmann::json::exception& error) {
    throw UserError("{}: not valid JSON: {}; fetch the file again", where, error.what());
  }
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return parse_json(read_file(path, kMaxJsonBytes), path.string());
}

}  // namespace snug::tokenizer
