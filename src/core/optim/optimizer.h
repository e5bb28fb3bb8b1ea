// An optimizer steps a list of tensors whose gradients are in their .grad. It can do so in ranges
// of the list, so that a unit's weights are updated and its gradients freed before other units'
// backward. States are named for checkpoints and tagged in the ledger.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace snug::optim {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Suffix of a weight's float32 master copy, one of its states.
inline constexpr std::string_view kMasterSuffix = ".master";
// Suffix of a state with one value per block of 8-bit states.
inline constexpr std::string_view kBlockStateSuffix = "_absmax";

struct StepOptions {
  double lr = 0;
  double gradient_scale = 1;  // multiplies every gradient: clipping and loss unscaling
};

// What sets some parameters apart from the others.
struct Group {
  double lr_factor = 1;  // of the learning rate

  bool operator==(const Group&) const = default;
};

// Parameters [first, last) of an optimizer's list.
struct Range {
  size_t first = 0;
  size_t last = 0;
};

class Optimizer {
 public:
  // `seed` is for stochastic rounding.
  Optimizer(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // A step is begin_step() and then one update of each parameter, in any number of ranges. A
  // parameter without a gradient does not change. Gradients may have another type than parameters.
  void begin_step() { ++num_steps_; }
  void update(Range range, const StepOptions& options);
  void step(const StepOptions& options) {
    begin_step();
    update(all(), options);
  }

  // "model.norm.weight.exp_avg" …: all that a resumed run needs besides the step count.
  std::vector<NamedTensor> states() const { return states(all()); }
  std::vector<NamedTensor> states(Range range) const;

  Range all() const { return {0, parameters_.size()}; }
  int64_t num_steps() const { return num_steps_; }
  // Each parameter's group; all alike by default.
  void set_groups(std::vector<Group> groups) { groups_ = std::move(groups); }
  // Call after a resumed run's states have been loaded.
  void set_num_steps(int64_t steps);

  // Starts to read states on disk for a coming update(). Does nothing for states in memory.
  void read_ahead(Range range) const;

 protected:
  // Updates every parameter of a valid range, between begin_step() and the next.
  virtual void update_range(Range range, const StepOptions& options) = 0;
  virtual void append_states(size_t parameter, std::vector<NamedTensor>& all) const = 0;

  // Fills the common fields of a kernel's tensor description. False if there is nothing to do: no
  // gradient, or no memory (meta).
  template <class KernelTensor>
  bool describe(size_t parameter, KernelTensor& description) const;
  // Descriptions of all tensors of a range that need an update; `add_states(parameter,
  // description)` adds their states.
  template <class KernelTensor, class AddStates>
  std::vector<KernelTensor> described(Range range, const AddStates& add_states) const;

  // The type of a parameter-shaped state: from the options, else the parameter's, as in
  // torch.optim; float32 for float16 parameters, whose range is too small for squared gradients.
  at::ScalarType state_type(const at::Tensor& parameter) const;

  recipe::OptimizerOptions options_;
  std::vector<NamedTensor> parameters_;
  uint64_t seed_ = 0;
  int64_t num_steps_ = 0;

 private:
  void copy_to_master(size_t parameter) const;
  void update_part(Range range, const StepOptions& options);
  // States and master copies as stored.
  std::vector<NamedTensor> stored(Range range) const;
  // The end of the part from `range.first` on that is read from disk in one request.
  size_t end_of_part(Range range) const;

  // Float32 master copies, which are updated instead of the 16-bit weights and then rounded to
  // them. Undefined where there is none. Copied from the weights at the first update, after the
  // model is loaded.
  std::vector<at::Tensor> masters_;
  std::vector<bool> master_is_set_;
  std::vector<Group> groups_;  // by parameter
  bool on_disk_ = false;
};

// Allocates the states now, zeroed and tagged as optimizer, so that lack of memory shows at the
// start. `whole_elements`: element counts of the unsplit tensors; empty: parameters are whole.
std::unique_ptr<Optimizer> make_optimizer(const recipe::OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters, uint64_t seed = 0,
                                          const std::vector<int64_t>& whole_elements = {});
// What a caller may have instead.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(
    const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters, uint64_t seed,
    const std::vector<int64_t>& whole_elements)>;

// Sum of squares of all gradients, without gradient_scale, in double; infinite or NaN if an element
// is.
double gradient_sum_of_squares(const std::vector<NamedTensor>& parameters);

}  // namespace snug::optim
