// The rotary embedding of config.json: brought to one form from those that versions of transformers
// write, then into numbers.
// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/config/rope.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models::decoder {
namespace {

using kernels::cpu::RopeScaling;
using kernels::cpu::RopeType;
using nlohmann::json;

constexpr const char* kOriginal = "original_max_position_embeddings";

RopeType rope_type(const std::string& type, const std::string& where) {
  static constexpr std::array<std::pair<const char*, RopeType>, 9> kNames = {{
      {"default", RopeType::None},
      {"none", RopeType::None},
      {"linear", RopeType::Linear},
      {"dynamic", RopeType::Dynamic},
      {"llama3", RopeType::Llama3},
      {"yarn", RopeType::Yarn},
      {"longrope", RopeType::LongRope},
      {"su", RopeType::LongRope},
      {"proportional", RopeType::Proportional},
  }};
  for (const auto& [name, known] : kNames)
    if (type == name) return known;
  throw UserError(
      "{}: rope scaling of type \"{}\" is unknown; supported are linear, dynamic, llama3, yarn, "
      "longrope and proportional",
      where, type);
}

std::string rope_type_name(const json& rope, const std::string& where) {
  const ConfigFields fields(rope, where);
  return fields.text("rope_type", fields.text("type", "default"));
}

// One of transformers 5's objects: its base and its scaling, null if it has none.
std::pair<json, json> split_rope(json rope, const std::string& where, const json& base) {
  const ConfigFields fields(rope, where);  // refuses what is no object
  const json theta = rope.value("rope_theta", base);
  rope.erase("rope_theta");
  const RopeType type = rope_type(rope_type_name(rope, where), where);
  if (type != RopeType::Proportional) {
    if (fields.number("partial_rotary_factor", 1.0) != 1)
      throw UserError("{}: partial_rotary_factor is not supported here", where);
    rope.erase("partial_rotary_factor");
  }
  if (type == RopeType::None) rope = nullptr;
  return {theta, rope};
}

}  // namespace

void flatten_rope(Config& c, const json& file, const std::string& where) {
  json& config = c.json;
  const std::string_view family = c.family->model_type;
  // A family's own scaling, as gpt-oss has it, is meant where nothing is said, and "default" is no
  // scaling; transformers reads a null as nothing.
  const json usual = default_config(*c.family)["rope_scaling"];
  const json unscaled_name =
      usual.is_null() ? json() : json{{"rope_type", "default"}};  // what no scaling is written as
  if (!has_field(file, "rope_parameters") && !has_field(file, "rope_scaling"))
    config["rope_scaling"] = usual;
  if (has_field(file, "rope_parameters") && has_field(file, "rope_scaling"))
    throw UserError("{}: has both \"rope_parameters\" and \"rope_scaling\"; remove one", where);
  if (has_field(file, "rope_parameters")) {
    json rope = file["rope_parameters"];
    const std::string inside = where + ": rope_parameters";
    if (!rope.is_object()) throw UserError("{}: \"rope_parameters\" is not an object", where);
    // A text token has the same place on each of several axes.
    for (const char* axes : {"mrope_section", "mrope_interleaved"}) rope.erase(axes);
    if (rope.contains("partial_rotary_factor")) {
      const double factor = ConfigFields(rope, inside).number("partial_rotary_factor");
      if (!config.contains("partial_rotary_factor") && factor != 1)
        throw UserError("{}: partial_rotary_factor = {} is not supported for {}", inside, factor,
                        family);
      if (config.contains("partial_rotary_factor")) config["partial_rotary_factor"] = factor;
      rope.erase("partial_rotary_factor");
    }
    const bool by_layer = rope.contains(kFull) || rope.contains(kSliding);
    const bool unscaled = c.family->window_rope == WindowRope::Unscaled;
    if (by_layer != (unscaled || config.contains("rope_local_base_freq")))
      throw UserError("{}: rotary embeddings that {} by layer are not supported for {}", inside,
                      by_layer ? "differ" : "do not differ", family);
    if (by_layer) {
      for (const char* type : {kSliding, kFull})
        if (c.family->window_rope == WindowRope::ByLayer && !has_field(rope, type))
          throw UserError("{}: says nothing of \"{}\"", inside, type);
      const json local = rope.value(kSliding, json::object());
      rope = rope.value(kFull, json::object());
      const char* key = unscaled ? "rope_theta" : "rope_local_base_freq";
      const auto [base, scaling] = split_rope(local, inside, config[key]);
      if (!scaling.is_null())
        throw UserError("{}: {} with a scaled rotary embedding is not supported", inside, kSliding);
      if (unscaled && base != rope.value("rope_theta", config["rope_theta"]))
        throw UserError("{}: a rope_theta for {} alone is not supported for {}", inside, kSliding,
                        family);
      config[key] = base;
    }
    std::tie(config["rope_theta"], config["rope_scaling"]) =
        split_rope(rope, inside, config["rope_theta"]);
  }
  json& scaling = config["rope_scaling"];
  if (scaling.is_null()) {
    scaling = unscaled_name;
    return;
  }
  if (!scaling.is_object()) throw UserError("{}: \"rope_scaling\" is not an object", where);
  std::tie(config["rope_theta"], scaling) =
      split_rope(json(scaling), where + ": rope_scaling", config["rope_theta"]);
  if (scaling.is_null()) {
    scaling = unscaled_name;
    return;
  }
  const RopeType type = rope_type(rope_type_name(scaling, where), where);
  if (type != RopeType::LongRope && !default_config(*c.family)[kOriginal].is_null())
    throw UserError("{}: the rope_scaling of a {} model must be of type longrope", where, family);
  // transformers prefers the one beside the scaling, which Phi-3's class in version 4 wants there,
  // with no more than three keys in the scaling.
  const json original = config[kOriginal];
  if (original.is_null()) return;
  if (type == RopeType::Llama3 || type == RopeType::Yarn) scaling[kOriginal] = original;
  if (type != RopeType::LongRope) return;
  scaling.erase(kOriginal);
  scaling.erase("rope_type");
  scaling["type"] = "longrope";
}

