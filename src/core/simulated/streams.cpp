// SPDX-License-Identifier: Apache-2.0
#include "core/simulated/streams.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "core/kernels/simulated/simulation.h"
#include "core/memory/guards.h"
#include "core/simulated/death.h"
#include "core/simulated/memory.h"

namespace snug::simulated {

namespace {

struct Item {
  const char* name = "";
  std::function<bool()> work;  // none: waits
  Kind kind = Kind::Launch;
  bool begun = false;
  Stream* waits_for = nullptr;
  uint64_t position = 0;
  Epochs known;
  Work self;
};

}  // namespace

struct Graph {
  std::vector<Item> items;
  std::set<void*> blocks;  // that it allocates, and has not freed so far
};

struct Stream {
  uint32_t id = 0;
  int priority = 0;
  bool urgent = false;  // until it is empty
  uint64_t queued = 0, done = 0;
  Epochs known;
  std::deque<Item> items;
  std::unique_ptr<Graph> recording;
};

namespace {

thread_local bool is_device_thread = false;

void join(Epochs& into, const Epochs& from) {
  into.resize(std::max(into.size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

uint64_t seed() {
  static const char* given = std::getenv("SNUG_SIMULATED_SEED");
  return given == nullptr ? 0 : std::strtoull(given, nullptr, 10);
}

// The text for the program's unit and phase on this thread.
const char* unit_and_phase() {
  const auto [unit, phase] = std::pair(memory::current_tag.unit, memory::current_tag.phase);
  if (unit == 0 && phase == memory::Phase::Setup) return "";
  static std::mutex mutex;
  static auto* texts = new std::map<std::pair<int32_t, memory::Phase>, std::string>;
  const std::lock_guard lock(mutex);
  std::string& text = (*texts)[{unit, phase}];
  if (text.empty())
    text = fmt::format(" ({}{}{})", unit == 0 ? "" : memory::unit_name(unit), unit == 0 ? "" : ", ",
                       memory::name(phase));
  return text.c_str();
}

class Device {
 public:
  Device() : random_(seed()) {
    make_stream(0);
    kernels::simulated::settings().seed = seed() + 1;
    kernels::simulated::queue_launches([](void* stream, const char* name, auto work) {
      enqueue(stream_of(stream), name, std::move(work));
    });
    std::thread([this] { run(); }).detach();
    std::atexit([] {
      stop();
      if (const char* file = std::getenv("SNUG_SIMULATED_COUNTS")) {
        kernels::simulated::append_counts(file);
        append_works(file);
        std::ofstream(file, std::ios::app) << "host_wait " << num_host_waits() << " 0 0\n";
      }
    });
  }

  Stream* make_stream(int priority) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->id = static_cast<uint32_t>(streams_.size() - 1);
    streams_.back()->priority = priority;
    return streams_.back().get();
  }

  Stream* first() { return streams_.front().get(); }

  // `of`: the unit and phase of the work, the running ones or those of recorded work.
  Work add(Stream* stream, Item item, bool urgent, const char* of) {
    Work work{.stream = stream->id, .of = of};
    {
      const std::lock_guard lock(mutex_);
      if (!fault_.empty()) return {};
      join(stream->known, host_);
      if (item.waits_for == nullptr) {
        stream->known.resize(std::max<size_t>(stream->known.size(), stream->id + 1));
        work.epoch = ++stream->known[stream->id];
        item.self = work;
      }
      item.known = stream->known;
      ++stream->queued;
      stream->urgent |= urgent;
      stream->items.push_back(std::move(item));
    }
    if (urgent) wake_.notify_one();
    return work;
  }

  Work add(Stream* stream, Item item, bool urgent) {
    if (stream->recording == nullptr) return add(stream, std::move(item), urgent, unit_and_phase());
    item.self.of = unit_and_phase();
    if (item.waits_for != nullptr || urgent)
      report_fault("work that is being recorded waits for another stream or process");
    stream->recording->items.push_back(std::move(item));
    return {};
  }

  Mark mark(Stream* stream) {
    if (stream->recording != nullptr)
      report_fault("an event or a wait in work that is being recorded");
    const std::lock_guard lock(mutex_);
    return {stream, stream->queued, stream->known};
  }

  void report_fault(const std::string& what) { fail(what + unit_and_phase()); }

  void make_wait(Stream* stream, const Mark& mark) {
    {
      const std::lock_guard lock(mutex_);
      join(stream->known, mark.known);
    }
    if (mark.stream == nullptr || mark.stream == stream) return;
    Item item;
    item.waits_for = mark.stream;
    item.position = mark.position;
    add(stream, std::move(item), false);
  }

  bool is_done(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    if (mark.stream == nullptr) return true;
    if (mark.stream->done >= mark.position) {
      learn(mark.known);
      return true;
    }
    mark.stream->urgent = true;
    wake_.notify_one();
    return false;
  }

  void wait_for(const Mark& mark) {
    if (reach(mark)) ++host_waits_;
  }

  void wait_for_all() {
    std::vector<Stream*> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& stream : streams_) all.push_back(stream.get());
    }
    bool waited = false;
    for (Stream* stream : all) waited |= reach(mark(stream));
    if (waited) ++host_waits_;
  }

  std::string fault() {
    const std::lock_guard lock(mutex_);
    return fault_;
  }

  std::atomic<int64_t> host_waits_ = 0;

 private:
  // Whether there was something left to wait for.
  bool reach(const Mark& mark) {
    std::unique_lock lock(mutex_);
    if (mark.stream == nullptr) return false;
    const bool waits = mark.stream->done < mark.position;
    if (waits) {
      wanted_.push_back(&mark);
      wake_.notify_one();
      done_.wait(lock, [&] { return mark.stream->done >= mark.position; });
      std::erase(wanted_, &mark);
    }
    learn(mark.known);
    return waits;
  }

  // The host has waited for these.
  void learn(const Epochs& known) {
    join(host_, known);
    release_pinned(host_);
  }

  // Before what it works with is destroyed. Work that waits for other processes is left behind.
  static void stop();

  void prepare_thread() {
    is_device_thread = true;
    pthread_setname_np(pthread_self(), "simulated GPU");
    at::init_num_threads();
    omp_set_num_threads(1);
  }

  void run() {
    prepare_thread();
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::vector<Stream*> next = chosen();
      if (stopping_) {
        stopped_ = true;
        done_.notify_all();
        return;
      }
      if (next.empty()) {
        close_memory();
        wake_.wait(lock, [&] { return stopping_ || !chosen().empty(); });
        continue;
      }
      open_memory();
      bool went_on = false;
      for (Stream* stream : next) went_on |= step(stream, lock);
      if (is_a_wish_granted()) {
        if (chosen().empty()) close_memory();
        done_.notify_all();
        // They take themselves off the list.
        if (!went_on || chosen().empty()) continue;
      }
      if (!went_on) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        lock.lock();
      }
    }
  }

