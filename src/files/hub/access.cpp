// SPDX-License-Identifier: Apache-2.0
#include "files/hub/access.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace snug::hub {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string first_word(std::string text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_first_of(" \t\r\n", begin) - begin);
}

std::filesystem::path token_file() {
  if (const std::string path = environment("HF_TOKEN_PATH"); !path.empty()) return path;
  if (const std::string home = environment("HF_HOME"); !home.empty())
    return std::filesystem::path(home) / "token";
  return std::filesystem::path(environment("HOME")) / ".cache/huggingface/token";
}

std::string find_token(const std::string& given) {
  for (const std::string& token :
       {given, environment("HF_TOKEN"), environment("HUGGING_FACE_HUB_TOKEN")})
    if (!first_word(token).empty()) return first_word(token);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(token_file(), ignored)) return "";
  return first_word(read_file(token_file(), kMaxTokenBytes));
}

std::string token_advice(const DownloadOptions& options, const Access& access) {
  return fmt::format(
      "accept its terms at {}/{}{} if it has any, then {}", access.endpoint,
      options.repo_type == "dataset" ? "datasets/" : "", options.repo_id,
      access.token.empty()
          ? "set HF_TOKEN to a read token of your account (Settings > Access Tokens)"
          : "check that the token in use (HF_TOKEN or the token file) belongs to that account, is "
            "not expired and may read this repository");
}

std::string server_words(const Response& response) {
  std::string words = response.header("x-error-message");
  if (words.empty()) words = response.error_body.substr(0, 200);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return words.empty() ? "" : fmt::format(" (the server says: {})", words);
}

[[noreturn]] void fail_for_connection(const Response& response, const Access& access,
                                      const std::string& what) {
  if (response.failure == Failure::Unreachable)
    throw UserError(
        "{}: {} cannot be reached: {}. Is this machine online? Behind a proxy set HTTPS_PROXY; "
        "for a "
        "mirror set HF_ENDPOINT",
        what, access.endpoint, response.failure_text);
  if (response.failure == Failure::Fatal)
    throw UserError(
        "{}: {}: {}. Check HF_ENDPOINT and, behind a proxy that inspects TLS, CURL_CA_BUNDLE", what,
        response.url, response.failure_text);
  throw UserError(
      "{}: the connection to {} keeps breaking: {}. What was downloaded is kept; run the same "
      "command again to continue",
      what, access.endpoint, response.failure_text);
}

}  // namespace

Access resolve_access(const DownloadOptions& options) {
  Access access;
  access.endpoint = options.endpoint.empty() ? environment("HF_ENDPOINT") : options.endpoint;
  if (access.endpoint.empty()) access.endpoint = "https://huggingface.co";
  if (!access.endpoint.starts_with("http://") && !access.endpoint.starts_with("https://"))
    throw UserError("HF_ENDPOINT is '{}'; it must be an address such as https://huggingface.co",
                    access.endpoint);
  access.login = take_login(access.endpoint);
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  access.token = find_token(options.token);
  const auto plain = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (access.token.size() > kMaxTokenBytes ||
      !std::all_of(access.token.begin(), access.token.end(), plain))
    throw UserError("the hub token (HF_TOKEN or {}) holds characters that no token has",
                    token_file().string());
  return access;
}

std::string repository_name(const DownloadOptions& options) {
  return options.repo_type == "model" ? options.repo_id
                                      : fmt::format("{} {}", options.repo_type, options.repo_id);
}

void fail_for(const Response& response, const DownloadOptions& options, const Access& access,
              const std::string& what) {
  if (response.failure != Failure::None) fail_for_connection(response, access, what);
  const std::string code = response.header("x-error-code");
  const std::string words = server_words(response);
  const long status = response.status;
  if (code == "RevisionNotFound")
    throw UserError("{}: {} has no revision '{}'; give a branch, tag or commit, e.g. main", what,
                    repository_name(options), options.revision);
  if (code == "GatedRepo" || status == 403)
    throw UserError("{}: {} is gated or closed to you{}; {}", what, repository_name(options), words,
                    token_advice(options, access));
  if (status == 401)  // hubs also answer so for a name that does not exist, to hide private ones
    throw UserError("{}: there is no {} on {}, or it is private or gated{}; check the name, and {}",
                    what, repository_name(options), access.endpoint, words,
                    token_advice(options, access));
  if (status == 404)
    throw UserError("{}: {} has nothing under that name{}; check ORG/NAME and the revision '{}'",
                    what, access.endpoint, words, options.revision);
  if (status == 429)
    throw UserError("{}: {} limits the rate of requests{}; try again later{}", what,
                    access.endpoint, words,
                    access.token.empty() ? ", or set HF_TOKEN, which allows more requests" : "");
  throw UserError("{}: {} answers with status {}{}; try again later", what, response.url, status,
                  words);
}

}  // namespace snug::hub
