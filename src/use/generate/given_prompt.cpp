// SPDX-License-Identifier: Apache-2.0
#include "use/generate/given_prompt.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace snug::use {
namespace {

// A program that writes the prompt may need a while; one that never does is not waited for.
constexpr double kPatienceSeconds = 60;
constexpr size_t kMostBytes = size_t{64} << 20;

constexpr const char* kHowToGive =
    "give one with --prompt \"What is Debian?\", as an argument in quotes after the model, or on "
    "standard input";

// False: nothing comes.
bool wait_for_input(int descriptor, double seconds) {
  pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = ::poll(&input, 1, static_cast<int>(seconds * 1000));
  while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace

std::optional<std::string> text_of_input(int descriptor, double seconds) {
  if (::isatty(descriptor) == 1) return std::nullopt;
  if (!wait_for_input(descriptor, seconds))
    throw UserError("no prompt arrived on standard input within {} seconds; {}", seconds,
                    kHowToGive);
  std::string text;
  char bytes[1 << 16];
  while (true) {
    const ssize_t size = ::read(descriptor, bytes, sizeof bytes);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;  // its end, or it is closed
    text.append(bytes, static_cast<size_t>(size));
    if (text.size() > kMostBytes)
      throw UserError("the prompt on standard input is longer than {} MiB", kMostBytes >> 20);
  }
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return std::nullopt;
  return text;
}

std::string given_prompt(const std::optional<std::string>& given) {
  if (given) return *given;
  if (auto text = text_of_input(STDIN_FILENO, kPatienceSeconds)) return *std::move(text);
  throw UserError("there is no prompt; {}", kHowToGive);
}

}  // namespace snug::use
