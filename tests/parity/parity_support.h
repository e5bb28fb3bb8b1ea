// Reading expected values and comparing with them. What the files hold:
// tests/oracles/parity_case.py.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/micro_batch.h"
#include "files/weights/tensor_source.h"
#include "models/model.h"

namespace snug::tests {

inline at::Tensor read(const files::TensorSource& source, const std::string& name) {
  const files::TensorInfo* info = source.find(name);
  if (info == nullptr) throw std::runtime_error("no " + name);
  const at::ScalarType type = info->dtype == files::DType::I32    ? at::kInt
                              : info->dtype == files::DType::U8   ? at::kByte
                              : info->dtype == files::DType::BF16 ? at::kBFloat16
                              : info->dtype == files::DType::F16  ? at::kHalf
                                                                  : at::kFloat;
  at::Tensor out = at::empty(info->shape, type);
  source.read(*info, info->dtype, out.mutable_data_ptr());
  return out;
}

// |a - b| relative to the largest expected magnitude; names the worst element.
inline void expect_close(const std::string& what, const at::Tensor& actual,
                         const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const at::Tensor difference = (actual.cpu().to(at::kFloat) - expected).abs().flatten();
  const auto worst = difference.argmax().item<int64_t>();
  const double scale = std::max(1e-3, expected.abs().max().item<double>());
  EXPECT_LE(difference[worst].item<double>(), tolerance * scale)
      << what << " differs most at flat index " << worst << ": "
      << actual.flatten()[worst].item<double>() << " for "
      << expected.flatten()[worst].item<double>();
}

inline data::MicroBatch rows_as_batch(const at::Tensor& ids, const at::Tensor& labels,
                                      int64_t begin, int64_t count) {
  std::vector<data::Sample> samples;
  for (int64_t row = begin; row < begin + count; ++row) {
    const at::Tensor i = ids[row].contiguous();
    const at::Tensor l = labels[row].contiguous();
    const auto* id = i.const_data_ptr<int32_t>();
    const auto* label = l.const_data_ptr<int32_t>();
    samples.push_back({.ids = {id, id + i.numel()}, .labels = {label, label + l.numel()}});
  }
  return data::make_micro_batch(samples);
}

// A case's rows as micro-batches.
class ParityRows {
 public:
  ParityRows(const files::TensorSource& expected, const data::Reading& reads)
      : expected_(expected), reads_(reads) {}

  int64_t count() const { return ids().size(0); }

  // With targets: the rows' own labels before an encoder-decoder's decoder, else those of the next
  // token.
  data::MicroBatch batch(int64_t begin, int64_t count) const {
    data::MicroBatch batch;
    const at::Tensor labels = read(expected_, "labels");
    for (int64_t row = begin; row < begin + count; ++row) {
      const std::vector<int32_t> tokens = tokens_of(ids(), row);
      std::vector<int32_t> targets = values_of(labels, row);
      if (!reads_.source) {
        targets.erase(targets.begin());
        targets.push_back(-100);
      }
      targets.resize(tokens.size());
      add_tokens(batch, tokens, targets, 0);
      add_beside(batch, row, tokens);
    }
    find_pictures(batch);
    return batch;
  }

  // One sequence, without targets: the tokens at positions from `first` on, with its encoder's
  // source and picture if these are its first.
  data::MicroBatch part(int64_t row, const std::vector<int32_t>& tokens, int64_t first) const {
    data::MicroBatch batch;
    add_tokens(batch, tokens, std::vector<int32_t>(tokens.size(), -100), first);
    if (first == 0) add_beside(batch, row, tokens);
    find_pictures(batch);
    return batch;
  }

  // A row up to its end.
  static std::vector<int32_t> tokens_of(const at::Tensor& rows, int64_t row) {
    std::vector<int32_t> tokens = values_of(rows, row);
    tokens.erase(std::find(tokens.begin(), tokens.end(), -1), tokens.end());
    return tokens;
  }

 private:
  at::Tensor ids() const { return read(expected_, "input_ids"); }

  static std::vector<int32_t> values_of(const at::Tensor& rows, int64_t row) {
    const at::Tensor own = rows[row].contiguous();
    const auto* values = own.const_data_ptr<int32_t>();
    return {values, values + own.numel()};
  }

  static void add_tokens(data::MicroBatch& batch, const std::vector<int32_t>& tokens,
                         const std::vector<int32_t>& targets, int64_t first) {
    if (batch.cu_seqlens.empty()) batch.cu_seqlens.push_back(0);
    batch.input_ids.insert(batch.input_ids.end(), tokens.begin(), tokens.end());
    batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
    for (size_t i = 0; i < tokens.size(); ++i)
      batch.positions.push_back(static_cast<int32_t>(first) + static_cast<int32_t>(i));
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.input_ids.size()));
    batch.max_seqlen = std::max(batch.max_seqlen, std::ssize(tokens));
    batch.loss_tokens +=
        std::ssize(targets) - std::count(targets.begin(), targets.end(), int32_t{-100});
  }

  // `tokens`: the row's, as far as they are in the batch.
  void add_beside(data::MicroBatch& batch, int64_t row, const std::vector<int32_t>& tokens) const {
    if (reads_.source) {
      const std::vector<int32_t> source = tokens_of(read(expected_, "source_ids"), row);
      if (batch.source_cu_seqlens.empty()) batch.source_cu_seqlens.push_back(0);
      batch.source_ids.insert(batch.source_ids.end(), source.begin(), source.end());
      for (size_t i = 0; i < source.size(); ++i)
        batch.source_positions.push_back(static_cast<int32_t>(i));
      batch.source_cu_seqlens.push_back(static_cast<int32_t>(batch.source_ids.size()));
      batch.source_max_seqlen = std::max(batch.source_max_seqlen, std::ssize(source));
    }
    if (reads_.image_size > 0) {
      // One a row, or as many as its places are for and some behind them.
      const int64_t pictures =
          reads_.pictures_anywhere
              ? std::ranges::count(tokens, reads_.picture_token) / reads_.num_picture_tokens
              : 1;
      const at::Tensor all = read(expected_, "pixels")[row].contiguous();
      const auto* values = all.const_data_ptr<uint8_t>();
      batch.pixels.insert(batch.pixels.end(), values,
                          values + pictures * reads_.image_size * reads_.image_size * 3);
      batch.num_pictures += pictures;
      batch.image_size = reads_.image_size;
    }
  }

  void find_pictures(data::MicroBatch& batch) const {
    if (batch.image_size == 0) return;
    const std::vector<int32_t>& ids = reads_.source ? batch.source_ids : batch.input_ids;
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == reads_.picture_token) batch.picture_rows.push_back(static_cast<int32_t>(i));
  }

  const files::TensorSource& expected_;
  data::Reading reads_;
};

}  // namespace snug::tests
