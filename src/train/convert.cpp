// SPDX-License-Identifier: Apache-2.0
#include "train/convert.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "memory/ledger.h"
#include "models/family.h"
#include "setup/export.h"
#include "setup/vocabulary.h"
#include "train/weight_type.h"

namespace snug::train {
namespace {

// A conversion makes something new; what is there may be what it reads.
void refuse_to_overwrite(const std::filesystem::path& destination) {
  if (std::filesystem::exists(destination) && !std::filesystem::is_empty(destination))
    throw UserError("{} is there already; name a new or an empty folder (or file, for gguf)",
                    destination.string());
}

}  // namespace

void convert(const config::ConvertOptions& options) {
  memory::install_allocators();
  refuse_to_overwrite(options.destination);
  models::Checkpoint checkpoint = models::open_checkpoint(options.source);
  const auto tokenizer = setup::open_tokenizer(checkpoint);
  const at::ScalarType type = weight_type(options.dtype, checkpoint);
  const auto read = [&](const nn::Parameter& parameter) {
    const bool stays_float = options.to == "gguf" && parameter.shape.size() == 1;
    return models::read_parameter(checkpoint, parameter, stays_float ? at::kFloat : type);
  };
  const setup::ExportOptions export_options{.dtype = type, .processor = options.source};
  if (options.to == "hf")
    setup::export_hugging_face(options.destination, *checkpoint.model, tokenizer.get(), read,
                               export_options);
  else if (options.to == "litgpt")
    setup::export_litgpt(options.destination, *checkpoint.model, *tokenizer, read, export_options);
  else if (options.to == "gguf")
    setup::export_gguf(options.destination, *checkpoint.model, *tokenizer, read, export_options);
  else
    throw UserError("--to {} is unknown; choose hf, litgpt or gguf", options.to);
  std::printf("%s\n", options.destination.c_str());
}

}  // namespace snug::train
