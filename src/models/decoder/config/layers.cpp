// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "models/config_fields.h"
#include "models/decoder/config/parts.h"
#include "models/decoder/config/rope.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

// 1 for each layer that rotates.
std::vector<int64_t> rotating_layers(json& config, int64_t layers, const std::string& where) {
  std::vector<int64_t> rotates(static_cast<size_t>(layers), 1);
  const ConfigFields fields(config, where);
  if (config.contains("position_embedding_type") &&
      fields.text("position_embedding_type", "nope") != "rope")
    std::ranges::fill(rotates, 0);
  if (!config.contains("no_rope_layers")) return rotates;
  const int64_t interval = fields.integer_between("no_rope_layer_interval", 1, 1 << 20);
  for (int64_t layer = 0; layer < layers; ++layer)
    rotates[static_cast<size_t>(layer)] = (layer + 1) % interval != 0;
  if (fields.has("no_rope_layers")) rotates = fields.ids("no_rope_layers");
  if (std::ssize(rotates) < layers)
    throw UserError("{}: \"no_rope_layers\" has {} numbers for {} layers", where, rotates.size(),
                    layers);
  config["no_rope_layers"] = rotates;
  return rotates;
}

// Whether each layer has the sliding window: as layer_types lists it, or by the older keys.
std::vector<bool> sliding_layers(const Config& c, const std::vector<int64_t>& rotates,
                                 const std::string& where) {
  const json& config = c.json;
  const int64_t layers = c.num_hidden_layers;
  const ConfigFields fields(config, where);
  const bool has_window =
      fields.has("sliding_window") && fields.boolean("use_sliding_window", true);
  std::vector<bool> slides;
  if (fields.has("layer_types")) {
    const json& types = config["layer_types"];
    if (!types.is_array() || std::ssize(types) != layers)
      throw UserError("{}: \"layer_types\" is not a list of {} layers (num_hidden_layers)", where,
                      layers);
    for (const json& type : types) {
      const bool is_other = c.other_layers != nullptr && type == c.other_layers;
      if (type != kSliding && type != kFull && !is_other)
        throw UserError("{}: \"layer_types\" contains {}; supported are \"{}\"{} and \"{}\"", where,
                        type.dump(), kFull,
                        c.other_layers == nullptr ? "" : fmt::format(", \"{}\"", c.other_layers),
                        kSliding);
      if (type == kSliding && !has_window)
        throw UserError(
            "{}: \"layer_types\" contains \"{}\", but sliding_window is null or "
            "use_sliding_window false",
            where, kSliding);
      slides.push_back(type == kSliding);
    }
    return slides;
  }
  if (!has_window) return std::vector<bool>(static_cast<size_t>(layers), false);
  if (c.family->model_type == "qwen2_moe")
    throw UserError(
        "{}: use_sliding_window of a qwen2_moe model needs \"layer_types\": versions of "
        "transformers "
        "disagree on which layers have the window without it",
        where);
  // "LLLG": layers see the window (L) or all (G) in turn, and the last one sees all.
  if (config.contains("sliding_window_pattern") && config["sliding_window_pattern"].is_string()) {
    const auto letters = config["sliding_window_pattern"].get<std::string>();
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      throw UserError("{}: \"sliding_window_pattern\" is \"{}\"; letters are L and G", where,
                      printable(letters));
    for (int64_t layer = 0; layer < layers; ++layer)
      slides.push_back(layer + 1 < layers &&
                       letters[static_cast<size_t>(layer) % letters.size()] == 'L');
    return slides;
  }
  const int64_t pattern = fields.integer("sliding_window_pattern", c.family->window_pattern);
  const int64_t first = fields.integer("max_window_layers", 0);
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (pattern > 0)
      slides.push_back((layer + 1) % pattern != 0);
    else if (config.contains("no_rope_layers"))
      slides.push_back(rotates[static_cast<size_t>(layer)] == 0);
    else
      slides.push_back(layer >= first);
  }
  return slides;
}

// Other heads of the layers that see all: by two keys or, since transformers 5.24, by a list, of
// which the former are written.
void read_global_heads(Config& c, const std::string& where) {
  const json list = c.json["per_layer_config"];
  c.json.erase("per_layer_config");
  if (list.is_object()) {
    // The sizes of the others where a layer has none of its own.
    const json own = list.empty() ? json::object() : list.front();
    size_t listed = 0;
    for (size_t layer = 0; layer < c.layers.size(); ++layer)
      if (c.layers[layer].sliding_window == 0 && list.value(std::to_string(layer), json()) == own)
        ++listed;
    const auto full = static_cast<size_t>(std::ranges::count(c.layers, 0, &Layer::sliding_window));
    if (!list.empty() && (listed != full || list.size() != full))
      throw UserError(
          "{}: \"per_layer_config\" is not a list of the {} layers of type \"{}\", the same for "
          "each",
          where, full, kFull);
    const ConfigFields fields(own, where + ": per_layer_config");
    for (const auto& [key, value] : own.items())
      if (key != "head_dim" && key != "num_key_value_heads")
        throw UserError("{}: \"{}\" is unknown; known are head_dim and num_key_value_heads",
                        fields.where(), key);
    c.json["global_head_dim"] = fields.integer_between("head_dim", 1, kLargestHead, c.head_dim);
    c.json["num_global_key_value_heads"] = own.value("num_key_value_heads", json());
  } else if (!list.is_null()) {
    throw UserError("{}: \"per_layer_config\" is not an object", where);
  }
  const ConfigFields fields(c.json, where);
  const int64_t head_dim = fields.integer_between("global_head_dim", 1, kLargestHead);
  const bool keys_are_values = fields.boolean("attention_k_eq_v", false);
  const int64_t heads = fields.integer_between("num_global_key_value_heads", 1,
                                               c.num_attention_heads, c.num_key_value_heads);
  if (heads != c.num_key_value_heads && !keys_are_values)
    throw UserError(
        "{}: num_global_key_value_heads = {} without attention_k_eq_v is not supported: versions "
        "of transformers disagree on it",
        where, heads);
  if (c.num_attention_heads % heads != 0 || head_dim % 2 != 0)
    throw UserError(
        "{}: {} attention heads of {} (global_head_dim) cannot share {} key-value heads "
        "(num_global_key_value_heads) evenly, or rotate by halves",
        where, c.num_attention_heads, head_dim, heads);
  c.rotated.dim = head_dim;
  for (Layer& layer : c.layers) {
    if (layer.sliding_window > 0) continue;
    layer.head_dim = head_dim;
    layer.num_key_value_heads = heads;
    layer.keys_are_values = keys_are_values;
  }
}

