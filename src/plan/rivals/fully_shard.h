// PyTorch's fully_shard (FSDP2): weights stay tensors of their own, of which each rank keeps some
// rows. Groups of weights are gathered in one buffer and copied out of it, one group ahead of the
// backward, and their gradients are copied into one buffer to be reduced.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace snug::plan::rivals {

class FullyShard {
 public:
  struct Options {
    int64_t ranks = 1;
    // Weights are freed after the forward of their group, and gathered again for its backward.
    bool reshards = true;
    // CPUOffloadPolicy: rows and their gradients are on the host.
    bool on_host = false;
  };

  explicit FullyShard(Options options) : options_(options) {}

  // The weights in `slots`, which this rank keeps its rows of in the type `stored`; Undefined:
  // their own. What the slots hold is freed until they are gathered, in their own type; they must
  // stay where they are.
  void add_group(const std::vector<at::Tensor*>& slots, at::ScalarType stored);
  // The rows of weights that train, whose gradients are the reduced ones.
  const std::vector<at::Tensor>& trained() const { return trained_; }

  // The forward of a group: its weights are there from enter() on. `x` is its input, which tells
  // when its backward is over; its output tells when that begins. The last group's weights stay.
  enum class Stays { Never, UntilBackward };
  void enter(size_t group);
  at::Tensor entered(size_t group, const at::Tensor& x);
  void leave(size_t group, const at::Tensor& output, Stays stays);
  void end_forward() { in_copy_.reset(); }
  // Gradients of a micro-batch that is not the step's last stay whole.
  void reduce_next(bool reduces) { reduces_ = reduces; }
  // Groups whose inputs have no gradient end here.
  void end_backward();

  // The buffers of gathers, as the ledger numbers allocations.
  const std::vector<uint64_t>& gathers() const { return gathers_; }

 private:
  struct Weight {
    at::Tensor whole;  // the slot's, vacant until it is gathered
    at::Tensor rows;   // this rank's
    int64_t padded = 0;
  };
  struct Group {
    std::vector<Weight> weights;
    at::Tensor gathered;  // all ranks' rows, before they are copied out
    bool is_whole = false, is_done = false;
    bool casts = false;
  };
  void gather(Group& group);
  void copy_out(Group& group);
  void free(Group& group);
  void begin_group(size_t index);
  void end_group(Group& group);
  void reduce(Group& group);

  Options options_;
  std::vector<Group> groups_;
  std::vector<size_t> order_;  // of groups in the forward
  std::vector<at::Tensor> trained_;
  std::vector<uint64_t> gathers_;
  at::Tensor in_copy_;  // a gathered buffer that is freed when the next one has come
  at::Tensor reduced_;  // the buffer of the last reduction, freed at the next
  bool reduces_ = true;
};

}  // namespace snug::plan::rivals
