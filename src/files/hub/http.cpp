// SPDX-License-Identifier: Apache-2.0
#include "files/hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/program.h"
#include "base/text.h"

namespace snug::hub {
namespace {

constexpr size_t kMaxErrorBody = 2048;
constexpr long kMaxRedirects = 8;

// State shared by the callbacks of a transfer.
struct Transfer {
  const Request* request;
  CURL* curl;
  Response response;
  bool started = false;
  bool stalled = false;
  double last_byte = monotonic_seconds();
  std::exception_ptr thrown;
};

size_t on_header(char* data, size_t, size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size);
  transfer.last_byte = monotonic_seconds();
  if (line.starts_with("HTTP/"))
    transfer.response.headers.clear();  // the next answer of a redirect
  const size_t colon = line.find(':');
  if (colon == line.npos || transfer.response.headers.size() > 200) return size;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  transfer.response.headers[name] = std::string(trimmed(line.substr(colon + 1)));
  return size;
}

size_t on_body(char* data, size_t, size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  Response& response = transfer.response;
  transfer.last_byte = monotonic_seconds();
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &response.status);
  if (!response.ok()) {
    response.error_body.append(data, std::min(size, kMaxErrorBody - response.error_body.size()));
    return size;
  }
  try {
    if (!transfer.started && transfer.request->on_start) transfer.request->on_start(response);
    transfer.started = true;
    transfer.request->on_data({data, size});
    return size;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
}

// libcurl calls this at least once per second, even if nothing arrives.
int on_tick(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.stalled = monotonic_seconds() - transfer.last_byte > transfer.request->stall_seconds;
  return transfer.stalled ? 1 : 0;
}

Failure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Failure::None;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return Failure::Unreachable;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Failure::Fatal;
    default:
      return Failure::Broken;
  }
}

using HeaderList = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

HeaderList headers_of(const Request& request) {
  curl_slist* list = nullptr;
  if (!request.token.empty())
    list = curl_slist_append(list, ("Authorization: Bearer " + request.token).c_str());
  if (!request.accept.empty())
    list = curl_slist_append(list, ("Accept: " + request.accept).c_str());
  if (request.offset > 0)
    list = curl_slist_append(list, fmt::format("Range: bytes={}-", request.offset).c_str());
  return {list, curl_slist_free_all};
}

// libcurl looks for certificates in its build system's place; other systems keep them elsewhere.
std::string trusted_certificates(const Request& request) {
  if (!request.certificates.empty()) return request.certificates;
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* file = std::getenv(name); file != nullptr && *file != '\0') return file;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (::access(file, R_OK) == 0) return file;
  // A bare container may have none; a package contains Mozilla's.
  const std::filesystem::path shipped = shipped_file("ca-certificates.crt");
  return std::filesystem::exists(shipped) ? shipped.string() : "";
}

void set_options(CURL* curl, const Request& request, const HeaderList& headers, Transfer& transfer,
                 char* error) {
  // Never redirect from https to plain http, where the response could be forged.
  const char* redirect_to = request.url.starts_with("https:") ? "https" : "http,https";
  const long connect_ms = static_cast<long>(std::clamp(request.stall_seconds, 0.1, 60.0) * 1000);
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, redirect_to);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "snug/0.1");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  if (!request.login.empty()) curl_easy_setopt(curl, CURLOPT_USERPWD, request.login.c_str());
  if (const std::string file = trusted_certificates(request); !file.empty())
    curl_easy_setopt(curl, CURLOPT_CAINFO, file.c_str());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L * 1024);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_tick);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
}

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

// Empty where it is no address.
Url parse_url(const std::string& text) {
  Url url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) url.reset();
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (!url || curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  const std::unique_ptr<char, decltype(&curl_free)> owned(text, curl_free);
  return text;
}

