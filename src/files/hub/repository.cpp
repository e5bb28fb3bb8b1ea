// SPDX-License-Identifier: Apache-2.0
#include "files/hub/repository.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "files/hub/access.h"
#include "files/hub/http.h"

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
  std::string text = *it;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
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

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxManifestBytes = size_t{64} << 20;

std::string request_of(const DownloadOptions& options) {
  const Json request = {options.repo_type, options.repo_id, options.revision, options.patterns};
  return request.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

Manifest::Manifest(const std::filesystem::path& directory) : directory_(directory) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(directory / kManifestName, ignored)) return;
  try {
    const Json json = Json::parse(read_file(directory / kManifestName, kMaxManifestBytes));
    std::map<std::string, Entry> entries;
    for (const auto& [path, entry] : json.at("files").items())
      entries[path] = {entry.at("version"), entry.at("size"), entry.at("modified")};
    auto paths = json.at("paths").get<std::vector<std::string>>();
    request_ = json.at("request");
    entries_ = std::move(entries);
    paths_ = std::move(paths);
  } catch (const Json::exception&) {
  } catch (const UserError&) {
  }
}

std::optional<Manifest::Entry> Manifest::on_disk(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path file = directory_ / path;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  const auto size = std::filesystem::file_size(file, error);
  if (error) return std::nullopt;
  const auto time = std::filesystem::last_write_time(file, error);
  if (error) return std::nullopt;
  return Entry{"", static_cast<int64_t>(size), time.time_since_epoch().count()};
}

bool Manifest::unchanged(const std::string& path, const Entry& entry) const {
  const auto now = on_disk(path);
  return now && now->size == entry.size && now->modified == entry.modified;
}

bool Manifest::holds(const std::string& path, const std::string& version) const {
  const auto it = entries_.find(path);
  return it != entries_.end() && it->second.version == version && unchanged(path, it->second);
}

void Manifest::record(const std::string& path, const std::string& version) {
  auto entry = on_disk(path);
  SNUG_CHECK(entry.has_value(), "{} vanished", path);
  entry->version = version;
  entries_[path] = *entry;
}

void Manifest::complete(const DownloadOptions& options, const std::vector<std::string>& paths) {
  request_ = request_of(options);
  paths_ = paths;
}

void Manifest::save() const {
  Json files = Json::object();
  for (const auto& [path, entry] : entries_)
    files[path] = {{"version", entry.version}, {"size", entry.size}, {"modified", entry.modified}};
  const Json json = {{"request", request_}, {"paths", paths_}, {"files", files}};
  write_file_atomically(directory_ / kManifestName, json.dump(1) + "\n");
}

std::optional<std::vector<std::string>> Manifest::earlier_download(
    const DownloadOptions& options) const {
  const std::vector<std::string> paths = last_download();
  if (paths.empty() || request_ != request_of(options)) return std::nullopt;
  return paths;
}

std::vector<std::string> Manifest::last_download() const {
  const bool is_whole = std::ranges::all_of(paths_, [&](const std::string& path) {
    const auto it = entries_.find(path);
    return it != entries_.end() && unchanged(path, it->second);
  });
  return is_whole ? paths_ : std::vector<std::string>();
}

namespace {

constexpr size_t kNamesShown = 12;

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, path); });
}

bool in_top_folder(const std::string& path) { return path.find('/') == path.npos; }

bool any_top_file(const Listing& listing, const std::string& pattern) {
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const RemoteFile& file) {
    return in_top_folder(file.path) && matches(pattern, file.path);
  });
}

struct Choice {
  std::vector<std::string> wanted, unwanted;
};

// One copy of the weights: many repositories hold the same tensors in two or three forms.
Choice model_choice(const Listing& listing) {
  Choice choice{{"*.json", "tokenizer.model", "*.jinja", "*.txt"}, {}};
  // T5's vocabulary, which tokenizer.json holds too where there is one.
  if (!any_top_file(listing, "tokenizer.json")) choice.wanted.emplace_back("spiece.model");
  if (any_top_file(listing, "*.safetensors")) {
    choice.wanted.emplace_back("*.safetensors");
    choice.unwanted.emplace_back("*.bin.index.json");
    if (any_top_file(listing, "model*.safetensors"))
      choice.unwanted.emplace_back("consolidated*.safetensors");
  } else {
    choice.wanted.emplace_back("*.bin");
    choice.unwanted = {"training_args.bin", "optimizer.bin", "scheduler.bin"};
  }
  return choice;
}

std::vector<std::string> names_of(const Listing& listing, const std::string& pattern) {
  std::vector<std::string> names;
  for (const RemoteFile& file : listing.files)
    if (matches(pattern, file.path)) names.push_back(file.path);
  return names;
}

std::string shown(std::vector<std::string> names) {
  const size_t all = names.size();
  names.resize(std::min(all, kNamesShown));
  return fmt::format("{}{}", fmt::join(names, ", "),
                     all > kNamesShown ? fmt::format(" and {} more", all - kNamesShown) : "");
}

void check_selection(const std::vector<RemoteFile>& chosen, const Listing& listing,
                     const DownloadOptions& options) {
  const std::vector<std::string> gguf = names_of(listing, "*.gguf");
  const bool has_weights = any_top_file(listing, "*.safetensors") || any_top_file(listing, "*.bin");
  if (options.patterns.empty() && options.repo_type == "model" && !has_weights && !gguf.empty())
    throw UserError(
        "{} holds GGUF files, of which one is usually enough; choose it by a pattern: {}",
        repository_name(options), shown(gguf));
  if (!chosen.empty()) return;
  if (listing.files.empty())
    throw UserError("{} holds no files at revision '{}'", repository_name(options),
                    options.revision);
  throw UserError("no file of {} matches {}; it holds {}", repository_name(options),
                  options.patterns.empty()
                      ? "what a model needs"
                      : fmt::format("'{}'", fmt::join(options.patterns, "', '")),
                  shown(names_of(listing, "*")));
}

}  // namespace

bool matches(const std::string& pattern, const std::string& path) {
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

std::vector<RemoteFile> select_files(const Listing& listing, const DownloadOptions& options) {
  Choice choice{options.patterns, {}};
  const bool by_default = options.patterns.empty();
  const bool model = options.repo_type == "model";
  if (by_default) choice = model ? model_choice(listing) : Choice{{"*"}, {".gitattributes"}};
  std::vector<RemoteFile> chosen;
  for (const RemoteFile& file : listing.files) {
    if (by_default && model && !in_top_folder(file.path)) continue;
    if (matches_any(choice.wanted, file.path) && !matches_any(choice.unwanted, file.path))
      chosen.push_back(file);
  }
  check_selection(chosen, listing, options);
  return chosen;
}

}  // namespace snug::hub
