// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objectives/document_scores.h"

#include <ATen/ops/add.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>

#include "base/error.h"
#include "core/nn/head.h"
#include "core/ops/loss/selected_rows.h"

namespace snug::nn {
namespace {

// The columns that spec() declares.
const at::Tensor& tokens_of(const Batch& batch) { return batch.columns[0]; }
const at::Tensor& numbers_of(const Batch& batch) { return batch.columns[1]; }

// (S): each document's first row. Of one that begins with another's rows, where it would be if they
// stood before its own.
at::Tensor begins_of(const Batch& batch) {
  const at::Tensor& borders = batch.cu_seqlens;
  const int64_t documents = borders.size(0) - 1;
  at::Tensor begins = borders.slice(0, 0, documents);
  if (!batch.forks) return begins;
  // Tokens of the documents before that are rows of others.
  const at::Tensor shared = at::sub(batch.forks->kv_cu_seqlens, borders);
  return at::sub(begins, at::sub(shared.slice(0, 1), shared.slice(0, 0, documents)));
}

}  // namespace

BatchSpec DocumentScores::spec(int64_t documents_per_sample, const char* number) {
  return {.documents_per_sample = documents_per_sample,
          .columns = {{.name = "tokens"}, {.name = number}},
          .by_document = true};
}

at::Tensor DocumentScores::read(const at::Tensor& hidden, const Batch& batch) const {
  SNUG_CHECK(hidden.size(0) == batch.input_ids.size(0),
             "{} of {} rows are here, but documents are scored by ranks that have all",
             hidden.size(0), batch.input_ids.size(0));
  const at::Tensor ends =
      at::add(begins_of(batch), tokens_of(batch).to(batch.cu_seqlens.scalar_type()));
  return ops::select_rows(hidden, ends.add(at::ones_like(ends), -1));
}

at::Tensor DocumentScores::scores(const at::Tensor& hidden, const Head& head, const Pass& pass) {
  return head.logits(hidden, pass).to(at::kFloat);
}

at::Tensor Classification::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                               const Pass& pass) const {
  const at::Tensor all = scores(hidden, head, pass);
  const at::Tensor labels = numbers_of(batch).to(at::kLong);
  const at::Tensor loss =
      at::nll_loss(at::log_softmax(all, 1), labels, /*weight=*/{}, at::Reduction::Sum);
  const at::Tensor right = at::eq(at::argmax(all.detach(), 1), labels).to(at::kFloat).sum();
  return at::cat({loss.reshape({1}), right.reshape({1})});
}

at::Tensor Reward::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                       const Pass& pass) const {
  const at::Tensor pairs = scores(hidden, head, pass).view({-1, 2});
  const at::Tensor chosen = pairs.select(1, 0), rejected = pairs.select(1, 1);
  const at::Tensor margins = numbers_of(batch).view({-1, 2}).select(1, 0);
  const at::Tensor distance = at::sub(chosen, rejected);
  at::Tensor losses = at::softplus(at::neg(at::sub(distance, margins)));
  if (center_ > 0) losses = losses.add(at::square(at::add(chosen, rejected)), center_);
  const at::Tensor above = at::gt(chosen.detach(), rejected.detach()).to(at::kFloat);
  const at::Tensor figures =
      at::stack({chosen.detach(), rejected.detach(), above, distance.detach()}).sum(1);
  return at::cat({losses.sum().reshape({1}), figures});
}

}  // namespace snug::nn
