// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/split_with_sizes.h>

#include <numeric>

#include "core/memory/guards.h"

namespace snug::models::decoder {

std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<nn::Linear>& layers,
                                std::vector<int64_t> parts, const nn::Batch& batch,
                                const nn::Pass& pass) {
  std::vector<const nn::Linear*> all;
  for (const nn::Linear& layer : layers) all.push_back(&layer);
  std::vector<at::Tensor> outputs = nn::project(x, all, nn::num_tokens(batch), pass);
  if (layers.size() > 1 || parts.size() == 1) return outputs;
  const int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (int64_t& part : parts) part = outputs[0].size(1) * part / sum;
  return at::split_with_sizes(outputs[0], parts, 1);
}

nn::Parameter of_heads(std::string name, int64_t heads) {
  return {.name = std::move(name), .shape = {heads}, .init = nn::Init::Ones, .value = {}};
}

nn::Parameter constant(std::string name, int64_t size, nn::Init init) {
  return {.name = std::move(name),
          .shape = {size},
          .init = init,
          .trained = false,
          .constant = true,
          .held = at::kFloat,
          .value = {}};
}

at::Tensor new_state(nn::KvCache& cache, int64_t layer, at::IntArrayRef of_heads,
                     at::Device device) {
  const memory::CategoryGuard category(memory::Category::Activations);
  std::vector<int64_t> sizes = of_heads.vec();
  sizes.insert(sizes.begin(), cache.num_sequences());
  cache.state(layer) = at::empty(sizes, at::TensorOptions().device(device).dtype(at::kFloat));
  return cache.state(layer);
}

at::Tensor convolved(const at::Tensor& x, const ops::ShortConv& convolution, int64_t layer,
                     const nn::Batch& batch) {
  nn::KvCache* cache = batch.cache;
  if (cache != nullptr && cache->length() > 0)
    return ops::short_conv_step(x, convolution, cache->recent(layer));
  if (cache != nullptr)
    cache->recent(layer) = ops::convolved_rows(x, convolution.form, cache->num_sequences(),
                                               convolution.weight.size(1) - 1);
  return ops::short_conv(x, convolution, batch.positions);
}

}  // namespace snug::models::decoder
