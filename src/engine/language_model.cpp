// SPDX-License-Identifier: Apache-2.0
#include "engine/language_model.h"

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "core/memory/ledger.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/merge.h"
#include "engine/export/vocabulary.h"
#include "engine/labels.h"
#include "models/quantized_folder.h"

namespace snug::engine {
namespace {

// Weights that replace the base's, by parameter.
using OwnWeights = std::map<std::string, at::Tensor>;

// Whether a weight was trained beside the adapter, rather than only stored with it.
bool is_trained(const checkpoint::Adapter& adapter, const std::string& name) {
  const std::string module = name.substr(0, name.rfind('.'));
  return !adapter.config.modules_to_save.empty() && !adapter.modules.contains(module);
}

// The weights trained beside an adapter, where they differ from the base's. Other weights that the
// adapter brings must equal the base's, as must those of a head that shares the embedding's; if
// several adapters share the base in memory, all must.
OwnWeights own_weights(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                       const std::string& directory, bool is_alone) {
  std::set<std::string> parameters;
  for (const nn::Parameter* parameter : base.model->parameters())
    parameters.insert(parameter->name);
  OwnWeights own = changed_base_weights(base, adapter);
  const bool parted = parts_head(base, adapter);
  std::set<std::string> shared;  // an embedding and the head that has its weight
  for (const nn::Linear* linear : linears_of(*base.model))
    if (linear->is_tied()) {
      shared.insert(linear->weight().name);
      if (!parted) own.erase(linear->name() + ".weight");  // a copy of the embedding's
    }
  for (const auto& [name, _] : own)
    if ((parted && shared.contains(name)) || !is_alone || !is_trained(adapter, name) ||
        !parameters.contains(name))
      throw UserError("{}: its {} differs from that of {}; snug merge {} makes one model of both",
                      directory, name, base.path.string(), directory);
  return own;
}

std::shared_ptr<nn::Adapter> load(const std::string& layer, const checkpoint::ModuleAdapter& parts,
                                  at::Device device, at::ScalarType type) {
  auto adapter = std::make_shared<nn::Adapter>(
      layer, parts.in_features(), parts.out_features(),
      nn::AdapterOptions{
          .rank = parts.rank(), .scaling = parts.scaling, .magnitude = parts.magnitude.defined()});
  const auto fill = [&](nn::Parameter& parameter, const at::Tensor& value) {
    parameter.trained = false;
    parameter.allocate(device, type);
    parameter.value.detach().copy_(value);
  };
  fill(adapter->a, parts.a);
  fill(adapter->b, parts.b);
  if (parts.magnitude.defined()) fill(adapter->magnitude, parts.magnitude);
  return adapter;
}

LoadedAdapter load_layers(const checkpoint::Adapter& adapter, const std::string& directory,
                          at::Device device, at::ScalarType type) {
  LoadedAdapter loaded{.name = directory, .layers = {}};
  for (const auto& [layer, parts] : adapter.modules)
    loaded.layers[layer] = load(layer, parts, device, type);
  return loaded;
}

}  // namespace

void LanguageModel::use(const LoadedAdapter& adapter) const {
  for (nn::Linear* linear : linears_of(*model)) {
    const auto own = adapter.layers.find(linear->name());
    linear->set_adapter(own == adapter.layers.end() ? nullptr : own->second);
  }
}

std::string plain_precision(const std::string& precision) {
  switch (nn::parse_precision(precision).compute) {
    case at::kBFloat16:
      return "bf16-true";
    case at::kHalf:
      return "16-true";
    default:
      return "32-true";
  }
}

LanguageModel open_language_model(const std::filesystem::path& path, at::Device device,
                                  const LanguageModelOptions& options) {
  const bool is_adapter = is_adapter_directory(path);
  std::vector<std::string> directories = options.adapters;
  if (is_adapter) directories.insert(directories.begin(), path.string());
  const std::filesystem::path base = is_adapter ? find_base(path) : path;
  models::Checkpoint checkpoint =
      directories.empty() ? models::open_checkpoint(base) : open_base(directories.front(), base);
  if (!options.takes_scores && !checkpoint.model->labels().empty())
    throw UserError(
        "{}: this model scores documents ({}) and writes no text; snug evaluate measures it on "
        "rows",
        path.string(),
        checkpoint.model->labels().size() == 1
            ? "a reward"
            : fmt::format("{} labels", checkpoint.model->labels().size()));
  const std::string quantize = options.quantize == "auto"   ? models::stored_quantization(base)
                               : options.quantize == "none" ? ""
                                                            : options.quantize;
  LanguageModel result;
  result.path = checkpoint.path;
  result.precision = nn::parse_precision(options.precision);
  result.tokenizer =
      open_tokenizer(checkpoint, directories.empty() ? std::string() : directories.front(),
                     options.data != nullptr ? *options.data : recipe::DataOptions{});
  // Checks that the adapter fits before a large model is read.
  OwnWeights own;
  for (const std::string& directory : directories) {
    const checkpoint::Adapter adapter = read_adapter(directory, *checkpoint.model);
    own = own_weights(checkpoint, adapter, directory, directories.size() == 1);
    if (const std::string quantized = quantizing_options(directory);
        !quantized.empty() && quantize.empty())
      warn(
          "{} was trained beside quantized weights, and is used beside the original ones of the "
          "base; {} gives what it was trained with",
          directory, quantized);
    result.adapters.push_back(load_layers(adapter, directory, device, result.precision.parameters));
  }
  recipe::Recipe recipe;
  recipe.quantize = quantize;
  recipe.precision = options.precision;
  quantize_weights(*checkpoint.model, recipe);
  for (nn::Parameter* parameter : checkpoint.model->parameters()) {
    parameter->trained = false;
    // It was trained in full, so it is not quantized.
    if (own.contains(parameter->name)) parameter->quantization.reset();
    parameter->allocate(device, result.precision.parameters);
  }
  models::load_weights(checkpoint);
  for (nn::Parameter* parameter : checkpoint.model->parameters())
    if (const auto found = own.find(parameter->name); found != own.end())
      parameter->value.detach().copy_(found->second);
  checkpoint.model->prepare(device, options.max_seqlen > 0
                                        ? options.max_seqlen
                                        : checkpoint.model->dimensions().max_positions);
  result.model = std::move(checkpoint.model);
  result.executor = std::make_unique<exec::Executor>(result.model->units(), exec::Policies(),
                                                     memory::ledger_of(device.type()));
  if (!result.adapters.empty()) result.use(result.adapters.front());
  return result;
}

}  // namespace snug::engine
