// SPDX-License-Identifier: Apache-2.0
#include "setup/export.h"

#include <ATen/ops/cat.h>

#include <map>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/tensor_bytes.h"
#include "formats/pth.h"
#include "formats/safetensors.h"
#include "models/family.h"

namespace snug::setup {
namespace {

namespace fs = std::filesystem;
using checkpoint::bytes_of;
using checkpoint::dtype_of;
using nlohmann::json;

const char* torch_name(at::ScalarType type) {
  return type == at::kFloat ? "float32" : type == at::kBFloat16 ? "bfloat16" : "float16";
}

// Tensors of the file with the parameters that make them up, in file order.
struct FileTensors {
  std::vector<formats::TensorInfo> infos;
  std::map<std::string, std::vector<const nn::Parameter*>> parts;
};

FileTensors arrange(models::Model& model, models::Layout layout, at::ScalarType type) {
  FileTensors result;
  std::vector<std::string> order;
  for (const nn::Parameter* parameter : model.parameters()) {
    const std::string name = model.placement(layout, *parameter).tensor;
    auto& parts = result.parts[name];
    if (parts.empty()) order.push_back(name);
    parts.push_back(parameter);  // units list q, k, v in the order in which they are fused
  }
  for (const std::string& name : order) {
    const auto& parts = result.parts[name];
    std::vector<int64_t> shape = parts.front()->shape;
    for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i]->shape[0];
    result.infos.push_back(formats::make_tensor_info(name, dtype_of(type), shape));
  }
  return result;
}

// Reads one file tensor at a time; the span is valid until the next call.
formats::TensorBytes byte_source(const FileTensors& tensors, const ParameterReader& read) {
  return [&tensors, read, held = at::Tensor()](const formats::TensorInfo& info) mutable {
    held.reset();
    std::vector<at::Tensor> parts;
    for (const nn::Parameter* parameter : tensors.parts.at(info.name))
      parts.push_back(read(*parameter).detach());
    held = parts.size() == 1 ? parts.front().contiguous() : at::cat(parts);
    return bytes_of(held);
  };
}

// Fills `directory` through `fill` under a temporary name, then puts it in place whole.
void replace_directory(const fs::path& directory,
                       const std::function<void(const fs::path&)>& fill) {
  fs::path temporary = directory;
  temporary += ".tmp";
  try {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    fill(temporary);
    fs::remove_all(directory);
    fs::rename(temporary, directory);
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

json generation_config(const json& config) {
  json out{{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.contains(key) && !config[key].is_null()) out[key] = config[key];
  return out;
}

}  // namespace

at::Tensor resident_value(const nn::Parameter& parameter) {
  return parameter.kept().to(at::kCPU, parameter.value.scalar_type());
}

void export_hugging_face(const fs::path& directory, models::Model& model,
                         const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                         const ExportOptions& options) {
  replace_directory(directory, [&](const fs::path& folder) {
    const FileTensors tensors = arrange(model, models::Layout::HuggingFace, options.dtype);
    formats::write_sharded(folder, tensors.infos, options.max_shard_bytes,
                           byte_source(tensors, read));
    json config = model.hugging_face_config();
    config["torch_dtype"] = torch_name(options.dtype);
    write_json(folder / "config.json", config);
    write_json(folder / "generation_config.json", generation_config(config));
    tokenizer.write_directory(folder);
  });
}

void export_litgpt(const fs::path& directory, models::Model& model,
                   const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                   const ExportOptions& options) {
  replace_directory(directory, [&](const fs::path& folder) {
    FileTensors tensors = arrange(model, models::Layout::LitGpt, options.dtype);
    // LitGPT keeps the head as a tensor of its own, also where it is the embedding's.
    if (!tensors.parts.contains("lm_head.weight")) {
      tensors.parts["lm_head.weight"] = tensors.parts.at("transformer.wte.weight");
      formats::TensorInfo head = tensors.infos.front();
      head.name = "lm_head.weight";
      tensors.infos.push_back(head);
    }
    formats::write_pth(folder / "lit_model.pth", tensors.infos, byte_source(tensors, read));
    write_file_atomically(folder / "model_config.yaml", model.litgpt_config());
    json config = model.hugging_face_config();
    write_json(folder / "config.json", config);
    write_json(folder / "generation_config.json", generation_config(config));
    tokenizer.write_directory(folder);
  });
}

}  // namespace snug::setup
