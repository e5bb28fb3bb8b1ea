// SPDX-License-Identifier: Apache-2.0
#include "engine/export/export.h"

#include <ATen/ops/aminmax.h>

#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/export/file_tensors.h"
#include "engine/export/in_whole.h"
#include "engine/export/processor_files.h"
#include "engine/export/vocabulary.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/checksums.h"
#include "files/weights/pth/pth.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;

// About as many besides the weights: the config, the generation's and the tokenizer's.
constexpr int64_t kSmallFiles = 5;

using nlohmann::json;

const char* torch_name(at::ScalarType type) {
  return type == at::kFloat ? "float32" : type == at::kBFloat16 ? "bfloat16" : "float16";
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

// Turns "model/" and "." into the folder's own name, and a link into what it leads to, so that a
// model that is written again stays on that disk.
fs::path whole_name(const fs::path& wanted) {
  if (fs::is_symlink(wanted)) return fs::weakly_canonical(wanted);
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
  check_replaceable(directory);
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
  if (tokenizer->has_other_eos()) language["eos_token_id"] = nullptr;
  fill("eos_token_id", tokenizer->special().eos);
  return config;
}

// One end of sequence and the others that there were, as transformers' Trainer joins them.
json joined_ends(int32_t eos, const json& before) {
  json ends = json::array({eos});
  for (const json& id : before.is_array() ? before : json::array({before}))
    if (id.is_number_integer() && id != eos) ends.push_back(id);
  return ends.size() == 1 ? ends.front() : ends;
}

// The source's own, for how its answers are drawn; else made of the config.
json generation_config(const json& config, const fs::path& source,
                       const tokenizer::Tokenizer* tokenizer) {
  const fs::path own = source / "generation_config.json";
  if (fs::exists(own))
    if (json kept = json::parse(read_file(own, size_t{1} << 20), nullptr, false);
        kept.is_object()) {
      if (tokenizer != nullptr && tokenizer->has_other_eos())
        kept["eos_token_id"] =
            joined_ends(tokenizer->special().eos, kept.value("eos_token_id", json()));
      return kept;
    }
  json out{{"_from_model_config", true}};
  const json& language = config.contains("text_config") ? config["text_config"] : config;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
    if (language.contains(key) && !language[key].is_null()) out[key] = language[key];
  return out;
}

// What a Hugging Face directory consists of.
struct Content {
  FileTensors tensors;
  std::optional<OtherParts> others;  // of a language model within a model of several parts
  std::vector<files::TensorInfo> infos;
  json config;
};

// The other parts' files may be gone when training ends: then the language model is written alone.
std::optional<OtherParts> others_of(const models::Model& model, at::ScalarType type) {
  if (model.whole() == nullptr || model.whole()->folder.empty()) return std::nullopt;
  try {
    return OtherParts(*model.whole(), type);
  } catch (const UserError& error) {
    warn(
        "the language model is written without the other parts of the model, which cannot be read: "
        "{}",
        error.what());
    return std::nullopt;
  }
}

Content content_of(models::Model& model, const tokenizer::Tokenizer* tokenizer,
                   at::ScalarType type) {
  Content content{.tensors = arrange(model, models::Layout::HuggingFace, type),
                  .others = others_of(model, type),
                  .infos = {},
                  .config = config_of(model, tokenizer)};
  if (content.others) {
    content.tensors = in_whole(content.tensors, *model.whole());
    content.config = models::whole_config(*model.whole(), content.config, torch_name(type));
  } else {
    content.config["torch_dtype"] = torch_name(type);
  }
  content.infos = content.tensors.infos;
  if (content.others)
    content.infos.insert(content.infos.end(), content.others->infos().begin(),
                         content.others->infos().end());
  return content;
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
        Content content = content_of(model, tokenizer, options.dtype);
        const auto own = byte_source(content.tensors, read);
        files::write_sharded(folder, content.infos, options.max_shard_bytes,
                             [&](const files::TensorInfo& tensor) {
                               const bool is_own = content.tensors.parts.contains(tensor.name);
                               return is_own ? own(tensor) : content.others->bytes(tensor);
                             });
        write_json(folder / "config.json", content.config);
        if (model.labels().empty())  // others generate nothing
          write_json(folder / "generation_config.json",
                     generation_config(content.config, options.processor, tokenizer));
        if (tokenizer != nullptr) tokenizer->write_directory(folder);
        write_processor_files(folder, model, options.processor);
      },
      options.add);
}

int64_t hugging_face_bytes(models::Model& model, const tokenizer::Tokenizer* tokenizer,
                           const ExportOptions& options) {
  const Content content = content_of(model, tokenizer, options.dtype);
  const int64_t bytes =
      files::sharded_bytes(content.infos, options.max_shard_bytes) +
      std::ssize(content.config.dump(2)) +
      std::ssize(generation_config(content.config, options.processor, tokenizer).dump(2)) +
      (tokenizer == nullptr ? 0 : tokenizer->directory_bytes());
  return bytes + files::checksums_bytes(bytes, kSmallFiles + 1);
}

int64_t peft_directory_bytes(const checkpoint::Adapter& shapes,
                             const tokenizer::Tokenizer* tokenizer) {
  const int64_t bytes =
      checkpoint::peft_bytes(shapes) + (tokenizer == nullptr ? 0 : tokenizer->directory_bytes());
  return bytes + files::checksums_bytes(bytes, kSmallFiles);
}

void check_fits_float16(const at::Tensor& value, const std::string& where) {
  constexpr double kGreatest = 65504;
  const auto [least, greatest] = at::aminmax(value);
  const double low = least.item<double>(), high = greatest.item<double>();
  const double worst = -low > high ? low : high;
  // What lies half a step above it is rounded to it.
  if (std::abs(worst) < kGreatest + 16 || !std::isfinite(worst)) return;
  throw UserError(
      "{} holds {:g}, and float16 numbers end at {:g}; write bfloat16 or float32 instead "
      "(--dtype)",
      where, worst, kGreatest);
}

void check_replaceable(const fs::path& directory) {
  if (!fs::exists(directory)) return;
  if (!fs::is_directory(directory))
    throw UserError("{} is a file; move it away, or name another folder", directory.string());
  for (const auto& entry : fs::directory_iterator(directory))
    if (!is_model_file(entry.path()))
      throw UserError(
          "{} contains {}, which is not a model file; move it away, or name another folder",
          directory.string(), entry.path().filename().string());
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
        write_json(folder / "generation_config.json",
                   generation_config(config, options.processor, &tokenizer));
        tokenizer.write_directory(folder);
      },
      options.add);
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
