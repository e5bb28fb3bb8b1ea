// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "core/memory/guards.h"

namespace snug::engine {
namespace {

at::Tensor sent(const std::vector<int32_t>& values, ops::Upload& upload) {
  return upload.tensor(values.data(), {std::ssize(values)}, at::kInt);
}

ops::CountedRows counted_rows(const std::vector<int32_t>& targets, int64_t ignore_index,
                              ops::Upload& upload) {
  std::vector<int32_t> rows, counted;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == ignore_index) continue;
    rows.push_back(static_cast<int32_t>(i));
    counted.push_back(targets[i]);
  }
  // If no row counts, one ignored row is listed, so that the head's parameters get a gradient of
  // zero.
  if (rows.empty()) counted.push_back(static_cast<int32_t>(ignore_index));
  const int64_t count = std::ssize(counted);
  rows.resize(targets.size());
  counted.resize(targets.size());
  return {sent(rows, upload), sent(counted, upload), count};
}

// A document's keys: those of the shared rows, then its own.
ops::Forks forks_of(const data::MicroBatch& batch, ops::Upload& upload) {
  // A plan's longest document may be none of these.
  ops::Forks forks{.max_kv_seqlen = batch.max_seqlen, .num_keys = batch.most_keys};
  std::vector<int32_t> keys = {0};
  for (size_t document = 0; document < batch.shared.size(); ++document) {
    const auto& [first_row, shared] = batch.shared[document];
    const int64_t begin = batch.cu_seqlens[document];
    const int64_t own = batch.cu_seqlens[document + 1] - begin;
    if (shared > 0) forks.runs.push_back({first_row, shared, /*is_again=*/true});
    forks.runs.push_back({begin, own});
    forks.max_kv_seqlen = std::max(forks.max_kv_seqlen, shared + own);
    keys.push_back(keys.back() + static_cast<int32_t>(shared + own));
  }
  SNUG_CHECK(keys.back() <= forks.num_keys, "{} keys where there is room for {}", keys.back(),
             forks.num_keys);
  forks.kv_cu_seqlens = borders(keys, upload);
  return forks;
}

}  // namespace

std::vector<float> noise_of(const data::MicroBatch& batch, double alpha) {
  std::vector<float> noise;
  if (alpha == 0) return noise;
  for (size_t document = 0; document + 1 < batch.cu_seqlens.size(); ++document) {
    const int64_t own = batch.cu_seqlens[document + 1] - batch.cu_seqlens[document];
    const int64_t shared = batch.shared.empty() ? 0 : batch.shared[document].count;
    const auto tokens = static_cast<double>(std::max<int64_t>(1, shared + own));
    noise.resize(noise.size() + static_cast<size_t>(own),
                 static_cast<float>(alpha / std::sqrt(tokens)));
  }
  noise.resize(batch.input_ids.size(), 0.f);
  return noise;
}

nn::Batch to_device(const data::MicroBatch& batch, at::Device device, HeadRows rows,
                    const std::vector<float>& noise) {
  const memory::CategoryGuard category(memory::Category::Data);
  const auto upload = std::make_shared<ops::Upload>(device);
  nn::Batch result{.input_ids = sent(batch.input_ids, *upload),
                   .targets = sent(batch.targets, *upload),
                   .ignore_index = batch.ignore_index,
                   .positions = sent(batch.positions, *upload),
                   .cu_seqlens = borders(batch.cu_seqlens, *upload),
                   .max_seqlen = batch.max_seqlen,
                   .loss_tokens = batch.loss_tokens,
                   .upload = upload};
  if (!batch.real.empty())
    result.real = {upload->tensor(batch.real.data(), {std::ssize(batch.real)}, at::kFloat),
                   device.is_meta() ? std::vector<float>() : batch.real};
  if (rows == HeadRows::Counted && batch.picks_rows)
    result.counted = counted_rows(batch.targets, batch.ignore_index, *upload);
  for (const data::ColumnOfNumbers& column : batch.columns) {
    std::vector<int64_t> sizes = {std::ssize(column.values) / column.width, column.width};
    if (column.width == 1) sizes.pop_back();
    result.columns.push_back(upload->tensor(column.values.data(), sizes, at::kFloat));
  }
  if (!batch.shared.empty()) result.forks = forks_of(batch, *upload);
  if (!noise.empty()) result.noise = upload->tensor(noise.data(), {std::ssize(noise)}, at::kFloat);
  if (!batch.source_ids.empty())
    result.source = nn::Source{.input_ids = sent(batch.source_ids, *upload),
                               .positions = sent(batch.source_positions, *upload),
                               .cu_seqlens = borders(batch.source_cu_seqlens, *upload),
                               .max_seqlen = batch.source_max_seqlen};
  // A micro-batch without pictures has an empty tensor of them where others have some, so that all
  // of them give gradients to the same parameters. A plan knows only how many there are.
  if (batch.image_size > 0) {
    const int64_t pictures = batch.num_pictures, side = batch.image_size;
    SNUG_CHECK(device.is_meta() || std::ssize(batch.pixels) == pictures * side * side * 3,
               "{} bytes of {} pictures", batch.pixels.size(), pictures);
    result.pixels = upload->tensor(batch.pixels.data(), {pictures, side, side, 3}, at::kByte);
    result.picture_rows = sent(batch.picture_rows, *upload);
  }
  return result;
}

void set_estimate(nn::Batch& batch, double estimate, at::Device device) {
  const memory::CategoryGuard category(memory::Category::Data);
  if (batch.upload == nullptr) batch.upload = std::make_shared<ops::Upload>(device);
  const auto number = static_cast<float>(estimate);
  batch.estimate = batch.upload->tensor(&number, {1}, at::kFloat);
}

ops::Borders borders(const std::vector<int32_t>& values, ops::Upload& upload) {
  const memory::CategoryGuard category(memory::Category::Data);
  return {sent(values, upload), values};
}

nn::BatchCounts counts_of(const data::MicroBatch& batch) {
  const int64_t documents = std::max<int64_t>(0, std::ssize(batch.cu_seqlens) - 1);
  return {.documents = batch.real_tokens > 0 ? documents : 0, .loss_tokens = batch.loss_tokens};
}

}  // namespace snug::engine
