// SPDX-License-Identifier: Apache-2.0
#include "report/run_record.h"

#include <algorithm>
#include <utility>

#include "base/files.h"
#include "report/record_fields.h"

namespace snug::report {
namespace {

// Keeps the order of the contract, where nlohmann::json would sort.
using Json = nlohmann::ordered_json;

struct Writer;
template <class T>
concept WrittenRecord = requires(const T& value, Writer& writer) {
  fields(value, writer);
};

template <class T>
Json as_json(const T& value) {
  return Json(value);
}
Json as_json(const WrittenRecord auto& record);
Json as_json(const std::vector<std::pair<std::string, double>>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}
template <WrittenRecord T>
Json as_json(const std::vector<T>& records) {
  Json json = Json::array();
  for (const T& record : records) json.push_back(as_json(record));
  return json;
}
Json as_json(const std::optional<OutOfMemoryRecord>& record) {
  return record ? as_json(*record) : Json();
}
Json as_json(const std::optional<MemoryPeaks>& predicted);

struct Writer {
  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = as_json(value);
  }
  void measured(const char* key, int64_t value) {
    if (!of_a_plan) json[key] = value;
  }
  template <class T>
  void added(const char* key, const T& value) {
    (*this)(key, value);
  }
  bool of_a_plan = false;
  Json json = Json::object();
};

Json as_json(const WrittenRecord auto& record) {
  Writer writer;
  fields(record, writer);
  return std::move(writer.json);
}

Json as_json(const std::optional<MemoryPeaks>& predicted) {
  Writer writer{.of_a_plan = true};
  if (!predicted) return nullptr;
  fields(*predicted, writer);
  return std::move(writer.json);
}

std::string one_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_flat(const Json& value) {
  return std::none_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); });
}

// Indents until a level holds only scalars, which goes on one line.
void append_pretty(const Json& value, size_t depth, std::string& out) {
  if (!value.is_structured() || is_flat(value)) {
    out += one_line(value);
    return;
  }
  const std::string indent(2 * (depth + 1), ' ');
  out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    out += (first ? "\n" : ",\n") + indent;
    if (value.is_object()) out += one_line(Json(key)) + ": ";
    append_pretty(item, depth + 1, out);
    first = false;
  }
  out += "\n" + std::string(2 * depth, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

std::string run_json(const RunRecord& record) {
  std::string text;
  append_pretty(as_json(record), 0, text);
  return text + "\n";
}

void write_run_json(const RunRecord& record, const std::filesystem::path& path) {
  write_file_atomically(path, run_json(record));
}

}  // namespace snug::report
