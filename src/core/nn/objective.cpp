// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objective.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "core/nn/head.h"
#include "core/ops/loss/document_sums.h"

namespace snug::nn {

void check(const BatchSpec& spec) {
  if (spec.documents_per_sample < 1)
    throw UserError("the objective wants {} documents a sample", spec.documents_per_sample);
  std::set<std::string> names;
  for (const Column& column : spec.columns) {
    if (column.width < 1)
      throw UserError("the objective wants {} numbers a row of column {}", column.width,
                      column.name);
    if (!names.insert(column.name).second)
      throw UserError("the objective wants two columns {}", column.name);
  }
}

at::Tensor Objective::start_gradient(const at::Tensor& sum, const Pass& pass) const {
  return at::full_like(sum, pass.gradient_scale);
}

at::Tensor CrossEntropy::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                             const Pass& pass) const {
  return head.cross_entropy(
      hidden, batch, pass,
      {.label_smoothing = options_.label_smoothing, .z_loss = options_.z_loss});
}

at::Tensor CrossEntropy::start_gradient(const at::Tensor& sum, const Pass& /*pass*/) const {
  return at::ones_like(sum);
}

namespace {

struct Documents {
  std::vector<ops::DocumentRows> rows;
  int64_t count = 0;
  dist::Group* group = nullptr;
};

void add_rows(Documents& documents, const ops::Borders& borders, int64_t first_row,
              int64_t first_document) {
  const std::vector<int32_t>& at = *borders.host();
  for (size_t d = 0; d + 1 < at.size(); ++d)
    if (at[d] < at[d + 1])
      documents.rows.push_back(
          {first_document + static_cast<int64_t>(d), first_row + at[d], first_row + at[d + 1]});
}

Documents documents_of(const Batch& batch) {
  Documents documents;
  if (!batch.context) {
    documents.count = batch.cu_seqlens.size(0) - 1;
    add_rows(documents, batch.cu_seqlens, 0, 0);
    return documents;
  }
  documents.group = batch.context->group;
  int64_t first_row = 0;
  for (const ops::ContextChunk& chunk : batch.context->chunks) {
    documents.count = chunk.cu_seqlens.size(0) - 2;  // without that of the padding
    add_rows(documents, chunk.cu_seqlens, first_row, chunk.first_document);
    first_row += batch.input_ids.size(0) / 2;
  }
  std::erase_if(documents.rows, [&](const auto& own) { return own.document >= documents.count; });
  return documents;
}

}  // namespace

at::Tensor document_sums(const at::Tensor& values, const Batch& batch) {
  SNUG_CHECK(values.sizes() == batch.targets.sizes() && values.scalar_type() == at::kFloat,
             "a float32 number of each of {} rows is to be added up by document, not of {}",
             batch.targets.size(0), values.numel());
  const Documents documents = documents_of(batch);
  return ops::document_sums(values, documents.rows, documents.count, documents.group);
}

at::Tensor document_targets(const Batch& batch) {
  return document_sums(batch.targets.ne(batch.ignore_index).to(at::kFloat), batch).clamp_min_(1);
}

at::Tensor document_rows(const at::Tensor& numbers, const Batch& batch) {
  const Documents documents = documents_of(batch);
  SNUG_CHECK(numbers.dim() == 1 && numbers.size(0) == documents.count &&
                 numbers.scalar_type() == at::kFloat,
             "{} numbers of {} documents", numbers.numel(), documents.count);
  return ops::document_rows(numbers.detach(), documents.rows, batch.targets.size(0));
}

const Objective& objective_of(const Pass& pass) {
  static const CrossEntropy plain;
  return pass.objective != nullptr ? *pass.objective : plain;
}

}  // namespace snug::nn
