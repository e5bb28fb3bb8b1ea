// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/memory/guards.h"
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
  std::vector<std::string> counts, whole;
  for (const models::HeadCount& heads : model.head_counts()) {
    common = std::gcd(common, heads.count);
    counts.push_back(fmt::format("{} {}", heads.count, heads.what));
    if (!heads.is_split) whole.push_back(heads.what);
  }
  if (common % ranks == 0) return;
  if (!whole.empty())
    throw UserError(
        "mesh tp={}: tensor parallelism does not split this model's {}; use fsdp={}, or ep={} for "
        "a "
        "mixture of experts",
        ranks, fmt::join(whole, " and "), ranks, ranks);
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

// Consecutive experts of each block on each rank.
void place_experts(models::Model& model, const dist::Mesh& mesh) {
  const int64_t ranks = mesh.size(dist::Axis::Expert), experts = model.routing().num_experts;
  if (experts == 0)
    throw UserError("mesh ep={}: this model has no experts to spread; use fsdp={} or dp={}", ranks,
                    ranks, ranks);
  if (experts % ranks != 0)
    throw UserError(
        "mesh ep={}: the model has {} experts in a block, and every rank needs the same number; "
        "use ep={}",
        ranks, experts, divisors(experts));
  if (mesh.size(dist::Axis::Context) > 1)
    throw UserError(
        "mesh ep={},cp={}: ep cannot be combined with cp; use fsdp in place of one of the two",
        ranks, mesh.size(dist::Axis::Context));
  const auto share = std::make_shared<const ops::TensorShare>(
      ops::TensorShare{.group = &mesh.group(dist::Axis::Expert), .sequence_parallel = false});
  for (nn::Unit* unit : model.units()) {
    const std::vector<std::vector<nn::Parameter*>> own = unit->experts();
    for (size_t expert = 0; expert < own.size(); ++expert)
      for (nn::Parameter* parameter : own[expert])
        if (!parameter->is_added())
          parameter->place(share, static_cast<int64_t>(expert) * ranks / experts);
  }
}

// A tensor of an expert's parameter, sent by the rank that has it. Of a quantized one bytes are
// sent.
at::Tensor from_owner(const nn::Parameter& parameter, const at::Tensor& part) {
  const memory::CategoryGuard category(memory::Category::Communication);
  const nn::Slice& slice = *parameter.slice;
  nn::Parameter whole{.name = parameter.name, .shape = slice.whole};
  if (part.scalar_type() == at::kByte) whole.quantization = parameter.quantization;
  at::Tensor sent = part.detach().contiguous();
  if (parameter.is_elsewhere()) sent = at::empty(whole.stored_shape(), part.options());
  dist::Group& group = *parameter.share->group;
  group.wait(group.broadcast(sent, static_cast<int>(*slice.owner)));
  return sent;
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

void cut_tensors(models::Model& model, const recipe::Recipe& recipe, const dist::Mesh& mesh) {
  dist::Group& tensor = mesh.group(dist::Axis::Tensor);
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
  if (mesh.size(dist::Axis::Expert) > 1) place_experts(model, mesh);
}

at::Tensor assemble(const nn::Parameter& parameter, const at::Tensor& part) {
  if (!parameter.slice) return part;
  if (parameter.slice->owner) return from_owner(parameter, part);
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
