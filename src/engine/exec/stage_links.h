// Communication between the stages of a pipeline: states go forward and their gradients back, along
// the mesh's pipeline axis.
//
// Sends, and receives started one step ahead, overlap with the computation. Messages between two
// ranks arrive in the order in which they were sent, so receives are started in the order of the
// sender's steps, which every stage knows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/dist/mesh.h"
#include "engine/exec/executor.h"
#include "engine/exec/pipeline_schedule.h"

namespace snug::exec {

class StageLinks {
 public:
  struct Options {
    PipelineOrder order = PipelineOrder::OneForwardOneBackward;
    int64_t chunks = 1;
    int64_t first_trained_place = 0;  // places before it have no backward
    int64_t vocabulary = 0;           // columns of the logits
    // The input state of each place for a batch, on meta. Receivers get shapes from it, so that
    // ranks need not exchange them.
    std::function<std::vector<nn::State>(const MicroBatch&)> shapes;
  };
  StageLinks(std::shared_ptr<dist::Mesh> mesh, at::Device device, Options options);

  PipelineShape shape(int64_t micro_batches) const;
  int64_t stage() const { return stage_; }
  bool has_backward(int64_t place) const { return place >= options_.first_trained_place; }

  // --- one optimizer step ---

  // Works out the steps of all stages. A step is identified by what it computes.
  void begin(const PipelineShape& shape);
  // Starts to receive the input of `step` and everything its sender sends before that.
  using MicroBatchOf = std::function<const MicroBatch&(int64_t number)>;
  void prepare(const PipelineStep& step, const MicroBatchOf& micro_batch);
  // The received input of `step`; empty if it receives nothing.
  nn::State take(const PipelineStep& step);
  // Sends the result of `step` to the step that needs it, if another stage runs it.
  void send(const PipelineStep& step, nn::State state);
  // The gradients to send back: one for each floating-point tensor that the step received, zero
  // where backward gave none.
  nn::State all_gradients(const PipelineStep& step, nn::State gradients,
                          const MicroBatch& micro_batch);
  // Waits until all sends are complete, and frees their memory.
  void finish();
  void abandon();

  // --- forward only ---

  // Runs this stage's chunks on the states that the stage before sends. Returns the model's output
  // on the stage that has its last unit, an empty state elsewhere.
  nn::State pass_through(const MicroBatch& micro_batch,
                         const std::function<nn::State(int64_t chunk, nn::State state)>& run);
  // Broadcasts the last stage's logits to every stage.
  at::Tensor share_logits(const nn::State& state, const nn::Batch& batch);

 private:
  struct Arriving {
    nn::State state;
    std::vector<dist::Group::Ticket> tickets;
    dist::Group* group = nullptr;
  };
  struct Leaving {
    std::vector<dist::Group::Ticket> tickets;
    dist::Group* group = nullptr;
  };

  int64_t stage_of(int64_t place) const { return place % num_stages_; }
  // source_of: the step whose result `step` needs; the other: the step that needs its result. False
  // if there is none or this stage runs it.
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
  // By sending rank: this stage's steps that wait for its messages, in the order of sending.
  std::vector<std::deque<PipelineStep>> expected_;
  std::map<PipelineStep, Arriving> arriving_;
  std::array<Leaving, 2> leaving_;  // the last send of each direction
  std::map<std::vector<int64_t>, std::vector<nn::State>> shapes_;  // cached by batch sizes
};

}  // namespace snug::exec
