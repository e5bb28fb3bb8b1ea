// Data parallelism: replicas (DDP, Li et al. 2020) and shards (ZeRO 1 to 3, Rajbhandari et al.
// 2020; FSDP, Zhao et al. 2023). Each rank runs its own micro-batches; a unit's gradients are
// summed over ranks as soon as its backward is done, during the next unit's backward.
//
//   stage            a rank keeps its part of        after a unit's backward
//   Replicate        nothing: it keeps everything    all-reduce, after the last micro-batch
//   OptimizerStates  states                          reduce-scatter, after the last micro-batch
//   Gradients        states, gradients               reduce-scatter
//   Weights          states, gradients, weights      reduce-scatter
//
// With Weights a unit's weights are gathered one unit ahead of its forward and of its backward, and
// freed after each. With hybrid sharding the groups of ranks that shard a model are replicas of
// each other; gradient shards are then also summed over the replicas. In mixed precision matrices
// are gathered in the type of the computation; gradients are summed in float32.
//
// Under expert parallelism the ranks of that axis are replicas of each other but for the experts,
// whose gradients are summed over those that have them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/dist/mesh.h"
#include "engine/exec/flat_unit.h"
#include "engine/exec/policy.h"
#include "engine/exec/sharding_stage.h"

namespace snug::exec {

struct ShardingOptions {
  ShardingStage stage = ShardingStage::Weights;
  bool forward_prefetch = true;
  bool backward_prefetch = true;
  // Sum a unit's gradients during the next unit's backward. False if another policy needs the sum
  // as soon as the unit's backward ends.
  bool overlap_reduction = true;
  // Reduce after every micro-batch, not only the last: gradients then leave the device.
  bool reduce_each = false;
};

class Sharding final : public Policy {
 public:
  using FlatUnits = std::vector<std::vector<std::unique_ptr<FlatUnit>>>;  // by unit

  Sharding(std::vector<nn::Unit*> units, FlatUnits flats, std::shared_ptr<dist::Mesh> mesh,
           const ShardingOptions& options);
  // Completes pending gathers first, unless the run has failed.
  ~Sharding() override;

  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  // When this returns, all gradients are summed and assigned to their pieces.
  void after_micro_batch() override;
  void abandon() override;

  // The parameters of a unit that this rank's optimizer updates.
  std::vector<nn::Parameter*> updated(size_t unit) const;
  // What this rank keeps of a unit's parameters between uses: whole parameters, or its pieces.
  std::vector<nn::Parameter*> kept(size_t unit) const;
  // Whether a flat unit holds the parameter.
  bool shares(const nn::Parameter& parameter) const { return flat_of_.contains(&parameter); }
  // Whether each rank keeps whole parameters.
  bool pieces_are_whole() const { return options_.stage == ShardingStage::Replicate; }
  const FlatUnits& flats() const { return flats_; }
  // Whether this rank keeps any element of the parameter.
  bool holds(const nn::Parameter& parameter) const;

  // After an update: starts to gather the pieces on all ranks. A unit's forward waits for its
  // weights.
  void publish();
  // What is queued from here on may read the pieces: a gather writes the values around them.
  void finish_publishing();
  void drop_gradients();

  // Between open and close every rank has all values of the unit's own parameters. close_written
  // keeps what was written in between. All ranks must call them alike.
  void open(size_t unit);
  void close(size_t unit);
  // The same for trained parameters only; with adapters these are few.
  void open_trained(size_t unit);
  void close_trained(size_t unit);
  // Allocates a unit's values without communication, content undefined, to be filled.
  void open_blank(size_t unit);
  void close_written(size_t unit);

 private:
  // A reduction in progress: its input, and the tensor for this rank's shard of the result.
  struct Leaving {
    FlatUnit* flat;
    at::Tensor whole;
    at::Tensor landing;
    dist::Group::Ticket ticket;
    bool is_final;  // the last of the step
  };

  std::vector<FlatUnit*> used_by(size_t unit) const;
  bool gathers() const { return options_.stage == ShardingStage::Weights; }
  bool cuts_gradients() const { return options_.stage >= ShardingStage::Gradients; }
  dist::Group& shards() const;
  // The ranks that sum this flat unit's whole gradients, and those that hold the same shard of it
  // and sum that.
  dist::Group& adders(const FlatUnit& flat) const;
  dist::Group& copies(const FlatUnit& flat) const;
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
  // Drops our references to gradients that others have taken or freed.
  void forget_freed_gradients();

  std::vector<nn::Unit*> units_;
  FlatUnits flats_;
  std::shared_ptr<dist::Mesh> mesh_;
  ShardingOptions options_;
  std::unordered_map<const nn::Parameter*, FlatUnit*> flat_of_;
  std::unordered_map<const FlatUnit*, size_t> first_user_;  // and the last in the backward
  std::map<size_t, std::vector<FlatUnit*>> present_;        // by unit: gathered or being gathered
  std::unordered_map<const FlatUnit*, dist::Group::Ticket> gathers_;
  std::vector<Leaving> leaving_;
  std::unordered_map<const FlatUnit*, at::Tensor> reduced_;  // shards of summed gradients
  std::vector<std::pair<dist::Group*, dist::Group::Ticket>> between_replicas_;
};

}  // namespace snug::exec
