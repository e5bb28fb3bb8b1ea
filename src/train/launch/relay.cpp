// SPDX-License-Identifier: Apache-2.0
#include "train/launch/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace snug::launch {
namespace {

// "\x1eSNUG" channel, 8 hexadecimal digits of length, then the bytes.
constexpr std::string_view kMark = "\x1eSNUG";
constexpr size_t kDigits = 8;
constexpr size_t kHeader = kMark.size() + 1 + kDigits;

}  // namespace

std::string framed(Channel channel, std::string_view bytes) {
  return fmt::format("{}{}{:08x}{}", kMark, static_cast<char>(channel), bytes.size(), bytes);
}

void FrameReader::take(std::string_view bytes, const Sink& sink) {
  waiting_ += bytes;
  std::string_view rest = waiting_;
  while (true) {
    const size_t mark = rest.find(kMark);
    if (mark == rest.npos) {
      // The beginning of a mark may be at the end.
      rest.remove_prefix(rest.size() - std::min(rest.size(), kMark.size() - 1));
      break;
    }
    rest.remove_prefix(mark);
    if (rest.size() < kHeader) break;
    size_t length = 0;
    const char* digits = rest.data() + kMark.size() + 1;
    const auto [end, error] = std::from_chars(digits, digits + kDigits, length, 16);
    if (error != std::errc{} || end != digits + kDigits) {
      rest.remove_prefix(kMark.size());
      continue;
    }
    if (rest.size() < kHeader + length) break;
    sink(static_cast<Channel>(rest[kMark.size()]), rest.substr(kHeader, length));
    rest.remove_prefix(kHeader + length);
  }
  waiting_ = std::string(rest);
}

namespace {

// Without control sequences: ESC [ parameters letter.
std::string without_sequences(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[') ++i;
    while (i + 1 < text.size() && (text[i + 1] < '@' || text[i + 1] > '~')) ++i;
    ++i;
  }
  return plain;
}

std::string last_drawn(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const size_t start = line.rfind('\r');
  return without_sequences(start == line.npos ? line : line.substr(start + 1));
}

}  // namespace

std::string PlainLines::take(std::string_view bytes) {
  std::string whole;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == bytes.npos) {
      line_ += bytes;
      break;
    }
    line_ += bytes.substr(0, end);
    whole += last_drawn(line_) + "\n";
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
  // A live line alone never ends; its earlier drawings need not be kept.
  if (line_.size() < 2) return whole;
  if (const size_t start = line_.rfind('\r', line_.size() - 2); start != line_.npos)
    line_.erase(0, start);
  return whole;
}

std::string PlainLines::rest() {
  std::string text = last_drawn(line_);
  line_.clear();
  return text.empty() ? text : text + "\n";
}

namespace {

constexpr int kPortions = 64;

void close_descriptor(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

void set_size(int descriptor, TerminalSize size) {
  winsize window{};
  window.ws_col = static_cast<unsigned short>(size.columns);
  window.ws_row = static_cast<unsigned short>(size.rows);
  ::ioctl(descriptor, TIOCSWINSZ, &window);
}

// A pseudo-terminal that passes on bytes unchanged: the user's terminal does the rest. -1 if the
// system has none left.
int open_terminal(int& writer, TerminalSize size) {
  const int reader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (reader < 0) return -1;
  std::array<char, 128> name{};
  const bool named = ::grantpt(reader) == 0 && ::unlockpt(reader) == 0 &&
                     ::ptsname_r(reader, name.data(), name.size()) == 0;
  writer = named ? ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
  if (writer < 0) {
    ::close(reader);
    return -1;
  }
  termios settings{};
  ::tcgetattr(writer, &settings);
  ::cfmakeraw(&settings);
  ::tcsetattr(writer, TCSANOW, &settings);
  set_size(writer, size);
  return reader;
}

}  // namespace

std::string text_of(TerminalSize size) { return fmt::format("{}x{}", size.columns, size.rows); }

std::optional<TerminalSize> read_terminal_size(std::string_view text) {
  TerminalSize size;
  const size_t cross = text.find('x');
  if (cross == text.npos) return std::nullopt;
  const auto columns = std::from_chars(text.data(), text.data() + cross, size.columns);
  const auto rows = std::from_chars(text.data() + cross + 1, text.data() + text.size(), size.rows);
  if (columns.ec != std::errc{} || rows.ec != std::errc{}) return std::nullopt;
  return size;
}

std::optional<TerminalSize> size_if_terminal(int descriptor) {
  if (::isatty(descriptor) != 1) return std::nullopt;
  return terminal_size(descriptor);
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, 1000);
      continue;
    }
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

