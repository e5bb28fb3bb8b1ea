// SPDX-License-Identifier: Apache-2.0
#include "train/launch/launch.h"

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
#include <filesystem>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "core/dist/world.h"
#include "train/launch/keeper.h"
#include "train/launch/layout.h"
#include "train/launch/supervisor.h"

namespace snug::launch {
namespace {

// Under torchrun: MPI cannot join processes that torchrun started, but on one machine the first of
// them can start its own, while the others wait for its exit code.

struct TorchrunPlace {
  int rank = 0;
  int size = 1;
};

// A socket that all of torchrun's processes on this machine know.
class Waiting {
 public:
  explicit Waiting(const Environment& get);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // For rank 0, before it starts its own processes.
  void open();
  // For rank 0: sends the exit code to all others, including those that connect later.
  void tell(int exit_code) const;
  // For the others: waits for rank 0's exit code; 1 if it ends without sending one.
  int wait_for_exit_code() const;

 private:
  std::string name_;
  int socket_ = -1;
};

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

// From torchrun's environment variables. Throws UserError if they name several machines.
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

// Tells all that are connected; those that come later find no socket, which counts as an end too.
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

// All ranks of a job that a person started with mpirun or srun know it by the same name.
std::string job_in_environment() {
  std::string name;
  for (const char* variable : {"OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE", "SLURM_JOB_ID",
                               "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
    name += environment(variable).value_or("") + " ";
  return name;
}

std::optional<int> keep(const recipe::Recipe& recipe, const dist::Position& position) {
  const auto job = environment(kJobVariable);
  if (job) count_from(environment(kStartVariable).value_or(""));
  if (!job) {
    std::error_code ignored;  // the log says it where it cannot be written
    std::filesystem::create_directories(logs_folder(recipe.out_dir), ignored);
  }
  KeeperOptions options{.out_dir = recipe.out_dir,
                        .job = job.value_or(job_in_environment()),
                        .rank = position.rank,
                        .size = position.size,
                        .is_supervised = job.has_value(),
                        .terminal = environment(kTerminalVariable).value_or("")};
  options.silence_seconds =
      std::min(options.silence_seconds, static_cast<double>(recipe.collective_timeout));
  return keep_rank(options);
}

int start_ranks(const recipe::Recipe& recipe, const std::vector<std::string>& words) {
  const auto devices = std::stoi(recipe.devices);
  const int num_ranks = devices * static_cast<int>(recipe.num_nodes);
  return supervise({.mpirun = find_mpirun(num_ranks, environment),
                    .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                    .words = words,
                    .devices = devices,
                    .num_nodes = static_cast<int>(recipe.num_nodes),
                    .hosts = recipe.hosts,
                    .hostfile = recipe.hostfile,
                    .num_threads = recipe.num_threads > 0 ? static_cast<int>(recipe.num_threads)
                                                          : threads_each(devices),
                    .is_root = ::geteuid() == 0},
                   recipe.out_dir);
}

// The recipe is checked for its faults alone: rank 0 gives the warnings.
void check_silently(const std::function<void()>& check) {
  const LogSinkGuard silence([](const std::string&) {});
  check();
}

int lead_or_follow(recipe::Recipe& recipe, const std::vector<std::string>& words,
                   const std::function<void()>& check, const std::function<void()>& take_folder) {
  const TorchrunPlace place = torchrun_place(environment);
  Waiting waiting(environment);
  if (place.rank != 0) return waiting.wait_for_exit_code();
  waiting.open();
  resolve_under(recipe, "torchrun", {.size = place.size, .local_size = place.size});
  check_silently(check);
  take_folder();
  const int exit_code = start_ranks(recipe, words);
  waiting.tell(exit_code);
  return exit_code;
}

}  // namespace

std::optional<int> start(recipe::Recipe& recipe, const std::vector<std::string>& words,
                         const std::function<void()>& check, const std::function<int()>& count_gpus,
                         const std::function<void()>& take_folder) {
  const std::string starter = dist::started_by();
  const dist::Position position = dist::position_in_environment();
  if (position.size > 1) {
    if (const auto exit_code = keep(recipe, position)) return exit_code;
    resolve_under(recipe, starter, position);
    check();
    if (position.rank == 0 && !environment(kJobVariable)) take_folder();
    return std::nullopt;
  }
  if (dist::is_started_by_torchrun()) return lead_or_follow(recipe, words, check, take_folder);
  const bool counts = recipe.accelerator != recipe::Accelerator::Cpu && recipe.devices != "1";
  resolve_alone(recipe, counts ? count_gpus() : 0);
  if (is_single(recipe)) {
    check();
    take_folder();
    return std::nullopt;
  }
  if (!starter.empty() && starter != "srun") resolve_under(recipe, starter, position);  // throws
  check_silently(check);
  take_folder();
  return start_ranks(recipe, words);
}

bool tell_end(int exit_code, const std::string& text, bool lost_another_rank) {
  return tell_keeper(exit_code, text, lost_another_rank);
}

}  // namespace snug::launch
