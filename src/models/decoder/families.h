// The families of Llama-like decoders, one row each: how a family differs from the others besides
// its sizes. To add a family, add a row here, with a case in tests/oracles/model_parity.py
// and its name in the parity and property tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"

namespace snug::models::decoder {

// Where a block's norms are: before attention and MLP, after them, or both.
enum class Norms { Before, After, Both };
// The norm of queries and keys: over each head, or over the whole projection.
enum class QkNorm { None, Head, Projection };
// How layers with a sliding window rotate beside those that see all: alike, without the scaling, or
// alone, so that the others do not rotate; or as rope_parameters says of each, which alone is
// written.
enum class WindowRope { Same, Unscaled, Alone, ByLayer };
// Order of rotary rows in GGUF files: as in Hugging Face's, or in pairs.
enum class GgufRows { Same, Paired };

// Weights' names in Hugging Face's files, where they are not Llama's.
struct WeightNames {
  const char* embedding = "model.embed_tokens";
  const char* layers = "model.layers.";
  const char* qkv = "self_attn.qkv_proj";  // where it is fused; else q_proj and so on beside it
  const char* output = "self_attn.o_proj";
  const char* q_norm = "self_attn.q_norm";
  const char* k_norm = "self_attn.k_norm";
  const char* first_norm = "input_layernorm";
  const char* second_norm = "post_attention_layernorm";  // of a block with two
  // Norm before attention, of a block whose attention and MLP both read its input, each through a
  // norm of its own.
  const char* attention_norm = "input_layernorm";
  // Before the MLP, of such a block and of one with norms before and after.
  const char* mlp_norm = "post_attention_layernorm";
  // Behind attention and MLP, where there are any.
  const char* after_attention_norm = "post_attention_layernorm";
  const char* after_mlp_norm = "post_feedforward_layernorm";
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* gate_up = "mlp.gate_up_proj";  // where they are fused
  const char* down = "mlp.down_proj";
  // A mixture's router; its experts, "<experts>.0." and so on, and their layers.
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";
  const char* expert_gate = "gate_proj";  // with fused experts gate and up
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
  const char* expert_stack = "";  // how the name of a tensor of all experts ends
  const char* router_bias = "mlp.gate.e_score_correction_bias";
  const char* shared_expert = "mlp.shared_expert";  // whose layers are named as experts' are
  const char* norm = "model.norm";
  const char* head = "lm_head";
};

struct Family {
  std::string_view model_type;  // in config.json
  std::string_view class_name;  // in transformers
  std::string_view gguf = {};   // general.architecture of GGUF files; empty: there are none
  GgufRows gguf_rows = GgufRows::Same;
  bool gguf_window = false;   // whether GGUF files have the sliding window
  bool in_litgpt = false;     // whether snug reads and writes LitGPT's files of it
  bool qkv_bias = false;      // q, k and v have biases, whatever the config says
  bool plain_output = false;  // attention_bias is of q, k and v alone
  Norms norms = Norms::Before;
  QkNorm qk_norm = QkNorm::None;  // unless use_qk_norm is false
  kernels::NormForm norm_form = kernels::NormForm::Llama;
  bool value_norm = false;     // values have an RMSNorm without a weight
  double attention_scale = 0;  // on q·k; 0: by the config or the size of a head
  bool block_scale = false;    // a block's output is multiplied by a number that nothing trains
  bool fused_qkv = false;      // one layer for q, k and v
  bool fused_gate = false;     // one layer for gate and up
  // The fused layer has each key-value head's queries, its key and its value side by side.
  bool interleaved = false;
  bool layer_norm = false;       // layer norms with biases in place of RMSNorms
  bool gated = true;             // the MLP has a gate
  bool mlp_bias = false;         // the MLP's layers have biases, whatever the config says
  bool gated_attention = false;  // each head's output has a gate, which q_proj makes
  bool sinks = false;            // attention has a learned sink for each head
  bool fused_experts = false;  // gate and up are one layer, and files have a tensor for all experts
  // As gpt-oss has those: with biases, which the router has too, and a clamped gate; files have
  // matrices as (in, out), and gates and ups take turns.
  bool biased_experts = false;
  bool mlp_beside_experts = false;  // blocks with experts have an MLP too, whose output is added
  // Experts and router read what the MLP's norm reads, each through a norm of its own, and the
  // weights that the router gives are multiplied by a number of each expert.
  bool normed_experts = false;
  // The router scores each expert by itself, and chooses by that plus a bias.
  bool sigmoid_router = false;
  double router_epsilon = 0;  // added to the sum by which weights are divided
  bool joined_delta = false;  // DeltaRule's four layers are two, by key head
  // The last of so many layers sees all, unless the config says which layers have a window.
  int64_t window_pattern = 0;
  bool last_sees_all = false;  // even then
  WindowRope window_rope = WindowRope::Same;
  kernels::RopePairs rope_pairs = kernels::RopePairs::Halves;
  bool scaled_queries = false;  // by llama_4_scaling_beta
  WeightNames names = {};
  bool scaled_embedding = false;  // the embedding is multiplied by sqrt(hidden_size)
  // JSON: the family's keys besides the common ones, with what transformers assumes for an absent
  // one.
  const char* defaults = "{}";
};

// All of them; the first with a GGUF architecture is the one that such a file is read as, or the
// one with windows in such files, if the file has some. A file with experts is one of a mixture.
const std::deque<Family>& families();
// One more row, for programs that use snug as a library; before a model of it is opened. Its texts
// must outlive the program. Throws UserError for a model_type that is there.
void add_family(const Family& family);
// Null if there is none.
const Family* find_family(std::string_view model_type);

// Every key of this family's config.json, with its default; null: none.
nlohmann::json default_config(const Family& family);

// Whether its blocks may have experts.
bool is_mixture(const Family& family);

// A key that the family has no place for, and what its config.json may say there: that which the
// family computes anyway. Empty: any value that says nothing.
nlohmann::json usual_values(const Family& family, const std::string& key);

// The keys of a config.json that may change what the model computes and that the family has no
// place for. A key whose value says nothing (null, false, 0, empty) does not count.
std::vector<std::string> unknown_keys(const Family& family, const nlohmann::json& config);

// For an unknown model_type: "; nearest is …, which has no place for …", or why there is none.
std::string nearest_family(std::string_view model_type, const nlohmann::json& config);

}  // namespace snug::models::decoder
