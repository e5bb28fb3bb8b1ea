// The weights of DeepSpeed's ZeRO-3: each rank keeps a part; a module's are gathered before its
// forward and its backward, and those of the next modules ahead of them as far as a bucket reaches.
// The first micro-batch records the order of the modules; from the second on what is used again
// soon stays. With offload_param the parts are on the host; with zero_hpz_partition_size a weight
// that trains has a second, larger part from its first release to the update, and one that does not
// has it always, from which it is gathered. After DeepSpeed's
// PartitionedParameterCoordinator (0.19).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "recipe/import/deepspeed.h"

namespace snug::plan::rivals {

class ZeroWeights {
 public:
  using Slots = std::vector<at::Tensor*>;

  struct Parts {
    int64_t ranks = 1;
    bool on_host = false;
  };
  ZeroWeights(const recipe::DeepSpeed& settings, Parts parts)
      : settings_(settings), parts_(parts), ranks_(parts.ranks) {}

  // What the slot holds is freed until it is gathered. It must stay where it is.
  void add(at::Tensor* slot);

  // Around the forward of a module that has these weights: x is what it reads, `out` its result.
  at::Tensor enter(const Slots& slots, const at::Tensor& x);
  at::Tensor leave(const Slots& slots, const at::Tensor& out);
  void begin_forward();
  void end_backward();
  // Around the update.
  void release_all();
  void forget_second_parts();

 private:
  struct Gather {
    at::Tensor buffer;  // of several weights, which are copied out of it
    at::Tensor copy;    // of a single weight's part that is on the host
    std::vector<size_t> weights;
    bool is_done = false;
  };
  struct Weight {
    at::Tensor whole, part, second;
    bool is_here = false;
    std::shared_ptr<Gather> gather;  // that it waits for
    std::set<size_t> used_by;        // modules
    int64_t fetched_for = 0;         // the last use that a gather has been for
  };
  struct Use {
    size_t weight = 0;
    int64_t step = 0;
  };
  enum class Trace { None, Recording, Complete };

  size_t module_of(const Slots& slots);
  int64_t elements(size_t weight) const { return weights_[weight].whole.numel(); }
  bool stays(size_t weight) const { return elements(weight) <= settings_.persistence_threshold; }
  void record(size_t module);
  void fetch(size_t module, bool is_forward);
  void note_recomputed(size_t weight);
  void fetch_ahead(size_t module);
  void make_second(Weight& weight) const;
  void gather(const std::vector<size_t>& weights);
  void begin(Gather& gather);
  void wait(Gather& gather);
  void release(size_t module, bool is_forward);
  std::set<size_t> releasable(size_t module) const;
  void free(size_t weight);

  recipe::DeepSpeed settings_;
  Parts parts_;
  int64_t ranks_ = 1;
  std::vector<Weight> weights_;
  std::map<at::Tensor*, size_t> index_;
  std::vector<std::vector<size_t>> modules_;  // their weights
  std::map<Slots, size_t> module_index_;
  Trace trace_ = Trace::None;
  std::vector<size_t> order_;        // of modules in forward and backward
  std::deque<Use> queue_;            // of weights that have not been gathered for these uses
  std::vector<size_t> in_backward_;  // modules, the last begun last
  std::map<size_t, std::set<size_t>> recomputed_;  // frozen weights by the module that waits
  int64_t step_ = 0, available_ = 0;
};

}  // namespace snug::plan::rivals
