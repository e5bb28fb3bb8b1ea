// SPDX-License-Identifier: Apache-2.0
#include "files/hub/repository.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "files/hub/http.h"
#include "files/hub/manifest.h"

namespace snug::hub {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNameBytes = 255;

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0 && std::isupper(c) == 0;
         });
}

std::string hex_or_empty(const Json& object, const char* key, size_t length) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return "";
  const auto& text = it->get_ref<const std::string&>();
  return is_hex(text, length) ? text : "";
}

int64_t size_or_unknown(const Json& object) {
  const auto it = object.find("size");
  if (it == object.end() || !it->is_number_integer()) return -1;
  const auto size = it->get<int64_t>();
  return size >= 0 ? size : -1;
}

RemoteFile parse_file(const Json& entry, const std::string& where) {
  if (!entry.is_object() || !entry.contains("rfilename") || !entry["rfilename"].is_string())
    throw UserError("{}: a file in the answer has no name; is HF_ENDPOINT a Hugging Face hub?",
                    where);
  RemoteFile file;
  file.path = entry["rfilename"].get<std::string>();
  file.size = size_or_unknown(entry);
  const auto lfs = entry.find("lfs");
  if (lfs != entry.end() && lfs->is_object()) {
    file.sha256 = hex_or_empty(*lfs, "sha256", 64);
    if (size_or_unknown(*lfs) >= 0) file.size = size_or_unknown(*lfs);
  } else {
    // For an LFS file the blob id is the pointer's, not the content's.
    file.blob_id = hex_or_empty(entry, "blobId", 40);
  }
  return file;
}

// The path in an address for "model" is bare, for others it starts with the type.
std::string type_prefix(const DownloadOptions& options) {
  if (options.repo_type == "model") return "";
  if (options.repo_type == "dataset") return "datasets/";
  throw UserError("repository type '{}' is unknown; use model or dataset", options.repo_type);
}

void check_repo_id(const std::string& id) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  const auto slashes = std::count(id.begin(), id.end(), '/');
  const bool fine = !id.empty() && id.size() <= 200 && slashes <= 1 && id.front() != '/' &&
                    id.back() != '/' && id.front() != '.' && id.find("..") == id.npos &&
                    id.find("/.") == id.npos && std::all_of(id.begin(), id.end(), allowed);
  if (!fine)
    throw UserError("'{}' is not a repository name; give ORG/NAME, e.g. HuggingFaceTB/SmolLM2-135M",
                    id);
}

}  // namespace

Listing parse_listing(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("siblings") || !json["siblings"].is_array())
    throw UserError(
        "{}: the response is not a repository listing; is HF_ENDPOINT a Hugging Face hub?", where);
  Listing listing;
  listing.commit = hex_or_empty(json, "sha", 40);
  if (listing.commit.empty())
    throw UserError("{}: the answer names no commit; is HF_ENDPOINT a Hugging Face hub?", where);
  std::map<std::string, RemoteFile> by_name;
  for (const Json& entry : json["siblings"]) {
    RemoteFile file = parse_file(entry, where);
    by_name.emplace(file.path, std::move(file));
  }
  for (auto& [name, file] : by_name) listing.files.push_back(std::move(file));
  return listing;
}

std::string listing_path(const DownloadOptions& options) {
  check_repo_id(options.repo_id);
  type_prefix(options);
  if (options.revision.empty()) throw UserError("the revision is empty; main is the usual one");
  return fmt::format("/api/{}s/{}/revision/{}?blobs=true", options.repo_type, options.repo_id,
                     Http().escape(options.revision));
}

std::string file_path(const DownloadOptions& options, const std::string& commit,
                      const std::string& path) {
  const Http http;
  std::string out =
      fmt::format("/{}{}/resolve/{}", type_prefix(options), options.repo_id, http.escape(commit));
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    out += "/" + http.escape(std::string_view(path).substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void check_file_name(const std::string& path, const std::string& repository) {
  const auto refuse = [&](const char* why) {
    throw UserError("{} lists a file named {}, {}; nothing is downloaded", repository,
                    Json(path).dump(-1, ' ', true, Json::error_handler_t::replace), why);
  };
  if (path.empty() || path.size() > 2048) refuse("which is not a valid file name");
  if (find_invalid_utf8(path) != path.npos) refuse("which is not valid UTF-8");
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (std::any_of(path.begin(), path.end(), control)) refuse("with control characters");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") refuse("which would be outside the folder");
    if (part.size() > kMaxNameBytes - 20) refuse("which is too long for a file name");
    if (part == kManifestName) refuse("a name that this program reserves");
    begin = end + 1;
  }
}

}  // namespace snug::hub
