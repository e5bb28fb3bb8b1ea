// SPDX-License-Identifier: Apache-2.0
#include "train/launch/torchrun.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace snug::launch {
namespace {

int number(const Environment& get, const char* name, int otherwise) {
  const auto text = get(name);
  if (!text) return otherwise;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value < 0)
    throw UserError("environment: {}={} is not a number of processes", name, *text);
  return value;
}

// In the abstract name space: there is no file that could be left over.
sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t used = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), used);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + used);
  return address;
}

}  // namespace

TorchrunPlace torchrun_place(const Environment& get) {
  const TorchrunPlace place{.rank = number(get, "RANK", 0), .size = number(get, "WORLD_SIZE", 1)};
  const std::string master = get("MASTER_ADDR").value_or("");
  const bool is_local = master == "localhost" || master == "127.0.0.1" || master == "::1";
  if (number(get, "LOCAL_WORLD_SIZE", is_local ? place.size : 0) == place.size) return place;
  throw UserError(
      "torchrun started {} processes on several machines, and MPI cannot connect processes that it "
      "did not start: use mpirun or srun instead, or start snug on the first machine with "
      "--devices N --num_nodes M --hosts a,b",
      place.size);
}

// torchrun is the parent of them all.
Waiting::Waiting(const Environment& get)
    : name_(
          fmt::format("snug-{}-{}-{}", ::getuid(), ::getppid(), get("MASTER_PORT").value_or(""))) {}

Waiting::~Waiting() {
  if (socket_ >= 0) ::close(socket_);
}

void Waiting::open() {
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name_, length);
  if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket_, SOMAXCONN) != 0)
    throw UserError("cannot connect to torchrun's other processes: {}", std::strerror(errno));
}

// All that have come by now; who comes later finds nobody, which counts as an end too.
void Waiting::tell(int exit_code) const {
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  const auto code = static_cast<unsigned char>(exit_code);
  while (true) {
    const int other = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (other < 0 && errno == EINTR) continue;
    if (other < 0) return;
    ::send(other, &code, 1, MSG_NOSIGNAL);
    ::close(other);
  }
}

int Waiting::wait_for_exit_code() const {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLongest = std::chrono::seconds(120);
  // torchrun asks all of its processes to stop; it is rank 0 that stops the run.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_IGN);
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name_, length);
  const auto start = Clock::now();
  while (::connect(connection, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (Clock::now() - start > kLongest) {
      ::close(connection);
      throw UserError("torchrun's rank 0 did not start the run within {} s", kLongest.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  unsigned char code = 1;
  ssize_t got = 0;
  do got = ::recv(connection, &code, 1, 0);
  while (got < 0 && errno == EINTR);
  ::close(connection);
  return got == 1 ? code : 1;
}

}  // namespace snug::launch
