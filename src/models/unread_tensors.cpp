// SPDX-License-Identifier: Apache-2.0
#include "models/unread_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>

namespace snug::models {
namespace {

// Not learned biases of attention but the causal masks of GPT-2 and GPT-NeoX, stored as 8-bit or
// float ones.
constexpr std::array<std::string_view, 13> kBuffers{
    "inv_freq", "position_ids", ".attn.bias", ".attn.masked_bias", ".attention.bias",
    ".attention.masked_bias", "rope_freqs.weight", "rope_factors_long.weight",
    "rope_factors_short.weight", "decoder.version", ".cos_cached", ".sin_cached",
    // A table in the first T5 checkpoints that T5 does not use.
    ".EncDecAttention.relative_attention_bias.weight"};

bool is_buffer(std::string_view name) {
  return std::ranges::any_of(kBuffers,
                             [name](std::string_view end) { return name.ends_with(end); });
}

// Heads that predict further tokens, as Qwen3-Next and Qwen3.5 have them, and DeepSeek-V3 and GLM
// as blocks behind the last one. transformers leaves them out too.
bool is_of_further_tokens(const files::TensorSource& tensors, std::string_view name) {
  if (name.starts_with("mtp.")) return true;
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::string block(name.substr(0, name.find('.', kLayers.size()) + 1));
  return tensors.find(block + "eh_proj.weight") != nullptr;
}

// Compares only both ends: a copy of an embedding may have gigabytes.
bool starts_and_ends_alike(std::span<const std::byte> a, std::span<const std::byte> b) {
  constexpr size_t kMost = 4096;
  const size_t size = std::min(a.size(), kMost);
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), size) == 0 &&
         std::memcmp(a.data() + a.size() - size, b.data() + b.size() - size, size) == 0;
}

// Some programs write a bias of zeros beside a packed weight that has none.
bool is_bias_of_zeros(const files::TensorSource& tensors, const files::TensorInfo& tensor) {
  constexpr std::string_view kBias = ".bias";
  if (!tensor.name.ends_with(kBias)) return false;
  const std::string module = tensor.name.substr(0, tensor.name.size() - kBias.size());
  const files::TensorInfo* weight = tensors.find(module + ".weight");
  if (weight == nullptr || tensors.packed(*weight) == nullptr) return false;
  return std::ranges::all_of(tensors.stored(tensor),
                             [](std::byte byte) { return byte == std::byte{}; });
}

bool is_copy_of_one(const files::TensorSource& tensors, const files::TensorInfo& tensor,
                    const std::set<const files::TensorInfo*>& read) {
  // The other may have got more rows.
  const auto of_a_row = [](const files::TensorInfo& info) {
    return std::span(info.shape).subspan(std::min<size_t>(1, info.shape.size()));
  };
  return std::ranges::any_of(read, [&](const files::TensorInfo* other) {
    return other->dtype == tensor.dtype && other->nbytes == tensor.nbytes &&
           std::ranges::equal(of_a_row(*other), of_a_row(tensor)) &&
           starts_and_ends_alike(tensors.stored(*other), tensors.stored(tensor));
  });
}

}  // namespace

std::vector<std::string> unread_tensors(const files::TensorSource& tensors,
                                        const std::set<const files::TensorInfo*>& read) {
  std::vector<std::string> names;
  for (const files::TensorInfo& tensor : tensors.tensors())
    if (tensor.nbytes > 0 && !read.contains(&tensor) && !is_buffer(tensor.name) &&
        !is_of_further_tokens(tensors, tensor.name) && !is_bias_of_zeros(tensors, tensor) &&
        !is_copy_of_one(tensors, tensor, read))
      names.push_back(tensor.name);
  return names;
}

bool same_tensor(const files::TensorSource& tensors, const files::TensorInfo& a,
                 const files::TensorInfo& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  const std::span<const std::byte> left = tensors.raw(a), right = tensors.raw(b);
  const bool same = !left.empty() && (left.data() == right.data() ||
                                      std::memcmp(left.data(), right.data(), left.size()) == 0);
  tensors.release(a);
  tensors.release(b);
  return same;
}

}  // namespace snug::models
