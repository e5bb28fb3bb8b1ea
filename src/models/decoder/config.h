// What a decoder computes: a family's row and a model's config as numbers, so that no unit asks
// which family it belongs to. Names as in config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernels/cpu/rope_tables.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/short_conv.h"
#include "core/ops/activation.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/routing.h"
#include "files/weights/gguf/gguf.h"
#include "models/decoder/families.h"

namespace snug::models::decoder {

// Which positions a layer's queries and keys are rotated by: none, the model's, or those of its
// layers with a sliding window.
enum class Rotation { None, Model, Window };

// What lets tokens read others.
enum class MixerKind { Attention, ShortConvolution, DeltaRule, Mamba };

struct Layer {
  MixerKind mixer = MixerKind::Attention;
  int64_t sliding_window = 0;  // 0: none
  Rotation rotation = Rotation::Model;
  bool experts = false;  // in place of the MLP
  int64_t intermediate_size = 0;
  // Of attention.
  int64_t head_dim = 0;  // of queries and keys
  int64_t num_key_value_heads = 0;
  bool keys_are_values = false;  // one layer makes both
  // The layer whose keys and values this one attends to; none: its own.
  std::optional<int64_t> keys_of = {};
  std::optional<int64_t> last_reader = {};  // the last other layer that attends to this one's
  bool operator==(const Layer&) const = default;
};

// Which elements of a head rotate: `dim` of them from `first` on.
struct RotatedPart {
  int64_t first = 0, dim = 0;
  kernels::RopePairs pairs = kernels::RopePairs::Halves;
};

struct Config {
  const Family* family = nullptr;
  nlohmann::json json;  // every key of the family, as config.json has it: what is written again

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_experts = 0;         // of a block with experts; 0: no block has any
  ops::Router router;              // its bias is each block's own
  bool router_bias = false;        // there is one
  int64_t expert_size = 0;         // an expert's intermediate size
  int64_t shared_expert_size = 0;  // of the one that all tokens take; 0: there is none
  bool shares_expert = false;      // of which a token takes a share
  double balance = 0;              // weight of the loss that balances experts
  kernels::GateClamp expert_clamp;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  // Of those with a window, where layers differ.
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;  // of queries and keys
  QkNorm qk_norm = QkNorm::None;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  kernels::NormForm norm_form = kernels::NormForm::Llama;
  ops::Activation activation = ops::Activation::Silu;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool parallel_residual = false;  // attention and MLP both read the block's input
  bool shared_norm = false;        // and that through the same norm
  int64_t conv_taps = 0;           // rows that a short convolution reads
  bool conv_bias = false;          // of it and of the layers around it
  // Of latent attention: the sizes of what queries (0: of the hidden states) and what keys and
  // values are made from (0: attention is another), and of a head's values.
  int64_t query_rank = 0, latent_rank = 0, value_dim = 0;
  // Of the gated delta rule.
  int64_t delta_key_heads = 0, delta_value_heads = 0;
  int64_t delta_key_dim = 0, delta_value_dim = 0;  // of a head
  // Of Mamba 2, whose groups of heads share what delta rules call keys, of mamba_state elements.
  int64_t mamba_heads = 0, mamba_groups = 0, mamba_head_dim = 0, mamba_state = 0;
  bool mamba_bias = false;  // of the layers around it
  double least_step = 0, most_step = std::numeric_limits<double>::infinity();
  double initializer_range = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;  // of what attention and MLP add
  double embedding_dropout = 0;
  int64_t sliding_window = 0;          // of the layers that have one
  const char* other_layers = nullptr;  // what layer_types calls those without attention, if any
  std::vector<Layer> layers;
  kernels::cpu::RopeScaling rope;
  kernels::cpu::RopeScaling window_rope;  // of Rotation::Window
  RotatedPart rotated, window_rotated;
  // What each block gets of every token besides the hidden states, from a table of its own with so
  // many rows (Google 2025, "Gemma 3n", per-layer embeddings); 0: nothing.
  int64_t layer_input_size = 0, layer_input_vocab = 0;
  double embedding_scale = 1;
  double residual_scale = 1;   // on what attention and MLP add
  double attention_scale = 1;  // on q·k
  double score_cap = 0;        // of attention's scores: cap * tanh(score / cap); 0: none
  ops::LogitForm logit_form;
  std::vector<int64_t> eos_token_ids;
  std::vector<std::string>
      labels;  // for which the head scores documents; empty: a vocabulary's head
};

// Each throws UserError naming the source and the key that is missing, unknown or out of range.
Config read_config(const nlohmann::json& config, const std::string& where);
// `others`: the architectures that are read elsewhere, for the message about one that is not.
Config from_gguf(const files::GgufFile& file, std::set<std::string_view> others = {});
// The file says neither whether the head is tied nor which tokens are special: `tensors` and the
// Hugging Face files beside it do.
Config from_litgpt(const std::filesystem::path& model_config_yaml,
                   const files::TensorSource& tensors);
std::string to_litgpt(const Config& config);
// Writes all GGUF metadata about the model; and the tensors that are not parameters.
void to_gguf(const Config& config, files::GgufWriter& out);
std::map<std::string, std::vector<float>> gguf_constants(const Config& config);

}  // namespace snug::models::decoder
