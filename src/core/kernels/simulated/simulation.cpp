// A block's threads as fibers. A thread that waits hands over to the next one by a call that
// returns on the other's stack: calls and returns stay in pairs, as processors expect them, which
// with longjmp they did not, at twice the time.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/simulated/simulation.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "core/kernels/cuda/launch.h"
#include "core/kernels/simulated/machine.h"

// Written here, constants to the kernels.
uint3 simulated_thread_idx __asm__("snug_simulated_thread_idx");
uint3 simulated_block_idx __asm__("snug_simulated_block_idx");
uint3 simulated_block_dim __asm__("snug_simulated_block_dim");
uint3 simulated_grid_dim __asm__("snug_simulated_grid_dim");

// Pushes what a call keeps, notes the stack's top in `from` and goes on with the stack `to`, which
// an earlier switch has left.
extern "C" void snug_simulated_switch(void** from, void* to);
asm(R"(
.text
snug_simulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace snug::kernels::simulated {

Machine machine;
thread_local bool runs_kernels = false;

namespace {

constexpr unsigned kMostThreads = 1024;
constexpr size_t kStackBytes = size_t{256} << 10;  // holds the largest arguments, 32 KiB
// From one stack to the next: ends that are a power of two apart would share a few sets of a cache.
constexpr size_t kStackStride = kStackBytes + 4096 + 64;
constexpr int kDefaultSharedBytes = 48 << 10;

enum class State : uint8_t { Ready, AtBarrier, AtExchange, Done };

struct Fiber {
  char* stack = nullptr;
  void* top = nullptr;            // of its stack, while it waits; none: to be started
  const void* barrier = nullptr;  // the call of __syncthreads that it waits in
  unsigned mask = 0, source = 0;  // of an exchange
  bool orders = false;            // __syncwarp, which orders memory too
  uint64_t passed = 0, received = 0;
  uint32_t interval = 0;
};

Fiber fibers[kMostThreads];
State states[kMostThreads];  // apart from them, to be read through at each barrier and exchange
void* scheduler = nullptr;   // its stack's top
// The order of the block's threads, and whose turn comes next.
const std::vector<unsigned>* turns = nullptr;
size_t turn = 0;
const Kernel* kernel = nullptr;
std::string failure;
std::vector<std::pair<uint32_t, uint3>> blocks_run;  // first interval of each
uint32_t last_interval = 0;
Queue queue = nullptr;
std::map<std::string, Counts> all_counts;
std::map<const void*, int> allowed_shared;

void* next_stack();

void wait() {
  void** const top = &fibers[machine.thread].top;
  snug_simulated_switch(top, next_stack());
}

void thread_main() {
  for (;;) {
    kernel->call(kernel->function, kernel->arguments);
    states[machine.thread] = State::Done;
    wait();
  }
}

// As a switch leaves it: what a call keeps, and where to return to.
void* started_stack(const Fiber& fiber) {
  constexpr size_t kKept = 6;
  void** end = reinterpret_cast<void**>(fiber.stack + kStackBytes);
  end[-2] = reinterpret_cast<void*>(thread_main);
  return end - 2 - kKept;
}

// The stack of the next ready thread, which runs from now on; the scheduler's if there is none.
void* next_stack() {
  machine.running = false;
  while (failure.empty() && turn < turns->size()) {
    const unsigned thread = (*turns)[turn++];
    if (states[thread] != State::Ready) continue;
    const Fiber& fiber = fibers[thread];
    machine.running = true;
    machine.thread = thread;
    machine.interval = fiber.interval;
    machine.stack_begin = fiber.stack;
    machine.stack_end = fiber.stack + kStackBytes;
    simulated_thread_idx = {thread, 0, 0};
    return fiber.top != nullptr ? fiber.top : started_stack(fiber);
  }
  return scheduler;
}

// Each thread that is ready, until all wait or a fault is found.
void run_ready_threads() {
  turn = 0;
  // Its own stack's top is known only in the switch, in which others come to it.
  if (void* const to = next_stack(); machine.running) snug_simulated_switch(&scheduler, to);
}

void make_stacks() {
  if (fibers[0].stack != nullptr) return;
  void* memory = mmap(nullptr, kMostThreads * kStackStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Fault("no memory for the stacks of a block");
  for (unsigned t = 0; t < kMostThreads; ++t)
    fibers[t].stack = static_cast<char*>(memory) + t * kStackStride;
}

const char* doing(State state) {
  switch (state) {
    case State::AtBarrier:
      return "waits at a barrier";
    case State::AtExchange:
      return "waits for other lanes of its warp";
    case State::Done:
      return "has ended";
    case State::Ready:
      return "runs";
  }
  return "";
}

// One block.
class Block {
 public:
  explicit Block(unsigned threads) : threads_(threads) {}

  // False where the launch failed.
  bool run() {
    machine.block_first = machine.block_interval = ++last_interval;
    blocks_run.emplace_back(last_interval, simulated_block_idx);
    for (unsigned t = 0; t < threads_; ++t) {
      states[t] = State::Ready;
      fibers[t].interval = last_interval;
    }
    while (failure.empty()) {
      run_ready_threads();
      if (!failure.empty()) return false;
      if (count(State::Done) == threads_) return true;
      const bool exchanged = finish_exchanges();
      if (!exchanged && !pass_barrier()) report_waiting();
    }
    return false;
  }

 private:
  unsigned count(State state) const {
    return static_cast<unsigned>(std::count(states, states + threads_, state));
  }

  void release(unsigned thread) {
    states[thread] = State::Ready;
    fibers[thread].interval = std::max(fibers[thread].interval, machine.block_interval);
  }

  bool pass_barrier() {
    if (count(State::AtBarrier) != threads_) return false;
    for (unsigned t = 1; t < threads_; ++t) {
      if (fibers[t].barrier == fibers[0].barrier) continue;
      report(0, t, "wait at different barriers");
      return false;
    }
    machine.block_interval = ++last_interval;
    ++machine.counts->barriers;
    for (unsigned t = 0; t < threads_; ++t) release(t);
    return true;
  }

  bool finish_exchanges() {
    bool any = false;
    for (unsigned first = 0; first < threads_; first += 32) {
      for (unsigned lane = 0; lane < 32 && first + lane < threads_; ++lane) {
        if (states[first + lane] == State::AtExchange) any |= finish_exchange(first, lane);
      }
    }
    return any;
  }

  // The exchange that a lane waits for, if all lanes of its mask have come.
  bool finish_exchange(unsigned first, unsigned waiting) {
    const unsigned mask = fibers[first + waiting].mask;
    const auto each = [&](const auto& body) {
      for (unsigned lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) body(fibers[first + lane], lane);
    };
    bool complete = (mask >> waiting & 1) != 0;
    each([&](const Fiber& fiber, unsigned lane) {
      complete &= first + lane < threads_ && states[first + lane] == State::AtExchange &&
                  fiber.mask == mask;
    });
    if (!complete) return false;
    each(
        [&](Fiber& fiber, unsigned) { fiber.received = fibers[first + fiber.source % 32].passed; });
    if (fibers[first + waiting].orders) {
      ++last_interval;
      each([&](Fiber& fiber, unsigned) { fiber.interval = last_interval; });
    }
    each([&](Fiber&, unsigned lane) { release(first + lane); });
    return true;
  }

  void report(unsigned a, unsigned b, const std::string& what) const {
    failure = fmt::format("kernel {}: {} and thread {} {}", machine.kernel,
                          thread_name(machine.block_interval, a), b, what);
  }

  // Nobody can go on: a thread that waits, and one that it waits for in vain.
  void report_waiting() const {
    if (!failure.empty()) return;
    unsigned waiting = 0;
    while (states[waiting] == State::Done) ++waiting;
    const Fiber& fiber = fibers[waiting];
    unsigned first = 0, end = threads_;
    if (states[waiting] == State::AtExchange) {
      first = waiting / 32 * 32;
      end = std::min(first + 32, threads_);
    }
    unsigned other = first;
    while (other + 1 < end && (other == waiting || (states[other] == states[waiting] &&
                                                    fibers[other].mask == fiber.mask)))
      ++other;
    failure = fmt::format("kernel {}: {} {}, while thread {} {}", machine.kernel,
                          thread_name(machine.block_interval, waiting), doing(states[waiting]),
                          other, doing(states[other]));
  }

  unsigned threads_;
};

// The chosen blocks in one direction of a grid: all, or the last ones.
std::vector<unsigned> chosen(unsigned blocks) {
  const auto last = static_cast<unsigned>(settings().last_blocks);
  std::vector<unsigned> result;
  for (unsigned i = last == 0 || last > blocks ? 0 : blocks - last; i < blocks; ++i)
    result.push_back(i);
  return result;
}

void run_blocks(const cudaLaunchConfig_t& config) {
  std::mt19937_64 random(settings().seed);
  std::vector<uint3> grid;
  for (const unsigned z : chosen(config.gridDim.z))
    for (const unsigned y : chosen(config.gridDim.y))
      for (const unsigned x : chosen(config.gridDim.x)) grid.push_back({x, y, z});
  std::shuffle(grid.begin(), grid.end(), random);
  std::vector<unsigned> order(config.blockDim.x);
  for (unsigned t = 0; t < order.size(); ++t) order[t] = t;
  turns = &order;
  for (const uint3 block : grid) {
    std::shuffle(order.begin(), order.end(), random);
    simulated_block_idx = block;
    ++machine.counts->blocks;
    if (!Block(config.blockDim.x).run()) return;
  }
}

uint64_t wait_for_lanes(unsigned mask, uint64_t value, unsigned source, bool orders) {
  Fiber& fiber = fibers[machine.thread];
  states[machine.thread] = State::AtExchange;
  fiber.mask = mask;
  fiber.source = source;
  fiber.passed = value;
  fiber.orders = orders;
  wait();
  return fiber.received;
}

void run_grid(const cudaLaunchConfig_t& config, const Kernel& launched, const char* name) {
  make_stacks();
  runs_kernels = true;
  kernel = &launched;
  failure.clear();
  blocks_run.clear();
  simulated_block_dim = {config.blockDim.x, config.blockDim.y, config.blockDim.z};
  simulated_grid_dim = {config.gridDim.x, config.gridDim.y, config.gridDim.z};
  machine.kernel = name;
  machine.arguments = static_cast<const char*>(launched.arguments);
  machine.arguments_end = machine.arguments + launched.argument_bytes;
  machine.shared_bytes = static_cast<int64_t>(config.dynamicSmemBytes);
  machine.launch_first = last_interval + 1;
  run_blocks(config);
  if (failure.empty()) return;
  for (Fiber& fiber : fibers) fiber.top = nullptr;  // they wait somewhere in the kernel
  throw Fault(failure);
}

}  // namespace

uint32_t start_interval() {
  ++last_interval;
  machine.launch_first = machine.block_first = machine.block_interval = machine.interval =
      last_interval;
  machine.thread = 0;
  return last_interval;
}

void fail(const std::string& what) {
  if (!machine.running) throw Fault(what);
  failure = what;
  wait();
  __builtin_unreachable();
}

void queue_launches(Queue with) { queue = with; }

void submit(void* stream, const char* name, std::function<void()> work) {
  if (queue != nullptr) return queue(stream, name, std::move(work));
  begin_work(name, {});
  work();
}

std::string thread_name(uint32_t interval, unsigned thread) {
  const auto later = std::upper_bound(blocks_run.begin(), blocks_run.end(), interval,
                                      [](uint32_t i, const auto& run) { return i < run.first; });
  const uint3 block = std::prev(later)->second;
  return fmt::format("thread {} of block ({}, {}, {})", thread, block.x, block.y, block.z);
}

uint64_t exchange(unsigned mask, uint64_t value, unsigned source) {
  return wait_for_lanes(mask, value, source, false);
}

cudaError_t allow_shared(const void* function, int bytes) {
  if (bytes > cuda::kMostSharedBytes) return simulated_refusal(cudaErrorInvalidValue);
  allowed_shared[function] = bytes;
  return cudaSuccess;
}

cudaError_t run(const cudaLaunchConfig_t& config, const Kernel& launched) {
  const auto allowed = allowed_shared.find(launched.function);
  const int most = allowed == allowed_shared.end() ? 0 : allowed->second;
  if (config.dynamicSmemBytes > static_cast<size_t>(std::max(most, kDefaultSharedBytes)))
    return simulated_refusal(cudaErrorInvalidValue);
  const char* name = cuda::kernel_being_launched();
  std::vector<std::max_align_t> kept(launched.argument_bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(kept.data(), launched.arguments, launched.argument_bytes);
  submit(config.stream, name, [config, launch = launched, name, kept = std::move(kept)]() mutable {
    launch.arguments = kept.data();
    run_grid(config, launch, name);
  });
  return cudaSuccess;
}

void sort_pairs(const Pairs& pairs, cudaStream_t stream) {
  submit(stream, "sort", [=] {
    const int64_t bytes = pairs.count * static_cast<int64_t>(sizeof(int32_t));
    touch(pairs.keys, bytes, Use::Reads);
    touch(pairs.values, bytes, Use::Reads);
    touch(pairs.sorted_keys, bytes, Use::Writes);
    touch(pairs.sorted_values, bytes, Use::Writes);
    touch(pairs.scratch, pairs.scratch_bytes, Use::Spoils);
    std::vector<int64_t> order(static_cast<size_t>(pairs.count));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return pairs.keys[a] < pairs.keys[b]; });
    for (int64_t i = 0; i < pairs.count; ++i) {
      pairs.sorted_keys[i] = pairs.keys[order[static_cast<size_t>(i)]];
      pairs.sorted_values[i] = pairs.values[order[static_cast<size_t>(i)]];
    }
  });
}

Settings& settings() {
  static Settings settings;
  return settings;
}

Counts counts(const std::string& kernel) { return all_counts[kernel]; }
void reset_counts() { all_counts.clear(); }

void begin_counts(const char* name) {
  machine.counts = &all_counts[name];
  ++machine.counts->launches;
}

void append_counts(const char* file) {
  std::ofstream out(file, std::ios::app);
  for (const auto& [name, c] : all_counts)
    out << fmt::format("{} {} {} {}\n", name, c.launches, c.bytes_read, c.bytes_written);
}

}  // namespace snug::kernels::simulated

void __syncthreads() {
  using namespace snug::kernels::simulated;
  states[machine.thread] = State::AtBarrier;
  fibers[machine.thread].barrier = __builtin_return_address(0);
  wait();
}

void __syncwarp(unsigned mask) {
  using namespace snug::kernels::simulated;
  wait_for_lanes(mask, 0, machine.thread % 32, true);
}
