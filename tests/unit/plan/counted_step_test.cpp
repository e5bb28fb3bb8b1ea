// The operations of a step are those that were last recorded (tests/data/plan/operations.json):
// what takes more launches or moves more bytes is named, and so is what takes less, to be recorded:
// SNUG_WRITE_REFERENCE=1. How they agree with what a GPU does is tested by
// tests/build/simulated_program.py.
// SPDX-License-Identifier: Apache-2.0
#include "plan/counted_step.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "core/memory/ledger.h"
#include "data/synthetic.h"
#include "models/family.h"
#include "support/source_dir.h"

namespace snug::plan {
namespace {

using nlohmann::json;

const std::filesystem::path kRecorded = "tests/data/plan/operations.json";

struct Case {
  const char* model;
  const char* optimizer;
  int64_t micro_batch_size, seqlen;
};

class CountedStepOn : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  static CountedStep count(
      const Case& c, const char* device,
      const std::function<void(recipe::Recipe&)>& change = [](recipe::Recipe&) {}) {
    recipe::Recipe recipe;
    recipe.precision = "bf16-true";
    recipe.optimizer = {.name = c.optimizer};
    recipe.activation_checkpointing = "selective";
    recipe.train.micro_batch_size = recipe.train.global_batch_size = c.micro_batch_size;
    recipe.train.max_seq_length = c.seqlen;
    change(recipe);
    const auto model = models::model_from_config(tests::source_dir() / "recipes/models" /
                                                 (std::string(c.model) + ".json"));
    const data::Reading reading = model->reads();
    data::SampleStore samples;
    samples.append(data::full_length_sample(c.seqlen, reading, [] { return 1; }));
    samples.repeat_to(c.micro_batch_size);
    return count_step(*model, recipe,
                      {.samples = samples, .max_seqlen = c.seqlen, .reading = reading},
                      find_profile(device, 0));
  }
};

class CountedStepTest : public CountedStepOn, public ::testing::WithParamInterface<Case> {
 protected:
  static CountedStep count() { return CountedStepOn::count(GetParam(), "h100-80"); }
};

double launches_of(const CountedStep& step, const std::string& name) {
  for (const Operation& o : step.operations)
    if (o.name == name) return o.launches;
  return 0;
}

// libtorch's flash attention wants Ampere: a plan for what came before counts products and sweeps
// over their scores, whatever GPU the plan is made on.
TEST_F(CountedStepOn, AnOlderGpuHasNoFlashAttention) {
  for (const auto& [device, flash] : {std::pair{"v100-32", false}, {"t4", false}, {"a10", true}}) {
    const CountedStep step = count({"tiny-llama", "adamw", 1, 512}, device);
    EXPECT_EQ(launches_of(step, "aten::_flash_attention_forward") > 0, flash) << device;
    EXPECT_EQ(launches_of(step, "attention_softmax") > 0, !flash) << device;
  }
}

// Mixed precision casts each weight for each product; kept, once a step.
TEST_F(CountedStepOn, KeptCastsAreMadeOnceAStep) {
  Case c{"tiny-llama", "adamw", 1, 512};
  const auto copies = [&](bool kept, int64_t micro_batches) {
    return launches_of(count(c, "a100-80",
                             [&](recipe::Recipe& r) {
                               r.precision = "bf16-mixed";
                               r.cast_cache = kept;
                               r.train.global_batch_size = micro_batches;
                             }),
                       "aten::copy_");
  };
  constexpr int kMatrices = 22 * 7;  // of the blocks: forward and backward; the head's once
  for (const int64_t k : {1, 4}) {
    SCOPED_TRACE(k);
    EXPECT_EQ(copies(false, k) - copies(true, k), kMatrices * (2 * k - 1) + (k - 1));
    EXPECT_GE(copies(true, k), kMatrices + 1);
  }
}

// Recorded passes are launched with one call each: what is left for the host are copies of what the
// micro-batches hold, the norm and the update. The GPU's part is the same but for those copies.
TEST_F(CountedStepOn, GraphsLeaveTheHostAFewLaunches) {
  const Case c{"smollm2-135m", "adamw", 1, 512};
  for (const int64_t k : {1, 3}) {
    SCOPED_TRACE(k);
    const auto with = [&](bool graphs) {
      return count(c, "h100-80", [&](recipe::Recipe& r) {
        r.train.global_batch_size = k;
        r.cuda_graphs = graphs;
      });
    };
    const CountedStep plain = with(false), graphs = with(true);
    constexpr int kCopies = 5;  // ids, targets, positions, and a key twice
    EXPECT_EQ(plain.host_launches(), plain.launches());
    EXPECT_EQ(graphs.launches(), plain.launches() + kCopies * k);
    EXPECT_EQ(graphs.graphs, k);
    EXPECT_LT(graphs.host_launches(), 100 + (kCopies + 1) * k);
    EXPECT_GT(plain.host_launches(), 900 * k);
    EXPECT_EQ(graphs.host_waits, plain.host_waits);
  }
}

// Numbers that a change of snug changes, and nothing else does.
json figures(const CountedStep& step) {
  json operations;
  for (const Operation& o : step.operations)
    operations[o.name] = {{"launches", o.launches},
                          {"megabytes", std::round((o.bytes_read + o.bytes_written) / 1e6)},
                          {"gigaflops", std::round(o.flops / 1e9)}};
  return {{"launches", step.launches()},
          {"launches_per_block", std::round(step.block_launches * 10) / 10},
          {"bytes_per_token", std::round(step.bytes() / step.tokens)},
          {"share_of_peak", std::round(step.share_of_peak() * 1000) / 1000},
          {"operations", operations}};
}

json recorded() {
  const std::filesystem::path file = tests::source_dir() / kRecorded;
  return std::filesystem::exists(file) ? json::parse(std::ifstream(file)) : json::object();
}

TEST_P(CountedStepTest, IsAsRecorded) {
  const CountedStep step = count();
  const json is = figures(step);
  json all = recorded();
  if (std::getenv("SNUG_WRITE_REFERENCE") != nullptr) {
    all[GetParam().model] = is;
    write_file_atomically(tests::source_dir() / kRecorded, all.dump(1) + "\n");
    return;
  }
  const json& was = all.at(GetParam().model);
  for (const auto& [name, figures] : is["operations"].items())
    EXPECT_EQ(figures, was["operations"].value(name, json::object())) << name;
  EXPECT_EQ(is, was);
}

// Every product of the model is an operation of the step: as many as FLOPs of the formula, and with
// recomputation of none of them.
TEST_P(CountedStepTest, HasTheModelsProducts) {
  const CountedStep step = count();
  double flops = 0, attention = 0;
  for (const Operation& o : step.operations)
    (o.name.find("attention") != std::string::npos ? attention : flops) += o.flops;
  const double expected = step.product_seconds * find_profile("h100-80", 0).flops_16bit;
  // A flash kernel computes the scores of its backward again: 7 products where the formula has 6.
  EXPECT_NEAR((flops + attention * 6 / 7) / expected, 1, 0.02);
}

// 8192 tokens a step, as published figures of other programs have it; 16 pictures with captions of
// 50 tokens.
INSTANTIATE_TEST_SUITE_P(Models, CountedStepTest,
                         ::testing::Values(Case{"tiny-llama", "adamw", 4, 2048},
                                           Case{"qwen2.5-1.5b", "adamw_8bit", 4, 2048},
                                           Case{"open-llama-3b", "adamw_8bit", 4, 2048},
                                           Case{"open-llama-7b", "adamw_8bit", 4, 2048},
                                           Case{"blip2-opt-2.7b", "adamw_8bit", 16, 82}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

}  // namespace
}  // namespace snug::plan
