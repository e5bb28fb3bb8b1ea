// A group of processes for collectives, with ranks from 0. Every member starts the same collectives
// in the same order; they overlap with computation, and a reader of the result waits first. MPI
// moves CPU tensors, NCCL CUDA tensors; a planned group moves nothing but allocates the same
// memory.
//
// Tensors must be contiguous, floating-point or bytes. They are held until the collective has been
// waited for, so that memory use does not depend on the network's speed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace snug::dist {

enum class Operation { AllReduce, AllGather, ReduceScatter, Broadcast, Send, Receive };
inline constexpr size_t kNumOperations = 6;
const char* name(Operation);  // "all-reduce" …

// One rank's collectives by operation. `bytes` as in nccl-tests: the size of the whole tensor, for
// all-gather the output, for reduce-scatter the input.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};
using TrafficByOperation = std::array<Traffic, kNumOperations>;

class Group {
 public:
  // A collective in progress. A null ticket needs no wait.
  struct Pending {
    virtual ~Pending() = default;
  };
  using Ticket = std::shared_ptr<Pending>;

  Group(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // "shard", "tensor" …, for messages

  // Sum over all ranks, in place. 16-bit numbers are summed in float32 and rounded once (MPI);
  // every rank gets the same bits.
  Ticket all_reduce(const at::Tensor& tensor);
  // whole[r] = rank r's `part`; `whole` has size() times the size of `part`, which may be a view of
  // this rank's slot in `whole`.
  Ticket all_gather(const at::Tensor& whole, const at::Tensor& part);
  // part = sum over all ranks of their whole[rank()]. `part` may be a view of this rank's slot in
  // `whole`, whose other slots are undefined afterwards.
  Ticket reduce_scatter(const at::Tensor& part, const at::Tensor& whole);
  Ticket broadcast(const at::Tensor& tensor, int root);
  // Between two ranks, in the order of the calls on both sides.
  Ticket send(const at::Tensor& tensor, int to);
  Ticket receive(const at::Tensor& tensor, int from);

  // Later device work runs after the collective; on a cpu it is complete when this returns. Throws
  // CommunicationError with rank, unit and collective if it cannot complete: a peer is gone, or has
  // not joined in time.
  virtual void wait(const Ticket& ticket) = 0;
  // Blocks until the collective is complete.
  virtual void wait_on_host(const Ticket& ticket) = 0;

  // Sums host values; blocks.
  virtual std::vector<double> sum(std::vector<double> values) = 0;
  virtual std::string broadcast_text(std::string text, int root) = 0;
  // Every rank's text, by rank.
  virtual std::vector<std::string> gather_texts(const std::string& text) = 0;
  void barrier() { sum({}); }

  const TrafficByOperation& traffic() const { return traffic_; }

 protected:
  virtual Ticket start_all_reduce(const at::Tensor& tensor) = 0;
  virtual Ticket start_all_gather(const at::Tensor& whole, const at::Tensor& part) = 0;
  virtual Ticket start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole) = 0;
  virtual Ticket start_broadcast(const at::Tensor& tensor, int root) = 0;
  virtual Ticket start_send(const at::Tensor& tensor, int to) = 0;
  virtual Ticket start_receive(const at::Tensor& tensor, int from) = 0;

 private:
  void count(Operation operation, const at::Tensor& tensor);

  std::string name_;
  int rank_;
  int size_;
  TrafficByOperation traffic_{};
};

}  // namespace snug::dist
