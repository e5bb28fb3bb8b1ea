// Runs that go on with the devices laid out otherwise, as the program does it. What of a checkpoint
// is the same to the bit and what is not: tests/dist/resume_test.cpp, tests/unit/files/checkpoint.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "system/ranks.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

class ResumedRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "no mpirun here (Debian: openmpi-bin)";
    // Large enough for 8-bit states; a half of a row is no whole block of 256.
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"model_type", "llama"},
                                   {"vocab_size", 300},
                                   {"hidden_size", 128},
                                   {"intermediate_size", 192},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 4},
                                   {"max_position_embeddings", 64},
                                   {"hidden_act", "silu"},
                                   {"rms_norm_eps", 1e-5},
                                   {"tie_word_embeddings", false}};
    write_file_atomically(folder_ / "config.json", config.dump());
  }

  // Up to this step, with the same rate in all of them.
  Result train(const std::string& out, int64_t steps, const Words& more) const {
    Words all{"finetune_full",
              "--model.config",
              folder_ / "config.json",
              "--data",
              "Synthetic",
              "--out_dir",
              folder_ / out,
              "--train.max_seq_length",
              "32",
              "--data.max_samples",
              "64",
              "--train.global_batch_size",
              "8",
              "--train.micro_batch_size",
              "2",
              "--train.max_steps",
              std::to_string(steps),
              "--train.epochs",
              "10",
              "--train.lr_warmup_steps",
              "0",
              "--optimizer.lr",
              "0.003",
              "--train.min_lr",
              "0.003",
              "--eval.num_samples",
              "0",
              "--precision",
              "32-true",
              "--resume",
              "auto",
              "--train.save_interval",
              "3"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }

  void expect_losses(const std::string& out, const std::string& wanted, double tolerance) const {
    const auto a = read_run(folder_ / wanted)["steps"], b = read_run(folder_ / out)["steps"];
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const double loss = a[i]["loss"];
      EXPECT_NEAR(b[i]["loss"], loss, tolerance * loss) << "step " << i + 1;
    }
  }

  const TempFolder folder_;
};

const Words kEightBits{"--optimizer", "AdamW8bit"};
const Words kPair{"--optimizer", "AdamW8bit", "--devices", "2", "--mesh", "tp=2"};
constexpr const char* kWarning = "rounded once more";

TEST_F(ResumedRanks, EightBitStatesWithAnotherTensorParallelism) {
  Result result = train("straight", 6, kEightBits);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  for (const auto& [name, first, second] :
       {std::tuple("to one", kPair, kEightBits), std::tuple("to two", kEightBits, kPair)}) {
    SCOPED_TRACE(name);
    result = train(name, 3, first);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(count(result.output, kWarning), 0U) << result.output;
    result = train(name, 6, second);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(count(result.output, kWarning), 1U) << result.output;
    expect_losses(name, "straight", 2e-3);
  }
}

// A rank's file is lost, or not whole: the checkpoint before it is taken, by fewer ranks too.
TEST_F(ResumedRanks, AreNotStoppedByALostFile) {
  const Words shards{"--devices", "2", "--strategy", "fsdp"};
  Result result = train("straight", 9, shards);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  for (const bool removed : {true, false}) {
    const std::string name = removed ? "removed" : "cut short";
    SCOPED_TRACE(name);
    result = train(name, 6, shards);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const fs::path file = folder_ / name / "step-000006/optimizer-of-rank-0001-of-0002.safetensors";
    if (removed)
      fs::remove(file);
    else
      fs::resize_file(file, fs::file_size(file) / 2);
    result = train(name, 9, {});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(count(result.output, "step-000006 is incomplete"), 1U) << result.output;
    expect_losses(name, "straight", 1e-4);
  }
}

}  // namespace
}  // namespace snug::tests
