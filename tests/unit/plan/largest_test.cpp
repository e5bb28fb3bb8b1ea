// How --largest resizes a config. What it finds is tested by tests/system/plan_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/command/plan_largest.h"

namespace snug::plan {
namespace {

using nlohmann::json;

TEST(Largest, ResizesInTheProportionsOfAConfig) {
  const json config = {
      {"model_type", "llama"},     {"num_hidden_layers", 22}, {"num_attention_heads", 32},
      {"num_key_value_heads", 4},  {"hidden_size", 2048},     {"head_dim", 64},
      {"intermediate_size", 5632}, {"vocab_size", 32000},     {"rope_theta", 10000}};
  json expected = config;
  expected["num_hidden_layers"] = 30;
  expected["num_attention_heads"] = 40;
  expected["num_key_value_heads"] = 5;
  expected["hidden_size"] = 2560;
  expected["intermediate_size"] = 7040;
  EXPECT_EQ(resized_config(config, {.heads = 40, .layers = 30}), expected);
  EXPECT_EQ(resized_config(config, {.heads = 8, .layers = 1})["intermediate_size"], 1408);
  EXPECT_EQ(resized_config(config, {.heads = 32, .layers = 22}), config);
}

TEST(Largest, GoesOnWithWhatIsSaidOfEachLayer) {
  const json config = {{"n_layer", 3},
                       {"n_head", 2},
                       {"n_embd", 32},
                       {"n_inner", {}},
                       {"kinds", {"a", "a", "b"}},
                       {"eos_token_id", {1, 2}}};
  const json resized = resized_config(config, {.heads = 4, .layers = 5});
  EXPECT_EQ(resized["kinds"], json({"a", "a", "b", "a", "a"}));
  EXPECT_EQ(resized["eos_token_id"], json({1, 2}));
  EXPECT_EQ(resized["n_embd"], 64);
  EXPECT_TRUE(resized["n_inner"].is_null());
}

TEST(Largest, RefusesWhatItCannotResize) {
  const json config = {{"model_type", "blip-2"}, {"text_config", {{"num_hidden_layers", 2}}}};
  try {
    resized_config(config, {.heads = 4, .layers = 5});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("resize a blip-2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace snug::plan
