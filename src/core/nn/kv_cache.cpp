// SPDX-License-Identifier: Apache-2.0
#include "core/nn/kv_cache.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"

namespace snug::nn {
namespace {

// Selects the sequences `from` of a packed source, in that order.
SourceKeys select_of(const SourceKeys& source, const std::vector<int64_t>& from) {
  const auto border = source.cu_seqlens.host();
  std::vector<at::Tensor> keys, values;
  std::vector<int32_t> borders = {0};
  for (const int64_t sequence : from) {
    const auto s = static_cast<size_t>(sequence);
    const int32_t begin = border->at(s), end = border->at(s + 1);
    keys.push_back(source.keys.slice(0, begin, end));
    values.push_back(source.values.slice(0, begin, end));
    borders.push_back(borders.back() + end - begin);
  }
  return {at::cat(keys),
          at::cat(values),
          {at::tensor(borders, at::kInt).to(source.cu_seqlens.device()), borders},
          source.max_seqlen};
}

}  // namespace

void KvCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  SNUG_CHECK(k.size(0) % num_sequences_ == 0, "{} tokens are not a multiple of {} sequences",
             k.size(0), num_sequences_);
  const int64_t tokens = k.size(0) / num_sequences_;
  SNUG_CHECK(length_ + tokens <= capacity_,
             "the key-value cache holds {} of at most {} tokens and cannot take {} more", length_,
             capacity_, tokens);
  held_.resize(std::max(held_.size(), static_cast<size_t>(layer) + 1));
  if (std::exchange(held_[static_cast<size_t>(layer)], length_ + tokens) > length_) return;
  const memory::CategoryGuard category(memory::Category::Activations);
  const auto write = [&](std::vector<at::Tensor>& layers, const at::Tensor& from) {
    layers.resize(std::max(layers.size(), static_cast<size_t>(layer) + 1));
    at::Tensor& all = layers[static_cast<size_t>(layer)];
    if (!all.defined())
      all = at::empty({num_sequences_, capacity_, from.size(1), from.size(2)}, from.options());
    all.slice(1, length_, length_ + tokens)
        .copy_(from.view({num_sequences_, tokens, from.size(1), from.size(2)}));
  };
  write(keys_, k);
  write(values_, v);
}

void KvCache::select(const std::vector<int64_t>& from) {
  num_sequences_ = std::ssize(from);
  const memory::CategoryGuard category(memory::Category::Activations);
  at::Tensor index = at::tensor(from, at::kLong);
  for (std::vector<at::Tensor>* all : {&keys_, &values_, &recent_, &states_})
    for (at::Tensor& tensor : *all)
      if (tensor.defined()) {
        index = index.to(tensor.device());
        tensor = tensor.index_select(0, index);
      }
  for (SourceKeys& source : sources_)
    if (source.keys.defined()) source = select_of(source, from);
}

at::Tensor& KvCache::of_layer(std::vector<at::Tensor>& all, int64_t layer) {
  all.resize(std::max(all.size(), static_cast<size_t>(layer) + 1));
  return all[static_cast<size_t>(layer)];
}

void KvCache::keep_source(int64_t layer, SourceKeys source) {
  sources_.resize(std::max(sources_.size(), static_cast<size_t>(layer) + 1));
  sources_[static_cast<size_t>(layer)] = std::move(source);
}

const SourceKeys* KvCache::source(int64_t layer) const {
  const auto index = static_cast<size_t>(layer);
  if (index >= sources_.size() || !sources_[index].keys.defined()) return nullptr;
  return &sources_[index];
}

}  // namespace snug::nn
