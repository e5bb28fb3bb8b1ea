// SPDX-License-Identifier: Apache-2.0
#include "files/hub/pip_settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "files/hub/http.h"

namespace snug::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string without_blanks(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Lowest precedence first. PIP_CONFIG_FILE=/dev/null means none at all.
std::vector<fs::path> config_files() {
  const fs::path own = variable("PIP_CONFIG_FILE");
  if (own == "/dev/null") return {};
  std::vector<fs::path> files;
  std::string folders = variable("XDG_CONFIG_DIRS");
  std::istringstream list(folders.empty() ? "/etc/xdg" : folders);
  for (std::string folder; std::getline(list, folder, ':');)
    files.push_back(fs::path(folder) / "pip/pip.conf");
  files.emplace_back("/etc/pip.conf");
  if (const fs::path home = variable("HOME"); !home.empty()) {
    files.push_back(home / ".pip/pip.conf");
    const fs::path config = variable("XDG_CONFIG_HOME");
    files.push_back((config.empty() ? home / ".config" : config) / "pip/pip.conf");
  }
  if (const fs::path venv = variable("VIRTUAL_ENV"); !venv.empty())
    files.push_back(venv / "pip.conf");
  if (!own.empty()) files.push_back(own);
  return files;
}

// Lines "key = value" under [global], or [download], which takes precedence.
void read_config(const std::string& text, std::map<std::string, std::string>& global,
                 std::map<std::string, std::string>& download) {
  std::istringstream lines(text);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    line = without_blanks(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2);
      continue;
    }
    const size_t sign = line.find_first_of("=:");
    if (sign == line.npos) continue;
    std::string key = without_blanks(line.substr(0, sign));
    std::replace(key.begin(), key.end(), '_', '-');
    if (section == "global") global[key] = without_blanks(line.substr(sign + 1));
    if (section == "download") download[key] = without_blanks(line.substr(sign + 1));
  }
}

}  // namespace

PipSettings pip_settings() {
  std::map<std::string, std::string> values, download;
  for (const fs::path& file : config_files()) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) continue;
    try {
      read_config(read_file(file, kMaxConfigBytes), values, download);
    } catch (const UserError&) {  // one that cannot be read is none of ours, as for pip
    }
  }
  for (const auto& [key, value] : download) values[key] = value;
  for (const auto& [name, key] : {std::pair{"PIP_INDEX_URL", "index-url"}, {"PIP_CERT", "cert"}})
    if (const std::string value = without_blanks(variable(name)); !value.empty())
      values[key] = value;

  PipSettings settings;
  if (!values["index-url"].empty()) settings.index_url = values["index-url"];
  if (!settings.index_url.starts_with("http://") && !settings.index_url.starts_with("https://"))
    throw UserError(
        "pip's index-url (PIP_INDEX_URL or pip.conf) is '{}'; it must be an address such as "
        "https://pypi.org/simple",
        settings.index_url);
  settings.login = take_login(settings.index_url);
  while (settings.index_url.ends_with('/')) settings.index_url.pop_back();
  settings.certificates = values["cert"];
  return settings;
}

}  // namespace snug::hub