  bool is_a_wish_granted() const {
    return std::any_of(wanted_.begin(), wanted_.end(),
                       [](const Mark* mark) { return mark->stream->done >= mark->position; });
  }

  // Streams that somebody needs, and with a seed others.
  std::vector<Stream*> chosen() {
    std::vector<Stream*> result;
    for (const Mark* mark : wanted_)
      if (mark->stream->done < mark->position) result.push_back(mark->stream);
    for (const auto& stream : streams_)
      if (stream->urgent && !stream->items.empty()) result.push_back(stream.get());
    if (seed() != 0 && !result.empty())
      for (const auto& stream : streams_)
        if (!stream->items.empty() && random_() % 4 == 0) result.push_back(stream.get());
    return result;
  }

  // One work of the stream, or of one that it waits for. False: nothing could be done.
  bool step(Stream* stream, std::unique_lock<std::mutex>& lock) {
    if (stream->items.empty()) {
      stream->urgent = false;
      return false;
    }
    Item& item = stream->items.front();
    if (item.waits_for != nullptr) {
      if (item.waits_for->done < item.position) return step(item.waits_for, lock);
    } else {
      lock.unlock();
      const bool finished = perform(item);
      lock.lock();
      if (stream->items.empty()) return true;  // after a fault
      if (!finished) return false;
    }
    stream->items.pop_front();
    ++stream->done;
    if (stream->items.empty()) stream->urgent = false;
    return true;
  }

