// Processes that take part in collectives together, each with a rank from 0. A collective is
// started by every member, in the same order, and runs beside what the device computes; whoever
// reads its result waits for it first. MPI moves CPU tensors, NCCL CUDA tensors; a planned group
// moves nothing, and asks for the same memory.
//
// Tensors are contiguous and of a floating type or bytes. They are held until the collective has
// been waited for: memory comes and goes in an order that does not depend on how fast the network
// is.
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

// What one rank has asked for, by operation. `bytes` are nccl-tests' sizes: of the whole tensor,
// for all-gather the gathered and for reduce-scatter the one before.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};
using TrafficByOperation = std::array<Traffic, kNumOperations>;

class Group {
 public:
  // A collective that was started. Null: nothing to wait for.
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

  // Sum over all ranks, in place. 16-bit numbers are summed in float32 and rounded once; every rank
  // gets the same bits.
  Ticket all_reduce(const at::Tensor& tensor);
  // whole[r] = rank r's part, for whole of size() equal stretches of part's size. `part` may be
  // this rank's stretch of whole itself.
  Ticket all_gather(const at::Tensor& whole, const at::Tensor& part);
  // part = sum over all ranks of their whole[rank()]. `part` may be this rank's stretch of whole,
  // whose other stretches are undefined afterwards.
  Ticket reduce_scatter(const at::Tensor& part, const at::Tensor& whole);
  Ticket broadcast(const at::Tensor& tensor, int root);
  // Between two ranks, in the order of the calls on both sides.
  Ticket send(const at::Tensor& tensor, int to);
  Ticket receive(const at::Tensor& tensor, int from);

  // What the device is asked to do from here on comes after the collective: on a cpu it is over
  // when this returns. Throws CommunicationError naming rank, unit and collective when it cannot
  // end: a peer is gone, or has not joined it in time.
  virtual void wait(const Ticket& ticket) = 0;
  // Returns when the collective is over.
  virtual void wait_on_host(const Ticket& ticket) = 0;

  // On host values, at once.
  virtual std::vector<double> sum(std::vector<double> values) = 0;
  virtual std::string broadcast_text(std::string text, int root) = 0;
  // Everyone's, by rank.
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
