// SPDX-License-Identifier: Apache-2.0
#include "lab/result_json.h"

namespace snug::lab {

std::optional<Mode> mode_named(const std::string& text) {
  for (const Mode mode : {Mode::Plan, Mode::Run, Mode::Scaled})
    if (text == name(mode)) return mode;
  return std::nullopt;
}

// A path has no JSON of its own.
void to_json(nlohmann::json& out, const Suite& suite) {
  out = {{"name", suite.name},
         {"title", suite.title},
         {"about", suite.about},
         {"source", suite.source},
         {"file", suite.file.string()},
         {"device", suite.device},
         {"row_timeout_seconds", suite.row_timeout_seconds},
         {"scaled_row_timeout_seconds", suite.scaled_row_timeout_seconds},
         {"scaled_about", suite.scaled_about},
         {"models", suite.models},
         {"groups", suite.groups},
         {"rows", suite.rows}};
}

void from_json(const nlohmann::json& in, Suite& suite) {
  suite.name = in.value("name", "");
  suite.title = in.value("title", "");
  suite.about = in.value("about", "");
  suite.source = in.value("source", "");
  suite.file = in.value("file", "");
  suite.device = in.value("device", "");
  suite.row_timeout_seconds = in.value("row_timeout_seconds", 0.0);
  suite.scaled_row_timeout_seconds = in.value("scaled_row_timeout_seconds", 0.0);
  suite.scaled_about = in.value("scaled_about", "");
  suite.models = in.value("models", suite.models);
  suite.groups = in.value("groups", suite.groups);
  suite.rows = in.value("rows", suite.rows);
}

}  // namespace snug::lab
