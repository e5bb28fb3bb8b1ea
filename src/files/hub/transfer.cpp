// SPDX-License-Identifier: Apache-2.0
#include "files/hub/transfer.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"

namespace snug::hub {
namespace {

constexpr double kMaxBackoff = 60;
constexpr double kMaxRetryAfter = 120;
constexpr size_t kMaxTextBytes = size_t{64} << 20;

bool may_pass(const Response& response) {
  if (response.failure == Failure::Fatal) return false;
  if (response.failure != Failure::None) return true;
  for (const long status : {408, 429, 500, 502, 503, 504})
    if (response.status == status) return true;
  return false;
}

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Seconds or a date; 0 when the server names none.
double retry_after(const Response& response) {
  const std::string value = response.header("retry-after");
  if (value.empty()) return 0;
  if (const auto seconds = to_integer(value))
    return std::min(static_cast<double>(*seconds), kMaxRetryAfter);
  const time_t date = curl_getdate(value.c_str(), nullptr);
  if (date < 0) return 0;
  return std::clamp(std::difftime(date, std::time(nullptr)), 0.0, kMaxRetryAfter);
}

std::string reason(const Response& response) {
  return response.failure == Failure::None ? fmt::format("status {}", response.status)
                                           : response.failure_text;
}

struct ContentRange {
  int64_t first = -1;
  int64_t total = -1;
};

// "bytes 100-199/1000"; the total may be '*'.
ContentRange parse_content_range(std::string_view text) {
  ContentRange range;
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == text.npos || slash == text.npos || slash < dash)
    return range;
  range.first = to_integer(text.substr(kUnit.size(), dash - kUnit.size())).value_or(-1);
  range.total = to_integer(text.substr(slash + 1)).value_or(-1);
  return range;
}

// The server sent a different range than requested.
struct WrongRange {};

int64_t total_size(const Response& response) {
  if (response.status == 206) return parse_content_range(response.header("content-range")).total;
  return to_integer(response.header("content-length")).value_or(-1);
}

void check_start(const Response& response, const RemoteFile& file, PartFile& part) {
  if (response.status == 200) {
    if (part.size() > 0) part.restart();
  } else if (parse_content_range(response.header("content-range")).first != part.size()) {
    throw WrongRange{};
  }
  const int64_t total = total_size(response);
  if (file.size >= 0 && total >= 0 && total != file.size)
    throw UserError(
        "{}: expected {} bytes but {} serves {}; a mirror or proxy in between changes the file",
        file.path, file.size, response.url, total);
}

// Downloads what is still missing; also reports a file that is complete.
void receive(Http& http, const FileWish& wish, PartFile& part, Meter& meter) {
  int64_t counted = part.size();
  const auto on_bytes = [&] {
    meter.at(part.size(), std::max<int64_t>(part.size() - counted, 0));
    counted = part.size();
  };
  if (wish.file.size < 0 || part.size() < wish.file.size) {
    const Response response = with_patience(
        wish.patience, [&] { return fetch_rest(http, wish.request, wish.file, part, on_bytes); },
        [&] { return part.size(); });
    if (!response.ok()) wish.fail(response);
  }
  on_bytes();
}

}  // namespace

Response with_patience(const Patience& patience, const std::function<Response()>& attempt,
                       const std::function<int64_t()>& gained) {
  int failures = 0;
  bool answered = false;
  for (int64_t best = gained();;) {
    Response response = attempt();
    if (response.ok() || !may_pass(response)) return response;
    answered = answered || response.failure != Failure::Unreachable;
    if (gained() > best) failures = 0;
    best = std::max(best, gained());
    // Without a network fail soon; if the network worked before, it may come back.
    const int allowed =
        answered || best > 0 ? patience.max_retries : std::min(patience.max_retries, 1);
    if (++failures > allowed) return response;
    const double backoff =
        std::min(patience.backoff_seconds * std::ldexp(1.0, failures - 1), kMaxBackoff);
    const double wait = std::max(backoff, retry_after(response));
    detail("{}: {}; trying again in {:.1f} s", response.url, reason(response), wait);
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  }
}

Response get_text(Http& http, Request request, const Patience& patience, std::string& body) {
  request.on_start = [&](const Response&) { body.clear(); };
  request.on_data = [&](std::string_view bytes) {
    if (body.size() + bytes.size() > kMaxTextBytes)
      throw UserError("{}: the response does not end", request.url);
    body += bytes;
  };
  return with_patience(
      patience, [&] { return http.get(request); }, [] { return int64_t{0}; });
}

Response fetch_rest(Http& http, Request request, const RemoteFile& file, PartFile& part,
                    const std::function<void()>& on_bytes) {
  request.offset = part.size();
  request.on_start = [&](const Response& response) { check_start(response, file, part); };
  request.on_data = [&](std::string_view bytes) {
    if (file.size >= 0 && part.size() + static_cast<int64_t>(bytes.size()) > file.size)
      throw UserError("{}: the server sends more than the expected {} bytes", file.path, file.size);
    part.append(bytes);
    on_bytes();
  };
  Response response;
  try {
    response = http.get(request);
  } catch (const WrongRange&) {
    part.restart();
    response.failure = Failure::Broken;
    response.failure_text = "the server sent another range than was asked for";
    response.url = request.url;
    return response;
  }
  if (response.status == 416 && part.size() > 0) {
    part.restart();  // our bytes are not the beginning of the server's file
    response.failure = Failure::Broken;
    response.failure_text = "the server refused to go on where the earlier download ended";
  } else if (response.ok() && file.size >= 0 && part.size() < file.size) {
    response.failure = Failure::Broken;
    response.failure_text =
        fmt::format("the connection ended after {} of {} bytes", part.size(), file.size);
  }
  return response;
}

void fetch_file(Http& http, const FileWish& wish, Meter& meter) {
  const RemoteFile& file = wish.file;
  PartFile part(wish.part, file);
  meter.begin(file.path, file.size);
  const bool resumed = part.size() > 0;
  std::string found;
  receive(http, wish, part, meter);
  bool right = part.verify(found);
  if (!right && resumed) {
    // After a power failure the end of a part file may be corrupt: start once more from zero.
    detail("{}: {}; downloading it again", file.path, found);
    part.restart();
    receive(http, wish, part, meter);
    right = part.verify(found);
  }
  if (!right) {
    part.discard();
    throw DamagedCopy(
        "{}: the downloaded file has {}; the copy at {} is damaged, or a proxy in between changes "
        "it. Run the "
        "command again, or use another {}",
        file.path, found, wish.source, wish.setting);
  }
  part.finish(wish.path);
}

void check_room(const std::filesystem::path& folder, double needed, const std::string& what) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error || needed <= static_cast<double>(space.available)) return;
  throw UserError("{} needs {} more in {}, where {} are free; make room or choose another folder",
                  what, format_bytes(static_cast<int64_t>(std::min(needed, 9e18))), folder.string(),
                  format_bytes(static_cast<int64_t>(space.available)));
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UserError("cannot make {}: {}", folder.string(), error.message());
}

}  // namespace snug::hub
