// SPDX-License-Identifier: Apache-2.0
#include "use/commands.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "core/memory/ledger.h"
#include "data/prompts.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/merge.h"
#include "engine/export/export.h"
#include "engine/export/vocabulary.h"
#include "models/family.h"
#include "use/weight_type.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;

// Beside the adapter unless told otherwise, and never over something that is there.
fs::path destination_of(const recipe::MergeOptions& options) {
  fs::path adapter = fs::path(options.checkpoint_dir).lexically_normal();
  if (!adapter.has_filename()) adapter = adapter.parent_path();
  fs::path destination = options.out_dir;
  if (destination.empty()) destination = adapter.string() + "-merged";
  if (fs::exists(destination) && !(fs::is_directory(destination) && fs::is_empty(destination)))
    throw UserError("{} exists already; give a new or empty folder with --out_dir",
                    destination.string());
  return destination;
}

fs::path base_of(const recipe::MergeOptions& options) {
  if (!options.pretrained_checkpoint_dir.empty()) return options.pretrained_checkpoint_dir;
  return engine::find_base(options.checkpoint_dir);
}

// A run of ours tells how it saw its base, in the folder that holds the adapter's.
void warn_of_quantized_base(const recipe::MergeOptions& options) {
  const fs::path record = fs::absolute(options.checkpoint_dir).lexically_normal() / "../run.json";
  std::error_code ignored;
  if (!options.quantize.empty() || !fs::exists(record, ignored)) return;
  const auto run = nlohmann::json::parse(read_file(record, size_t{1} << 28), nullptr,
                                         /*allow_exceptions=*/false);
  const auto recipe = run.is_object() ? run.value("recipe", nlohmann::json()) : nlohmann::json();
  if (!recipe.is_object() || !recipe.value("quantize", nlohmann::json()).is_string()) return;
  const std::string format = recipe["quantize"];
  if (format.empty() || format == "none") return;
  warn(
      "{} was trained beside weights in {}; this merges it into the original weights of the base. "
      "To merge into the weights that it was trained beside: --quantize {} --precision {}",
      options.checkpoint_dir, format, format, recipe.value("precision", std::string("bf16-true")));
}

}  // namespace

void merge(const recipe::MergeOptions& options) {
  memory::install_allocators();
  const fs::path destination = destination_of(options);
  const fs::path base_path = base_of(options);
  const models::Checkpoint base = models::open_checkpoint(base_path);
  const checkpoint::Adapter adapter = engine::read_adapter(options.checkpoint_dir, *base.model);
  recipe::Recipe run;
  run.quantize = options.quantize;
  run.precision = options.precision;
  engine::quantize_weights(*base.model, run);
  warn_of_quantized_base(options);
  const auto tokenizer = engine::open_tokenizer(base);
  const at::ScalarType type = weight_type(options.dtype, base);
  const auto untied = engine::parts_head(base, adapter) ? models::model_with_own_head(*base.model)
                                                        : std::unique_ptr<models::Model>();
  const FolderLock lock({.target = destination,
                         .place = LockWish::Place::Beside,
                         .command = "snug merge " + options.checkpoint_dir});
  destination_of(options);  // another merge may have ended there meanwhile
  engine::export_hugging_face(destination, untied ? *untied : *base.model, tokenizer.get(),
                              engine::merged_reader(base, adapter, type),
                              {.dtype = type, .processor = base_path});
  data::copy_prompt_record(options.checkpoint_dir, destination);
  std::fprintf(
      stderr, "%zu weights of %s with the adapter%s, in\n", adapter.modules.size(),
      base_path.c_str(),
      untied ? " (the head, which shared its weight with the embedding, now has its own)" : "");
  std::printf("%s\n", destination.c_str());
}

}  // namespace snug::use
