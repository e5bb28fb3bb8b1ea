// Which samples each optimizer step reads: a fresh seeded shuffle every epoch, cut into steps of
// global_batch_size samples. A step may run over an epoch's end into the next epoch, so every step
// is full but possibly the very last one; no sample is dropped and none is read twice in an epoch.
// All ranks hold the same sampler and take their share of the same step, without talking.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace snug::data {

// The next sample to be read is number `next_index` of epoch `epoch`'s order. Saved in checkpoints.
struct DataPosition {
  int64_t epoch = 0, next_index = 0;
  bool operator==(const DataPosition&) const = default;
};

struct SamplerOptions {
  int64_t num_samples = 0;
  int64_t global_batch_size = 1;  // samples a step, over all ranks
  int64_t micro_batch_size = 1;   // samples a micro-batch, at most
  int64_t samples_per_epoch = 0;  // of each shuffle the first so many; 0: all
  int64_t epochs = 1;             // 0: as many as max_steps needs
  int64_t max_steps = 0;          // 0: as many as the epochs need
  uint64_t seed = 42;
  bool shuffle = true;
  // These samples open the first epoch, e.g. the longest ones, so that a run that starts also ends.
  // They stand where rank 0 reads them as its first micro-batch.
  std::vector<int64_t> first = {};
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);  // throws UserError for sizes that make no step

  int64_t num_steps() const;  // of the whole run
  bool done() const { return samples_left() == 0; }
  // Fraction of epochs read so far, for the terminal line.
  double epochs_done() const;

  // One optimizer step's sample indices for one rank, as micro-batches, and moves on to the next
  // step. Ranks' shares differ by one sample at most and every rank gets the same number of
  // micro-batches, as collectives need; in a last, smaller step a rank's micro-batch may be empty.
  // Within a share the micro-batches are as even as can be, none over micro_batch_size.
  std::vector<std::vector<int64_t>> next_step(int64_t rank = 0, int64_t world_size = 1);

  // The micro-batches that next_step() will give, without moving on; empty at the end.
  std::vector<std::vector<int64_t>> upcoming_step(int64_t rank = 0, int64_t world_size = 1);

  DataPosition position() const { return position_; }
  void restore(DataPosition position);  // throws UserError when it cannot be one of this data set

 private:
  int64_t epoch_size() const;  // samples
  int64_t samples_read() const;
  int64_t samples_left() const;
  void enter_epoch(int64_t epoch);
  std::vector<int64_t> next_samples();

  SamplerOptions options_;
  DataPosition position_;
  std::vector<int64_t> order_;  // of the current epoch
  int64_t order_epoch_ = -1;
};

}  // namespace snug::data
