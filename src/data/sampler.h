// Splits off rows for validation, and chooses the samples of each optimizer step: every epoch is
// shuffled anew from the seed and split into steps of global_batch_size samples. A step may
// continue into the next epoch, so only the last step of a run may be smaller; within an epoch each
// sample is read exactly once. Of global_batch_size samples in a row no two are the same, also
// where an epoch ends; of a smaller data set each is there as often as the others, or once more: a
// plan rests on that. Which samples a step has does not depend on the micro-batch. All ranks have
// the same sampler and take their share of each step without communication.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// The next sample is number `next_index` in the order of epoch `epoch`. Saved in checkpoints.
struct DataPosition {
  int64_t epoch = 0, next_index = 0;
  bool operator==(const DataPosition&) const = default;
};

// Samples that are drawn together, such as those of one source: the numbers before `end`, from
// where the range before ends. An epoch has `per_epoch` of them, at most all; the next epoch goes
// on where it stopped, so that each has been read before one is read again.
struct SampleRange {
  int64_t end = 0, per_epoch = 0;
};

struct SamplerOptions {
  int64_t num_samples = 0;
  std::vector<SampleRange> ranges = {};  // empty: an epoch has all samples
  int64_t global_batch_size = 1;         // samples per step, over all ranks
  int64_t micro_batch_size = 1;          // at most this many samples per micro-batch
  int64_t samples_per_epoch = 0;         // number of samples to use of each shuffle; 0: all
  int64_t epochs = 1;                    // 0: no limit but max_steps
  int64_t max_steps = 0;                 // 0: no limit but epochs
  uint64_t seed = 42;
  bool shuffle = true;
  // Samples to read first, as rank 0's first micro-batches: the longest ones, so that a run out of
  // memory fails at once. Where they are two micro-batches or more, the second one comes first:
  // the largest then meets gradients.
  // Of a range, at most as many as an epoch has.
  std::vector<int64_t> first = {};
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);  // throws UserError for invalid sizes

  int64_t num_steps() const;  // of the whole run
  bool done() const { return samples_left() == 0; }
  // Epochs read so far, for the progress line.
  double epochs_done() const;
  // How many samples of each range were read so far; empty without ranges.
  const std::vector<int64_t>& read_of_ranges() const { return read_; }

  // Returns a rank's sample indices for one optimizer step, as micro-batches, and advances to the
  // next step. Ranks' shares differ by at most one sample, and all ranks get the same number of
  // micro-batches, as collectives require; in a last, smaller step one may be empty. A share's
  // micro-batches are as equal as possible, at most micro_batch_size each.
  std::vector<std::vector<int64_t>> next_step(int64_t rank = 0, int64_t world_size = 1);

  // The micro-batches that next_step() will return, without advancing; empty at the end.
  std::vector<std::vector<int64_t>> upcoming_step(int64_t rank = 0, int64_t world_size = 1);

  DataPosition position() const { return position_; }
  void restore(DataPosition position);  // throws UserError if this data set has no such position

 private:
  int64_t epoch_size() const;  // samples
  void draw_parts();
  void limit_first();
  void count(std::span<const int64_t> samples);
  std::vector<int64_t> samples_of(int64_t epoch) const;
  int64_t samples_read() const;
  int64_t samples_left() const;
  std::vector<int64_t> drawn(int64_t epoch) const;
  void enter_epoch(int64_t epoch);
  std::vector<int64_t> next_samples();

  SamplerOptions options_;
  DataPosition position_;
  // The order in which epochs go through each range of which they have a part; empty: all of it.
  std::vector<std::vector<int64_t>> parts_;
  std::vector<int64_t> read_;  // by range
  struct Order {
    int64_t epoch = -1;  // none
    std::vector<int64_t> samples;
  };
  Order order_, other_;  // of the current epoch, and of the one before or after
};

struct Split {
  std::vector<Row> train, validation;
};

enum class SplitRounding { Down, Up };

// The number of rows that a fraction of `num_rows` holds out, at least 1 if fraction > 0 and there
// is more than one. Throws UserError for a fraction outside [0, 1) or if no row is left to train
// on.
int64_t validation_rows(int64_t num_rows, double fraction, SplitRounding rounding);

// The default fraction held out of an HFDataset or ImageFolder.
inline constexpr double kUsualHeldOut = 0.05;

// The first `max_samples` of `count` rows, in an order that depends only on the seed.
std::vector<int64_t> choose_rows(int64_t count, std::optional<int64_t> max_samples, uint64_t seed);

// Holds out random rows, the same for a seed on every machine (random.h). Both parts are shuffled.
// The number is rounded down by default, as in LitGPT.
Split split_rows(std::vector<Row> rows, double val_split_fraction, uint64_t seed,
                 SplitRounding rounding = SplitRounding::Down);

// Reads a folder with train.json and val.json, as LitGPT's JSON data does; also validation.json,
// and .jsonl, .parquet, .csv or .tsv.
Split read_split_folder(const std::filesystem::path& folder, const Columns& columns = {});

}  // namespace snug::data
