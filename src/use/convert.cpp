// snug convert and snug merge: both write a checkpoint as a new model directory or file.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/aminmax.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/abandoned.h"
#include "base/error.h"
#include "base/files.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/memory/ledger.h"
#include "data/dataset.h"
#include "data/prompts.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/gguf_adapter.h"
#include "engine/adapters/merge.h"
#include "engine/export/collect_importance.h"
#include "engine/export/export.h"
#include "engine/export/vocabulary.h"
#include "engine/host.h"
#include "engine/labels.h"
#include "engine/language_model.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/gguf/mix.h"
#include "models/family.h"
#include "report/progress_line.h"
#include "use/commands.h"
#include "use/evaluated_rows.h"
#include "use/modelfile.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;

// The type of most weights in the source; quantized ones become bfloat16.
at::ScalarType source_type(const models::Checkpoint& checkpoint) {
  int64_t bytes_f32 = 0;
  int64_t bytes_f16 = 0;
  for (const files::TensorInfo& tensor : checkpoint.tensors->tensors()) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.dtype == files::DType::F32) bytes_f32 += tensor.nbytes;
    if (tensor.dtype == files::DType::F16) bytes_f16 += tensor.nbytes;
  }
  const int64_t half = checkpoint.tensors->total_bytes() / 2;
  return bytes_f32 > half ? at::kFloat : bytes_f16 > half ? at::kHalf : at::kBFloat16;
}

// `name`: --dtype; empty: the type of most weights in the source.
at::ScalarType weight_type(const std::string& name, const models::Checkpoint& source) {
  if (name.empty()) return source_type(source);
  if (name == "float32" || name == "f32") return at::kFloat;
  if (name == "bfloat16" || name == "bf16") return at::kBFloat16;
  if (name == "float16" || name == "f16") return at::kHalf;
  throw UserError("--dtype {} is unknown; choose float32, bfloat16 or float16", name);
}

bool stays_float32(const models::Model& model, const nn::Parameter& parameter) {
  return files::stays_float32(model.placement(models::Layout::Gguf, parameter).tensor,
                              parameter.shape.size());
}

// A weight that is written, of which one pass is cheap beside reading it. `whole` reads it in
// float32.
at::Tensor finite(at::Tensor value, const nn::Parameter& parameter, const std::string& source,
                  const std::function<at::Tensor()>& whole) {
  const auto is_finite = [](const at::Tensor& numbers) {
    const auto [least, greatest] = at::aminmax(numbers);  // NaN if any is
    return std::isfinite(least.item<float>()) && std::isfinite(greatest.item<float>());
  };
  if (is_finite(value)) return value;
  const std::string where = fmt::format("{}: {}", source, parameter.name);
  if (value.scalar_type() == at::kHalf)
    if (const at::Tensor numbers = whole(); is_finite(numbers))
      engine::check_fits_float16(numbers, where);
  throw UserError(
      "{} holds NaN or infinite numbers; its training diverged, use an earlier checkpoint (snug "
      "verify names files that are damaged)",
      where);
}

// What a GGUF file's name stands for: of a model that sees pictures two files.
std::vector<fs::path> gguf_files(const fs::path& destination, const models::Model& model) {
  if (model.reads().image_size == 0) return {destination};
  return {destination, files::pictures_file(destination)};
}

// Existing files may be those that the conversion reads.
void refuse_to_overwrite(const std::filesystem::path& destination) {
  if (std::filesystem::exists(destination) && !std::filesystem::is_empty(destination))
    throw UserError("{} exists already; give a new or empty folder (for gguf: a new file)",
                    destination.string());
}

std::string format_of(const recipe::ConvertOptions& options) {
  const bool names_gguf = std::filesystem::path(options.destination).extension() == ".gguf";
  for (const char* ending : {".safetensors", ".bin", ".pth", ".pt"})
    if (std::filesystem::path(options.destination).extension() == ending)
      throw UserError(
          "{}: a model in this format is a folder with several files; give a folder (or a name "
          "that "
          "ends in .gguf)",
          options.destination);
  if (options.to == "auto") return names_gguf ? "gguf" : "hf";
  if (names_gguf && options.to != "gguf")
    throw UserError(
        "--to {} writes a folder, but {} is the name of a GGUF file; change one of the two",
        options.to, options.destination);
  return options.to;
}

