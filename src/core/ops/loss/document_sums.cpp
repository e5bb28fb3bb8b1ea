// SPDX-License-Identifier: Apache-2.0
#include "core/ops/loss/document_sums.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/dist/group.h"
#include "core/ops/device/carried.h"
#include "core/ops/linear/matmul.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Documents {
  std::vector<DocumentRows> rows;
  int64_t num_rows = 0;
};

struct DocumentSumsFunction : torch::autograd::Function<DocumentSumsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& values,
                            const std::vector<DocumentRows>& rows, int64_t num_documents,
                            dist::Group* group) {
    at::Tensor sums = at::zeros({num_documents}, values.options().requires_grad(false));
    for (const auto& [document, begin, end] : rows)
      sum_of_rows_into(sums.slice(0, document, document + 1),
                       values.slice(0, begin, end).view({-1, 1}), Into::Accumulate);
    if (group != nullptr) group->wait(group->all_reduce(sums));
    carry(ctx, Documents{rows, values.size(0)});
    return sums;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto& [rows, num_rows] = carried<Documents>(ctx);
    return {document_rows(gradients[0], rows, num_rows), {}, {}, {}};
  }
};

}  // namespace

at::Tensor document_sums(const at::Tensor& values, const std::vector<DocumentRows>& rows,
                         int64_t num_documents, dist::Group* group) {
  return DocumentSumsFunction::apply(values, rows, num_documents, group);
}

at::Tensor document_rows(const at::Tensor& numbers, const std::vector<DocumentRows>& rows,
                         int64_t num_rows) {
  at::Tensor result = at::zeros({num_rows}, numbers.options().requires_grad(false));
  for (const auto& [document, begin, end] : rows)
    result.slice(0, begin, end)
        .copy_(numbers.slice(0, document, document + 1).expand({end - begin}));
  return result;
}

}  // namespace snug::ops
