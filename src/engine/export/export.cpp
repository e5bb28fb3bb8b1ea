// SPDX-License-Identifier: Apache-2.0
#include "engine/export/export.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/export/processor_files.h"
#include "engine/export/vocabulary.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/checksums.h"
#include "files/weights/byte_reader.h"
#include "files/weights/convert.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/gguf/mix.h"
#include "files/weights/pth/pth.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "text/tokenizer/gguf/gguf.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;

// About as many besides the weights: the config, the generation's and the tokenizer's.
constexpr int64_t kSmallFiles = 5;

using checkpoint::bytes_of;
using checkpoint::dtype_of;
using nlohmann::json;

const char* torch_name(at::ScalarType type) {
  return type == at::kFloat ? "float32" : type == at::kBFloat16 ? "bfloat16" : "float16";
}

struct Part {
  const nn::Parameter* parameter;
  std::optional<at::ScalarType> type;  // none: as it was read
  models::Placement place;
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// Each tensor of the file with the parameters it is made of, in file order.
struct FileTensors {
  std::vector<files::TensorInfo> infos;
  std::map<std::string, std::vector<Part>> parts;
};

FileTensors arrange(models::Model& model, models::Layout layout,
                    std::optional<at::ScalarType> type) {
  FileTensors result;
  std::vector<std::string> order;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->is_added()) continue;
    const models::Placement place = model.placement(layout, *parameter);
    const bool stays_float = layout == models::Layout::Gguf &&
                             files::stays_float32(place.tensor, parameter->shape.size());
    const int64_t rows = parameter->whole_shape()[0] / (place.second_half.empty() ? 1 : 2);
    const auto add = [&](const std::string& tensor, int64_t first_row) {
      auto& parts = result.parts[tensor];
      if (parts.empty()) order.push_back(tensor);
      // Units list q, k, v in the order in which they are fused.
      parts.push_back(
          {parameter, stays_float ? std::optional(at::kFloat) : type, place, first_row, rows});
    };
    add(place.tensor, 0);
    if (!place.second_half.empty()) add(place.second_half, rows);
  }
  for (const std::string& name : order) {
    const auto& parts = result.parts[name];
    const Part& first = parts.front();
    std::vector<int64_t> shape =
        first.place.shape.empty() ? first.parameter->whole_shape() : first.place.shape;
    if (first.place.shape.empty()) shape[0] = first.num_rows;
    if (first.place.stacked == 0)
      for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].num_rows;
    if (first.place.transposed) std::ranges::reverse(shape);
    if (first.place.stacked > 0) shape.insert(shape.begin(), first.place.stacked);
    result.infos.push_back(
        files::make_tensor_info(name, dtype_of(first.type.value_or(at::kFloat)), shape));
  }
  return result;
}

// A tensor of the file, put together from its parameters.
at::Tensor value_of(const Part& part, const ParameterReader& read) {
  at::Tensor value = read(*part.parameter).detach().narrow(0, part.first_row, part.num_rows);
  value = (part.type ? value.to(*part.type) : value).contiguous();
  if (part.place.added != 0) value = value.add(part.place.added);
  value = models::in_order(part.place.order, value);
  return part.place.transposed ? value.t().contiguous() : value;
}

at::Tensor value_of(const std::vector<Part>& parts, const ParameterReader& read) {
  at::Tensor first = value_of(parts.front(), read);
  if (parts.size() == 1) return first;
  if (const int64_t count = parts.front().place.stacked; count > 0) {
    // One by one: together they may be gigabytes.
    std::vector<int64_t> shape = first.sizes().vec();
    shape.insert(shape.begin(), count);
    at::Tensor stack = at::empty(shape, first.options());
    stack.select(0, parts.front().place.index).copy_(std::exchange(first, {}));
    for (size_t i = 1; i < parts.size(); ++i)
      stack.select(0, parts[i].place.index).copy_(value_of(parts[i], read));
    return stack;
  }
  std::vector<at::Tensor> values{first};
  for (size_t i = 1; i < parts.size(); ++i) values.push_back(value_of(parts[i], read));
  return at::cat(values);
}