void check_gguf_type(const recipe::ConvertOptions& options, const std::string& to) {
  const bool from_rows = !options.imatrix_data.empty();
  if (from_rows && !options.imatrix.empty())
    throw UserError("--imatrix {} and --imatrix_data {} both give an importance matrix; give one",
                    options.imatrix, options.imatrix_data);
  if (options.gguf_type.empty() && (from_rows || !options.imatrix.empty()))
    throw UserError("--imatrix{} {} is for quantizing; say how with --gguf_type, such as Q4_K_M",
                    from_rows ? "_data" : "", from_rows ? options.imatrix_data : options.imatrix);
  if (!options.imatrix_out.empty() && !from_rows)
    throw UserError("--imatrix_out {} keeps what --imatrix_data makes; give rows, as there",
                    options.imatrix_out);
  if (fs::exists(options.imatrix_out))
    throw UserError("{} exists already; give another --imatrix_out, or remove it first",
                    options.imatrix_out);
  if (!options.imatrix_out.empty() && fs::weakly_canonical(fs::absolute(options.imatrix_out)) ==
                                          fs::weakly_canonical(fs::absolute(options.destination)))
    throw UserError("--imatrix_out {} is where the model is written; give it a name of its own",
                    options.imatrix_out);
  if (options.gguf_type.empty()) return;
  if (to != "gguf" && to != "ollama")
    throw UserError(
        "--gguf_type {} is for GGUF files; give --to gguf and a destination such as model.gguf, or "
        "--to ollama",
        options.gguf_type);
  if (!options.dtype.empty())
    throw UserError("--gguf_type {} and --dtype {} both say how weights are written; give one",
                    options.gguf_type, options.dtype);
}

// The model is in memory only meanwhile.
files::ImportanceMatrix importance_from_rows(const recipe::ConvertOptions& options) {
  recipe::EvaluateOptions evaluate{.checkpoint_dir = options.source,
                                   .precision = options.precision};
  evaluate.data.json_path = options.imatrix_data;
  const engine::LanguageModel lm = engine::open_language_model(
      options.source, engine::open_device(evaluate.accelerator), {.precision = options.precision});
  const EvaluatedRows rows(evaluate, evaluated_options(evaluate, lm), lm);
  const int64_t count = rows.samples().count();
  const report::ProgressLine progress("rows", static_cast<size_t>(count), true);
  files::ImportanceMatrix matrix = engine::collect_importance(
      *lm.executor, *lm.model, *rows.batches(), count,
      {.micro_batch_size = evaluate.micro_batch_size,
       .compute = lm.precision.compute,
       .progress = [&](int64_t done) { progress.show(static_cast<size_t>(done)); }});
  progress.clear();
  matrix.label = options.imatrix_data;
  std::fprintf(stderr, "importance matrix of %zu weights from %s rows in %.1f s\n",
               matrix.columns.size(), with_commas(count).c_str(), progress.seconds());
  return matrix;
}

// Prompts are those of the fine-tuning where its record lies beside the weights.
void write_modelfile(const fs::path& folder, const recipe::ConvertOptions& options,
                     const tokenizer::Tokenizer& tokenizer, const models::Model& model) {
  std::vector<std::string> gguf;
  for (const fs::path& path : gguf_files(engine::gguf_name(options.destination), model))
    gguf.push_back(path.string());
  const data::TextEncoder encoder = data::make_encoder(tokenizer);
  const auto record = data::read_prompt_record(options.source);
  const auto style = data::PromptStyle::make(record         ? record->style
                                             : encoder.chat ? "chat"
                                                            : "plain",
                                             encoder);
  const auto text_of = [&](int32_t id) {
    return id < 0 ? "" : tokenizer.decode(std::vector{id}, /*skip_special_tokens=*/false);
  };
  write_file_atomically(folder / "Modelfile",
                        modelfile(style, {.gguf = gguf,
                                          .bos = encoder.add_bos ? text_of(encoder.bos) : "",
                                          .stops = {text_of(encoder.eos)},
                                          .system = record ? record->system : ""}));
}

// Programs that read a GGUF file ask by its chat template.
void warn_of_prompt_style(const fs::path& source) {
  const auto record = data::read_prompt_record(source);
  if (!record || record->style == "chat") return;
  warn(
      "the model was fine-tuned with prompt style {}, which a GGUF file cannot say; ask it with "
      "--prompt_style {}, or write a folder for Ollama with --to ollama",
      record->style, record->style);
}

FolderLock lock_destination(const recipe::ConvertOptions& options) {
  return FolderLock(
      {.target = options.destination,
       .place = LockWish::Place::Beside,
       .command = fmt::format("snug convert {} {}", options.source, options.destination),
       .remedy = "give another destination"});
}

fs::path base_of(const std::string& adapter, const std::string& given) {
  return given.empty() ? engine::find_base(adapter) : fs::path(given);
}

