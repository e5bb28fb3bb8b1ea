// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/suite_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "watch/monitor/folders.h"

namespace snug::monitor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNewestShown = 5;
constexpr size_t kMaxBytes = size_t{1} << 28;

std::string text_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<std::string> texts_at(const nlohmann::json& json, const char* key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end()) return texts;
  for (const nlohmann::json& text : *found)
    if (text.is_string()) texts.push_back(text);
  return texts;
}

nlohmann::json read_json(const fs::path& path) {
  try {
    return nlohmann::json::parse(read_file(path, kMaxBytes));
  } catch (const std::exception&) {
    return nlohmann::json::object();
  }
}

struct DoneRow {
  double time = 0;
  std::string id;
};

// The folders of rows, each done once its row.json is there.
struct Rows {
  std::vector<DoneRow> done;  // the newest first
  fs::path newest_run;
  std::string current;  // whose run wrote last, and that is not done
  double newest_change = 0;
};

Rows read_rows(const fs::path& folder) {
  Rows rows;
  double newest_run = 0;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const fs::path row = it->path();
    const double ended = changed_at(row / "row.json");
    const double lives = changed_at(report::live_file(row / "run", 0));
    if (ended > 0) rows.done.push_back({ended, row.filename()});
    rows.newest_change = std::max({rows.newest_change, ended, lives, changed_at(row)});
    if (lives <= newest_run) continue;
    newest_run = lives;
    rows.newest_run = row / "run";
    rows.current = ended > 0 ? "" : row.filename().string();
  }
  std::ranges::sort(rows.done, std::greater<>(), &DoneRow::time);
  return rows;
}

}  // namespace

SuiteFolder read_suite(const fs::path& folder) {
  const nlohmann::json lab = read_json(folder / "lab.json");
  const Rows rows = read_rows(folder / "rows");
  const std::vector<std::string> asked = texts_at(lab, "rows");
  SuiteFolder suite{.look = {.name = text_at(lab, "suite"),
                             .mode = text_at(lab, "mode"),
                             .current = rows.current,
                             .total = static_cast<int>(asked.size())},
                    .run = rows.newest_run,
                    .changed = std::max(changed_at(folder / "lab.json"), rows.newest_change)};
  const nlohmann::json made_from =
      lab.is_object() && lab.contains("made_from") ? lab["made_from"] : nlohmann::json();
  for (const DoneRow& row : rows.done) {
    const nlohmann::json result = read_json(folder / "rows" / row.id / "row.json");
    // What was made from other words is of an earlier lab, and will be done again.
    if (made_from.contains(row.id) &&
        text_at(made_from, row.id.c_str()) != text_at(result, "made_from"))
      continue;
    // A search's tries are beside the rows that were asked for.
    if (std::ranges::find(asked, row.id) != asked.end()) ++suite.look.done;
    if (suite.look.newest.size() < kNewestShown)
      suite.look.newest.emplace_back(row.id, text_at(result, "outcome"));
  }
  return suite;
}

// Who holds the lock for oneself, if only for a moment, may turn a lab away that begins just then:
// asked only where the answer matters.
bool lab_is_at_work(const fs::path& folder) {
  const int file = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_held = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return is_held;
}

}  // namespace snug::monitor
