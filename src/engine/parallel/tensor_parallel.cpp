// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/tensor_parallel.h"

#include <fmt/ranges.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/ops/exchanged_rows.h"
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
int64_t shared_features(const nn::Linear& layer, const std::vector<nn::SplitRow>& table) {
  const nn::Parameter& weight = layer.weight();
  const std::optional<nn::Split> split = nn::split_of(table, weight.name);
  if (!split || layer.role() == nn::Role::Head) return 0;
  return weight.whole_shape()[static_cast<size_t>(split->dim)] / split->sections;
}

void check_features(const nn::Linear& layer, const std::vector<nn::SplitRow>& table,
                    int64_t ranks) {
  const int64_t size = shared_features(layer, table);
  if (size % ranks == 0) return;
  throw UserError("mesh tp={}: {} has {} features, which {} ranks cannot share evenly; use tp={}",
                  ranks, layer.name(), size, ranks, divisors(size));
}

// Slices of a 4-bit weight have the same codes as the whole if they begin and end at block
// boundaries.
void check_blocks(const nn::Linear& layer, const recipe::Recipe& recipe, int64_t ranks) {
  if (recipe.quantize.empty() || layer.role() == nn::Role::Head) return;
  constexpr int64_t kBlock = kernels::kWeightBlock;
  for (const nn::ElementRange& range : layer.weight().ranges())
    if (range.begin % kBlock != 0 || range.count % kBlock != 0)
      throw UserError(
          "quantize = {}: mesh tp={} leaves each rank {} elements in a row of {}, and {} of them "
          "share a scale; use fewer ranks along tp",
          recipe.quantize, ranks, layer.in_features(), layer.name(), kBlock);
}

}  // namespace

int64_t common_shares(models::Model& model) {
  int64_t common = 0;
  for (const models::HeadCount& heads : model.head_counts()) common = std::gcd(common, heads.count);
  const std::vector<nn::SplitRow> table = model.split();
  for (const nn::Linear* layer : linears_of(model))
    common = std::gcd(common, shared_features(*layer, table));
  return common;
}

void cut_tensors(models::Model& model, const recipe::Recipe& recipe, dist::Group& tensor) {
  const int64_t ranks = tensor.size();
  const std::vector<nn::SplitRow> table = model.split();
  std::shared_ptr<const ops::TensorShare> share;
  if (ranks > 1) {
    share = std::make_shared<const ops::TensorShare>(
        ops::TensorShare{.group = &tensor, .sequence_parallel = recipe.sequence_parallel});
    check_heads(model, ranks);
    for (const nn::Linear* layer : linears_of(model)) check_features(*layer, table, ranks);
  }
  for (nn::Parameter* parameter : model.parameters())
    if (!parameter->is_added()) parameter->cut(share, nn::split_of(table, parameter->name));
  for (const nn::Linear* layer : linears_of(model))
    if (share != nullptr) check_blocks(*layer, recipe, ranks);
}

at::Tensor assemble(const nn::Parameter& parameter, const at::Tensor& part) {
  if (!parameter.slice) return part;
  SNUG_CHECK(part.sizes() == at::IntArrayRef(parameter.shape), "{}: a slice has {} elements",
             parameter.name, part.numel());
  const nn::Slice& slice = *parameter.slice;
  // Each rank has a range of the dimension behind the sections.
  return ops::join_slices(part.detach().view(slice.by_sections(parameter.shape)), slice.dim + 1,
                          slice.by_sections(slice.whole), *parameter.share)
      .view(slice.whole);
}

at::Tensor whole_value(const nn::Parameter& parameter) {
  const at::Tensor& kept = parameter.kept();
  if (!parameter.slice) return kept.detach();
  return assemble(parameter, kept.detach().to(parameter.value.device()));
}

}  // namespace snug::engine
