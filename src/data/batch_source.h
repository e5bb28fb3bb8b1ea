// A source of micro-batches: of tokens in memory, or of pictures that worker threads read and
// resize ahead.
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

  // Makes the micro-batch of these samples.
  virtual MicroBatch make(std::span<const int64_t> indices) = 0;

  // Announces the next micro-batches in order, so that they can be made ahead. Requesting others is
  // allowed but waits.
  virtual void expect(const std::vector<std::vector<int64_t>>& /*micro_batches*/) {}

  // The number of requested samples that were left out of the loss.
  virtual int64_t num_unreadable() const { return 0; }
};

// For samples without pictures. Borrows the store.
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
