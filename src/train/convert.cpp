// SPDX-License-Identifier: Apache-2.0
#include "train/convert.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "memory/ledger.h"
#include "models/family.h"
#include "setup/export.h"
#include "setup/vocabulary.h"

namespace snug::train {
namespace {

// The type of most weights in the source; quantized ones become bfloat16.
at::ScalarType source_type(const models::Checkpoint& checkpoint) {
  int64_t bytes_f32 = 0;
  int64_t bytes_f16 = 0;
  for (const formats::TensorInfo& tensor : checkpoint.tensors->tensors()) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.dtype == formats::DType::F32) bytes_f32 += tensor.nbytes;
    if (tensor.dtype == formats::DType::F16) bytes_f16 += tensor.nbytes;
  }
  const int64_t half = checkpoint.tensors->total_bytes() / 2;
  return bytes_f32 > half ? at::kFloat : bytes_f16 > half ? at::kHalf : at::kBFloat16;
}

at::ScalarType wanted_type(const std::string& name, const models::Checkpoint& checkpoint) {
  if (name.empty()) return source_type(checkpoint);
  if (name == "float32" || name == "f32") return at::kFloat;
  if (name == "bfloat16" || name == "bf16") return at::kBFloat16;
  if (name == "float16" || name == "f16") return at::kHalf;
  throw UserError("--dtype {} is unknown; choose float32, bfloat16 or float16", name);
}

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
  const at::ScalarType type = wanted_type(options.dtype, checkpoint);
  const auto read = [&](const nn::Parameter& parameter) {
    const bool stays_float = options.to == "gguf" && parameter.shape.size() == 1;
    return models::read_parameter(checkpoint, parameter, stays_float ? at::kFloat : type);
  };
  const setup::ExportOptions export_options{.dtype = type};
  if (options.to == "hf")
    setup::export_hugging_face(options.destination, *checkpoint.model, *tokenizer, read,
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
