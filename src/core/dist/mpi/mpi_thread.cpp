// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mpi/mpi_thread.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/trace.h"
#include "core/dist/world.h"

namespace snug::dist {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kTimeToSpin = microseconds(20);
constexpr auto kTimeToYield = microseconds(200);
constexpr auto kTimeToWatch = microseconds(200);
constexpr auto kShortestSleep = microseconds(20);
constexpr auto kLongestSleep = microseconds(200);
constexpr auto kShortestSleepBesideWork = microseconds(100);
constexpr auto kLongestSleepBesideWork = microseconds(1000);
constexpr auto kBeat = milliseconds(500);
constexpr auto kTimeToLeave = std::chrono::seconds(20);

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// How to wait. A rank has a computing and a communicating thread. With a core each they may spin;
// with one core for both they yield; with less, polling would only slow down the rank that is
// waited for, so they sleep.
enum class Patience { Spin, Yield, Sleep };

Patience patience_of(const Position& position) {
  const unsigned cores = std::thread::hardware_concurrency();
  const auto ranks = static_cast<unsigned>(position.local_size);
  if (cores >= 2 * ranks) return Patience::Spin;
  return cores >= ranks ? Patience::Yield : Patience::Sleep;
}

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class CountGuard {
 public:
  explicit CountGuard(std::atomic<int>& count) : count_(count) { ++count_; }
  ~CountGuard() { --count_; }
  CountGuard(const CountGuard&) = delete;
  CountGuard& operator=(const CountGuard&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

struct MpiThread::Shared {
  Shared(const Position& where, const WorldOptions& how)
      : position(where),
        options(how),
        page(how.status_folder, where.rank, where.size),
        patience(patience_of(where)) {}

  enum class Wish { None, Leave, LeaveInHaste, Abort };

  const Position position;
  const WorldOptions options;
  StatusPage page;
  const Patience patience;
  int last_tag = 0;

  std::mutex mutex;
  std::condition_variable has_news;    // for the communication thread
  std::condition_variable has_result;  // for those who wait
  std::vector<std::shared_ptr<Work>> submitted;
  std::atomic<int> num_submitted{0};
  std::atomic<int> num_waiting{0};  // threads that need a result to go on
  bool is_joined = false;
  bool has_left = false;
  Wish wish = Wish::None;
  int exit_code = 1;
  std::string failure;

  // Used only by the communication thread.
  std::vector<std::shared_ptr<Work>> active;
  std::map<int, std::deque<std::shared_ptr<Work>>> queues;
  Clock::time_point last_look;

  void run();
  void join();
  void loop();
  void leave();
  void take_submitted();
  void activate(const std::shared_ptr<Work>& work);
  bool progress();
  void finish(const std::shared_ptr<Work>& work);
  void look_around();
  void check_deadline(const Work& work, Clock::time_point now) const;
  void check_peers(const Work& work) const;
  std::string about_peers(const std::vector<int>& peers) const;
  std::string title(const Work& work) const;
  void idle(Clock::time_point idle_since);
  void fail(const std::string& why);
  void set_failed(Work& work) const;
  bool wants_to_end();
};

MpiThread::MpiThread(const Position& position, const WorldOptions& options)
    : shared_(std::make_shared<Shared>(position, options)) {
  std::thread([shared = shared_] { shared->run(); }).detach();
  std::unique_lock lock(shared_->mutex);
  const bool in_time =
      shared_->has_result.wait_for(lock, std::chrono::duration<double>(options.timeout_seconds),
                                   [&] { return shared_->is_joined || !shared_->failure.empty(); });
  if (!in_time) {
    throw CommunicationError(
        fmt::format("rank {} of {}: MPI_Init has not returned for {:.0f} s; has every process been "
                    "started, and can the machines reach each other?",
                    position.rank, position.size, options.timeout_seconds));
  }
  if (!shared_->failure.empty()) throw CommunicationError(shared_->failure);
}

MpiThread::~MpiThread() {
  std::unique_lock lock(shared_->mutex);
  const bool clean = shared_->failure.empty() && std::uncaught_exceptions() == 0;
  shared_->wish = clean ? Shared::Wish::Leave : Shared::Wish::LeaveInHaste;
  shared_->has_news.notify_all();
  // A thread that hangs in MPI keeps its data alive; the process ends without it.
  shared_->has_result.wait_for(lock, 2 * kTimeToLeave, [&] { return shared_->has_left; });
}

void MpiThread::submit(std::shared_ptr<Work> work) {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->failure.empty()) throw CommunicationError(shared_->failure);
  work->last_progress = Clock::now();
  shared_->submitted.push_back(std::move(work));
  shared_->num_submitted.fetch_add(1, std::memory_order_release);
  shared_->has_news.notify_one();
}

void MpiThread::wait(Work& work) {
  const trace::Timed timed(trace::Track::Computation, "wait", work.unit);
  const auto begin = Clock::now();
  const auto is_over = [&] {
    return work.state.load(std::memory_order_acquire) != Work::State::Waiting;
  };
  const CountGuard waiting(shared_->num_waiting);
  // Sleeping and waking takes longer than a short collective.
  const auto may_watch = [&] {
    return shared_->patience != Patience::Sleep && Clock::now() - begin < kTimeToWatch;
  };
  while (!is_over() && may_watch()) {
    if (shared_->patience == Patience::Spin)
      pause_processor();
    else
      sched_yield();
  }
  if (!is_over()) {
    std::unique_lock lock(shared_->mutex);
    shared_->has_result.wait(lock, is_over);
  }
  if (work.state == Work::State::Failed) throw CommunicationError(work.failure);
  work.held.clear();
}

StatusPage& MpiThread::page() { return shared_->page; }

int MpiThread::last_tag() const { return shared_->last_tag; }

void MpiThread::abort(int exit_code) {
  {
    std::unique_lock lock(shared_->mutex);
    shared_->wish = Shared::Wish::Abort;
    shared_->exit_code = exit_code;
    shared_->has_news.notify_all();
    shared_->has_result.wait_for(lock, std::chrono::seconds(5), [] { return false; });
  }
  // MPI_Abort has not ended the process: the thread hangs or is gone. Without MPI_Finalize the
  // launcher sees this as a failure.
  std::_Exit(exit_code);
}

void MpiThread::Shared::run() {
  try {
    join();
    loop();
    leave();
  } catch (const std::exception& error) {
    fail(error.what());
    // After a failure abort() may still be called.
    std::unique_lock lock(mutex);
    has_news.wait(lock, [&] { return wish != Wish::None; });
    if (wish == Wish::Abort) MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  const std::lock_guard lock(mutex);
  has_left = true;
  has_result.notify_all();
}

void MpiThread::Shared::join() {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    throw CommunicationError("this MPI can only be called by a process's first thread");
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != position.rank || size != position.size) {
    throw CommunicationError(fmt::format(
        "{} started this process as rank {} of {}, but MPI says rank {} of {}: the program's Open "
        "MPI and the launcher do not know each other; start with Open MPI's mpirun, or srun "
        "--mpi=pmix",
        started_by(), position.rank, position.size, rank, size));
  }
  int* highest = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found), "MPI_Comm_get_attr");
  last_tag = found != 0 ? *highest : 32767;
  page.set_state(RankState::Running);
  const std::lock_guard lock(mutex);
  is_joined = true;
  has_result.notify_all();
}