Relay::Relay(const RelayOptions& options) : options_(options) {
  log_ = ::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_ < 0)
    warn("cannot write the log {}: {}; the output of this rank is lost", options_.log.string(),
         std::strerror(errno));
  if (!options_.shows) return;
  streams_[0].channel = Channel::Out;
  streams_[1].channel = Channel::Error;
  open_stream(streams_[0], false);
  open_stream(streams_[1], options_.terminal.has_value());
}

Relay::~Relay() {
  close_descriptor(log_);
  for (Stream& stream : streams_) {
    close_descriptor(stream.reader);
    close_descriptor(stream.writer);
  }
}

void Relay::open_stream(Stream& stream, bool as_terminal) {
  if (as_terminal) stream.reader = open_terminal(stream.writer, *options_.terminal);
  if (stream.reader < 0) {
    if (as_terminal) options_.terminal.reset();
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw UserError("cannot start a process: {}", std::strerror(errno));
    stream.reader = ends[0];
    stream.writer = ends[1];
  }
  ::fcntl(stream.reader, F_SETFL, O_NONBLOCK);
}

void Relay::become_rank() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  const int silent = log_ >= 0 ? log_ : nothing;
  ::dup2(options_.shows ? streams_[0].writer : silent, STDOUT_FILENO);
  ::dup2(options_.shows ? streams_[1].writer : silent, STDERR_FILENO);
  ::close(nothing);
}

void Relay::become_keeper() {
  for (Stream& stream : streams_) close_descriptor(stream.writer);
}

void Relay::add_to(std::vector<pollfd>& polled) const {
  for (const Stream& stream : streams_)
    if (stream.reader >= 0) polled.push_back({.fd = stream.reader, .events = POLLIN, .revents = 0});
}

bool Relay::pass_on() {
  std::array<char, 1 << 14> buffer;
  bool open = false;
  for (Stream& stream : streams_) {
    // In portions: endless output must not keep the keeper from its work.
    for (int portion = 0; portion < kPortions && stream.reader >= 0; ++portion) {
      const ssize_t got = ::read(stream.reader, buffer.data(), buffer.size());
      if (got > 0) {
        pass(stream, {buffer.data(), static_cast<size_t>(got)});
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else if (got < 0 && errno == EAGAIN) {
        break;
      } else {  // a terminal whose writers are gone gives EIO
        write_log(stream.plain.rest());
        close_descriptor(stream.reader);
      }
    }
    open = open || stream.reader >= 0;
  }
  return open;
}

void Relay::pass(Stream& stream, std::string_view bytes) {
  show(stream.channel, bytes);
  if (options_.terminal && stream.channel == Channel::Error)
    write_log(stream.plain.take(bytes));
  else
    write_log(bytes);
}

void Relay::show(Channel channel, std::string_view bytes) const {
  if (options_.framed)
    write_all(STDOUT_FILENO, framed(channel, bytes));
  else
    write_all(channel == Channel::Out ? STDOUT_FILENO : STDERR_FILENO, bytes);
}

// On a full disk the log ends, and the run continues.
void Relay::write_log(std::string_view text) {
  if (log_ < 0 || text.empty() || write_all(log_, text)) return;
  warn("cannot write the log {}: {}; it ends here", options_.log.string(), std::strerror(errno));
  close_descriptor(log_);
}

void Relay::resize(TerminalSize size) const {
  if (options_.terminal && streams_[1].reader >= 0) set_size(streams_[1].reader, size);
}

}  // namespace snug::launch
