// SPDX-License-Identifier: Apache-2.0
#include "setup/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "memory/guards.h"
#include "setup/adapters.h"

namespace snug::setup {
namespace {

// "1, 2, 4": by how many ranks something of these sizes can be shared.
std::string common_divisors(int64_t a, int64_t b) {
  std::vector<int64_t> divisors;
  const int64_t most = std::gcd(a, b);
  for (int64_t d = 1; d <= most; ++d)
    if (most % d == 0) divisors.push_back(d);
  return fmt::format("{}", fmt::join(divisors, ", "));
}

// Attention is shared by heads, so that each rank has whole ones with their keys and values.
void check_heads(const models::Dimensions& d, int64_t ranks) {
  if (d.num_heads % ranks == 0 && d.num_kv_heads % ranks == 0) return;
  throw UserError(
      "mesh tp={}: the model has {} attention heads with {} key-value heads, and each rank needs "
      "as many of both; use tp={}",
      ranks, d.num_heads, d.num_kv_heads, common_divisors(d.num_heads, d.num_kv_heads));
}

// All but the vocabulary's ranks have the same sizes.
void check_features(const nn::Linear& layer, int64_t ranks) {
  const nn::Parameter& weight = layer.weight();
  const int64_t size = weight.whole_shape()[static_cast<size_t>(*weight.cut_dim)];
  if (layer.role() == nn::Role::Head || size % ranks == 0) return;
  throw UserError("mesh tp={}: {} has {} features, which {} ranks cannot share evenly; use tp={}",
                  ranks, layer.name(), size, ranks, common_divisors(size, size));
}

// A 4-bit weight's slices have the same codes as the whole where they begin and end with blocks.
void check_blocks(const nn::Linear& layer, const config::Recipe& recipe, int64_t ranks) {
  if (recipe.quantize.empty() || layer.role() == nn::Role::Head) return;
  constexpr int64_t kBlock = kernels::cpu::kWeightBlock;
  for (const nn::Stretch& stretch : layer.weight().stretches())
    if (stretch.begin % kBlock != 0 || stretch.count % kBlock != 0)
      throw UserError(
          "quantize = {}: mesh tp={} leaves each rank {} elements in a row of {}, and {} of them "
          "share a scale; use fewer ranks along tp",
          recipe.quantize, ranks, layer.in_features(), layer.name(), kBlock);
}

}  // namespace

void cut_tensors(models::Model& model, const config::Recipe& recipe, dist::Group& tensor) {
  const int64_t ranks = tensor.size();
  std::shared_ptr<const ops::TensorShare> share;
  if (ranks > 1) {
    share = std::make_shared<const ops::TensorShare>(
        ops::TensorShare{.group = &tensor, .sequence_parallel = recipe.sequence_parallel});
    if (const auto reason = model.tensor_parallel_refusal())
      throw UserError("mesh tp={}: {}", ranks, *reason);
    check_heads(model.dimensions(), ranks);
    for (const nn::Linear* layer : linears_of(model)) check_features(*layer, ranks);
  }
  for (nn::Parameter* parameter : model.parameters())
    if (!parameter->added) parameter->cut(share);
  for (const nn::Linear* layer : linears_of(model))
    if (share != nullptr) check_blocks(*layer, recipe, ranks);
}

at::Tensor assemble(const nn::Parameter& parameter, const at::Tensor& part) {
  if (!parameter.slice) return part;
  SNUG_CHECK(part.sizes() == at::IntArrayRef(parameter.shape), "{}: a slice of {} elements",
             parameter.name, part.numel());
  dist::Group& group = *parameter.share->group;
  const nn::Slice& slice = *parameter.slice;
  // Ranks have a range each of this dimension.
  const int64_t dim = slice.dim + 1;
  const std::vector<int64_t> whole_shape = slice.by_sections(slice.whole);
  std::vector<int64_t> shape = slice.by_sections(parameter.shape);
  const at::Tensor own = part.detach().view(shape);
  const int64_t size = whole_shape[static_cast<size_t>(dim)];
  const int64_t least = size / group.size(), larger = size % group.size();
  const memory::CategoryGuard category(memory::Category::Communication);
  // Shorter slices are filled up to the longest.
  shape[static_cast<size_t>(dim)] = least + (larger > 0 ? 1 : 0);
  const at::Tensor sent = at::empty(shape, part.options());
  sent.narrow(dim, 0, own.size(dim)).copy_(own);
  shape.insert(shape.begin(), group.size());
  const at::Tensor parts = at::empty(shape, part.options());
  group.wait(group.all_gather(parts, sent));
  const at::Tensor whole = at::empty(whole_shape, part.options());
  for (int64_t rank = 0, begin = 0; rank < group.size(); ++rank) {
    const int64_t count = least + (rank < larger ? 1 : 0);
    whole.narrow(dim, begin, count).copy_(parts.select(0, rank).narrow(dim, 0, count));
    begin += count;
  }
  return whole.view(slice.whole);
}

at::Tensor whole_value(const nn::Parameter& parameter) {
  const at::Tensor& kept = parameter.kept();
  if (!parameter.slice) return kept.detach();
  return assemble(parameter, kept.detach().to(parameter.value.device()));
}

}  // namespace snug::setup
