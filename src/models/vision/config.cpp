// SPDX-License-Identifier: Apache-2.0
#include "models/vision/config.h"

#include <cmath>

#include "base/error.h"

namespace snug::models::vision {
namespace {

using nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 20;  // larger than any real model's sizes
constexpr int64_t kMostLayers = 4096;

std::array<float, 3> three_numbers(const ConfigFields& fields, const char* key,
                                   const std::array<float, 3>& fallback) {
  const std::vector<double> values = fields.numbers(key);
  if (values.empty()) return fallback;
  if (values.size() != 3)
    throw UserError("{}: {} has {} numbers; it needs three, for red, green and blue",
                    fields.where(), key, values.size());
  return {static_cast<float>(values[0]), static_cast<float>(values[1]),
          static_cast<float>(values[2])};
}

// Other forms of "size" are other families'.
int64_t longest_edge(const json& root, int64_t fallback) {
  const json size = root.is_object() ? root.value("size", json()) : json();
  const json edge = size.is_object() ? size.value("longest_edge", json()) : json();
  return edge.is_number_integer() && edge.get<int64_t>() > 0 ? edge.get<int64_t>() : fallback;
}

}  // namespace

double deviation(const ConfigFields& fields, double fallback) {
  constexpr double kLeast = 1e-6;
  const double found = fields.number("initializer_range", fallback);
  return found >= kLeast ? found : fallback;
}

void check_heads(const ConfigFields& fields, int64_t hidden_size, int64_t heads) {
  if (hidden_size % heads != 0)
    throw UserError("{}: hidden_size = {} is not a multiple of num_attention_heads = {}",
                    fields.where(), hidden_size, heads);
  constexpr int64_t kMostOfHead = 256;  // of the attention kernels
  if (hidden_size / heads > kMostOfHead)
    throw UserError("{}: heads of {} features (hidden_size / num_attention_heads); {} are the most",
                    fields.where(), hidden_size / heads, kMostOfHead);
}

Config read_config(const ConfigFields& fields, Config c) {
  c.hidden_size = fields.integer_between("hidden_size", 1, kMost, c.hidden_size);
  c.intermediate_size = fields.integer_between("intermediate_size", 1, kMost, c.intermediate_size);
  c.num_hidden_layers =
      fields.integer_between("num_hidden_layers", 1, kMostLayers, c.num_hidden_layers);
  c.num_attention_heads =
      fields.integer_between("num_attention_heads", 1, kMost, c.num_attention_heads);
  c.image_size = fields.integer_between("image_size", 1, kMost, c.image_size);
  c.patch_size = fields.integer_between("patch_size", 1, c.image_size, c.patch_size);
  c.hidden_act = fields.text("hidden_act", c.hidden_act);
  c.activation = ops::activation_of(c.hidden_act, fields.where());
  c.layer_norm_eps = fields.number("layer_norm_eps", c.layer_norm_eps);
  c.attention_dropout = fields.probability("attention_dropout", c.attention_dropout);
  c.qkv_bias = fields.boolean("qkv_bias", c.qkv_bias);
  c.initializer_range = deviation(fields, c.initializer_range);
  fields.integer_between("num_channels", 3, 3, 3);
  check_heads(fields, c.hidden_size, c.num_attention_heads);
  return c;
}

Pixels read_pixels(const json& root, const std::string& where, Pixels pixels) {
  const ConfigFields fields(root, where);
  constexpr double kUsual = 1.0 / 255;
  if (const double factor = fields.number("rescale_factor", kUsual);
      !fields.boolean("do_rescale", true) || std::abs(factor - kUsual) > 1e-9)
    throw UserError(
        "{}: the file scales pixels by {}; only 1/255 is supported (rescale_factor, do_rescale)",
        where, fields.boolean("do_rescale", true) ? factor : 1.0);
  pixels.longest_edge = longest_edge(root, pixels.longest_edge);
  pixels.cuts = fields.boolean("do_image_splitting", pixels.cuts);
  if (!fields.boolean("do_normalize", true)) {
    pixels.mean = {0, 0, 0};
    pixels.std = {1, 1, 1};
    return pixels;
  }
  pixels.mean = three_numbers(fields, "image_mean", pixels.mean);
  pixels.std = three_numbers(fields, "image_std", pixels.std);
  for (const float deviation : pixels.std)
    if (!(deviation > 0)) throw UserError("{}: image_std = {} must be positive", where, deviation);
  return pixels;
}

}  // namespace snug::models::vision
