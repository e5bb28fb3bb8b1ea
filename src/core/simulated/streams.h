// The device's streams. Work is queued and done by one thread, as late as events allow: when the
// host waits for it, or a stream of collectives needs it, since other processes wait for those.
// With SNUG_SIMULATED_SEED=N (not 0) other streams go ahead at times drawn from the seed.
//
// Beside the order in which things happen stands the one that streams, events and host waits
// promise: each work knows the last work of each stream that came before it. What touches memory
// that work it does not know of touched is a fault, whatever happened first.
//
// A fault names the works, and the unit and phase (core/memory/guards.h) of the program that queued
// each. It is reported once on the standard error, then by each call of CUDA, as on a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace snug::simulated {

using Epochs = std::vector<uint32_t>;  // by stream

struct Stream;
struct Graph;  // recorded work of a stream

// A piece of work: the stream's `epoch`th; epoch 0: none, since there has been a fault.
struct Work {
  uint32_t stream = 0;
  uint32_t epoch = 0;
  const char* of = "";  // " (unit, phase)" of the program that queued it
};

// A place in a stream, behind all that was queued before.
struct Mark {
  Stream* stream = nullptr;
  uint64_t position = 0;
  Epochs known;
};

// Null is the default stream.
Stream* stream_of(void* handle);
Stream* make_stream(int priority);
int priority_of(Stream* stream);

// The name lives as long as the program. Work that returns false is called again later.
Work enqueue(Stream* stream, const char* name, std::function<void()> work);
void enqueue_collective(Stream* stream, const char* name, std::function<bool()> work);

Mark mark(Stream* stream);
void make_wait(Stream* stream, const Mark& mark);

// What is queued on the stream, which is not the default one, is recorded between the two and not
// done. Meanwhile waiting for it, marks in it and copies from or to the host are faults.
bool begin_recording(Stream* stream);
Graph* end_recording(Stream* stream);  // null where nothing is recorded
bool is_recording(Stream* stream);
Graph* copy_of(const Graph* graph);
// Its work once more, each piece in the name of the unit and phase that were recorded.
void launch(const Graph* graph, Stream* stream);
void destroy(Graph* graph);
// The block is one that the work being recorded allocates; whether it is, when it is freed.
void note_recorded_block(Stream* stream, void* start);
bool forget_recorded_block(Stream* stream, void* start);
// Not recorded, but done before.
void enqueue_beside_recording(Stream* stream, const char* name, std::function<void()> work);
// A fault of the program's.
void report_fault(const std::string& what);

// The host's waits. is_done() asks without waiting: what it was asked for then happens soon.
bool is_done(const Mark& mark);
void wait_for(const Mark& mark);
void wait_for_all();
// For what was not done yet: a copy to the host and a wait for it are one.
int64_t num_host_waits();

// Empty: none.
std::string fault();

// Whether this thread is the device's.
bool on_device();

}  // namespace snug::simulated
