// In place of libtorch's, which needs NCCL: the calls that core/dist makes, with NCCL's rules. A
// collective runs on the group's own stream behind what the current stream has queued; all ranks
// must queue the same collectives in the same order. What ranks send each other goes through the
// store that they meet in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace snug::simulated {
struct Stream;
}

namespace c10d {

class ProcessGroupNCCL : public c10::intrusive_ptr_target {
 public:
  struct Options : c10::intrusive_ptr_target {
    std::chrono::milliseconds timeout{0};
    std::string group_name;
    static c10::intrusive_ptr<Options> create(bool /*is_high_priority_stream*/) {
      return c10::make_intrusive<Options>();
    }
  };

  ProcessGroupNCCL(c10::intrusive_ptr<Store> store, int rank, int size,
                   c10::intrusive_ptr<Options> options);

  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& tensors, const AllreduceOptions&);
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                           const AllgatherOptions&);
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                const ReduceScatterOptions&);
  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>& tensors, const BroadcastOptions&);
  c10::intrusive_ptr<Work> send(std::vector<at::Tensor>& tensors, int to, int tag);
  c10::intrusive_ptr<Work> recv(std::vector<at::Tensor>& tensors, int from, int tag);
  void shutdown();

 private:
  struct Exchange;
  c10::intrusive_ptr<Work> start(const char* name, Exchange exchange);

  c10::intrusive_ptr<Store> store_;
  int rank_, size_;
  c10::intrusive_ptr<Options> options_;
  snug::simulated::Stream* stream_;
  int64_t num_collectives_ = 0;
  std::map<std::pair<int, int>, int64_t> num_sent_;  // from, to
};

}  // namespace c10d
