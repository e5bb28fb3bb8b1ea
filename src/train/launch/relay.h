// What a rank writes to its standard output and error, on its way to its log and, for rank 0, to
// the person. A rank whose words nobody sees writes straight into its log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "train/launch/frames.h"
#include "train/launch/plain_lines.h"

namespace snug::launch {

// "120x40"
std::string text_of(TerminalSize size);
std::optional<TerminalSize> read_terminal_size(std::string_view text);
// Of the terminal behind a descriptor; none where it is no terminal.
std::optional<TerminalSize> size_if_terminal(int descriptor);

struct RelayOptions {
  std::filesystem::path log;
  bool shows = false;   // rank 0: passed on to this process's standard output and error
  bool framed = false;  // to a supervisor, both on standard output
  std::optional<TerminalSize> terminal;  // standard error is to be a terminal of this size
};

class Relay {
 public:
  // Opens the log and what is between the two processes. A log that cannot be opened is said once,
  // and the run goes on without.
  explicit Relay(const RelayOptions& options);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // In the rank: standard input, output and error are the relay's from here on.
  void become_rank();
  // In the keeper, after the fork.
  void become_keeper();

  void add_to(std::vector<pollfd>& polled) const;
  // Passes on what has come. False when both ends are closed.
  bool pass_on();
  // Into the log alone.
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

// Everything, however often the system takes a part of it. False when the other end is gone.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace snug::launch
