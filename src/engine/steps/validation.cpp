// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/validation.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "core/nn/head.h"
#include "core/nn/objectives/document_scores.h"
#include "engine/batch.h"
#include "engine/parallel/context_parallel.h"

namespace snug::engine {

namespace {

// The micro-batches of one process, first to last. All have as many, since they run the same units
// at the same time: who has none left repeats one, which does not count.
struct Share {
  std::vector<std::vector<int64_t>> micro_batches;
  size_t num_counted = 0;
};

Share share_of(int64_t num_samples, const ValidationOptions& options, const dist::Mesh* mesh) {
  const int64_t ranks = mesh == nullptr ? 1 : mesh->data().size();
  const int64_t rank = mesh == nullptr ? 0 : mesh->data().rank();
  int64_t batches = (num_samples + options.micro_batch_size - 1) / options.micro_batch_size;
  if (options.max_batches > 0) batches = std::min(batches, options.max_batches);
  Share share;
  for (int64_t first = 0; first < batches; first += ranks) {
    const bool counts = first + rank < batches;
    const int64_t begin = (counts ? first + rank : first) * options.micro_batch_size;
    auto& own = share.micro_batches.emplace_back(
        static_cast<size_t>(std::min(options.micro_batch_size, num_samples - begin)));
    std::iota(own.begin(), own.end(), options.first_sample + begin);
    if (counts) ++share.num_counted;
  }
  return share;
}

// Its micro-batches, empty where they do not count.
std::vector<std::vector<int64_t>> counted(const Share& share) {
  std::vector<std::vector<int64_t>> all = share.micro_batches;
  for (size_t i = share.num_counted; i < all.size(); ++i) all[i].clear();
  return all;
}

exec::Sums run(exec::Executor& executor, const data::MicroBatch& batch,
               const nn::Objective& objective, const ValidationOptions& options,
               const dist::Mesh* mesh, double estimate = 0) {
  nn::Batch own = mesh == nullptr ? engine::to_device(batch, executor.device())
                                  : engine::own_tokens(batch, executor.device(), *mesh);
  if (objective.estimate() != nullptr) engine::set_estimate(own, estimate, executor.device());
  return executor.sums(own, {.compute = options.compute, .objective = &objective});
}

// Adds up one number of each process.
double sum_over_ranks(double sum, const dist::Mesh* mesh) {
  if (mesh == nullptr) return sum;
  // The stage that ends the model has it and tells all.
  return mesh->gradients().sum(mesh->group(dist::Axis::Pipeline).sum({sum})).front();
}

void conclude(ValidationResult& result, const nn::Objective& objective) {
  result.loss = without_sign(result.means.front());
  result.figures = objective.figures_of({result.means.begin() + 1, result.means.end()});
}

// Notes what they add up: (S), or (S, labels); undefined where another stage ends the model.
class DocumentLogProbs final : public nn::Objective {
 public:
  nn::BatchSpec batch() const override { return {.by_document = true}; }
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    last = nn::document_sums(head.log_probs(hidden, batch, pass), batch);
    return last.sum().reshape({1});
  }

  mutable at::Tensor last;
};

class NotedScores final : public nn::DocumentScores {
 public:
  nn::BatchSpec batch() const override { return spec(1, "label"); }
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& /*batch*/,
                 const nn::Pass& pass) const override {
    last = scores(hidden, head, pass);
    return last.sum().reshape({1});
  }

  mutable at::Tensor last;
};

class TopK final : public nn::Objective {
 public:
  explicit TopK(int64_t top_k) : top_k_(top_k) {}
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    const at::Tensor rows = at::nonzero(batch.targets.ne(batch.ignore_index)).view({-1});
    const int64_t count = rows.size(0);
    last = at::empty({count, 2 * top_k_}, hidden.options().dtype(at::kFloat));
    for (int64_t begin = 0; begin < count; begin += kRows) {
      const int64_t end = std::min(begin + kRows, count);
      const at::Tensor logits =
          head.logits(hidden.index_select(0, rows.slice(0, begin, end)), pass).to(at::kFloat);
      const auto [log_p, ids] = at::log_softmax(logits, 1).topk(top_k_, 1);
      last.slice(0, begin, end).copy_(at::cat({ids.to(at::kFloat), log_p}, 1));
    }
    return last.sum().reshape({1});
  }

  mutable at::Tensor last;  // (targets, 2 K)

 private:
  static constexpr int64_t kRows = 64;  // of logits at a time
  int64_t top_k_;
};

// The numbers that `objective` notes of each document, `width` of them.
template <class Noting>
std::vector<double> noted(const Noting& objective, int64_t width, exec::Executor& executor,
                          data::BatchSource& samples, int64_t num_samples,
                          const ValidationOptions& options, const dist::Mesh* mesh) {
  ValidationOptions all = options;
  all.max_batches = 0;
  const Share share = share_of(num_samples, all, mesh);
  std::vector<double> numbers;
  samples.expect(share.micro_batches);
  for (size_t i = 0; i < share.micro_batches.size(); ++i) {
    const std::vector<int64_t>& own = share.micro_batches[i];
    const auto batch = samples.make(own);
    const int64_t per_sample = width * ((std::ssize(batch->cu_seqlens) - 1) / std::ssize(own));
    numbers.resize(static_cast<size_t>(num_samples * per_sample));
    run(executor, *batch, objective, all, mesh);
    if (i < share.num_counted && objective.last.defined() && !objective.last.is_meta()) {
      const at::Tensor found = objective.last.cpu().contiguous();
      std::copy_n(found.const_data_ptr<float>(), found.numel(),
                  numbers.begin() + own.front() * per_sample);
    }
    const int64_t share_done = num_samples * (static_cast<int64_t>(i) + 1);
    if (options.after_each) options.after_each(share_done / std::ssize(share.micro_batches));
  }
  if (mesh == nullptr) return numbers;
  return mesh->data().sum(mesh->group(dist::Axis::Pipeline).sum(numbers));
}

}  // namespace

