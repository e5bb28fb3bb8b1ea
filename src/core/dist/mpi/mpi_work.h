// Collectives over MPI, made of streams between pairs of ranks. Each is a work that the
// communication thread advances step by step, so that many run at once and none blocks. MPI's own
// collectives are not used: they lack bfloat16, guarantee no order of summation, and cannot tell
// which rank they wait for.
//
// Every rank sends and receives as many bytes as in a ring, 2 (N-1)/N of the tensor for an
// all-reduce; but each part goes directly to the rank that sums it, so that sums are in rank order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/dist/mpi/mpi_stream.h"
#include "core/kernels/scalar.h"

namespace snug::dist {

using Clock = std::chrono::steady_clock;

// The members as ranks of the world, and this process's index among them.
struct Members {
  std::vector<int> ranks;
  int own = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  // The k-th other member, counted from the next one, so that not all send to the same rank first.
  int other(int k) const { return (own + 1 + k) % size(); }
  int rank_of(int member) const { return ranks[static_cast<size_t>(member)]; }
};

class Work {
 public:
  enum class State { Waiting, Done, Failed };

  virtual ~Work() = default;

  // Called by the communication thread. progress() returns whether anything has moved.
  bool progress();
  bool is_done() const;
  // Ranks of the world that have not sent their bytes or not received ours.
  std::vector<int> awaited() const;

  // Name for messages; set before submission.
  std::string collective;
  std::string unit;
  // Works of the same queue run one after another; works of queue -1 are independent.
  int queue = -1;
  // Tensors to keep alive until the work has been waited for, which releases them.
  std::vector<at::Tensor> held;

  std::atomic<State> state{State::Waiting};
  std::string failure;  // set on failure
  Clock::time_point begin, last_progress;

 protected:
  // Called between polls of the streams; returns whether anything has moved.
  virtual bool step() { return false; }
  virtual bool has_more_steps() const { return false; }

  std::vector<Stream> sends_;
  std::vector<Stream> receives_;
};

// `whole` has a slot of part_bytes for each member.
std::shared_ptr<Work> all_gather_work(const Members& members, void* whole, const void* part,
                                      int64_t part_bytes, int tag);
// Parts of different lengths, one per member; this member's is the source.
struct ByteRange {
  void* data = nullptr;
  int64_t bytes = 0;
};
std::shared_ptr<Work> gather_stretches_work(const Members& members,
                                            const std::vector<ByteRange>& parts, int tag);
std::shared_ptr<Work> broadcast_work(const Members& members, void* data, int64_t bytes, int root,
                                     int tag);
std::shared_ptr<Work> send_work(int to, const void* data, int64_t bytes, int tag);
std::shared_ptr<Work> receive_work(int from, void* data, int64_t bytes, int tag);

// `staging`: a buffer of the size in staging.h.
struct SumArguments {
  kernels::Scalar type = kernels::Scalar::F32;
  void* staging = nullptr;
  int tag = 0;  // an all-reduce also uses the next one
};
std::shared_ptr<Work> reduce_scatter_work(const Members& members, void* part, void* whole,
                                          int64_t part_count, const SumArguments& arguments);
std::shared_ptr<Work> all_reduce_work(const Members& members, void* data, int64_t count,
                                      const SumArguments& arguments);

}  // namespace snug::dist
