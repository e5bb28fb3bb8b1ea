// Mixtures of experts as published, on cards that people have. A plan knows no routes: it is the
// same for any, so what fits here fits however a router chooses (docs/decisions/0014).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "core/memory/ledger.h"
#include "models/family.h"
#include "plan/candidate.h"
#include "recipe/parse.h"
#include "support/source_dir.h"

namespace snug::plan {
namespace {

struct OnCard {
  const char* model;
  const char* device;
  int64_t seqlen;
  std::vector<std::string> options;  // beside the shipped recipe's
  double device_gib, host_gib;       // at most
};

class MixturesOnCards : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  static Candidate planned(const OnCard& c) {
    const std::filesystem::path recipes = tests::source_dir() / "recipes";
    std::vector<std::string> words{"finetune_lora", "--config",
                                   (recipes / c.model / "qlora.yaml").string(),
                                   "--train.max_seq_length", std::to_string(c.seqlen)};
    words.insert(words.end(), c.options.begin(), c.options.end());
    const recipe::Recipe recipe = recipe::parse_command_line(words).recipe;
    const auto model =
        models::model_from_config(recipes / "models" / (std::string(c.model) + ".json"));
    const std::vector<int32_t> ids(static_cast<size_t>(c.seqlen), 1);
    data::SampleStore samples;
    samples.append({.ids = ids, .labels = ids});
    samples.repeat_to(recipe.train.global_batch_size);
    return evaluate(*model, recipe, {samples, c.seqlen, model->reads()}, find_profile(c.device, 0));
  }
};

TEST_F(MixturesOnCards, QuantizedFit) {
  const std::vector<std::string> recomputed{"--activation_checkpointing", "all"};
  const std::vector<std::string> streamed{"--optimizer_offload", "cpu", "--weight_streaming",
                                          "true"};
  std::vector<std::string> from_disk = streamed;
  from_disk.insert(from_disk.end(), {"--weight_offload", "disk:/mnt/nvme"});
  const OnCard cases[] = {
      // 24 GB, all on the card.
      {"qwen3-30b-a3b", "rtx-4090", 512, {}, 19, 0.1},
      {"qwen3-30b-a3b", "rtx-4090", 4096, recomputed, 18.5, 0.1},
      // A block at a time, the others' experts on the host.
      {"qwen3-30b-a3b", "rtx-4090", 512, streamed, 3.5, 17.5},
      {"qwen3-30b-a3b", "rtx-4090", 512, from_disk, 3.5, 2},
      // 16 GB, of which this card has 14.6 for programs.
      {"gpt-oss-20b", "t4", 512, {}, 14, 0.1},
      {"gpt-oss-20b", "t4", 4096, recomputed, 14, 0.1},
      {"gpt-oss-20b", "t4", 512, streamed, 3.5, 13},
  };
  for (const OnCard& c : cases) {
    SCOPED_TRACE(std::string(c.model) + " " + std::to_string(c.seqlen) + " tokens on " + c.device);
    const Candidate candidate = planned(c);
    const Prediction& p = candidate.prediction;
    EXPECT_TRUE(fits(candidate, find_profile(c.device, 0)));
    EXPECT_LE(static_cast<double>(p.peak_reserved) / kGiB, c.device_gib);
    EXPECT_LE(static_cast<double>(p.peak_host) / kGiB, c.host_gib);
  }
}

// In 16 bits neither fits a card of 24 GB; with the experts on the host both do.
TEST_F(MixturesOnCards, UnquantizedExpertsFitFromTheHost) {
  const std::vector<std::string> plain{"--quantize", "null"};
  std::vector<std::string> streamed = plain;
  streamed.insert(streamed.end(), {"--optimizer_offload", "cpu", "--weight_streaming", "true"});
  for (const char* model : {"qwen3-30b-a3b", "gpt-oss-20b"}) {
    const DeviceProfile card = find_profile("rtx-4090", 0);
    EXPECT_FALSE(fits(planned({model, "rtx-4090", 512, plain}), card)) << model;
    const Candidate from_host = planned({model, "rtx-4090", 512, streamed});
    EXPECT_TRUE(fits(from_host, card)) << model;
    EXPECT_LE(static_cast<double>(from_host.prediction.peak_reserved) / kGiB, 5) << model;
    const auto peak_of_blocks = [&](std::vector<std::string> options) {
      options.insert(options.end(), streamed.begin(), streamed.end());
      options.insert(options.end(), {"--activation_checkpointing", "all"});
      return planned({model, "rtx-4090", 512, options}).prediction.peak_allocated;
    };
    EXPECT_GE(
        static_cast<double>(peak_of_blocks({}) - peak_of_blocks({"--expert_streaming", "true"})) /
            kGiB,
        1.3)
        << model << " one expert at a time";
  }
}

}  // namespace
}  // namespace snug::plan
