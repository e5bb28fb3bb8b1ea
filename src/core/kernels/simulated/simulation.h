// CUDA kernels on the CPU, for tests: cuda/*.cu compiled by g++ against the headers in
// simulated/cuda and run thread by thread. A block's threads are fibers that change places at
// barriers and shuffles, in an order drawn from a seed, as is the order of the blocks. The kernels
// are compiled with -fsanitize=thread, without its library: each of their loads and stores calls
// memory.cpp, which holds it against the buffers that the test has registered. A Fault is thrown by
// the launch where a kernel
//   reads or writes outside the buffers, its block's shared memory and its own variables, or at an
//   address that its width does not divide;
//   reads what nobody has written;
//   touches what another thread wrote, or writes what another thread touched, with no barrier
//   between the two (threads of one block), or at all within a launch (threads of two blocks);
//   has threads that do not all come to the same barrier or shuffle.
// What it cannot show is said in docs/architecture.md. One thread of the CPU at a time may use it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace snug::kernels::simulated {

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Makes a stretch of the host's memory one of the device's while it lives. `defined`: holds
// something that may be read.
class Buffer {
 public:
  Buffer(const void* start, int64_t bytes, bool defined);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

 private:
  const char* start_;
};

// Memory of which only touched pages exist, for addresses beyond 2^31: all zero, and only its ends
// are checked.
class HugeBuffer {
 public:
  explicit HugeBuffer(int64_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  void* data() const { return start_; }

 private:
  void* start_;
  int64_t bytes_;
};

struct Settings {
  uint64_t seed = 1;        // of the order of blocks and threads
  int64_t last_blocks = 0;  // of a grid, in each direction; 0: all of them
};
Settings& settings();

// What launches and other work have done since the last reset.
struct Counts {
  int64_t launches = 0, blocks = 0, barriers = 0;  // a block's barriers, not its threads'
  // Bytes of buffers, not of shared memory. What a launch reads, or writes, again counts once.
  int64_t bytes_read = 0, bytes_written = 0;
};
Counts counts(const std::string& kernel);
void reset_counts();
// A line each, "name launches bytes_read bytes_written", at the end of the file.
void append_counts(const char* file);

// ---- For a device that has streams (core/simulated)

// From now on what is launched goes to `queue`, which runs it later on one thread.
using Queue = void (*)(void* stream, const char* name, std::function<void()> work);
void queue_launches(Queue queue);
// Queues the work, or runs it where nobody queues.
void submit(void* stream, const char* name, std::function<void()> work);

// Where a piece of work stands among the streams.
struct Place {
  uint32_t stream = 0;
  uint32_t epoch = 0;                            // counts the stream's works
  const std::vector<uint32_t>* known = nullptr;  // by stream, the last work that came before
  const char* of = "";                           // what queued it, as faults say behind its name
};
// All that follows is of that work. What it touches must have come before it or wait for it. The
// name, and what queued it, live as long as the program.
void begin_work(const char* name, const Place& place);

// A block of memory is the device's from now on, with nothing in it; no longer.
void add_block(const void* start, int64_t bytes);
void remove_block(const void* start);
// All that reach into those bytes.
void remove_blocks(const void* start, int64_t bytes);

// The work reads this stretch, hands on what is there (padding that nobody wrote too), writes it,
// or leaves in it what nobody may read.
enum class Use : uint8_t { Reads, Passes, Writes, Spoils };
void touch(const void* start, int64_t bytes, Use use);
// Copies it, together with what is not defined; to nullptr: elsewhere than to the device.
void move(const void* to, const void* from, int64_t bytes);

}  // namespace snug::kernels::simulated
