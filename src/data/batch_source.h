// Where micro-batches come from: tokens that are in memory, or pictures that worker threads read
// and resize while the device is busy with those before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/micro_batch.h"

namespace snug::data {

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The micro-batch of these samples.
  virtual MicroBatch make(std::span<const int64_t> indices) = 0;

  // What will be asked for next, in this order: it may be made meanwhile. Asking for something else
  // is allowed and costs the time it takes.
  virtual void expect(const std::vector<std::vector<int64_t>>& /*micro_batches*/) {}

  // Of the samples that were asked for, those that were left out of their micro-batch's loss.
  virtual int64_t num_unreadable() const { return 0; }
};

// Of samples that are tokens alone. Borrows the store.
class TokenBatchSource : public BatchSource {
 public:
  TokenBatchSource(const SampleStore& samples, const MicroBatchOptions& options)
      : samples_(samples), options_(options) {}
  MicroBatch make(std::span<const int64_t> indices) override {
    return make_micro_batch(samples_, indices, options_);
  }

 private:
  const SampleStore& samples_;
  MicroBatchOptions options_;
};

}  // namespace snug::data