// The last layers attend to what the last layer of their type before them made.
void read_shared_keys(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  const int64_t sharing =
      fields.integer_between("num_kv_shared_layers", 0, c.num_hidden_layers - 1, 0);
  const auto own = c.layers.end() - sharing;
  for (auto layer = own; layer != c.layers.end(); ++layer) {
    const auto is_alike = [&](const Layer& other) {
      return (other.sliding_window > 0) == (layer->sliding_window > 0);
    };
    const auto found = std::find_if(std::make_reverse_iterator(own), c.layers.rend(), is_alike);
    if (found == c.layers.rend())
      throw UserError(
          "{}: num_kv_shared_layers = {}: no layer before those is of the type of layer {}, whose "
          "keys and values it would share",
          where, sharing, layer - c.layers.begin());
    layer->keys_of = std::distance(found, c.layers.rend()) - 1;
    found->last_reader = layer - c.layers.begin();
    if (fields.boolean("use_double_wide_mlp", false)) layer->intermediate_size *= 2;
  }
}

}  // namespace

// Also writes both forms of the pattern, for every version of transformers.
void read_layers(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  std::vector<int64_t> rotates = rotating_layers(c.json, c.num_hidden_layers, where);
  std::vector<bool> slides = sliding_layers(c, rotates, where);
  // As transformers does with a warning.
  if (c.family->last_sees_all) slides.back() = false;
  if (c.family->window_rope == WindowRope::Alone && fields.has("sliding_window"))
    std::ranges::copy(slides, rotates.begin());
  else if (c.family->window_rope == WindowRope::Alone)
    c.json["sliding_window_pattern"] = 0;  // as transformers writes it
  const Rotation of_windows =
      fields.has("rope_local_base_freq") || c.family->window_rope == WindowRope::Unscaled
          ? Rotation::Window
          : Rotation::Model;
  const bool any_slides = std::ranges::find(slides, true) != slides.end();
  const int64_t window =
      any_slides ? fields.integer_between("sliding_window", 1, int64_t{1} << 40) : 0;
  json types = json::array();
  int64_t first_window = c.num_hidden_layers;
  for (size_t layer = slides.size(); layer-- > 0;)
    if (slides[layer]) first_window = static_cast<int64_t>(layer);
  const json given = c.json.value("layer_types", json());
  if (given.is_null()) c.other_layers = nullptr;
  json attending = json::array();
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    const bool is_other = c.other_layers != nullptr && given[layer] == c.other_layers;
    if (!is_other) attending.push_back(layer);
    types.push_back(is_other ? c.other_layers : slides[layer] ? kSliding : kFull);
    c.layers.push_back({.mixer = !is_other               ? MixerKind::Attention
                                 : c.mamba_heads > 0     ? MixerKind::Mamba
                                 : c.delta_key_heads > 0 ? MixerKind::DeltaRule
                                                         : MixerKind::ShortConvolution,
                        .sliding_window = slides[layer] ? window : 0,
                        .rotation = rotates[layer] == 0 ? Rotation::None
                                    : slides[layer]     ? of_windows
                                                        : Rotation::Model,
                        .intermediate_size = c.intermediate_size,
                        .head_dim = c.head_dim,
                        .num_key_value_heads = c.num_key_value_heads});
    if (slides[layer]) c.sliding_window = window;
  }
  if (c.json.contains("layer_types")) c.json["layer_types"] = std::move(types);
  if (c.json.contains("full_attn_idxs")) c.json["full_attn_idxs"] = std::move(attending);
  if (c.json.contains("max_window_layers") && c.sliding_window > 0)
    c.json["max_window_layers"] = first_window;
  if (c.json.contains("use_sliding_window") && c.sliding_window == 0) {
    c.json["use_sliding_window"] = false;
    c.json["sliding_window"] = nullptr;
  }
  c.window_rotated = c.rotated;
  if (c.json.contains("global_head_dim")) read_global_heads(c, where);
  if (c.json.contains("num_kv_shared_layers")) read_shared_keys(c, where);
}

}  // namespace snug::models::decoder
