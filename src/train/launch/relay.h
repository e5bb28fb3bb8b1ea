// Relays a rank's standard output and error to its log and, for rank 0, to the user. A rank whose
// output is not shown writes directly to its log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"

namespace snug::launch {

// Frames that carry rank 0's standard output and error through mpirun's standard output, so that
// they cannot be confused with mpirun's own messages on standard error.
enum class Channel : char { Out = '1', Error = '2' };

std::string framed(Channel channel, std::string_view bytes);

// Takes the stream in pieces of any size and drops everything between frames (a login script's
// greeting on another machine).
class FrameReader {
 public:
  using Sink = std::function<void(Channel, std::string_view)>;
  void take(std::string_view bytes, const Sink& sink);

 private:
  std::string waiting_;
};

// Turns a terminal's output into lines for a log: without colours, and only with the last state of
// a line that was redrawn.
class PlainLines {
 public:
  // Returns the lines that are complete now.
  std::string take(std::string_view bytes);
  // Returns the incomplete last line.
  std::string rest();

 private:
  std::string line_;
};

// "120x40"
std::string text_of(TerminalSize size);
std::optional<TerminalSize> read_terminal_size(std::string_view text);
// The size of the terminal behind a descriptor; empty if it is not a terminal.
std::optional<TerminalSize> size_if_terminal(int descriptor);

struct RelayOptions {
  std::filesystem::path log;
  bool shows = false;   // rank 0: pass on to this process's standard output and error
  bool framed = false;  // pass on in frames to a supervisor, both on standard output
  std::optional<TerminalSize> terminal;  // make standard error a terminal of this size
};

class Relay {
 public:
  // Opens the log and the pipes between rank and keeper. If the log cannot be opened, warns once
  // and continues without it.
  explicit Relay(const RelayOptions& options);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // In the rank: connects standard input, output and error to the relay.
  void become_rank();
  // In the keeper, after the fork.
  void become_keeper();

  void add_to(std::vector<pollfd>& polled) const;
  // Passes on what has arrived. False when both streams are closed.
  bool pass_on();
  // Only into the log.
  void write_log(std::string_view text);
  void resize(TerminalSize size) const;

 private:
  struct Stream {
    int reader = -1;
    int writer = -1;  // closed in the keeper
    Channel channel = Channel::Out;
    PlainLines plain;
  };
  void open_stream(Stream& stream, bool as_terminal);
  void pass(Stream& stream, std::string_view bytes);
  void show(Channel channel, std::string_view bytes) const;

  RelayOptions options_;
  int log_ = -1;
  std::array<Stream, 2> streams_;
};

// Writes all bytes, in several calls if need be. False if the reader is gone.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace snug::launch
