// SPDX-License-Identifier: Apache-2.0
#include "data/micro_batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace snug::data {
namespace {

// Ids and labels of a sample given as such, or of one in a store; both without a copy.
struct SampleView {
  std::span<const int32_t> ids, labels;
  int64_t raw_tokens;
  int64_t length() const { return static_cast<int64_t>(ids.size()); }
  int32_t id(size_t i) const { return ids[i]; }
  int32_t label(size_t i, int32_t) const { return labels[i]; }
};

struct StoredView {
  std::span<const int32_t> stored;
  int64_t raw_tokens;
  int64_t length() const { return static_cast<int64_t>(stored.size()); }
  int32_t id(size_t i) const { return stored[i] < 0 ? ~stored[i] : stored[i]; }
  int32_t label(size_t i, int32_t ignored) const { return stored[i] < 0 ? ignored : stored[i]; }
};

void size_batch(MicroBatch& batch, int64_t num_tokens, size_t num_documents,
                const MicroBatchOptions& options) {
  SNUG_CHECK(num_tokens <= std::numeric_limits<int32_t>::max(), "{} tokens in a micro-batch",
             num_tokens);
  const auto size = static_cast<size_t>(num_tokens);
  batch.input_ids.assign(size, options.pad_id);
  batch.targets.assign(size, options.ignore_index);
  batch.positions.resize(size);
  batch.cu_seqlens.reserve(num_documents + 1);
  batch.cu_seqlens.push_back(0);
}

// Writes one document of `length` tokens, padding included, at `begin`.
template <class View>
void place(MicroBatch& batch, const View& view, size_t begin, size_t length, int32_t ignore_index) {
  const auto real = static_cast<size_t>(view.length());
  for (size_t i = 0; i < real; ++i) batch.input_ids[begin + i] = view.id(i);
  for (size_t i = 0; i + 1 < real; ++i) {
    const int32_t target = view.label(i + 1, ignore_index);
    batch.targets[begin + i] = target;
    batch.loss_tokens += target != ignore_index;
  }
  const auto positions = batch.positions.begin() + static_cast<std::ptrdiff_t>(begin);
  std::iota(positions, positions + static_cast<std::ptrdiff_t>(length), 0);
  batch.cu_seqlens.push_back(static_cast<int32_t>(begin + length));
  batch.raw_tokens += view.raw_tokens;
}

template <class View>
MicroBatch assemble(const std::vector<View>& views, const MicroBatchOptions& options) {
  MicroBatch batch;
  for (const View& view : views) {
    batch.real_tokens += view.length();
    batch.max_seqlen = std::max(batch.max_seqlen, view.length());
  }
  batch.padded_tokens = static_cast<int64_t>(views.size()) * batch.max_seqlen;
  size_batch(batch, options.packing ? batch.real_tokens : batch.padded_tokens, views.size(),
             options);
  size_t begin = 0;
  for (const View& view : views) {
    const auto length = static_cast<size_t>(options.packing ? view.length() : batch.max_seqlen);
    place(batch, view, begin, length, options.ignore_index);
    begin += length;
  }
  return batch;
}

}  // namespace

MicroBatch make_micro_batch(std::span<const Sample> samples, const MicroBatchOptions& options) {
  std::vector<SampleView> views;
  for (const Sample& sample : samples)
    views.push_back({sample.ids, sample.labels, sample.raw_tokens});
  return assemble(views, options);
}

MicroBatch make_micro_batch(const SampleStore& store, std::span<const int64_t> indices,
                            const MicroBatchOptions& options) {
  std::vector<StoredView> views;
  for (const int64_t index : indices)
    views.push_back({store.stored_ids(index), store.raw_tokens(index)});
  return assemble(views, options);
}

}  // namespace snug::data