// snug's own run.json, in the folder above the adapter's, says whether the base was quantized.
void warn_of_quantized_base(const std::string& adapter) {
  const std::string own = engine::quantizing_options(adapter);
  if (own.empty()) return;
  warn(
      "{} was trained beside quantized weights; this merges it into the original weights of the "
      "base. To merge into the weights that it was trained beside: snug merge {} {}",
      adapter, adapter, own);
}

// A folder or file beside the source.
std::string usual_destination(const recipe::ConvertOptions& options) {
  if (options.to == "auto")
    throw UserError(
        "snug convert {}: say what to write, with a destination or with --to gguf, "
        "hf, litgpt or ollama",
        options.source);
  fs::path source = fs::path(options.source).lexically_normal();
  if (!source.has_filename()) source = source.parent_path();
  if (source.extension() == ".gguf") source.replace_extension();
  return source.string() + (options.to == "gguf" ? ".gguf" : "-" + options.to);
}

// Of a model of several parts.
void leave_other_parts_out(const recipe::ConvertOptions& options, models::Model& model) {
  const std::string type = model.hugging_face_config().value("model_type", "");
  if (model.whole() == nullptr) {
    if (!options.text_only) return;
    throw UserError("{}: snug reads a model of type \"{}\" whole; leave --text_only out",
                    options.source, type);
  }
  std::fprintf(stderr, "of the model the language model alone (%s); left out: %s of other parts\n",
               type.c_str(), model.whole()->others().c_str());
  model.set_whole(nullptr);
}

void convert_model(const recipe::ConvertOptions& options, const std::string& to) {
  const bool makes_gguf = to == "gguf" || to == "ollama";
  const bool is_adapter = engine::is_adapter_directory(options.source);
  const fs::path path = is_adapter ? base_of(options.source, options.pretrained_checkpoint_dir)
                                   : fs::path(options.source);
  const models::Checkpoint checkpoint =
      is_adapter ? engine::open_base(options.source, path) : models::open_checkpoint(path);
  std::optional<checkpoint::Adapter> adapter;
  if (is_adapter) {
    adapter = engine::read_adapter(options.source, *checkpoint.model);
    warn_of_quantized_base(options.source);
  }
  const auto untied = adapter && engine::parts_head(checkpoint, *adapter)
                          ? models::model_with_own_head(*checkpoint.model)
                          : std::unique_ptr<models::Model>();
  models::Model& model = untied ? *untied : *checkpoint.model;
  if (options.text_only || to != "hf") leave_other_parts_out(options, model);
  const auto tokenizer =
      engine::open_tokenizer(checkpoint, is_adapter ? options.source : std::string());
  const at::ScalarType type = weight_type(options.dtype, checkpoint);
  std::optional<files::ImportanceMatrix> importance;
  if (!options.imatrix.empty()) importance = files::read_importance(options.imatrix);
  if (!options.imatrix_data.empty()) importance = importance_from_rows(options);
  if (!options.imatrix_out.empty()) files::write_importance(*importance, options.imatrix_out);
  const auto value_in = [&](const nn::Parameter& parameter, at::ScalarType as) {
    return adapter ? engine::merged_reader(checkpoint, *adapter, as)(parameter)
                   : models::read_parameter(checkpoint, parameter, as);
  };
  const auto read = [&](const nn::Parameter& parameter) {
    const bool quantizes = !options.gguf_type.empty();
    const at::ScalarType own = makes_gguf && stays_float32(model, parameter) ? at::kFloat
                               : !quantizes                                  ? type
                               : adapter                                     ? at::kFloat
                                         : models::stored_type(checkpoint, parameter);
    return finite(value_in(parameter, own), parameter, options.source,
                  [&] { return value_in(parameter, at::kFloat); });
  };
  const FolderLock lock = lock_destination(options);
  const std::vector<fs::path> written = to == "gguf" ? gguf_files(options.destination, model)
                                                     : std::vector<fs::path>{options.destination};
  for (const fs::path& file : written) {
    refuse_to_overwrite(file);  // another conversion may have finished meanwhile
    remove_abandoned_versions(file);
  }
  if (to == "gguf") warn_of_prompt_style(options.source);
  const engine::ExportOptions export_options{.dtype = type,
                                             .gguf_type = options.gguf_type,
                                             .importance = importance ? &*importance : nullptr,
                                             .processor = path,
                                             .add = [&](const fs::path& folder) {
                                               if (to == "ollama")
                                                 write_modelfile(folder, options, *tokenizer,
                                                                 model);
                                               else
                                                 data::copy_prompt_record(options.source, folder);
                                             }};
  if (to == "hf")
    engine::export_hugging_face(options.destination, model, tokenizer.get(), read, export_options);
  else if (to == "litgpt")
    engine::export_litgpt(options.destination, model, *tokenizer, read, export_options);
  else if (to == "gguf")
    engine::export_gguf(options.destination, model, *tokenizer, read, export_options);
  else if (to == "ollama")
    engine::export_gguf_directory(options.destination, model, *tokenizer, read, export_options);
  else
    throw UserError("--to {} is unknown; choose hf, litgpt, gguf or ollama", to);
  if (adapter)
    std::fprintf(stderr, "merged the adapter into %zu weights of %s\n", adapter->modules.size(),
                 path.c_str());
  for (const fs::path& file : written) std::printf("%s\n", file.c_str());
  if (to == "ollama")
    std::fprintf(stderr, "Then: ollama create %s -f %s\n",
                 fs::path(options.destination).filename().c_str(),
                 (fs::path(options.destination) / "Modelfile").c_str());
}

