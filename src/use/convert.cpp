// SPDX-License-Identifier: Apache-2.0
#include "use/commands.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/folder_lock.h"
#include "core/memory/ledger.h"
#include "data/prompts.h"
#include "engine/export/export.h"
#include "engine/export/vocabulary.h"
#include "models/family.h"
#include "use/weight_type.h"

namespace snug::use {
namespace {

// A conversion makes something new; what is there may be what it reads.
void refuse_to_overwrite(const std::filesystem::path& destination) {
  if (std::filesystem::exists(destination) && !std::filesystem::is_empty(destination))
    throw UserError("{} exists already; give a new or empty folder (for gguf: a new file)",
                    destination.string());
}

std::string format_of(const recipe::ConvertOptions& options) {
  const bool names_gguf = std::filesystem::path(options.destination).extension() == ".gguf";
  if (options.to == "auto") return names_gguf ? "gguf" : "hf";
  if (names_gguf && options.to != "gguf")
    throw UserError(
        "--to {} writes a folder, but {} is the name of a GGUF file; change one of the two",
        options.to, options.destination);
  return options.to;
}

}  // namespace

void convert(const recipe::ConvertOptions& options) {
  const std::string to = format_of(options);
  memory::install_allocators();
  refuse_to_overwrite(options.destination);
  models::Checkpoint checkpoint = models::open_checkpoint(options.source);
  const auto tokenizer = engine::open_tokenizer(checkpoint);
  const at::ScalarType type = weight_type(options.dtype, checkpoint);
  const auto read = [&](const nn::Parameter& parameter) {
    const bool stays_float = to == "gguf" && parameter.shape.size() == 1;
    return models::read_parameter(checkpoint, parameter, stays_float ? at::kFloat : type);
  };
  const FolderLock lock(
      {.target = options.destination,
       .place = LockWish::Place::Beside,
       .command = fmt::format("snug convert {} {}", options.source, options.destination),
       .remedy = "give another destination"});
  refuse_to_overwrite(options.destination);  // another conversion may have ended there meanwhile
  const engine::ExportOptions export_options{.dtype = type, .processor = options.source};
  if (to == "hf")
    engine::export_hugging_face(options.destination, *checkpoint.model, tokenizer.get(), read,
                                export_options);
  else if (to == "litgpt")
    engine::export_litgpt(options.destination, *checkpoint.model, *tokenizer, read, export_options);
  else if (to == "gguf")
    engine::export_gguf(options.destination, *checkpoint.model, *tokenizer, read, export_options);
  else
    throw UserError("--to {} is unknown; choose hf, litgpt or gguf", to);
  if (to != "gguf") data::copy_prompt_record(options.source, options.destination);
  std::printf("%s\n", options.destination.c_str());
}

}  // namespace snug::use