  bool perform(Item& item) {
    try {
      if (!std::exchange(item.begun, true)) come_to(item.kind);
      const auto [id, epoch, of] = item.self;
      kernels::simulated::begin_work(item.name, {id, epoch, &item.known, of});
      return item.work();
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(error.what());
    }
    return false;
  }

  void fail(const std::string& what) {
    std::fprintf(stderr, "simulated GPU: %s\n", what.c_str());
    const std::lock_guard lock(mutex_);
    fault_ = what;
    release_all_pinned();
    for (const auto& stream : streams_) {
      stream->items.clear();
      stream->done = stream->queued;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<const Mark*> wanted_;
  Epochs host_;  // what it has waited for
  std::string fault_;
  bool stopping_ = false, stopped_ = false;
  std::mt19937_64 random_;
};

Device& device() {
  static auto* one = new Device;
  return *one;
}

void Device::stop() {
  Device& self = device();
  std::unique_lock lock(self.mutex_);
  self.stopping_ = true;
  self.wake_.notify_one();
  self.done_.wait_for(lock, std::chrono::seconds(5), [&] { return self.stopped_; });
}

}  // namespace

Stream* stream_of(void* handle) {
  return handle == nullptr ? device().first() : static_cast<Stream*>(handle);
}
Stream* make_stream(int priority) { return device().make_stream(priority); }
int priority_of(Stream* stream) { return stream->priority; }

Work enqueue(Stream* stream, const char* name, std::function<void()> work) {
  Item item;
  item.name = name;
  item.kind = std::string_view(name).starts_with("copy") ? Kind::Copy : Kind::Launch;
  item.work = [work = std::move(work)] {
    work();
    return true;
  };
  return device().add(stream, std::move(item), false);
}

void enqueue_collective(Stream* stream, const char* name, std::function<bool()> work) {
  Item item;
  item.name = name;
  item.kind = Kind::Collective;
  item.work = std::move(work);
  device().add(stream, std::move(item), true);
}

bool begin_recording(Stream* stream) {
  if (stream == device().first() || stream->recording != nullptr) return false;
  stream->recording = std::make_unique<Graph>();
  return true;
}
void note_recorded_block(Stream* stream, void* start) { stream->recording->blocks.insert(start); }
bool forget_recorded_block(Stream* stream, void* start) {
  return stream->recording->blocks.erase(start) > 0;
}
Graph* end_recording(Stream* stream) { return stream->recording.release(); }
bool is_recording(Stream* stream) { return stream->recording != nullptr; }
Graph* copy_of(const Graph* graph) { return new Graph(*graph); }
void launch(const Graph* graph, Stream* stream) {
  for (const Item& item : graph->items) device().add(stream, item, false, item.self.of);
}
void destroy(Graph* graph) { delete graph; }
void enqueue_beside_recording(Stream* stream, const char* name, std::function<void()> work) {
  std::unique_ptr<Graph> recording = std::move(stream->recording);
  enqueue(stream, name, std::move(work));
  stream->recording = std::move(recording);
}
void report_fault(const std::string& what) { device().report_fault(what); }

Mark mark(Stream* stream) { return device().mark(stream); }
void make_wait(Stream* stream, const Mark& mark) { device().make_wait(stream, mark); }
bool is_done(const Mark& mark) { return device().is_done(mark); }
void wait_for(const Mark& mark) { device().wait_for(mark); }
void wait_for_all() { device().wait_for_all(); }
int64_t num_host_waits() { return device().host_waits_; }
std::string fault() { return device().fault(); }
bool on_device() { return is_device_thread; }

}  // namespace snug::simulated
