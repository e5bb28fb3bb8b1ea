// GGUF files: quantizing, the vocabulary inside, and a second file for a model that sees pictures.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/export/export.h"
#include "engine/export/file_tensors.h"
#include "engine/export/vocabulary.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/weights/byte_reader.h"
#include "files/weights/convert.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/gguf/mix.h"
#include "text/tokenizer/gguf/gguf.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using checkpoint::bytes_of;
using checkpoint::dtype_of;
using nlohmann::json;

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
  if (info.dtype == files::DType::F16) check_fits_float16(value, info.name);
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

// Those that belong in a second file.
std::vector<files::TensorInfo> take_pictures(std::vector<files::TensorInfo>& tensors) {
  const auto begin = std::stable_partition(
      tensors.begin(), tensors.end(),
      [](const files::TensorInfo& tensor) { return !files::is_pictures_tensor(tensor.name); });
  std::vector<files::TensorInfo> pictures(begin, tensors.end());
  tensors.erase(begin, tensors.end());
  return pictures;
}

void set_types(const files::GgufMix& mix, files::Importance importance,
               std::vector<files::TensorInfo>& tensors) {
  const std::vector<files::DType> types = files::types_in_mix(mix, tensors, importance);
  for (size_t i = 0; i < types.size(); ++i)
    tensors[i] = files::make_tensor_info(tensors[i].name, types[i], tensors[i].shape);
}

// general.file_type: the type of most weights.
uint32_t gguf_file_type(at::ScalarType type) {
  return type == at::kFloat ? 0 : type == at::kHalf ? 1 : 32;
}

// Adds special tokens that only config.json knows, and a chat model's end-of-turn token if it
// differs from the end-of-text token.
void add_ids_of_config(const json& whole, tokenizer::GgufVocabulary& vocabulary,
                       files::GgufWriter& out) {
  const json& config = whole.contains("text_config") ? whole["text_config"] : whole;
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

void describe(files::GgufWriter& out, const char* type, const fs::path& file,
              const files::GgufMix* mix, const ExportOptions& options) {
  out.set_text("general.type", type);
  out.set_text("general.name", file.stem().string());
  out.set_u32("general.file_type", mix != nullptr ? mix->file_type : gguf_file_type(options.dtype));
  if (mix != nullptr) out.set_u32("general.quantization_version", 2);
}

struct GgufTensors {
  FileTensors of_model;
  std::map<std::string, std::vector<float>> constants;
};

void write_tensors(files::GgufWriter& out, const std::vector<files::TensorInfo>& infos,
                   const GgufTensors& tensors, const ParameterReader& read,
                   const ExportOptions& options) {
  out.declare(infos);
  for (const files::TensorInfo& info : infos) {
    const auto constant = tensors.constants.find(info.name);
    if (constant != tensors.constants.end())
      out.write(info.name, std::as_bytes(std::span(constant->second)));
    else
      files::with_context(info.name, [&] {
        write_converted(out, info, value_of(tensors.of_model.parts.at(info.name), read),
                        importance_of(info, options));
      });
  }
}

}  // namespace

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
  // The smallest type that llama.cpp's converter has for the second file.
  const files::GgufMix* mix_of_pictures = mix == nullptr ? nullptr : &files::gguf_mix("Q8_0");
  GgufTensors tensors{arrange(model, models::Layout::Gguf,
                              mix != nullptr ? std::nullopt : std::optional(options.dtype)),
                      model.gguf_constants()};
  std::vector<files::TensorInfo>& infos = tensors.of_model.infos;
  std::vector<files::TensorInfo> pictures = take_pictures(infos);
  for (const auto& [name, values] : tensors.constants)
    infos.push_back(files::make_tensor_info(name, files::DType::F32, {std::ssize(values)}));
  if (mix != nullptr) {
    set_types(*mix,
              options.importance != nullptr ? files::Importance::Known : files::Importance::None,
              infos);
    set_types(*mix_of_pictures, files::Importance::None, pictures);
    if (options.importance != nullptr) check_importance(infos, options);
  }
  tokenizer::GgufVocabulary vocabulary = tokenizer.gguf_vocabulary(model.dimensions().vocabulary);
  make_place_for_gguf(file);
  files::GgufWriter out(file);
  model.write_gguf_config(out);
  describe(out, "model", file, mix, options);
  if (mix != nullptr && options.importance != nullptr) {
    out.set_text("quantize.imatrix.file", options.importance->label);
    out.set_u32("quantize.imatrix.entries_count",
                static_cast<uint32_t>(options.importance->columns.size()));
  }
  add_ids_of_config(model.hugging_face_config(), vocabulary, out);
  write_vocabulary(vocabulary, out);
  std::optional<files::GgufWriter> beside;
  if (!pictures.empty()) {
    beside.emplace(files::pictures_file(file));
    model.write_gguf_pictures_config(*beside);
    describe(*beside, "mmproj", file, mix_of_pictures, options);
    write_tensors(*beside, pictures, tensors, read, options);
  }
  write_tensors(out, infos, tensors, read, options);
  if (beside) beside->finish();
  out.finish();
}

}  // namespace snug::engine
