// SPDX-License-Identifier: Apache-2.0
#include "data/micro_batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace snug::data {
namespace {

// Ids and labels of a sample given as such, or of one in a store; both without a copy. `length` is
// of what the decoder reads.
struct SampleView {
  std::span<const int32_t> ids, labels;
  int64_t raw_tokens, source, pictures;
  int64_t shared = 0;
  int64_t length() const { return static_cast<int64_t>(ids.size()) - source; }
  int32_t id(size_t i) const { return ids[i]; }
  int32_t label(size_t i, int32_t) const { return labels[i]; }
};

// `shared`: tokens before `stored`, which the rows of the sample's first document are.
struct StoredView {
  std::span<const int32_t> stored;
  int64_t raw_tokens, source, pictures;
  int64_t shared = 0;
  int64_t length() const { return static_cast<int64_t>(stored.size()) - source; }
  int32_t id(size_t i) const { return stored[i] < 0 ? ~stored[i] : stored[i]; }
  int32_t label(size_t i, int32_t ignored) const { return stored[i] < 0 ? ignored : stored[i]; }
};

void size_batch(MicroBatch& batch, int64_t num_tokens, size_t num_documents,
                const MicroBatchOptions& options) {
  SNUG_CHECK(num_tokens <= std::numeric_limits<int32_t>::max(), "{} tokens in a micro-batch",
             num_tokens);
  const auto size = static_cast<size_t>(num_tokens);
  batch.ignore_index = options.ignore_index;
  batch.input_ids.assign(size, options.pad_id);
  batch.targets.assign(size, options.ignore_index);
  batch.positions.resize(size);
  batch.cu_seqlens.reserve(num_documents + 1);
  batch.cu_seqlens.push_back(0);
}

// Padding that is learned is no padding.
bool marks_padding(const MicroBatchOptions& options) {
  return options.reading.marks_padding && !options.packing && !options.padding_in_loss;
}

void set_target(MicroBatch& batch, size_t at, int32_t target, int32_t ignore_index) {
  batch.targets[at] = target;
  batch.loss_tokens += target != ignore_index;
}

// Each token's target is the next one.
template <class View>
void place_tokens(MicroBatch& batch, const View& view, size_t begin, int32_t ignore_index) {
  const auto real = static_cast<size_t>(view.length());
  for (size_t i = 0; i < real; ++i) batch.input_ids[begin + i] = view.id(i);
  for (size_t i = 0; i + 1 < real; ++i)
    set_target(batch, begin + i, view.label(i + 1, ignore_index), ignore_index);
}

// Behind the start token, which has the first target.
template <class View>
void place_target(MicroBatch& batch, const View& view, size_t begin,
                  const MicroBatchOptions& options) {
  const auto real = static_cast<size_t>(view.length());
  const auto first = static_cast<size_t>(view.source);
  for (size_t i = 0; i < real; ++i) {
    batch.input_ids[begin + i] =
        i == 0 ? options.reading.decoder_start_token : view.id(first + i - 1);
    set_target(batch, begin + i, view.label(first + i, options.ignore_index), options.ignore_index);
  }
}

// The padding of a document of `length` as targets like any other.
template <class View>
void learn_padding(MicroBatch& batch, const View& view, size_t begin, size_t length,
                   const MicroBatchOptions& options) {
  const auto real = static_cast<size_t>(view.length());
  // A plain decoder's row learns the token behind it; one behind an encoder reads its targets a
  // place later, so that its last one is still to come.
  const size_t ahead = options.reading.source ? 0 : 1;
  if (ahead == 0 && real > 0 && real < length)
    batch.input_ids[begin + real] = view.id(static_cast<size_t>(view.source) + real - 1);
  for (size_t i = real - std::min(ahead, real); i + ahead < length; ++i)
    set_target(batch, begin + i, options.pad_id, options.ignore_index);
}

template <class View>
void place_source(MicroBatch& batch, const View& view) {
  if (batch.source_cu_seqlens.empty()) batch.source_cu_seqlens.push_back(0);
  for (size_t i = 0; i < static_cast<size_t>(view.source); ++i) {
    batch.source_ids.push_back(view.id(i));
    batch.source_positions.push_back(static_cast<int32_t>(i));
  }
  batch.source_cu_seqlens.push_back(static_cast<int32_t>(batch.source_ids.size()));
  batch.source_max_seqlen = std::max(batch.source_max_seqlen, view.source);
}

// The rows of the pictures' placeholders; `first_row` is that of the document's first token.
template <class View>
void find_pictures(MicroBatch& batch, const View& view, size_t first_row, const Reading& reading) {
  int64_t left = view.pictures * reading.num_picture_tokens;
  const auto pictured = static_cast<size_t>(reading.source ? view.source : view.length());
  for (size_t i = 0; i < pictured && left > 0; ++i) {
    if (view.id(i) != reading.picture_token) continue;
    batch.picture_rows.push_back(static_cast<int32_t>(first_row + i));
    --left;
  }
  SNUG_CHECK(left == 0, "{} places of {} pictures are missing in {} tokens", left, view.pictures,
             pictured);
  batch.num_pictures += view.pictures;
}

// Writes one document of `length` tokens, padding included, at `begin`.
template <class View>
void place(MicroBatch& batch, const View& view, size_t begin, size_t length,
           const MicroBatchOptions& options) {
  const Reading& reading = options.reading;
  if (reading.image_size > 0)
    find_pictures(batch, view, reading.source ? batch.source_ids.size() : begin, reading);
  if (reading.source) {
    place_source(batch, view);
    place_target(batch, view, begin, options);
  } else {
    place_tokens(batch, view, begin, options.ignore_index);
  }
  if (options.padding_in_loss) learn_padding(batch, view, begin, length, options);
  const auto positions = batch.positions.begin() + static_cast<std::ptrdiff_t>(begin);
  std::iota(positions, positions + static_cast<std::ptrdiff_t>(length),
            static_cast<int32_t>(view.shared));
  batch.cu_seqlens.push_back(static_cast<int32_t>(begin + length));
  batch.raw_tokens += view.raw_tokens;
  for (size_t i = 0; i < length && marks_padding(options); ++i)
    batch.real.push_back(i < static_cast<size_t>(view.length()) ? 1.0F : 0.0F);
}

template <class View>
MicroBatch assemble(const std::vector<View>& views, const MicroBatchOptions& options) {
  MicroBatch batch;
  batch.image_size = options.reading.image_size;
  int64_t decoded_tokens = 0, longest_source = 0;
  for (const View& view : views) {
    SNUG_CHECK((view.source > 0) == options.reading.source, "{} tokens for an encoder",
               view.source);
    decoded_tokens += view.length();
    batch.real_tokens += view.length() + view.source;
    batch.max_seqlen = std::max(batch.max_seqlen, view.length());
    longest_source = std::max(longest_source, view.source);
  }
  const auto num_documents = static_cast<int64_t>(views.size());
  const bool packing = options.packing && !options.padding_in_loss;
  batch.padded_tokens = num_documents * (batch.max_seqlen + longest_source);
  size_batch(batch, packing ? decoded_tokens : num_documents * batch.max_seqlen, views.size(),
             options);
  size_t begin = 0;
  for (const View& view : views) {
    const auto length = static_cast<size_t>(packing ? view.length() : batch.max_seqlen);
    place(batch, view, begin, length, options);
    begin += length;
  }
  return batch;
}

void note_shared_rows(MicroBatch& batch, const std::vector<StoredView>& views,
                      int64_t documents_per_sample) {
  const auto together = static_cast<size_t>(documents_per_sample);
  for (size_t document = 0; document < views.size(); ++document) {
    const size_t first = document / together * together;
    batch.shared.push_back({batch.cu_seqlens[first], views[document].shared});
  }
}

// A row's numbers are those of its target, if it has one: of the next token, or behind an encoder
// of the target at the same place.
void place_columns(MicroBatch& batch, const SampleStore& store, std::span<const int64_t> indices) {
  for (const ColumnOfNumbers& column : store.columns()) {
    ColumnOfNumbers& own = batch.columns.emplace_back(ColumnOfNumbers{
        .is_per_target = column.is_per_target, .width = column.width, .fill = column.fill});
    const auto width = static_cast<size_t>(column.width);
    if (column.is_per_target) own.values.assign(batch.input_ids.size() * width, column.fill);
    size_t document = 0;
    for (const int64_t index : indices)
      for (int64_t d = 0; d < store.num_documents(index); ++d, ++document) {
        std::span<const float> numbers = store.numbers(column, index, d);
        if (!column.is_per_target) {
          own.values.insert(own.values.end(), numbers.begin(), numbers.end());
          continue;
        }
        const auto source = static_cast<size_t>(store.document(index, d).source_tokens);
        const size_t shared =
            d == 0 || batch.shared.empty() ? 0 : static_cast<size_t>(store.shared_tokens(index));
        numbers = numbers.subspan(width * (shared + std::max<size_t>(1, source)));
        const auto begin = static_cast<size_t>(batch.cu_seqlens[document]);
        for (size_t i = 0; i < numbers.size() / width; ++i)
          if (batch.targets[begin + i] != batch.ignore_index)
            std::ranges::copy(
                numbers.subspan(i * width, width),
                own.values.begin() + static_cast<std::ptrdiff_t>((begin + i) * width));
      }
  }
}

}  // namespace

