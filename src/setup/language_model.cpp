// SPDX-License-Identifier: Apache-2.0
#include "setup/language_model.h"

#include "memory/ledger.h"
#include "setup/vocabulary.h"

namespace snug::setup {

LanguageModel open_language_model(const std::filesystem::path& path, const std::string& precision,
                                  at::Device device, int64_t max_seqlen) {
  models::Checkpoint checkpoint = models::open_checkpoint(path);
  LanguageModel result;
  result.precision = nn::parse_precision(precision);
  result.tokenizer = open_tokenizer(checkpoint);
  for (nn::Parameter* parameter : checkpoint.model->parameters()) {
    parameter->trained = false;
    parameter->allocate(device, result.precision.parameters);
  }
  models::load_weights(checkpoint);
  checkpoint.model->prepare(
      device, max_seqlen > 0 ? max_seqlen : checkpoint.model->dimensions().max_positions);
  result.model = std::move(checkpoint.model);
  result.executor = std::make_unique<exec::Executor>(result.model->units(),
                                                     std::vector<std::unique_ptr<exec::Policy>>(),
                                                     memory::ledger_of(device.type()));
  return result;
}

}  // namespace snug::setup