// The address without name, password and query, which may be a signature that opens a file.
std::string without_secrets(const std::string& address) {
  const Url url = parse_url(address);
  if (!url) return address.substr(0, address.find('?'));
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY})
    curl_url_set(url.get(), part, nullptr, 0);
  return part_of(url, CURLUPART_URL);
}

// A server may send the token back in what becomes part of a message.
void hide(const std::string& token, Response& response) {
  constexpr size_t kShortest = 4;  // what is shorter is no secret, and may be part of any word
  constexpr std::string_view kHidden = "***";
  if (token.size() < kShortest) return;
  const auto hide_in = [&](std::string& text) {
    for (size_t at = text.find(token); at != text.npos; at = text.find(token, at + kHidden.size()))
      text.replace(at, token.size(), kHidden);
  };
  for (std::string* text : {&response.url, &response.error_body, &response.failure_text})
    hide_in(*text);
  for (auto& [name, value] : response.headers) hide_in(value);
}

}  // namespace

std::string resolve_url(const std::string& base, const std::string& address) {
  const Url url = parse_url(base);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0) != CURLUE_OK) return "";
  curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  return part_of(url, CURLUPART_URL);
}

std::string take_login(std::string& text) {
  const Url url = parse_url(text);
  const std::string user = part_of(url, CURLUPART_USER, CURLU_URLDECODE);
  if (user.empty()) return "";
  const std::string password = part_of(url, CURLUPART_PASSWORD, CURLU_URLDECODE);
  curl_url_set(url.get(), CURLUPART_USER, nullptr, 0);
  curl_url_set(url.get(), CURLUPART_PASSWORD, nullptr, 0);
  text = part_of(url, CURLUPART_URL);
  return user + ":" + password;
}

bool same_server(const std::string& one, const std::string& other) {
  const Url a = parse_url(one), b = parse_url(other);
  if (!a || !b) return false;
  for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST})
    if (part_of(a, part) != part_of(b, part)) return false;
  return part_of(a, CURLUPART_PORT, CURLU_DEFAULT_PORT) ==
         part_of(b, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string Response::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

void Http::Close::operator()(void* handle) const { curl_easy_cleanup(handle); }

Http::Http() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  handle_.reset(ready == CURLE_OK ? curl_easy_init() : nullptr);
  SNUG_CHECK(handle_ != nullptr, "libcurl does not start");
}

Response Http::get(const Request& request) {
  CURL* curl = handle_.get();
  char error[CURL_ERROR_SIZE] = "";
  Transfer transfer{.request = &request, .curl = curl, .response = {}, .thrown = {}};
  const HeaderList headers = headers_of(request);
  set_options(curl, request, headers, transfer, error);
  const CURLcode code = curl_easy_perform(curl);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);

  Response& response = transfer.response;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response.status);
  const char* url = nullptr;
  curl_easy_getinfo(curl, CURLINFO_EFFECTIVE_URL, &url);
  response.url = without_secrets(url != nullptr ? url : request.url);
  response.failure = failure_of(code);
  if (code == CURLE_OPERATION_TIMEDOUT && response.status == 0)
    response.failure = Failure::Unreachable;  // the connection itself took too long
  if (transfer.stalled)
    response.failure_text = fmt::format("nothing arrived for {} seconds", request.stall_seconds);
  else if (code != CURLE_OK)
    response.failure_text = *error != '\0' ? error : curl_easy_strerror(code);
  // An empty file has no body that would call on_start.
  if (response.ok() && !transfer.started && request.on_start) request.on_start(response);
  hide(request.token, response);
  return std::move(transfer.response);
}

std::string Http::escape(std::string_view text) const {
  const std::unique_ptr<char, decltype(&curl_free)> escaped(
      curl_easy_escape(handle_.get(), text.data(), static_cast<int>(text.size())), curl_free);
  SNUG_CHECK(escaped != nullptr, "libcurl cannot encode a name");
  return escaped.get();
}

}  // namespace snug::hub
