// run.json read back, so that a run that is resumed tells its whole story.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "report/record_fields.h"

namespace snug::report {
namespace {

using Json = nlohmann::ordered_json;

struct Reader;
template <class T>
concept ReadRecord = requires(T& value, const Reader& reader) {
  fields(value, reader);
};

template <class T>
void read(const Json& json, T& out) {
  json.get_to(out);
}
void read(const Json& json, double& out) {
  out = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}
void read(const Json& json, nlohmann::json& out) { out = nlohmann::json(json); }
void read(const Json& json, ReadRecord auto& record);
void read(const Json& json, std::vector<std::pair<std::string, double>>& out) {
  for (const auto& [name, value] : json.items()) out.emplace_back(name, value);
}
template <ReadRecord T>
void read(const Json& json, std::vector<T>& out) {
  for (const Json& item : json) read(item, out.emplace_back());
}
template <ReadRecord T>
void read(const Json& json, std::optional<T>& out) {
  if (!json.is_null()) read(json, out.emplace());
}

struct Reader {
  template <class T>
  void operator()(const char* key, T& out) const {
    read(json.at(key), out);
  }
  template <class T>
  void measured(const char* key, T& out) const {
    if (json.contains(key)) read(json.at(key), out);
  }
  template <class T>
  void added(const char* key, T& out) const {
    measured(key, out);
  }
  const Json& json;
};

void read(const Json& json, ReadRecord auto& record) {
  const Reader reader{json};
  fields(record, reader);
}

}  // namespace

RunRecord read_run_json(const std::filesystem::path& path) {
  RunRecord record;
  try {
    read(Json::parse(read_file(path)), record);
  } catch (const Json::exception& error) {
    throw UserError("{} is not a run.json of this version, or it is damaged: {}", path.string(),
                    error.what());
  }
  return record;
}

}  // namespace snug::report