double estimate(exec::Executor& executor, data::BatchSource& samples,
                const std::vector<std::vector<int64_t>>& micro_batches,
                const ValidationOptions& options, const dist::Mesh* mesh) {
  const nn::Objective* wanted = options.objective->estimate();
  if (wanted == nullptr) return 0;
  data::BatchSource* others = samples.others();
  SNUG_CHECK(others != nullptr,
             "an objective with an estimate over {} micro-batches without others",
             micro_batches.size());
  const auto copies = static_cast<double>(mesh == nullptr ? 1 : ranks_with_sum(*wanted, *mesh));
  double sum = 0, terms = 0;
  for (const std::vector<int64_t>& indices : micro_batches) {
    const auto batch = others->make(indices.empty() ? std::vector<int64_t>{0} : indices);
    const exec::Sums own = run(executor, *batch, *wanted, options, mesh);
    if (indices.empty()) continue;
    if (!own.empty()) sum += own.front() / copies;
    terms += static_cast<double>(wanted->terms(counts_of(*batch)));
  }
  sum = sum_over_ranks(sum, mesh);
  if (mesh != nullptr) terms = mesh->data().sum({terms}).front();
  return terms > 0 ? sum / terms : 0;
}

ValidationResult validate(exec::Executor& executor, data::BatchSource& samples, int64_t num_samples,
                          const ValidationOptions& options, const dist::Mesh* mesh) {
  const nn::CrossEntropy plain;
  const nn::Objective& objective = options.objective != nullptr ? *options.objective : plain;
  const auto copies = static_cast<double>(mesh == nullptr ? 1 : ranks_with_sum(objective, *mesh));
  double terms = 0;
  std::vector<double> sums(1 + objective.figures().size());
  ValidationResult result;
  const Share share = share_of(num_samples, options, mesh);
  ValidationOptions own_options = options;
  own_options.objective = &objective;
  const double known = estimate(executor, samples, counted(share), own_options, mesh);
  samples.expect(share.micro_batches);
  for (size_t i = 0; i < share.micro_batches.size(); ++i) {
    const auto batch = samples.make(share.micro_batches[i]);
    const exec::Sums own = run(executor, *batch, objective, options, mesh, known);
    if (i >= share.num_counted) continue;
    for (size_t k = 0; k < own.size(); ++k) sums.at(k) += own[k] / copies;
    terms += static_cast<double>(objective.terms(counts_of(*batch)));
    result.tokens += batch->loss_tokens;
  }
  if (mesh != nullptr) {
    // The stage that ends the model has the sum and tells all.
    sums = mesh->group(dist::Axis::Pipeline).sum(sums);
    sums = mesh->gradients().sum(sums);
    const std::vector<double> counts =
        mesh->data().sum({static_cast<double>(result.tokens), terms});
    result.tokens = static_cast<int64_t>(counts[0]);
    terms = counts[1];
  }
  result.terms = static_cast<int64_t>(terms);
  for (double& sum : sums) sum = terms > 0 ? sum / terms : 0;
  result.means = std::move(sums);
  conclude(result, objective);
  return result;
}

ValidationResult together(std::span<const WeightedResult> results, const nn::Objective& objective) {
  ValidationResult all;
  double terms = 0;
  for (const auto& [result, weight] : results) {
    all.tokens += result.tokens;
    all.terms += result.terms;
    terms += weight * static_cast<double>(result.terms);
    all.means.resize(result.means.size());
  }
  for (const auto& [result, weight] : results)
    for (size_t i = 0; i < all.means.size() && result.terms > 0; ++i)
      all.means[i] += result.means[i] * weight * static_cast<double>(result.terms) / terms;
  conclude(all, objective);
  return all;
}

std::vector<double> log_probs_of_documents(exec::Executor& executor, data::BatchSource& samples,
                                           int64_t num_samples, const ValidationOptions& options,
                                           const dist::Mesh* mesh) {
  return noted(DocumentLogProbs(), 1, executor, samples, num_samples, options, mesh);
}

void top_k_of_targets(exec::Executor& executor, data::BatchSource& samples, int64_t num_samples,
                      int64_t top_k, const ValidationOptions& options,
                      const std::function<void(std::span<const float>)>& take) {
  ValidationOptions all = options;
  all.max_batches = 0;
  const Share share = share_of(num_samples, all, nullptr);
  const TopK objective(top_k);
  samples.expect(share.micro_batches);
  for (const std::vector<int64_t>& own : share.micro_batches) {
    run(executor, *samples.make(own), objective, all, nullptr);
    const at::Tensor found = objective.last.cpu().contiguous();
    if (at::isnan(found).any().item<bool>())
      throw UserError(
          "a log-probability of the teacher's is no number; snug verify names damaged "
          "files");
    take({found.const_data_ptr<float>(), static_cast<size_t>(found.numel())});
    if (options.after_each) options.after_each(own.back() + 1);
  }
}

std::vector<double> scores_of_documents(exec::Executor& executor, data::BatchSource& samples,
                                        int64_t num_samples, int64_t labels,
                                        const ValidationOptions& options, const dist::Mesh* mesh) {
  return noted(NotedScores(), labels, executor, samples, num_samples, options, mesh);
}

}  // namespace snug::engine