MicroBatch make_micro_batch(std::span<const Sample> samples, const MicroBatchOptions& options) {
  std::vector<SampleView> views;
  for (const Sample& sample : samples)
    views.push_back(
        {sample.ids, sample.labels, sample.raw_tokens, sample.source_tokens, sample.num_pictures});
  return assemble(views, options);
}

MicroBatch make_micro_batch(const SampleStore& store, std::span<const int64_t> indices,
                            const MicroBatchOptions& options) {
  const bool shares = store.shares_prompts() && options.packing && !options.padding_in_loss;
  std::vector<StoredView> views;
  for (const int64_t index : indices)
    for (int64_t d = 0; d < store.num_documents(index); ++d) {
      const SampleStore::Document own = store.document(index, d);
      const int64_t shared = shares && d > 0 ? store.shared_tokens(index) : 0;
      views.push_back({own.stored.subspan(static_cast<size_t>(shared)), own.raw_tokens,
                       own.source_tokens, own.num_pictures, shared});
    }
  MicroBatch batch = assemble(views, options);
  if (shares) note_shared_rows(batch, views, store.documents_per_sample());
  if (shares) batch.most_keys = store.most_keys(std::ssize(indices));
  place_columns(batch, store, indices);
  batch.picks_rows = !options.padding_in_loss && !options.reading.scores_documents &&
                     (!options.packing || (options.picks_few_targets && store.few_targets()));
  return batch;
}

}  // namespace snug::data