// Reads one file tensor at a time; the span is valid until the next call.
files::TensorBytes byte_source(const FileTensors& tensors, const ParameterReader& read) {
  return [&tensors, read, held = at::Tensor()](const files::TensorInfo& info) mutable {
    held.reset();
    held = value_of(tensors.parts.at(info.name), read);
    return bytes_of(held);
  };
}

// Quantizes whole rows.
void quantize_rows(files::DType from, const std::byte* in, files::DType to, std::byte* out,
                   int64_t count, std::span<const float> importance) {
  const int64_t columns = std::ssize(importance);
  std::vector<float> row(importance.size());
  for (int64_t at = 0; at < count; at += columns) {
    files::to_f32(from, in + files::bytes_for(from, at), row.data(), columns);
    files::quantize(to, row.data(), out + files::bytes_for(to, at), columns, importance.data());
  }
}

// Writes `value` in the tensor's type, converted by all processors a stretch at a time, so that
// memory holds the tensor as it was read and little else. `importance`: of its columns, or null.
void write_converted(files::GgufWriter& out, const files::TensorInfo& info, const at::Tensor& value,
                     const float* importance) {
  const files::DType from = dtype_of(value);
  if (from == info.dtype) return out.write(info.name, bytes_of(value));
  // Whole blocks of every type, or whole rows.
  const int64_t unit = importance == nullptr ? 1 << 14 : info.shape.back();
  const int64_t longest = std::max<int64_t>(1, (1 << 22) / unit) * unit;
  std::vector<std::byte> stretch;
  for (int64_t begin = 0; begin < value.numel(); begin += longest) {
    const int64_t count = std::min(longest, value.numel() - begin);
    const std::byte* in = bytes_of(value).data() + files::bytes_for(from, begin);
    stretch.resize(static_cast<size_t>(files::bytes_for(info.dtype, count)));
    at::parallel_for(0, (count + unit - 1) / unit, 1, [&](int64_t first, int64_t last) {
      const int64_t at = first * unit, own = std::min(count, last * unit) - at;
      const std::byte* from_here = in + files::bytes_for(from, at);
      std::byte* to_here = stretch.data() + files::bytes_for(info.dtype, at);
      if (importance == nullptr)
        files::convert(from, from_here, info.dtype, to_here, own);
      else
        quantize_rows(from, from_here, info.dtype, to_here, own,
                      {importance, static_cast<size_t>(unit)});
    });
    out.write(info.name, stretch);
  }
}

// The entry of a tensor that will be quantized, else null.
const float* importance_of(const files::TensorInfo& info, const ExportOptions& options) {
  const bool takes_one = options.importance != nullptr && files::is_quantized(info.dtype);
  return takes_one ? options.importance->find(info) : nullptr;
}

// Refuses a matrix of another model, before anything is written; says which tensors have no entry.
// That a head or an embedding has none is usual.
void check_importance(const std::vector<files::TensorInfo>& tensors, const ExportOptions& options) {
  int64_t num_known = 0;
  std::vector<std::string> missing;
  for (const files::TensorInfo& info : tensors) {
    if (!files::is_quantized(info.dtype)) continue;
    if (importance_of(info, options) != nullptr)
      ++num_known;
    else if (info.name.starts_with("blk."))
      missing.push_back(info.name);
  }
  const std::string& label = options.importance->label;
  if (num_known == 0)
    throw UserError(
        "{}: none of its {} entries belongs to a tensor that is quantized; its first is {}, the "
        "model's first {}",
        label, options.importance->columns.size(), options.importance->columns.begin()->first,
        tensors.front().name);
  if (!missing.empty())
    warn("{} has no entry for {} matrices, which are quantized without, the first {}", label,
         missing.size(), missing.front());
}

