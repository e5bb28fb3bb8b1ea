// SPDX-License-Identifier: Apache-2.0
#include "core/ops/expert_share.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"
#include "core/dist/group.h"
#include "core/ops/device/carried.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor gather_tokens(const at::Tensor& x, const ExpertShare& share) {
  const int64_t tokens = x.size(0), most = share.most_tokens;
  SNUG_CHECK(tokens <= most, "{} tokens of {} at most", tokens, most);
  at::Tensor all = at::empty({share.group->size() * most, x.size(1)}, x.options());
  const at::Tensor own = all.narrow(0, share.first_row(), most);
  copy(own.narrow(0, 0, tokens), x);
  if (tokens < most) fill(own.narrow(0, tokens, most - tokens), 0);
  share.group->wait(share.group->all_gather(all, own));
  return all;
}

at::Tensor sum_tokens(const at::Tensor& terms, int64_t num_tokens, const ExpertShare& share) {
  const at::Tensor own = at::empty({share.most_tokens, terms.size(1)}, terms.options());
  share.group->wait(share.group->reduce_scatter(own, terms));
  return own.narrow(0, 0, num_tokens);
}

struct TokensFunction : torch::autograd::Function<TokensFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const ExpertShare& share) {
    carry(ctx, share);
    ctx->saved_data["num_tokens"] = x.size(0);
    return gather_tokens(x, share);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_all = std::exchange(grads[0], {}).contiguous();
    return {sum_tokens(d_all, ctx->saved_data["num_tokens"].toInt(), carried<ExpertShare>(ctx)),
            {}};
  }
};

struct TermsFunction : torch::autograd::Function<TermsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& terms, int64_t num_tokens,
                            const ExpertShare& share) {
    carry(ctx, share);
    return sum_tokens(terms, num_tokens, share);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_own = std::exchange(grads[0], {}).contiguous();
    return {gather_tokens(d_own, carried<ExpertShare>(ctx)), {}, {}};
  }
};

}  // namespace

int64_t ExpertShare::first_row() const { return group->rank() * most_tokens; }

int64_t ExpertShare::own_experts(int64_t num_experts) const { return num_experts / group->size(); }

int64_t ExpertShare::first_expert(int64_t num_experts) const {
  return group->rank() * own_experts(num_experts);
}

at::Tensor tokens_of_all(const at::Tensor& x, const ExpertShare& share) {
  if (share.has_same_tokens()) return x;
  return TokensFunction::apply(x, share);
}

at::Tensor sum_of_terms(const at::Tensor& terms, int64_t num_tokens, const ExpertShare& share) {
  if (share.has_same_tokens()) {
    SNUG_CHECK(!terms.requires_grad(), "a backward of tokens that all ranks have");
    share.group->wait(share.group->all_reduce(terms));
    return terms;
  }
  return TermsFunction::apply(terms, num_tokens, share);
}

// Groups move numbers and bytes: these go as bytes.
at::Tensor choices_of_all(const at::Tensor& experts, const ExpertShare& share) {
  if (share.has_same_tokens()) return experts;
  const int64_t k = experts.size(1);
  at::Tensor all = at::empty({share.group->size() * share.most_tokens, k}, experts.options());
  const at::Tensor own = all.narrow(0, share.first_row(), share.most_tokens);
  own.fill_(-1);
  own.narrow(0, 0, experts.size(0)).copy_(experts);
  share.group->wait(share.group->all_gather(all.view(at::kByte), own.view(at::kByte)));
  return all;
}

}  // namespace snug::ops
