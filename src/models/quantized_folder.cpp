// SPDX-License-Identifier: Apache-2.0
#include "models/quantized_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "files/weights/packed/join.h"

namespace snug::models {
namespace {

using nlohmann::json;

const json* quantization_of(const json& config) {
  const auto found = config.is_object() ? config.find("quantization_config") : config.end();
  return found != config.end() && found->is_object() ? &*found : nullptr;
}

std::string text_in(const json& object, const char* key, const char* otherwise = "") {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

bool is_true(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

int bits_of(const json& quantization) {
  for (const char* key : {"bits", "w_bit", "num_bits", "nbits"})
    if (const auto own = quantization.find(key);
        own != quantization.end() && own->is_number_integer() && *own > 0 && *own <= 64)
      return own->get<int>();
  return is_true(quantization, "load_in_4bit") ? 4 : is_true(quantization, "load_in_8bit") ? 8 : 0;
}

// Without the components that wrappers of a language model add.
std::string plain_name(std::string name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view outer : {"model.", "language_model."})
      if (name.starts_with(outer)) {
        name.erase(0, outer.size());
        again = true;
      }
  }
  return name;
}

// "layers.1.mlp" names "model.layers.1.mlp.down_proj", but not "model.layers.11.mlp.down_proj".
bool names_module(const std::string& skipped, const std::string& module) {
  const std::string wanted = plain_name(skipped), own = plain_name(module);
  if (wanted.empty()) return false;
  const bool begins =
      own.starts_with(wanted) && (own.size() == wanted.size() || own[wanted.size()] == '.');
  const bool ends = own.ends_with(wanted) &&
                    (own.size() == wanted.size() || own[own.size() - wanted.size() - 1] == '.');
  return begins || ends || ("." + own).find("." + wanted + ".") != std::string::npos;
}

std::string method_of(const json& quantization) {
  const std::string said = text_in(quantization, "quant_method");
  const bool by_bitsandbytes =
      is_true(quantization, "load_in_4bit") || is_true(quantization, "load_in_8bit");
  return said.empty() && by_bitsandbytes ? "bitsandbytes" : said;  // older files leave it out
}

}  // namespace

void unpack_quantized(files::TensorSource& tensors, const json& config,
                      const std::filesystem::path& folder) {
  files::join_packed_weights(tensors, config);
  const auto is_coded = [](const files::TensorInfo& tensor) {
    using files::DType;
    return tensor.dtype == DType::U8 || tensor.dtype == DType::I8 || tensor.dtype == DType::I32 ||
           tensor.dtype == DType::F8E4M3 || tensor.dtype == DType::F8E5M2;
  };
  const auto coded = std::ranges::find_if(tensors.tensors(), is_coded);
  if (coded == tensors.tensors().end()) return;
  const json* quantization = quantization_of(config);
  const std::string method = quantization == nullptr ? "" : method_of(*quantization);
  const bool is_float = files::is_floating(coded->dtype);
  // Those that a model has beside its weights are looked at by name.
  if (quantization == nullptr && !is_float) return;
  const int bits = quantization == nullptr ? 8 : bits_of(*quantization);
  throw UserError(
      "{}: the weights were quantized{}{}, and {} ({}) is no part of a layout that snug reads, or "
      "its scales are missing (layouts: bitsandbytes, GPTQ, AWQ, compressed-tensors, FP8 with "
      "scales); take the model that they were made from: --quantize bnb.nf4 quantizes it while it "
      "is loaded, and a GGUF file of it is read as it is",
      folder.string(), method.empty() ? "" : " by " + printable(method),
      bits > 0 ? fmt::format(" to {} bits", bits) : "", printable(coded->name),
      files::name(coded->dtype));
}

void mark_plain_weights(Model& model, const json& config) {
  const json* quantization = quantization_of(config);
  if (quantization == nullptr) return;
  const auto skipped = quantization->find("llm_int8_skip_modules");
  if (skipped == quantization->end() || !skipped->is_array()) return;
  for (nn::Unit* unit : model.units())
    for (nn::Linear* linear : unit->linears())
      for (const json& module : *skipped)
        if (module.is_string() && names_module(module.get<std::string>(), linear->name()))
          linear->weight().stays_plain = true;
}

std::string stored_quantization(const std::filesystem::path& path) {
  constexpr std::string_view kUsualEnd = "-bnb-4bit";
  constexpr size_t kMostBytes = size_t{1} << 24;
  const std::filesystem::path file = path.extension() == ".json" ? path : path / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    return path.string().ends_with(kUsualEnd) ? "bnb.nf4-dq" : "";
  const json config = json::parse(read_file(file, kMostBytes), nullptr, false);
  const json* own = quantization_of(config);
  if (own == nullptr || method_of(*own) != "bitsandbytes") return "";
  if (is_true(*own, "load_in_8bit")) return "bnb.int8";
  if (!is_true(*own, "load_in_4bit")) return "";
  const std::string kind = text_in(*own, "bnb_4bit_quant_type", "fp4");
  if (kind != "nf4" && kind != "fp4") return "";
  return fmt::format("bnb.{}{}", kind, is_true(*own, "bnb_4bit_use_double_quant") ? "-dq" : "");
}

}  // namespace snug::models
