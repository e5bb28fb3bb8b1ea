// Many processes, one model: replicas (DDP, Li et al. 2020) and shards (ZeRO 1 to 3, Rajbhandari et
// al. 2020; FSDP, Zhao et al. 2023). Each rank runs micro-batches of its own; a unit's gradients
// are summed over the ranks as soon as its backward is done, while the unit before runs its own.
//
//   stage            a rank keeps its part of        after a unit's backward
//   Replicate        nothing: it keeps everything    all-reduce, after the last micro-batch
//   OptimizerStates  states                          reduce-scatter, after the last micro-batch
//   Gradients        states, gradients               reduce-scatter
//   Weights          states, gradients, weights      reduce-scatter
//
// With Weights a unit's weights are gathered before its forward and again before its backward, one
// unit ahead, and given back after each. With hybrid sharding the groups of ranks that share a
// model's parts are replicas of each other: parts of gradients are then summed over those too.
// In mixed precision matrices are gathered in the type that is computed with; gradients are summed
// in float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "dist/mesh.h"
#include "exec/flat_unit.h"
#include "exec/policy.h"
#include "exec/sharding_stage.h"

namespace snug::exec {

struct ShardingOptions {
  ShardingStage stage = ShardingStage::Weights;
  bool forward_prefetch = true;
  bool backward_prefetch = true;
  // A unit's gradients are on their way while the unit before computes its own. Not for whoever
  // wants them when the unit's backward ends.
  bool overlap_reduction = true;
  // Gradients leave the device after each micro-batch, so that each is reduced.
  bool reduce_each = false;
};

class Sharding final : public Policy {
 public:
  using FlatUnits = std::vector<std::vector<std::unique_ptr<FlatUnit>>>;  // by unit

  Sharding(std::vector<nn::Unit*> units, FlatUnits flats, std::shared_ptr<dist::Mesh> mesh,
           const ShardingOptions& options);
  // Weights that are still on their way arrive first, unless the run has failed.
  ~Sharding() override;

  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  // All gradients are summed, and with their pieces, when this returns.
  void after_micro_batch() override;
  void abandon() override;

  // What this rank's optimizer updates, by unit.
  std::vector<nn::Parameter*> updated(size_t unit) const;
  // What this rank keeps of a unit's shared parameters between uses: whole ones, or its pieces.
  std::vector<nn::Parameter*> kept(size_t unit) const;
  // Whether a parameter is one of those that flat units hold.
  bool shares(const nn::Parameter& parameter) const { return flat_of_.contains(&parameter); }
  // Whether a rank's pieces are all of the parameters.
  bool pieces_are_whole() const { return options_.stage == ShardingStage::Replicate; }
  const FlatUnits& flats() const { return flats_; }
  // Whether this rank keeps any element of the parameter.
  bool holds(const nn::Parameter& parameter) const;

  // Sends the pieces to everyone after an update: whoever runs a unit forward waits for its
  // weights.
  void publish();
  void drop_gradients();

  // All values of a unit's own parameters are there from open to close, at all ranks alike. What
  // was written in between is kept where close_written is called.
  void open(size_t unit);
  void close(size_t unit);
  // The same of those that train alone, which beside adapters are few.
  void open_trained(size_t unit);
  void close_trained(size_t unit);
  // A unit's values without anybody's help, content undefined: for filling them.
  void open_blank(size_t unit);
  void close_written(size_t unit);

 private:
  // A reduction that was started: what is summed, and where this rank's part of it comes to lie.
  struct Leaving {
    FlatUnit* flat;
    at::Tensor whole;
    at::Tensor landing;
    dist::Group::Ticket ticket;
    bool is_final;  // of the step
  };

  std::vector<FlatUnit*> used_by(size_t unit) const;
  bool gathers() const { return options_.stage == ShardingStage::Weights; }
  bool cuts_gradients() const { return options_.stage >= ShardingStage::Gradients; }
  dist::Group& shards() const;
  void send(size_t unit);
  void arrive(size_t unit, int64_t next);
  void release(size_t unit);
  void show(size_t unit, FlatUnit::Form form);
  bool is_used_elsewhere(const FlatUnit* flat, size_t unit) const;
  void start_gather(FlatUnit& flat);
  void provide_gradients(size_t unit);
  Leaving reduce(FlatUnit& flat, bool is_final);
  void settle(std::vector<Leaving> reductions);
  void settle_replicas();
  // Whoever took or freed the gradients of pieces and parameters did not know of our references.
  void forget_freed_gradients();

  std::vector<nn::Unit*> units_;
  FlatUnits flats_;
  std::shared_ptr<dist::Mesh> mesh_;
  ShardingOptions options_;
  std::unordered_map<const nn::Parameter*, FlatUnit*> flat_of_;
  std::unordered_map<const FlatUnit*, size_t> first_user_;  // the last one on the way back
  std::map<size_t, std::vector<FlatUnit*>> present_;        // by unit: gathered, or on the way
  std::unordered_map<const FlatUnit*, dist::Group::Ticket> gathers_;
  std::vector<Leaving> leaving_;
  std::unordered_map<const FlatUnit*, at::Tensor> reduced_;  // parts of summed gradients
  std::vector<dist::Group::Ticket> between_replicas_;
};

}  // namespace snug::exec
