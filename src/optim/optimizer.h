// An optimizer steps a list of tensors whose gradients are in their .grad. It may do so in ranges
// of that list, so that one unit's weights are updated, and its gradients freed, while the backward
// of others is still to come. Its states are named, so that a checkpoint can hold them and the
// ledger can count them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"

namespace snug::optim {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// After a weight's name: its float32 master, which is one of its states.
inline constexpr std::string_view kMasterSuffix = ".master";
// Ends the name of a state that has one value for each block of 8-bit states.
inline constexpr std::string_view kBlockStateSuffix = "_absmax";

struct StepOptions {
  double lr = 0;
  double gradient_scale = 1;  // multiplies every gradient: clipping and loss unscaling
};

// Parameters [first, last) of an optimizer's list.
struct Range {
  size_t first = 0;
  size_t last = 0;
};

class Optimizer {
 public:
  // `seed` is for stochastic rounding.
  Optimizer(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // A step is begin_step() and then one update of each parameter, in any number of ranges. A
  // parameter without a gradient stays as it is. Gradients may be of another type than parameters.
  void begin_step() { ++num_steps_; }
  void update(Range range, const StepOptions& options);
  void step(const StepOptions& options) {
    begin_step();
    update(all(), options);
  }

  // "model.norm.weight.exp_avg" …: everything a resumed run needs besides the step count.
  std::vector<NamedTensor> states() const { return states(all()); }
  std::vector<NamedTensor> states(Range range) const;

  Range all() const { return {0, parameters_.size()}; }
  int64_t num_steps() const { return num_steps_; }
  // What multiplies each parameter's learning rate; 1 unless this is called.
  void set_lr_factors(std::vector<double> factors) { lr_factors_ = std::move(factors); }
  // After a resumed run's states have been read.
  void set_num_steps(int64_t steps);

  // Starts reading states from disk that update() is soon to be called for. Does nothing for states
  // in memory.
  void read_ahead(Range range) const;

 protected:
  // Every parameter of a valid range, within a step that has begun.
  virtual void update_range(Range range, const StepOptions& options) = 0;
  virtual void append_states(size_t parameter, std::vector<NamedTensor>& all) const = 0;

  // Fills what the kernels' descriptions of a tensor have in common. False where there is nothing
  // to do: no gradient, or no memory behind the tensor.
  template <class KernelTensor>
  bool describe(size_t parameter, KernelTensor& description) const;
  // Of all tensors of a range that have something to do; `add_states(parameter, description)` says
  // where their states are.
  template <class KernelTensor, class AddStates>
  std::vector<KernelTensor> described(Range range, const AddStates& add_states) const;

  // The type of a parameter-shaped state: what the options say, else the parameter's type, as in
  // torch.optim; float32 where parameters are float16, whose range is too small for squared
  // gradients.
  at::ScalarType state_type(const at::Tensor& parameter) const;

  config::OptimizerOptions options_;
  std::vector<NamedTensor> parameters_;
  uint64_t seed_ = 0;
  int64_t num_steps_ = 0;

 private:
  void copy_to_master(size_t parameter) const;
  void update_part(Range range, const StepOptions& options);
  // States and master, as they are.
  std::vector<NamedTensor> stored(Range range) const;
  // The end of the stretch from `range.first` on that is worth one request to a disk.
  size_t end_of_part(Range range) const;

  // float32 weights that are updated in place of 16-bit ones, which are their rounding. Undefined
  // where there is none. They take over the weights at the first update, when a model has been
  // read.
  std::vector<at::Tensor> masters_;
  std::vector<bool> master_is_set_;
  std::vector<double> lr_factors_;
  bool on_disk_ = false;
};

// States are allocated here, zeroed and tagged as optimizer, so that a run that starts has them.
// `whole_elements`: of the tensors that `parameters` are stretches of; empty: they are whole.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters, uint64_t seed = 0,
                                          const std::vector<int64_t>& whole_elements = {});

// Of all gradients, unscaled by gradient_scale, in double; infinite or NaN when one element is.
double gradient_sum_of_squares(const std::vector<NamedTensor>& parameters);

}  // namespace snug::optim