// Whether a model directory may contain this file. Other files are the user's and are not deleted.
bool is_model_file(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string suffix = path.extension().string();
  const bool known = suffix == ".json" || suffix == ".safetensors" || suffix == ".model" ||
                     suffix == ".jinja" || name == "merges.txt" || name == "lit_model.pth" ||
                     name == "model_config.yaml";
  return known && fs::is_regular_file(path);
}

void refuse_foreign_files(const fs::path& directory) {
  if (!fs::exists(directory)) return;
  if (!fs::is_directory(directory))
    throw UserError("{} is a file; name a new folder", directory.string());
  for (const auto& entry : fs::directory_iterator(directory))
    if (!is_model_file(entry.path()))
      throw UserError("{} contains {}, which is not a model file; name a new or an empty folder",
                      directory.string(), entry.path().filename().string());
}

// Turns "model/" and "." into the folder's own name.
fs::path whole_name(const fs::path& wanted) {
  const fs::path directory = fs::absolute(wanted).lexically_normal();
  return directory.has_filename() ? directory : directory.parent_path();
}

// Temporary names of a directory being written and of the one it replaces, unlikely to be used
// otherwise.
fs::path hidden(const fs::path& directory, const char* ending) {
  return directory.parent_path() / fmt::format(".{}.{}", directory.filename().string(), ending);
}
fs::path new_name(const fs::path& directory) { return hidden(directory, "new"); }
fs::path old_name(const fs::path& directory) { return hidden(directory, "replaced"); }

