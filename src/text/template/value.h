// The values of a Jinja template: Python's None, bool, int, float, str, list, dict and callables,
// plus Undefined, which prints as nothing. Lists and dicts are shared, as in Python; strings are
// copied.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace snug::tokenizer::jinja {

class Runtime;
class Value;

struct Undefined {
  std::string name;  // for the message when it is used after all
};

using List = std::vector<Value>;

struct Dict {
  std::vector<std::pair<std::string, Value>> entries;  // in order of insertion
  bool is_namespace = false;                           // only these may be assigned to

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // By position, or by name; null if not given.
  const Value* get(size_t index, std::string_view name) const;
};

using Function = std::function<Value(Runtime&, const Arguments&)>;

class Value {
 public:
  Value() : data_(nullptr) {}  // None
  Value(Undefined value) : data_(std::move(value)) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(List value) : data_(std::make_shared<List>(std::move(value))) {}
  Value(Dict value) : data_(std::make_shared<Dict>(std::move(value))) {}
  Value(Function value) : data_(std::make_shared<Function>(std::move(value))) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<std::nullptr_t>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_list() const { return is<std::shared_ptr<List>>(); }
  bool is_dict() const { return is<std::shared_ptr<Dict>>(); }
  bool is_function() const { return is<std::shared_ptr<Function>>(); }
  bool is_integer() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integer() || is<double>(); }

  const std::string& string() const { return std::get<std::string>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  const std::shared_ptr<Dict>& shared_dict() const {
    return std::get<std::shared_ptr<Dict>>(data_);
  }
  const Function& function() const { return *std::get<std::shared_ptr<Function>>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  int64_t integer() const { return is<bool>() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is<double>() ? std::get<double>(data_) : double(integer()); }

  bool truth() const;
  std::string_view type_name() const;  // Python's

 private:
  std::variant<std::nullptr_t, Undefined, bool, int64_t, double, std::string, std::shared_ptr<List>,
               std::shared_ptr<Dict>, std::shared_ptr<Function>>
      data_;
};

// Python's str(), repr() and json.dumps(…, ensure_ascii=False); indent < 0 keeps it on one line.
std::string to_text(const Value& value, Runtime& runtime);
std::string to_repr(const Value& value, Runtime& runtime, int depth = 0);
std::string to_json(const Value& value, Runtime& runtime, int64_t indent, int depth = 0);

// The value that json.loads() gives. Recursive: the JSON must not nest deeply.
Value value_of(const nlohmann::ordered_json& json);

bool equal(const Value& a, const Value& b, Runtime& runtime, int depth = 0);
// a < b for two numbers, two strings or two lists; fails for anything else.
bool less(const Value& a, const Value& b, Runtime& runtime, int depth = 0);

}  // namespace snug::tokenizer::jinja
