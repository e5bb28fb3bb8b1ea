// One GET at a time over libcurl. Redirects are followed; the token goes to the first host only
// (libcurl drops it when host, port or protocol change). Failures are returned, not thrown, since
// the caller decides whether to retry.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace snug::hub {

enum class Failure {
  None,
  Unreachable,  // no connection came about: name, proxy, network
  Broken,       // a connection was lost or stood still
  Fatal,        // trying again can't help: certificate, malformed address, redirect loop
};

// For messages too: the token of the request is hidden where the server sends it back.
struct Response {
  Failure failure = Failure::None;
  std::string failure_text;
  long status = 0;                             // of the last answer
  std::map<std::string, std::string> headers;  // its headers, names in lower case
  std::string error_body;                      // the start of the body when it is no 200 or 206
  std::string url;                             // after redirects, without login and query

  bool ok() const { return failure == Failure::None && (status == 200 || status == 206); }
  std::string header(const std::string& name) const;
};

struct Request {
  std::string url;
  std::string token;   // empty: none
  std::string login;   // NAME:PASSWORD; empty: none
  std::string accept;  // the types that are understood; empty: any
  // The certificates that are trusted, as PEM; empty: CURL_CA_BUNDLE or SSL_CERT_FILE of the
  // environment, else the system's.
  std::string certificates;
  int64_t offset = 0;  // Range: bytes=offset-
  double stall_seconds = 30;
  // Called before the first byte of a 200 or 206, and then for each chunk. Their exceptions are
  // rethrown by get().
  std::function<void(const Response&)> on_start;
  std::function<void(std::string_view)> on_data;
};

// Resolves a link in the page at `base`, without fragment; empty if it is invalid.
std::string resolve_url(const std::string& base, const std::string& address);

// Removes name and password from the URL and returns NAME:PASSWORD, or an empty string.
std::string take_login(std::string& url);

// Whether scheme, host and port are equal.
bool same_server(const std::string& one_url, const std::string& other_url);

class Http {
 public:
  Http();
  Response get(const Request& request);
  // Percent-encodes one path component or query value.
  std::string escape(std::string_view text) const;

 private:
  struct Close {
    void operator()(void* handle) const;
  };
  std::unique_ptr<void, Close> handle_;
};

}  // namespace snug::hub