// Fills a temporary directory through `fill` and `add`, then renames it into place. The old one is
// deleted last.
void replace_directory(const fs::path& wanted, const AddFiles& fill, const AddFiles& add) {
  const fs::path directory = whole_name(wanted);
  refuse_foreign_files(directory);
  const fs::path temporary = new_name(directory), old = old_name(directory);
  finish_replacing(directory);  // an earlier attempt may have moved the old one away
  try {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    fill(temporary);
    if (add) add(temporary);
    files::write_checksums(temporary);
    fs::remove_all(old);
    if (fs::exists(directory)) fs::rename(directory, old);
    fs::rename(temporary, directory);
    sync_path(directory.parent_path());
    fs::remove_all(old);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw UserError("cannot write {}: {}", directory.string(), error.what());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void write_json(const fs::path& path, const json& value) {
  write_file_atomically(path, value.dump(2) + "\n");
}

// The model's config.json; special tokens that it lacks come from the tokenizer.
json config_of(const models::Model& model, const tokenizer::Tokenizer* tokenizer) {
  json config = model.hugging_face_config();
  if (tokenizer == nullptr) return config;
  json& language = config.contains("text_config") ? config["text_config"] : config;
  const auto fill = [&language](const char* key, int32_t id) {
    if (id >= 0 && language.value(key, json()).is_null()) language[key] = id;
  };
  fill("bos_token_id", tokenizer->special().bos);
  fill("eos_token_id", tokenizer->special().eos);
  return config;
}

json generation_config(const json& config) {
  json out{{"_from_model_config", true}};
  const json& language = config.contains("text_config") ? config["text_config"] : config;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
    if (language.contains(key) && !language[key].is_null()) out[key] = language[key];
  return out;
}

// general.file_type: the type of most weights.
uint32_t gguf_file_type(at::ScalarType type) {
  return type == at::kFloat ? 0 : type == at::kHalf ? 1 : 32;
}

// Adds special tokens that only config.json knows, and a chat model's end-of-turn token if it
// differs from the end-of-text token.
void add_ids_of_config(const json& config, tokenizer::GgufVocabulary& vocabulary,
                       files::GgufWriter& out) {
  const auto ids = [&](const char* key) {
    std::vector<int32_t> found;
    const json value = config.value(key, json());
    for (const json& id : value.is_array() ? value : json::array({value})) {
      if (!id.is_number_integer()) continue;
      const auto number = id.get<int64_t>();
      const bool known = number >= 0 && number < std::ssize(vocabulary.token_types) &&
                         vocabulary.token_types[number] != tokenizer::kNormal;
      if (known) found.push_back(static_cast<int32_t>(number));
    }
    return found;
  };
  const auto fill = [](int32_t& id, const std::vector<int32_t>& known) {
    if (id < 0 && !known.empty()) id = known.front();
  };
  const std::vector<int32_t> ends = ids("eos_token_id");
  fill(vocabulary.special.bos, ids("bos_token_id"));
  fill(vocabulary.special.eos, ends);
  fill(vocabulary.special.pad, ids("pad_token_id"));
  const auto other =
      std::ranges::find_if(ends, [&](int32_t id) { return id != vocabulary.special.eos; });
  if (other != ends.end())
    out.set_u32("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(*other));
}

}  // namespace

at::Tensor resident_value(const nn::Parameter& parameter) {
  return parameter.kept().to(at::kCPU, parameter.value.scalar_type());
}

void export_hugging_face(const fs::path& directory, models::Model& model,
                         const tokenizer::Tokenizer* tokenizer, const ParameterReader& read,
                         const ExportOptions& options) {
  replace_directory(
      directory,
      [&](const fs::path& folder) {
        const FileTensors tensors = arrange(model, models::Layout::HuggingFace, options.dtype);
        files::write_sharded(folder, tensors.infos, options.max_shard_bytes,
                             byte_source(tensors, read));
        json config = config_of(model, tokenizer);
        config["torch_dtype"] = torch_name(options.dtype);
        write_json(folder / "config.json", config);
        write_json(folder / "generation_config.json", generation_config(config));
        if (tokenizer != nullptr) tokenizer->write_directory(folder);
        write_processor_files(folder, model, options.processor);
      },
      options.add);
}

int64_t hugging_face_bytes(models::Model& model, const tokenizer::Tokenizer* tokenizer,
                           const ExportOptions& options) {
  const FileTensors tensors = arrange(model, models::Layout::HuggingFace, options.dtype);
  const json config = config_of(model, tokenizer);
  const int64_t bytes = files::sharded_bytes(tensors.infos, options.max_shard_bytes) +
                        std::ssize(config.dump(2)) + std::ssize(generation_config(config).dump(2)) +
                        (tokenizer == nullptr ? 0 : tokenizer->directory_bytes());
  return bytes + files::checksums_bytes(bytes, kSmallFiles + 1);
}

int64_t peft_directory_bytes(const checkpoint::Adapter& shapes,
                             const tokenizer::Tokenizer* tokenizer) {
  const int64_t bytes =
      checkpoint::peft_bytes(shapes) + (tokenizer == nullptr ? 0 : tokenizer->directory_bytes());
  return bytes + files::checksums_bytes(bytes, kSmallFiles);
}

// The new directory is renamed only once it is complete, so between the two renames both old and
// new are complete.
void finish_replacing(const fs::path& wanted) {
  const fs::path directory = whole_name(wanted);
  const fs::path temporary = new_name(directory), old = old_name(directory);
  std::error_code error;
  if (!fs::exists(directory) && fs::exists(old))
    fs::rename(fs::exists(temporary) ? temporary : old, directory, error);
  if (error) return;
  fs::remove_all(temporary, error);
  fs::remove_all(old, error);
}

void export_peft(const fs::path& directory, const checkpoint::Adapter& shapes,
                 const checkpoint::AdapterValues& values, const tokenizer::Tokenizer* tokenizer,
                 const AddFiles& add) {
  replace_directory(
      directory,
      [&](const fs::path& folder) {
        checkpoint::write_peft_files(folder, shapes, values);
        if (tokenizer != nullptr) tokenizer->write_directory(folder);
      },
      add);
}

void export_litgpt(const fs::path& directory, models::Model& model,
                   const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                   const ExportOptions& options) {
  replace_directory(
      directory,
      [&](const fs::path& folder) {
        FileTensors tensors = arrange(model, models::Layout::LitGpt, options.dtype);
        // LitGPT stores a tied head as a separate tensor.
        if (!tensors.parts.contains("lm_head.weight")) {
          tensors.parts["lm_head.weight"] = tensors.parts.at("transformer.wte.weight");
          files::TensorInfo head = tensors.infos.front();
          head.name = "lm_head.weight";
          tensors.infos.push_back(head);
        }
        files::write_pth(folder / "lit_model.pth", tensors.infos, byte_source(tensors, read));
        write_file_atomically(folder / "model_config.yaml", model.litgpt_config());
        json config = config_of(model, &tokenizer);
        write_json(folder / "config.json", config);
        write_json(folder / "generation_config.json", generation_config(config));
        tokenizer.write_directory(folder);
      },
      options.add);
}

void make_place_for_gguf(const fs::path& file) {
  if (fs::is_directory(file))
    throw UserError("{} is a folder; name the GGUF file to write, such as {}", file.string(),
                    (file / "model.gguf").string());
  std::error_code ignored;  // if the folder cannot be made, opening the file fails
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), ignored);
}

