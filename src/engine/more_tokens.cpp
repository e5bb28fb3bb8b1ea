// SPDX-License-Identifier: Apache-2.0
#include "engine/more_tokens.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "engine/adapters/adapters.h"
#include "engine/export/vocabulary.h"
#include "files/checkpoint/adapters/peft_adapter.h"

namespace snug::engine {

void add_tokens(models::Checkpoint& checkpoint, const recipe::Recipe& recipe,
                const tokenizer::Tokenizer* tokenizer) {
  const std::string& tokens = recipe.data.add_tokens;
  if (tokens.empty()) return;
  if (!recipe.lora.adapter.empty())
    throw UserError(
        "tokens.add = {}: the adapter {} trains on with the tokens that it has; snug merge {} "
        "makes a model of it, which takes more",
        tokens, recipe.lora.adapter, recipe.lora.adapter);
  int64_t rows = checkpoint.model->dimensions().vocabulary;
  if (tokenizer == nullptr)
    rows += std::ssize(changes_of(recipe.data).tokens);
  else if (tokenizer->num_new_tokens() > 0)
    rows = std::max(rows, tokenizer->vocabulary_size());
  else if (recipe.lora.enabled)
    warn(
        "tokens.add = {}: the vocabulary has them all, and embedding and head train whole for "
        "them; leave it out unless that is what you want",
        tokens);
  models::grow_vocabulary(checkpoint, rows);
}

void add_tokens_of_adapter(models::Checkpoint& checkpoint, const std::filesystem::path& adapter) {
  if (!checkpoint::is_peft_directory(adapter)) return;
  const std::vector<nn::Parameter*> parameters = models::vocabulary_parameters(*checkpoint.model);
  if (parameters.empty()) return;
  const nn::Parameter& table = *parameters.front();
  const std::vector<int64_t> shape = checkpoint::base_weight_shape(adapter, table.name);
  if (shape.size() == 2 && shape[1] == table.whole_shape()[1])
    models::grow_vocabulary(checkpoint, shape[0]);
}

void train_vocabulary(models::Model& model) {
  const std::vector<nn::Linear*> linears = linears_of(model);
  for (nn::Linear* linear : linears)
    if (linear->role() == nn::Role::Head) linear->set_adapter(nullptr);
  for (nn::Parameter* parameter : models::vocabulary_parameters(model)) parameter->trained = true;
  if (std::ranges::all_of(linears, [](nn::Linear* linear) { return linear->adapter() == nullptr; }))
    throw UserError(
        "tokens.add: the head trains whole beside new tokens, and no other layer gets an adapter; "
        "name other layers in lora_target_modules");
}

}  // namespace snug::engine
