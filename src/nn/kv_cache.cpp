// SPDX-License-Identifier: Apache-2.0
#include "nn/kv_cache.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "memory/guards.h"

namespace snug::nn {

KvCache::KvCache(const KvCacheShape& shape, at::Device device, at::ScalarType type)
    : capacity_(shape.capacity) {
  const memory::CategoryGuard category(memory::Category::Activations);
  const auto options = at::TensorOptions().device(device).dtype(type);
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    keys_.push_back(at::empty({shape.capacity, shape.num_kv_heads, shape.head_dim}, options));
    values_.push_back(at::empty({shape.capacity, shape.num_kv_heads, shape.head_dim}, options));
  }
}

void KvCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  SNUG_CHECK(length_ + k.size(0) <= capacity_, "the cache holds {} of {} tokens, {} more come",
             length_, capacity_, k.size(0));
  keys(layer).slice(0, length_, length_ + k.size(0)).copy_(k);
  values(layer).slice(0, length_, length_ + v.size(0)).copy_(v);
}

}  // namespace snug::nn
