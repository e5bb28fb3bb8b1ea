// SPDX-License-Identifier: Apache-2.0
#include "files/weights/gguf/mix.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace snug::files {
namespace {

constexpr std::array<GgufMix, 5> kMixes = {{{"Q8_0", DType::Q8_0, false, 7},
                                            {"Q4_0", DType::Q4_0, false, 2},
                                            {"Q6_K", DType::Q6_K, false, 18},
                                            {"Q4_K_M", DType::Q4_K, true, 15},
                                            {"Q5_K_M", DType::Q5_K, true, 17}}};

// The first and the last eighth of the layers, and of those between each third.
bool gets_more_bits(int64_t layer, int64_t num_layers) {
  const int64_t eighth = num_layers / 8;
  return layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2;
}

// Rows of the K formats consist of blocks of 256; other rows get the next larger type in blocks of
// 32, and where these do not fit either, float16.
DType fitting(DType type, int64_t row) {
  if (row % layout(type).block_elements == 0) return type;
  const DType other = type == DType::Q4_K   ? DType::Q5_0
                      : type == DType::Q5_K ? DType::Q5_1
                                            : DType::Q8_0;
  return row % layout(other).block_elements == 0 ? other : DType::F16;
}

const TensorInfo* find_named(const std::vector<TensorInfo>& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &TensorInfo::name);
  return found == tensors.end() ? nullptr : &*found;
}

// 70B models share each of their few values among many queries, so bits there are cheap.
bool is_70b(const std::vector<TensorInfo>& tensors, int64_t num_layers) {
  const TensorInfo* queries = find_named(tensors, "blk.0.attn_q.weight");
  const TensorInfo* values = find_named(tensors, "blk.0.attn_v.weight");
  return num_layers == 80 && queries != nullptr && values != nullptr &&
         values->shape[0] < queries->shape[0];
}

// Mixtral's attention is a small part of it, so bits there are cheap.
bool has_eight_experts(const std::vector<TensorInfo>& tensors) {
  const TensorInfo* experts = find_named(tensors, "blk.0.ffn_gate_exps.weight");
  return experts != nullptr && experts->shape[0] == 8;
}

}  // namespace

bool stays_float32(std::string_view name, size_t num_dimensions) {
  return num_dimensions < 2 || name.ends_with(".bias") || name.ends_with(".ffn_gate_inp.weight") ||
         name == "position_embd.weight" || name == "v.position_embd.weight" ||
         name == "v.patch_embd.weight";
}

const GgufMix& gguf_mix(std::string_view name) {
  const auto* found = std::ranges::find(kMixes, name, &GgufMix::name);
  if (found != kMixes.end()) return *found;
  std::string known;
  for (const GgufMix& mix : kMixes) known += (known.empty() ? "" : ", ") + std::string(mix.name);
  throw UserError("GGUF type {} is unknown; choose one of {}", name, known);
}

std::vector<DType> types_in_mix(const GgufMix& mix, const std::vector<TensorInfo>& tensors,
                                Importance importance) {
  const auto of_kind = [](const TensorInfo& tensor, std::string_view kind) {
    return tensor.name.starts_with("blk.") && tensor.name.ends_with(kind);
  };
  const auto is_value = [&](const TensorInfo& tensor) {
    return of_kind(tensor, ".attn_v.weight") || of_kind(tensor, ".attn_qkv.weight");
  };
  const int64_t num_layers = std::ranges::count_if(tensors, is_value);
  const bool has_head = find_named(tensors, "output.weight") != nullptr;
  const bool large = is_70b(tensors, num_layers), eight = has_eight_experts(tensors);
  std::vector<DType> types;
  for (const TensorInfo& tensor : tensors) {
    const bool is_head = tensor.name == (has_head ? "output.weight" : "token_embd.weight");
    DType type = mix.usual;
    if (is_head && type != DType::Q8_0) type = DType::Q6_K;
    const bool is_down =
        of_kind(tensor, ".ffn_down.weight") || of_kind(tensor, ".ffn_down_exps.weight");
    if (is_value(tensor) || is_down) {
      const int64_t layer = std::stoll(tensor.name.substr(4));
      if (mix.more_bits && gets_more_bits(layer, num_layers))
        type = DType::Q6_K;
      else if (mix.more_bits && large && is_value(tensor))
        type = DType::Q5_K;
      // Weighted, Q4_0 can go badly wrong in the first of these.
      else if (type == DType::Q4_0 && importance == Importance::Known && is_down &&
               layer < num_layers / 8)
        type = DType::Q4_1;
    }
    if (eight && (is_value(tensor) || of_kind(tensor, ".attn_k.weight"))) type = DType::Q8_0;
    if (eight && mix.usual == DType::Q4_K && of_kind(tensor, ".attn_output.weight"))
      type = DType::Q5_K;
    types.push_back(stays_float32(tensor.name, tensor.shape.size())
                        ? DType::F32
                        : fitting(type, tensor.shape.back()));
  }
  return types;
}

}  // namespace snug::files