void export_gguf(const fs::path& file, models::Model& model, const tokenizer::Tokenizer& tokenizer,
                 const ParameterReader& read, const ExportOptions& options) {
  const files::GgufMix* mix =
      options.gguf_type.empty() ? nullptr : &files::gguf_mix(options.gguf_type);
  FileTensors tensors = arrange(model, models::Layout::Gguf,
                                mix != nullptr ? std::nullopt : std::optional(options.dtype));
  const auto constants = model.gguf_constants();
  for (const auto& [name, values] : constants)
    tensors.infos.push_back(files::make_tensor_info(name, files::DType::F32, {std::ssize(values)}));
  if (mix != nullptr) {
    const std::vector<files::DType> types = files::types_in_mix(
        *mix, tensors.infos,
        options.importance != nullptr ? files::Importance::Known : files::Importance::None);
    for (size_t i = 0; i < types.size(); ++i)
      tensors.infos[i] =
          files::make_tensor_info(tensors.infos[i].name, types[i], tensors.infos[i].shape);
    if (options.importance != nullptr) check_importance(tensors.infos, options);
  }
  tokenizer::GgufVocabulary vocabulary = tokenizer.gguf_vocabulary(model.dimensions().vocabulary);
  make_place_for_gguf(file);
  files::GgufWriter out(file);
  model.write_gguf_config(out);
  out.set_text("general.type", "model");
  out.set_text("general.name", file.stem().string());
  out.set_u32("general.file_type", mix != nullptr ? mix->file_type : gguf_file_type(options.dtype));
  if (mix != nullptr) out.set_u32("general.quantization_version", 2);
  if (mix != nullptr && options.importance != nullptr) {
    out.set_text("quantize.imatrix.file", options.importance->label);
    out.set_u32("quantize.imatrix.entries_count",
                static_cast<uint32_t>(options.importance->columns.size()));
  }
  add_ids_of_config(model.hugging_face_config(), vocabulary, out);
  write_vocabulary(vocabulary, out);
  out.declare(tensors.infos);
  for (const files::TensorInfo& info : tensors.infos) {
    const auto constant = constants.find(info.name);
    if (constant != constants.end())
      out.write(info.name, std::as_bytes(std::span(constant->second)));
    else
      files::with_context(info.name, [&] {
        write_converted(out, info, value_of(tensors.parts.at(info.name), read),
                        importance_of(info, options));
      });
  }
  out.finish();
}

void export_gguf_directory(const fs::path& directory, models::Model& model,
                           const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                           const ExportOptions& options) {
  const std::string name = gguf_name(directory);
  replace_directory(
      directory,
      [&](const fs::path& folder) { export_gguf(folder / name, model, tokenizer, read, options); },
      options.add);
}

std::string gguf_name(const fs::path& directory) {
  return whole_name(directory).filename().string() + ".gguf";
}

}  // namespace snug::engine