void MpiThread::Shared::loop() {
  auto idle_since = Clock::now();
  last_look = idle_since;
  while (!wants_to_end()) {
    take_submitted();
    if (progress()) idle_since = Clock::now();
    look_around();
    idle(idle_since);
  }
}

bool MpiThread::Shared::wants_to_end() {
  const std::lock_guard lock(mutex);
  if (wish == Wish::Abort) {
    page.set_state(RankState::Failed);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  return wish != Wish::None;
}

void MpiThread::Shared::take_submitted() {
  if (num_submitted.load(std::memory_order_acquire) == 0) return;
  std::vector<std::shared_ptr<Work>> works;
  {
    const std::lock_guard lock(mutex);
    works.swap(submitted);
    num_submitted.store(0, std::memory_order_relaxed);
  }
  for (const std::shared_ptr<Work>& work : works) {
    std::deque<std::shared_ptr<Work>>& queue = queues[work->queue];
    if (work->queue >= 0) queue.push_back(work);
    if (work->queue < 0 || queue.size() == 1) activate(work);
  }
}

void MpiThread::Shared::activate(const std::shared_ptr<Work>& work) {
  work->begin = work->last_progress = Clock::now();
  page.collective_started(work->unit, work->collective);
  active.push_back(work);
}

bool MpiThread::Shared::progress() {
  bool moved = false;
  for (size_t i = 0; i < active.size();) {
    const std::shared_ptr<Work> work = active[i];
    if (work->progress()) {
      work->last_progress = Clock::now();
      moved = true;
    }
    if (!work->is_done()) {
      ++i;
      continue;
    }
    active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
    finish(work);
    moved = true;
  }
  return moved;
}

void MpiThread::Shared::finish(const std::shared_ptr<Work>& work) {
  page.collective_finished();
  // "all-gather" of "all-gather of group …"
  if (trace::is_on())
    trace::add({.track = trace::Track::Collectives,
                .what = work->collective.substr(0, work->collective.find(' ')),
                .unit = work->unit,
                .begin = trace::seconds(work->begin),
                .end = trace::seconds(work->last_progress)});
  if (work->queue >= 0) {
    std::deque<std::shared_ptr<Work>>& queue = queues[work->queue];
    queue.pop_front();
    if (!queue.empty()) activate(queue.front());
  }
  const std::lock_guard lock(mutex);
  work->state.store(Work::State::Done, std::memory_order_release);
  has_result.notify_all();
}

void MpiThread::Shared::look_around() {
  const auto now = Clock::now();
  if (now - last_look < kBeat) return;
  last_look = now;
  page.beat();
  for (const std::shared_ptr<Work>& work : active) {
    check_deadline(*work, now);
    check_peers(*work);
  }
}

void MpiThread::Shared::check_deadline(const Work& work, Clock::time_point now) const {
  const double waited = seconds(now - work.last_progress);
  if (waited < options.timeout_seconds) return;
  throw CommunicationError(fmt::format(
      "{}: nothing has moved for {:.0f} s; waiting for {}\nA rank that is merely slow may take "
      "longer with a higher timeout (--collective_timeout)",
      title(work), waited, about_peers(work.awaited())));
}

// Fails early if the status page of an awaited rank shows that its process is gone.
void MpiThread::Shared::check_peers(const Work& work) const {
  if (options.status_folder.empty()) return;
  for (const int peer : work.awaited()) {
    const std::optional<RankStatus> status = read_status(options.status_folder, peer);
    if (!status) continue;
    if (status->state == RankState::Failed || status->state == RankState::Ended ||
        is_gone(*status)) {
      throw CommunicationError(
          fmt::format("{}: rank {} is gone; {}", title(work), peer, describe(*status)));
    }
  }
}

std::string MpiThread::Shared::about_peers(const std::vector<int>& peers) const {
  std::string text;
  for (const int peer : peers) {
    const auto status =
        options.status_folder.empty() ? std::nullopt : read_status(options.status_folder, peer);
    text += text.empty() ? "" : ", ";
    text += status ? describe(*status) : fmt::format("rank {}", peer);
  }
  return text;
}

std::string MpiThread::Shared::title(const Work& work) const {
  return fmt::format("rank {} of {}: {}{}{}", position.rank, position.size, work.collective,
                     work.unit.empty() ? "" : ", unit ", work.unit);
}

// Pauses longer the longer nothing has moved; a new work ends the pause. On a slow link a message
// takes many milliseconds, and each poll costs system calls and a thread switch, which would take
// processor time from the computation. Several messages are in flight, so the link stays busy
// through the longest pause.
void MpiThread::Shared::idle(Clock::time_point idle_since) {
  const auto idle_for = Clock::now() - idle_since;
  const bool somebody_waits = num_waiting.load(std::memory_order_relaxed) > 0;
  const bool may_poll = somebody_waits && patience != Patience::Sleep;
  if (may_poll && patience == Patience::Spin && idle_for < kTimeToSpin) return pause_processor();
  if (may_poll && idle_for < kTimeToYield) {
    sched_yield();
    return;
  }
  const auto share = duration_cast<microseconds>(idle_for / 8);
  const auto busy_pause =
      somebody_waits ? std::clamp(share, kShortestSleep, kLongestSleep)
                     : std::clamp(share, kShortestSleepBesideWork, kLongestSleepBesideWork);
  const auto pause = active.empty() ? microseconds(kBeat) : busy_pause;
  std::unique_lock lock(mutex);
  has_news.wait_for(lock, pause, [&] { return !submitted.empty() || wish != Wish::None; });
}

void MpiThread::Shared::leave() {
  if (wish != Wish::Leave || !active.empty()) {
    page.set_state(RankState::Failed);
    return;
  }
  // MPI_Finalize waits for all ranks without a timeout, so a barrier with one comes first.
  MPI_Request everyone = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &everyone), "MPI_Ibarrier");
  const auto begin = Clock::now();
  for (int arrived = 0; arrived == 0;) {
    check_mpi(MPI_Test(&everyone, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0 && Clock::now() - begin > kTimeToLeave) return;
    if (arrived == 0) std::this_thread::sleep_for(kLongestSleep);
  }
  page.set_state(RankState::Ended);
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

// The first failure becomes the reason for all works.
void MpiThread::Shared::fail(const std::string& why) {
  page.set_failure(why);
  const std::lock_guard lock(mutex);
  failure = why;
  for (const auto& work : active) set_failed(*work);
  for (const auto& [id, queue] : queues) {
    for (const auto& work : queue) set_failed(*work);
  }
  for (const auto& work : submitted) set_failed(*work);
  has_result.notify_all();
}

void MpiThread::Shared::set_failed(Work& work) const {
  work.failure = failure;
  work.state.store(Work::State::Failed, std::memory_order_release);
}

}  // namespace snug::dist
