// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/expert_stacks.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "base/error.h"

namespace snug::checkpoint {
namespace {

std::string without_last(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Rows of halves (2, F) as rows of pairs (F, 2), or back.
at::Tensor turned(const at::Tensor& b, int64_t first, int64_t second) {
  return b.view({first, second, b.size(1)}).transpose(0, 1).reshape(b.sizes());
}

}  // namespace

std::map<std::string, ExpertStack> modules_of_stacks(const std::vector<ExpertStack>& stacks) {
  std::map<std::string, ExpertStack> modules;
  for (size_t i = 0; i < stacks.size(); ++i) {
    const std::string owner = without_last(stacks[i].parameter);
    std::string module = owner;
    for (size_t outer = i + 1; outer < stacks.size(); ++outer)
      if (without_last(stacks[outer].parameter) == owner) module += ".base_layer";
    modules[module] = stacks[i];
  }
  return modules;
}

ModuleAdapter join_experts(const std::vector<ModuleAdapter>& experts, bool paired) {
  std::vector<at::Tensor> a, b;
  for (const ModuleAdapter& expert : experts) {
    SNUG_CHECK(expert.rank() == experts.front().rank() && !expert.magnitude.defined(),
               "experts of one tensor have adapters of rank {} and {}", experts.front().rank(),
               expert.rank());
    a.push_back(expert.a);
    b.push_back(paired ? turned(expert.b.contiguous(), 2, expert.b.size(0) / 2) : expert.b);
  }
  return {.a = at::cat(a),
          .b = at::stack(b, 2).view({b.front().size(0), -1}),
          .scaling = experts.front().scaling};
}

std::vector<ModuleAdapter> split_experts(const ModuleAdapter& all, int64_t count, bool paired,
                                         const std::string& where) {
  if (all.a.dim() != 2 || all.b.dim() != 2 || all.a.size(0) % count != 0 ||
      all.b.size(1) != all.a.size(0) || (paired && all.b.size(0) % 2 != 0))
    throw UserError("{}: lora_A of {} rows and lora_B of {} columns are not of {} experts", where,
                    all.a.dim() == 2 ? all.a.size(0) : 0, all.b.dim() == 2 ? all.b.size(1) : 0,
                    count);
  const int64_t rank = all.a.size(0) / count;
  const at::Tensor columns = all.b.view({all.b.size(0), rank, count});
  std::vector<ModuleAdapter> experts;
  for (int64_t e = 0; e < count; ++e) {
    at::Tensor b = columns.select(2, e).contiguous();
    if (paired) b = turned(b, b.size(0) / 2, 2);
    experts.push_back({.a = all.a.narrow(0, e * rank, rank).clone(), .b = std::move(b)});
  }
  return experts;
}

}  // namespace snug::checkpoint
