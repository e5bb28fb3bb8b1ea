// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/memory/guards.h"
#include "engine/adapters/adapters.h"

namespace snug::engine {
namespace {

// "1, 2, 4": the numbers of ranks that divide `whole`.
std::string divisors(int64_t whole) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= whole; ++d)
    if (whole % d == 0) found.push_back(d);
  return fmt::format("{}", fmt::join(found, ", "));
}

// Attention is split by heads, so that each rank has whole heads with their keys and values.
void check_heads(const models::Model& model, int64_t ranks) {
  int64_t common = 0;
  std::vector<std::string> counts;
  for (const models::HeadCount& heads : model.head_counts()) {
    common = std::gcd(common, heads.count);
    counts.push_back(fmt::format("{} {}", heads.count, heads.what));
  }
  if (common % ranks == 0) return;
  throw UserError(
      "mesh tp={}: the model has {}, and every rank needs the same number of each; use tp={}",
      ranks, fmt::join(counts, ", "), divisors(common));
}

// The features per section that ranks must share evenly; 0: none. Slices of the vocabulary may
// differ.
int64_t shared_features(const nn::Linear& layer) {
  const nn::Parameter& weight = layer.weight();
  if (!weight.cut_dim || layer.role() == nn::Role::Head) return 0;
  return weight.whole_shape()[static_cast<size_t>(*weight.cut_dim)] / weight.cut_sections;
}

void check_features(const nn::Linear& layer, int64_t ranks) {
  const int64_t size = shared_features(layer);
  if (size % ranks == 0) return;
  throw UserError("mesh tp={}: {} has {} features, which {} ranks cannot share evenly; use tp={}",
                  ranks, layer.name(), size, ranks, divisors(size));
}

// Slices of a 4-bit weight have the same codes as the whole if they begin and end at block
// boundaries.
void check_blocks(const nn::Linear& layer, const recipe::Recipe& recipe, int64_t ranks) {
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

int64_t common_shares(models::Model& model) {
  int64_t common = 0;
  for (const models::HeadCount& heads : model.head_counts()) common = std::gcd(common, heads.count);
  for (const nn::Linear* layer : linears_of(model))
    common = std::gcd(common, shared_features(*layer));
  return common;
}

void cut_tensors(models::Model& model, const recipe::Recipe& recipe, dist::Group& tensor) {
  const int64_t ranks = tensor.size();
  std::shared_ptr<const ops::TensorShare> share;
  if (ranks > 1) {
    share = std::make_shared<const ops::TensorShare>(
        ops::TensorShare{.group = &tensor, .sequence_parallel = recipe.sequence_parallel});
    check_heads(model, ranks);
    for (const nn::Linear* layer : linears_of(model)) check_features(*layer, ranks);
  }
  for (nn::Parameter* parameter : model.parameters())
    if (!parameter->is_added()) parameter->cut(share);
  for (const nn::Linear* layer : linears_of(model))
    if (share != nullptr) check_blocks(*layer, recipe, ranks);
}

at::Tensor assemble(const nn::Parameter& parameter, const at::Tensor& part) {
  if (!parameter.slice) return part;
  SNUG_CHECK(part.sizes() == at::IntArrayRef(parameter.shape), "{}: a slice has {} elements",
             parameter.name, part.numel());
  dist::Group& group = *parameter.share->group;
  const nn::Slice& slice = *parameter.slice;
  // Each rank has a range of this dimension.
  const int64_t dim = slice.dim + 1;
  const std::vector<int64_t> whole_shape = slice.by_sections(slice.whole);
  std::vector<int64_t> shape = slice.by_sections(parameter.shape);
  const at::Tensor own = part.detach().view(shape);
  const int64_t size = whole_shape[static_cast<size_t>(dim)];
  const int64_t least = size / group.size(), larger = size % group.size();
  const memory::CategoryGuard category(memory::Category::Communication);
  // Shorter slices are padded to the longest.
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

}  // namespace snug::engine
