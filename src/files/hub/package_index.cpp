// SPDX-License-Identifier: Apache-2.0
#include "files/hub/package_index.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "files/hub/http.h"
#include "files/hub/part_file.h"
#include "files/hub/transfer.h"

namespace snug::hub {
namespace {

constexpr const char* kAccept =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1";

std::vector<IndexFile> read_json_page(std::string_view page, const std::string& url) {
  using Json = nlohmann::json;
  const Json json = Json::parse(page, nullptr, false);
  std::vector<IndexFile> files;
  if (!json.is_object() || !json.contains("files") || !json["files"].is_array()) return files;
  const auto text = [](const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  for (const Json& entry : json["files"]) {
    if (!entry.is_object()) continue;
    const auto hashes = entry.find("hashes");
    const bool hashed = hashes != entry.end() && hashes->is_object();
    files.push_back({.name = text(entry, "filename"),
                     .url = resolve_url(url, text(entry, "url")),
                     .sha256 = hashed ? text(*hashes, "sha256") : ""});
  }
  return files;
}

std::string unescaped(std::string text) {
  for (const auto& [entity, sign] :
       {std::pair{"&#43;", "+"}, {"&quot;", "\""}, {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}})
    for (size_t at = 0; (at = text.find(entity, at)) != text.npos; ++at)
      text.replace(at, std::string_view(entity).size(), sign);
  return text;
}

// The value of href in "<a … href="…" …>"; empty where there is none.
std::string href_of(std::string_view tag) {
  for (size_t at = 0; (at = tag.find("href", at)) != tag.npos; at += 4) {
    const size_t sign = tag.find_first_not_of(" \t\r\n", at + 4);
    if (sign == tag.npos || tag[sign] != '=') continue;
    const size_t quote = tag.find_first_not_of(" \t\r\n", sign + 1);
    if (quote == tag.npos || (tag[quote] != '"' && tag[quote] != '\'')) continue;
    const size_t end = tag.find(tag[quote], quote + 1);
    if (end == tag.npos) return "";
    return unescaped(std::string(tag.substr(quote + 1, end - quote - 1)));
  }
  return "";
}

// Links as in <a href="../../packages/…/NAME#sha256=…">NAME</a>.
std::vector<IndexFile> read_html_page(std::string_view page, const std::string& url) {
  std::vector<IndexFile> files;
  for (size_t at = 0; (at = page.find("<a", at)) != page.npos; ++at) {
    const size_t end = page.find('>', at), close = page.find("</a", at);
    if (end == page.npos || close == page.npos || close < end) continue;
    if (std::isspace(static_cast<unsigned char>(page[at + 2])) == 0) continue;
    const std::string href = href_of(page.substr(at, end - at));
    std::string name = unescaped(std::string(page.substr(end + 1, close - end - 1)));
    std::erase_if(name, [](unsigned char c) { return std::isspace(c) != 0; });
    constexpr std::string_view kHash = "#sha256=";
    const size_t hash = href.find(kHash);
    files.push_back({.name = std::move(name),
                     .url = resolve_url(url, href),
                     .sha256 = hash == href.npos ? "" : href.substr(hash + kHash.size(), 64)});
  }
  return files;
}

class Download {
 public:
  explicit Download(const PackageRequest& wanted) : wanted_(wanted) {}

  std::filesystem::path run(const ShowProgress& progress) {
    const RemoteFile file = {
        .path = wanted_.file.name, .size = wanted_.file.size, .sha256 = wanted_.file.sha256};
    const std::filesystem::path path = wanted_.directory / file.path;
    if (has_content_of(path, file)) return path;
    make_folder(wanted_.directory);
    Meter meter(progress, file.size);
    try {
      fetch_file(http_,
                 {.file = file,
                  .request = request_for(find_file().url),
                  .part = part_of(path),
                  .path = path,
                  .patience = patience(),
                  .fail = [&](const Response& response) { fail(response); },
                  .source = index(),
                  .setting = "PIP_INDEX_URL"},
                 meter);
    } catch (const DamagedCopy& error) {
      throw NotFromIndex("{}", error.what());
    }
    meter.end();
    return path;
  }

 private:
  const std::string& index() const { return wanted_.settings.index_url; }
  Patience patience() const { return {wanted_.max_retries, wanted_.backoff_seconds}; }
  std::filesystem::path part_of(const std::filesystem::path& path) const {
    return path.string() + "." + wanted_.file.sha256.substr(0, 12) + ".part";
  }
  // The login is only for the index's server: files may be on another.
  Request request_for(const std::string& url) const {
    Request request;
    request.url = url;
    if (same_server(url, index())) request.login = wanted_.settings.login;
    request.certificates = wanted_.settings.certificates;
    request.stall_seconds = wanted_.stall_seconds;
    return request;
  }
  IndexFile find_file();
  [[noreturn]] void fail(const Response& response) const;

  const PackageRequest& wanted_;
  Http http_;
};

IndexFile Download::find_file() {
  Request request = request_for(index() + "/" + wanted_.file.project + "/");
  request.accept = kAccept;
  std::string page;
  const Response response = get_text(http_, request, patience(), page);
  if (!response.ok()) fail(response);
  for (IndexFile& file : read_index_page(page, response.header("content-type"), response.url))
    if (file.name == wanted_.file.name && !file.url.empty() &&
        (file.sha256.empty() || file.sha256 == wanted_.file.sha256))
      return file;
  throw NotFromIndex("{} has no {} with the right hash", index(), wanted_.file.name);
}

void Download::fail(const Response& response) const {
  const std::string& name = wanted_.file.name;
  if (response.failure == Failure::Unreachable)
    throw NotFromIndex("{} cannot be reached: {}", response.url, response.failure_text);
  if (response.failure == Failure::Fatal)
    throw NotFromIndex("{}: {}", response.url, response.failure_text);
  if (response.failure == Failure::Broken)
    throw NotFromIndex(
        "{}: the connection to {} keeps breaking: {}. What was downloaded is kept; the same "
        "command continues it",
        name, index(), response.failure_text);
  throw NotFromIndex("{} answers with status {}", response.url, response.status);
}

}  // namespace

std::vector<IndexFile> read_index_page(std::string_view page, const std::string& content_type,
                                       const std::string& url) {
  return content_type.find("json") != content_type.npos ? read_json_page(page, url)
                                                        : read_html_page(page, url);
}

std::filesystem::path download_package_file(const PackageRequest& wanted,
                                            const ShowProgress& progress) {
  return Download(wanted).run(progress);
}

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
