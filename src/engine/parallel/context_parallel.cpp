// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/context_parallel.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/batch.h"

namespace snug::engine {
namespace {

// The tokens [begin, end) of a chunk.
struct TokenRange {
  int64_t begin = 0, end = 0;
};

// The documents of a chunk, in the form of ops::ContextChunk.
struct Documents {
  int64_t first_key = 0, first_document = 0;
  std::vector<int32_t> queries{0}, keys{0};  // borders
  int64_t max_queries = 0, max_keys = 0;
};

// `borders`: the boundaries of all documents, from 0 to the last token. Documents outside the chunk
// are included without tokens, so that sizes do not depend on how documents are placed.
Documents documents_of(const std::vector<int32_t>& borders, const TokenRange& chunk) {
  Documents result;
  for (size_t d = 0; d + 1 < borders.size(); ++d) {
    const int64_t begin = std::max<int64_t>(borders[d], chunk.begin);
    const int64_t end = std::min<int64_t>(borders[d + 1], chunk.end);
    if (begin >= end) continue;
    const bool is_first = result.queries.size() == 1;
    if (is_first) result.first_document = static_cast<int64_t>(d);
    if (is_first) result.first_key = borders[d];
    const int64_t num_keys = end - (is_first ? result.first_key : begin);
    result.queries.push_back(static_cast<int32_t>(end - chunk.begin));
    result.keys.push_back(static_cast<int32_t>(end - result.first_key));
    result.max_queries = std::max(result.max_queries, end - begin);
    result.max_keys = std::max(result.max_keys, num_keys);
  }
  result.queries.resize(borders.size(), result.queries.back());
  result.keys.resize(borders.size(), result.keys.back());
  return result;
}

// For plans: the largest number of keys that a chunk can need in any batch, since libraries size
// their buffers by it.
void look_back_farthest(Documents& documents, const TokenRange& chunk, int64_t longest) {
  documents.first_key = std::max<int64_t>(0, chunk.begin - longest + 1);
  documents.max_keys = std::min(longest, chunk.end - documents.first_key);
}

// Pads the batch to whole chunks, with one more document (empty if no padding is needed).
data::MicroBatch filled_up(data::MicroBatch batch, int64_t num_chunks) {
  const int64_t num_tokens = std::ssize(batch.input_ids);
  const int64_t length = std::max<int64_t>(1, (num_tokens + num_chunks - 1) / num_chunks);
  const auto all = static_cast<size_t>(length * num_chunks);
  batch.input_ids.resize(all, 0);
  batch.targets.resize(all, batch.ignore_index);
  batch.positions.resize(all, 0);
  if (!batch.real.empty()) batch.real.resize(all, 0);
  for (data::ColumnOfNumbers& column : batch.columns)
    if (column.is_per_target)
      column.values.resize(all * static_cast<size_t>(column.width), column.fill);
  batch.cu_seqlens.push_back(static_cast<int32_t>(all));
  return batch;
}

template <class Value>
std::vector<Value> rows_of(const std::vector<Value>& all, const std::array<TokenRange, 2>& ranges,
                           int64_t width = 1) {
  std::vector<Value> rows;
  for (const TokenRange& s : ranges)
    rows.insert(rows.end(), all.begin() + s.begin * width, all.begin() + s.end * width);
  return rows;
}

// Ranks tell each other how many tokens they have.
int64_t most_tokens(int64_t own, dist::Group& group) {
  int64_t most = own;
  if (group.size() == 1) return most;
  for (const std::string& tokens : group.gather_texts(std::to_string(own)))
    most = std::max<int64_t>(most, std::stoll(tokens));
  return most;
}

}  // namespace

void check_context(const models::Model& model, const dist::Mesh& mesh) {
  const int ranks = mesh.size(dist::Axis::Context);
  if (ranks == 1) return;
  const data::Reading reads = model.reads();
  if (reads.reads_rows_before)
    throw UserError(
        "mesh cp={}: this model has layers without attention, which go through a document's rows "
        "in order; use fsdp, dp or pp instead",
        ranks);
  if (!reads.source && reads.image_size == 0) return;
  throw UserError(
      "mesh cp={}: context parallelism works for decoder-only models, and this model reads {}; use "
      "fsdp, dp, tp or pp instead",
      ranks, reads.image_size > 0 ? "pictures" : "a source with an encoder");
}

nn::Batch own_tokens(const data::MicroBatch& batch, at::Device device, const dist::Mesh& mesh,
                     std::vector<float> noise) {
  const int64_t ranks = mesh.size(dist::Axis::Context);
  // Ranks that share a vocabulary exchange as many rows as are selected, so the selection must be
  // the same on all of them.
  if (ranks == 1 && mesh.size(dist::Axis::Tensor) > 1)
    return to_device(batch, device, HeadRows::All, noise);
  if (ranks == 1) {
    nn::Batch own = to_device(batch, device, HeadRows::Counted, noise);
    own.most_tokens = most_tokens(std::ssize(batch.input_ids), mesh.group(dist::Axis::Expert));
    return own;
  }
  SNUG_CHECK(batch.shared.empty(), "documents share rows, and {} ranks their tokens", ranks);
  const data::MicroBatch all = filled_up(batch, 2 * ranks);
  const int64_t length = std::ssize(all.input_ids) / (2 * ranks);
  const int64_t rank = mesh.coordinate(dist::Axis::Context);
  std::array<TokenRange, 2> ranges;
  for (size_t c = 0; c < 2; ++c) {
    const int64_t chunk = c == 0 ? rank : 2 * ranks - 1 - rank;
    ranges[c] = {chunk * length, (chunk + 1) * length};
  }
  data::MicroBatch own{.input_ids = rows_of(all.input_ids, ranges),
                       .targets = rows_of(all.targets, ranges),
                       .positions = rows_of(all.positions, ranges),
                       .cu_seqlens = {0}};
  if (!all.real.empty()) own.real = rows_of(all.real, ranges);
  own.columns = all.columns;
  for (data::ColumnOfNumbers& column : own.columns)
    if (column.is_per_target) column.values = rows_of(column.values, ranges, column.width);
  own.ignore_index = batch.ignore_index;
  own.max_seqlen = batch.max_seqlen;
  own.loss_tokens = batch.loss_tokens;
  // All rows are used: the number that count varies too much between ranks and batches to be
  // planned.
  if (!noise.empty()) {
    noise.resize(all.input_ids.size(), 0.f);
    noise = rows_of(noise, ranges);
  }
  nn::Batch result = to_device(own, device, HeadRows::Counted, noise);
  result.cu_seqlens = {};
  ops::ContextShare& share = result.context.emplace();
  share.group = &mesh.group(dist::Axis::Context);
  share.reversed = &mesh.context_reversed();
  share.num_tokens = std::ssize(batch.input_ids);
  for (size_t c = 0; c < 2; ++c) {
    Documents documents = documents_of(all.cu_seqlens, ranges[c]);
    if (device.is_meta()) look_back_farthest(documents, ranges[c], batch.max_seqlen);
    share.chunks[c] = {.first_row = ranges[c].begin,
                       .first_key = documents.first_key,
                       .first_document = documents.first_document,
                       .cu_seqlens = borders(documents.queries, *result.upload),
                       .kv_cu_seqlens = borders(documents.keys, *result.upload),
                       .max_seqlen = documents.max_queries,
                       .max_kv_seqlen = documents.max_keys};
  }
  return result;
}

int64_t ranks_with_sum(const nn::Objective& objective, const dist::Mesh& mesh) {
  return objective.batch().by_document ? mesh.size(dist::Axis::Context) : 1;
}

kernels::RowPlaces places_of(const nn::Batch& batch) {
  return batch.context ? batch.context->places(batch.input_ids.size(0) / 2) : kernels::RowPlaces{};
}

}  // namespace snug::engine
