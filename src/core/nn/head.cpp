// SPDX-License-Identifier: Apache-2.0
#include "core/nn/head.h"

#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tanh.h>

#include <utility>

#include "base/error.h"
#include "core/nn/functions.h"
#include "core/nn/objective.h"

namespace snug::nn {

Head::Head(std::string name, const std::string& layer, int64_t features, int64_t vocabulary,
           Parameter* tied, const ops::LogitForm& form, int64_t num_labels)
    : Unit(std::move(name), UnitKind::Head),
      vocabulary_(num_labels > 0
                      ? Linear(kScoreLayer, Role::Score, features, num_labels, Bias::None)
                  : tied != nullptr ? Linear(layer, Role::Head, *tied)
                                    : Linear(layer, Role::Head, features, vocabulary, Bias::None)),
      form_(num_labels > 0 ? ops::LogitForm{} : form) {}

std::vector<Parameter*> Head::borrowed() {
  if (vocabulary_.is_tied()) return {&vocabulary_.weight()};
  return {};
}

State Head::forward(const State& input, const Batch& batch, const Pass& pass) {
  const at::Tensor& hidden = input.at("hidden");
  State state;
  if (pass.output == Output::LastLogits) {
    const at::Tensor last =
        last_rows(all_rows(hidden, vocabulary_.weight(), num_tokens(batch)), batch);
    state.set("logits", nn::logits(prepare(last, pass), vocabulary_, pass, form_));
  } else {
    const Objective& objective = objective_of(pass);
    const at::Tensor read = prepare(objective.read(hidden, batch), pass);
    state.set(kObjective,
              with_own_losses(objective.sum(read, *this, batch, pass), input, batch, pass));
  }
  return state;
}

namespace {

std::optional<ops::VocabularyPart> part_of(const Linear& layer) {
  const auto& slice = layer.weight().slice;
  if (!slice) return std::nullopt;
  return ops::VocabularyPart{
      .share = *layer.weight().share, .first = slice->begin, .whole = slice->whole[0]};
}

// The head's dropout numbers rows by their position in the batch.
ops::CountedRows rows_for(const ops::Projection& projection, const Batch& batch) {
  const bool drops = projection.adapter && projection.adapter->dropout > 0;
  return drops ? ops::CountedRows{} : batch.counted;
}

}  // namespace

at::Tensor Head::cross_entropy(const at::Tensor& hidden, const Batch& batch, const Pass& pass,
                               ops::CrossEntropyOptions options) const {
  options.ignore_index = batch.ignore_index;
  options.scale = pass.gradient_scale;
  options.form = form_;
  const ops::Projection projection = vocabulary_.projection(pass);
  return ops::linear_cross_entropy(hidden, projection, batch.targets, options, part_of(vocabulary_),
                                   rows_for(projection, batch));
}

at::Tensor Head::log_probs(const at::Tensor& hidden, const Batch& batch, const Pass& pass) const {
  const ops::Projection projection = vocabulary_.projection(pass);
  return ops::linear_log_probs(hidden, projection, batch.targets,
                               {.ignore_index = batch.ignore_index, .form = form_},
                               part_of(vocabulary_), rows_for(projection, batch));
}

at::Tensor Head::logits(const at::Tensor& hidden, const Pass& pass) const {
  if (vocabulary_.weight().slice)
    throw UserError(
        "this objective needs all logits of a token, but with tensor parallelism ranks share the "
        "vocabulary; train without it");
  const at::Tensor product = vocabulary_.forward(hidden, pass);
  const at::Tensor scaled = form_.scale == 1 ? product : at::mul(product, form_.scale);
  return form_.cap > 0 ? at::mul(at::tanh(at::div(scaled, form_.cap)), form_.cap) : scaled;
}

}  // namespace snug::nn