// As a GGUF adapter beside its base.
void convert_adapter(const recipe::ConvertOptions& options) {
  const models::Checkpoint base =
      engine::open_base(options.source, base_of(options.source, options.pretrained_checkpoint_dir));
  const checkpoint::Adapter adapter = engine::read_adapter(options.source, *base.model);
  const FolderLock lock = lock_destination(options);
  refuse_to_overwrite(options.destination);
  remove_abandoned_versions(options.destination);
  engine::export_gguf_adapter(options.destination, base, adapter, options.source,
                              weight_type(options.dtype.empty() ? "float32" : options.dtype, base));
  std::printf("%s\n", options.destination.c_str());
}

}  // namespace

void convert(const recipe::ConvertOptions& given) {
  recipe::ConvertOptions options = given;
  if (options.destination.empty()) options.destination = usual_destination(options);
  const std::string to = format_of(options);
  check_gguf_type(options, to);
  memory::install_allocators();
  refuse_to_overwrite(options.destination);
  const bool is_adapter = engine::is_adapter_directory(options.source);
  if (!is_adapter && !options.pretrained_checkpoint_dir.empty())
    throw UserError("--pretrained_checkpoint_dir is for adapters, and {} is not one; leave it out",
                    options.source);
  if (options.text_only && (is_adapter || !options.imatrix_data.empty()))
    throw UserError("--text_only takes a model{}; leave it out",
                    is_adapter ? fmt::format(", and {} is an adapter", options.source)
                               : ", and no --imatrix_data: convert to a directory first");
  const bool stays_adapter = is_adapter && to == "gguf" && options.gguf_type.empty();
  stays_adapter ? convert_adapter(options) : convert_model(options, to);
}

namespace {

// Beside the adapter by default; never overwrites anything.
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

}  // namespace

void merge(const recipe::MergeOptions& options) {
  memory::install_allocators();
  const fs::path destination = destination_of(options);
  const fs::path base_path = base_of(options.checkpoint_dir, options.pretrained_checkpoint_dir);
  const models::Checkpoint base = engine::open_base(options.checkpoint_dir, base_path);
  const checkpoint::Adapter adapter = engine::read_adapter(options.checkpoint_dir, *base.model);
  recipe::Recipe run;
  run.quantize = options.quantize;
  run.precision = options.precision;
  engine::quantize_weights(*base.model, run);
  if (options.quantize.empty()) warn_of_quantized_base(options.checkpoint_dir);
  const auto tokenizer = engine::open_tokenizer(base, options.checkpoint_dir);
  const at::ScalarType type = weight_type(options.dtype, base);
  const auto untied = engine::parts_head(base, adapter) ? models::model_with_own_head(*base.model)
                                                        : std::unique_ptr<models::Model>();
  const FolderLock lock({.target = destination,
                         .place = LockWish::Place::Beside,
                         .command = "snug merge " + options.checkpoint_dir});
  destination_of(options);  // another merge may have finished meanwhile
  engine::export_hugging_face(
      destination, untied ? *untied : *base.model, tokenizer.get(),
      [&, merged = engine::merged_reader(base, adapter, type)](const nn::Parameter& parameter) {
        return finite(merged(parameter), parameter, base_path,
                      [&] { return engine::merged_reader(base, adapter, at::kFloat)(parameter); });
      },
      {.dtype = type, .processor = base_path, .add = [&](const fs::path& folder) {
         data::copy_prompt_record(options.checkpoint_dir, folder);
       }});
  std::fprintf(
      stderr, "merged the adapter into %zu weights of %s%s\n", adapter.modules.size(),
      base_path.c_str(),
      untied ? " (the head, which shared its weight with the embedding, now has its own)" : "");
  std::printf("%s\n", destination.c_str());
}

}  // namespace snug::use
