// The collectives over MPI, as streams between pairs of ranks. Each is a work that the
// communication thread takes a little further whenever it comes by, so that many proceed at once
// and none blocks. MPI's own collectives are not used: they know no bfloat16, promise no order of
// sums, and cannot say for whom they wait.
//
// Every rank sends and receives as many bytes as in a ring, 2 (N-1)/N of the tensor for an
// all-reduce; but each part goes straight to the rank that sums it, so that the sum can be formed
// in the order of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dist/mpi_stream.h"
#include "kernels/cpu/scalar.h"

namespace snug::dist {

using Clock = std::chrono::steady_clock;

// Who takes part, as ranks of the world, and which of them this process is.
struct Members {
  std::vector<int> ranks;
  int own = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  // The others, beginning with the next, so that not all send to the same one first.
  int other(int k) const { return (own + 1 + k) % size(); }
  int rank_of(int member) const { return ranks[static_cast<size_t>(member)]; }
};

class Work {
 public:
  enum class State { Waiting, Done, Failed };

  virtual ~Work() = default;

  // By the communication thread. progress() says whether anything has moved.
  bool progress();
  bool is_done() const;
  // Ranks of the world whose bytes are missing, or who do not take ours.
  std::vector<int> awaited() const;

  // What it is called in messages. Set before it is submitted.
  std::string collective;
  std::string unit;
  // Works of one queue take their turns; those of queue -1 do not wait for each other.
  int queue = -1;
  // What must live as long as the work; given up by whoever waits, on its thread.
  std::vector<at::Tensor> held;

  std::atomic<State> state{State::Waiting};
  std::string failure;  // once it has failed
  Clock::time_point last_progress;

 protected:
  // Between two looks at the streams; whether anything has moved.
  virtual bool step() { return false; }
  virtual bool has_more_steps() const { return false; }

  std::vector<Stream> sends_;
  std::vector<Stream> receives_;
};

// `whole` has a stretch of part_bytes for each member.
std::shared_ptr<Work> all_gather_work(const Members& members, void* whole, const void* part,
                                      int64_t part_bytes, int tag);
// Stretches of different lengths; `parts` one a member, this one's the source.
struct Stretch {
  void* data = nullptr;
  int64_t bytes = 0;
};
std::shared_ptr<Work> gather_stretches_work(const Members& members,
                                            const std::vector<Stretch>& parts, int tag);
std::shared_ptr<Work> broadcast_work(const Members& members, void* data, int64_t bytes, int root,
                                     int tag);
std::shared_ptr<Work> send_work(int to, const void* data, int64_t bytes, int tag);
std::shared_ptr<Work> receive_work(int from, void* data, int64_t bytes, int tag);

// `staging` as large as staging.h says.
struct SumArguments {
  kernels::cpu::Scalar type = kernels::cpu::Scalar::F32;
  void* staging = nullptr;
  int tag = 0;  // an all-reduce takes the next one as well
};
std::shared_ptr<Work> reduce_scatter_work(const Members& members, void* part, void* whole,
                                          int64_t part_count, const SumArguments& arguments);
std::shared_ptr<Work> all_reduce_work(const Members& members, void* data, int64_t count,
                                      const SumArguments& arguments);

}  // namespace snug::dist