void write_rope_by_layer(json& config) {
  json all = config["rope_scaling"].is_null() ? json{{"rope_type", "default"}}
                                              : json(config["rope_scaling"]);
  all["rope_theta"] = config["rope_theta"];
  config["rope_parameters"] = {
      {kFull, std::move(all)},
      {kSliding, {{"rope_type", "default"}, {"rope_theta", config["rope_local_base_freq"]}}}};
  for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq", kOriginal})
    config.erase(key);
}

RopeScaling rope_of(const json& config, const std::string& where) {
  const ConfigFields top(config, where);
  RopeScaling rope{.base = top.number("rope_theta")};
  if (!top.has("rope_scaling")) return rope;
  const std::string inside = where + ": rope_scaling";
  const json& object = config["rope_scaling"];
  for (const auto& [key, value] : object.items()) {
    static constexpr std::array kKnown = {"rope_type",
                                          "type",
                                          "factor",
                                          "low_freq_factor",
                                          "high_freq_factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "truncate",
                                          "mscale",
                                          "mscale_all_dim",
                                          "attention_factor",
                                          "short_factor",
                                          "long_factor",
                                          "original_max_position_embeddings",
                                          "partial_rotary_factor",
                                          "finetuned",
                                          "llama_4_scaling_beta",
                                          "max_position_embeddings"};
    if (std::ranges::find(kKnown, key) == kKnown.end())
      throw UserError("{}: \"{}\" is unknown; known are {}", inside, key, fmt::join(kKnown, ", "));
  }
  const ConfigFields fields(object, inside);
  rope.type = rope_type(rope_type_name(object, inside), where);
  // Each type's are required, as in transformers: without them nothing would be scaled.
  const bool is_llama3 = rope.type == RopeType::Llama3;
  const bool says_lengths = fields.has(kOriginal) || top.has(kOriginal);
  if (is_llama3 || rope.type == RopeType::Linear || rope.type == RopeType::Dynamic ||
      (rope.type == RopeType::Yarn && !says_lengths))
    rope.factor = fields.number("factor");
  else
    rope.factor = fields.number("factor", 1.0);
  if (is_llama3) {
    rope.low_freq_factor = fields.number("low_freq_factor");
    rope.high_freq_factor = fields.number("high_freq_factor");
  }
  const int64_t positions = top.integer("max_position_embeddings");
  // Some configs have it outside the scaling object.
  rope.original_max_position = fields.integer(kOriginal, top.integer(kOriginal, positions));
  if (rope.type == RopeType::Dynamic) rope.original_max_position = positions;
  if ((rope.type == RopeType::LongRope || rope.type == RopeType::Yarn) && !fields.has("factor") &&
      rope.original_max_position > 0)
    rope.factor = static_cast<double>(positions) / static_cast<double>(rope.original_max_position);
  rope.proportion = fields.positive("partial_rotary_factor", 1.0);
  rope.beta_fast = fields.number("beta_fast", 32.0);
  rope.beta_slow = fields.number("beta_slow", 1.0);
  rope.truncate = fields.boolean("truncate", true);
  rope.mscale = fields.number("mscale", 0.0);
  rope.mscale_all_dim = fields.number("mscale_all_dim", 0.0);
  rope.attention_factor = fields.number("attention_factor", 0.0);
  rope.short_factor = fields.numbers("short_factor");
  rope.long_factor = fields.numbers("long_factor");
  rope.query_beta = fields.number("llama_4_scaling_beta", 0.0);
  return rope;
}

}  // namespace snug::models::decoder
