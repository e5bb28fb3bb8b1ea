// SPDX-License-Identifier: Apache-2.0
#include "base/lost_pages.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace snug {
namespace {

// Everything below is called in a handler: no allocation, no lock, no stdio.

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

uintptr_t hex_number(std::string_view& text) {
  uintptr_t value = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value << 4 | static_cast<uintptr_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

// The file of a line of /proc/self/maps that holds the address: "7f00-7f10 r--p 0 08:01 42  /a/b".
std::string_view file_at(std::string_view line, uintptr_t address) {
  const uintptr_t begin = hex_number(line);
  if (line.empty() || line.front() != '-') return {};
  line.remove_prefix(1);
  const uintptr_t end = hex_number(line);
  const size_t name = line.find('/');
  return address >= begin && address < end && name != line.npos ? line.substr(name)
                                                                : std::string_view();
}

void say_file_at(uintptr_t address) {
  static std::array<char, 8192> buffer;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t held = 0;
  for (ssize_t got;
       maps >= 0 && (got = ::read(maps, buffer.data() + held, buffer.size() - held)) > 0;) {
    held += static_cast<size_t>(got);
    std::string_view rest(buffer.data(), held);
    for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1))
      if (const std::string_view file = file_at(rest.substr(0, end), address); !file.empty())
        return say(file);
    if (rest.size() == buffer.size()) break;
    std::copy(rest.begin(), rest.end(), buffer.begin());
    held = rest.size();
  }
  say("a file");
}

void end_with_words(int, siginfo_t* info, void*) {
  say("\nsnug: ");
  say_file_at(reinterpret_cast<uintptr_t>(info->si_addr));
  say(" was cut short or replaced in place while it was being read, or its disk failed; ");
  say("put it back as it was and run the command again\n");
  ::_exit(2);
}

}  // namespace

void tell_of_lost_pages() {
  struct sigaction action {};
  action.sa_sigaction = end_with_words;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace snug
