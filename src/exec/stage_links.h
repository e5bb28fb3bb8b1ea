// What the stages of a pipeline send each other: states on the way forward, their gradients on the
// way back, from rank to rank of the mesh's pipeline axis.
//
// A send runs beside what is computed next, and so does a receive, which is started one step ahead.
// Messages between two ranks arrive in the order in which they were sent, so receives are started
// in the order of the sender's steps, which every stage knows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "dist/mesh.h"
#include "exec/executor.h"
#include "exec/pipeline_schedule.h"

namespace snug::exec {

class StageLinks {
 public:
  struct Options {
    PipelineOrder order = PipelineOrder::OneForwardOneBackward;
    int64_t chunks = 1;
    int64_t first_trained_place = 0;  // places before it have no backward
    int64_t vocabulary = 0;           // logits a row
    // What enters each place for a batch, by place, on meta: no rank is asked for the shapes of
    // what it will send.
    std::function<std::vector<nn::State>(const MicroBatch&)> shapes;
  };
  StageLinks(std::shared_ptr<dist::Mesh> mesh, at::Device device, Options options);
  // What is still on its way is taken first, unless the run has failed.
  ~StageLinks();

  PipelineShape shape(int64_t micro_batches) const;
  int64_t stage() const { return stage_; }
  bool has_backward(int64_t place) const { return place >= options_.first_trained_place; }

  // --- a step of the optimizer ---

  // The steps of all stages are known from here on. Steps are named by what they compute.
  void begin(const PipelineShape& shape);
  // Starts to receive what `step` needs, and what is sent before it. The micro-batch is the step's.
  using MicroBatchOf = std::function<const MicroBatch&(int64_t number)>;
  void prepare(const PipelineStep& step, const MicroBatchOf& micro_batch);
  // What `step` begins with; empty where that is nothing.
  nn::State take(const PipelineStep& step);
  // Sends what `step` has given to the step that needs it, if there is one.
  void send(const PipelineStep& step, nn::State state);
  // A state's gradients as they are sent: one for each floating tensor that the step received.
  nn::State all_gradients(const PipelineStep& step, nn::State gradients,
                          const MicroBatch& micro_batch);
  // All that was sent has arrived, and its memory is free.
  void finish();
  void abandon();

  // --- a forward alone ---

  // Runs this stage's chunks with what the stage before sends. Returns the last one's state where
  // it ends the model, nothing otherwise.
  nn::State pass_through(const MicroBatch& micro_batch,
                         const std::function<nn::State(int64_t chunk, nn::State state)>& run);
  // The last stage's logits, to all.
  at::Tensor share_logits(const nn::State& state, const nn::Batch& batch);

 private:
  struct Arriving {
    nn::State state;
    std::vector<dist::Group::Ticket> tickets;
    dist::Group* group = nullptr;
  };
  struct Leaving {
    nn::State state;  // held until it has arrived
    std::vector<dist::Group::Ticket> tickets;
    dist::Group* group = nullptr;
  };

  int64_t stage_of(int64_t place) const { return place % num_stages_; }
  // The step whose result `step` needs, and the one that needs its; false: there is none, or it is
  // of this stage.
  bool source_of(const PipelineStep& step, PipelineStep& source) const;
  bool target_of(const PipelineStep& step, PipelineStep& target) const;
  const std::vector<nn::State>& shapes_for(const MicroBatch& micro_batch);
  void start_receive(const PipelineStep& step, const MicroBatch& micro_batch);
  void wait_for(Leaving& leaving);

  std::shared_ptr<dist::Mesh> mesh_;
  at::Device device_;
  Options options_;
  int64_t num_stages_;
  int64_t stage_;
  // By rank: the steps of this stage for which it sends, in its order.
  std::vector<std::deque<PipelineStep>> expected_;
  std::map<PipelineStep, Arriving> arriving_;
  std::array<Leaving, 2> leaving_;                                 // by way: what was sent last
  std::map<std::vector<int64_t>, std::vector<nn::State>> shapes_;  // of batches so far
};

}  // namespace snug::exec
