// SPDX-License-Identifier: Apache-2.0
#include "support/fake_hub.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "files/hub/http.h"

namespace snug::test {
namespace {

std::string get(const std::string& url) {
  std::string body;
  hub::Request request;
  request.url = url;
  request.on_data = [&](std::string_view bytes) { body += bytes; };
  hub::Http().get(request);
  return body;
}

}  // namespace

FakeHub::FakeHub(const std::string& packages) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const char* script = SNUG_SOURCE_DIR "/tests/support/fake_hub.py";
  char* argv[] = {const_cast<char*>("python3"), const_cast<char*>(script),
                  const_cast<char*>(packages.c_str()), nullptr};
  const int error = ::posix_spawnp(&pid_, "python3", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  input_ = in[1];
  std::FILE* output = ::fdopen(out[0], "r");
  char line[64] = "";
  const bool started = error == 0 && std::fgets(line, sizeof(line), output) != nullptr &&
                       std::sscanf(line, "%d %d", &port_, &secure_port_) == 2;
  std::fclose(output);
  if (!started) throw std::runtime_error("tests/support/fake_hub.py does not start");
}

FakeHub::~FakeHub() {
  ::close(input_);
  ::waitpid(pid_, nullptr, 0);
}

std::string FakeHub::endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

std::string FakeHub::secure_endpoint() const {
  return "https://127.0.0.1:" + std::to_string(secure_port_);
}

std::string FakeHub::certificate() { return SNUG_SOURCE_DIR "/tests/data/hub/fake_hub.pem"; }

void FakeHub::reset() const { get(endpoint() + "/_reset"); }

std::vector<std::string> FakeHub::log() const {
  std::vector<std::string> lines;
  std::istringstream text(get(endpoint() + "/_log"));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string FakeHub::content(int64_t length) {
  std::string out;
  for (int64_t i = 0; i < length; ++i) out += static_cast<char>((7 * i + i / 251 + length) % 256);
  return out;
}

}  // namespace snug::test
