// SPDX-License-Identifier: Apache-2.0
#include "engine/asked/asked_model.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace snug::engine {
namespace {

std::set<int32_t> tokens_of(const data::Dataset& dataset) {
  std::set<int32_t> tokens;
  for (const data::SampleStore* samples : {&dataset.train, &dataset.validation})
    for (int64_t i = 0; i < samples->num_different(); ++i)
      for (const int32_t stored : samples->stored_ids(i))
        tokens.insert(stored < 0 ? ~stored : stored);
  return tokens;
}

// Of the ids that both have. Reserved ones may have other names, so some differ within a family.
bool are_of_one_family(const tokenizer::Tokenizer& a, const tokenizer::Tokenizer& b) {
  const auto ids = static_cast<int32_t>(std::min(a.vocabulary_size(), b.vocabulary_size()));
  int32_t others = 0;
  for (int32_t id = 0; id < ids; ++id) others += a.id_to_token(id) != b.id_to_token(id);
  return others <= ids / 100;
}

}  // namespace

LanguageModel open_asked_model(const AskedModelOptions& options, at::Device device,
                               const tokenizer::Tokenizer& own, const data::Dataset& dataset) {
  const auto refuse = [&](const std::string& why) {
    throw UserError("{} = {}: {}", options.option, options.path, why);
  };
  LanguageModel asked = open_language_model(options.path, device,
                                            {.precision = options.precision, .data = options.data});
  const data::Reading reads = asked.model->reads();
  if (reads.source || reads.image_size > 0)
    refuse("a model with an encoder, or that looks at pictures, cannot be asked about texts");
  if (!reads.shares_rows() && dataset.train.shares_prompts())
    refuse("it cannot read a prompt once for two answers; give --objective.share_prompt false");
  const int64_t vocabulary = asked.model->dimensions().vocabulary;
  for (const int32_t token : tokens_of(dataset)) {
    const std::string ours = own.id_to_token(token);
    if (token >= vocabulary || asked.tokenizer->id_to_token(token) != ours)
      refuse(
          fmt::format("it has another tokenizer, in which token {} is not \"{}\"; take a model "
                      "of the same family",
                      token, ours));
  }
  if (!are_of_one_family(own, *asked.tokenizer))
    refuse("it has another tokenizer; take a model of the same family");
  return asked;
}

}  // namespace snug::engine
