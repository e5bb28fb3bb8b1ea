// The names that Lightning scripts give their options say what snug's own do.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "recipe/batches.h"
#include "recipe/check.h"
#include "recipe/print.h"
#include "support.h"

namespace snug::recipe {
namespace {

Recipe recipe_of(const std::string& options) {
  return parse("finetune_full --checkpoint_dir m --data.json_path d " + options).recipe;
}

std::string faults_of(const Recipe& recipe) {
  std::string all;
  for (const std::string& fault : recipe_faults(Command::FinetuneFull, recipe)) all += fault + "\n";
  return all;
}

TEST(LightningNames, SayTheSameAsOurs) {
  const Recipe theirs = recipe_of(
      "--model_name org/model --batch_size 16 --accumulate_grad_batches 4 --precision fp16-true "
      "--optim sgd --lr 5e-6 --act_ckpt True --max_epochs 2 --max_steps -1 --num_workers 8 "
      "--limit_train_batches 1.0 --enable_checkpointing False --num_train_samples 512 "
      "--save_model False --strategy fsdp");
  const Recipe ours = recipe_of(
      "--checkpoint_dir org/model --train.micro_batch_size 16 --train.accumulate_grad_batches 4 "
      "--precision 16-true --optimizer SGD --optimizer.lr 5e-6 --activation_checkpointing all "
      "--train.epochs 2 --train.max_steps null --data.num_workers 8 --train.limit_train_batches "
      "1.0 --train.save_interval null --data.max_samples 512 --train.save_model false --strategy "
      "FULL_SHARD");
  EXPECT_TRUE(same_values(theirs, ours));
  EXPECT_EQ(theirs.given_keys, ours.given_keys);
  EXPECT_EQ(theirs.train.global_batch_size, 64);
  EXPECT_FALSE(theirs.train.max_steps);
  EXPECT_FALSE(theirs.train.save_interval);
  EXPECT_FALSE(theirs.train.save_model);
  EXPECT_EQ(theirs.data.max_samples, 512);
  EXPECT_EQ(faults_of(theirs), "");
}

TEST(LightningNames, StandInAFile) {
  const TemporaryFile file(
      "model_name: org/model\nbatch_size: 8\naccumulate_grad_batches: 2\nact_ckpt: False\n"
      "max_epochs: -1\nmax_steps: 10\nenable_checkpointing: True\noptim: adamw\nlr: 2e-5\n");
  const Recipe r = parse("finetune_full --batch_size 4 --config " + file.string()).recipe;
  EXPECT_EQ(r.checkpoint_dir, "org/model");
  EXPECT_EQ(r.train.micro_batch_size, 4);
  EXPECT_EQ(r.train.global_batch_size, 8);
  EXPECT_EQ(r.activation_checkpointing, "none");
  EXPECT_FALSE(r.train.epochs);
  EXPECT_EQ(r.train.max_steps, 10);
  EXPECT_EQ(r.train.save_interval, 1000);
  EXPECT_EQ(r.optimizer.lr, 2e-5);
}

TEST(LightningNames, StandAloneWhereTheyAreFlags) {
  const Recipe r = recipe_of("--act_ckpt --batch_size 16");
  EXPECT_EQ(r.activation_checkpointing, "all");
  EXPECT_EQ(r.train.micro_batch_size, 16);
}

TEST(LightningNames, AccumulationCountsAllDevices) {
  const std::string base = "--batch_size 16 --accumulate_grad_batches 4 --devices 4 ";
  EXPECT_EQ(recipe_of(base + "--strategy ddp").train.global_batch_size, 256);
  EXPECT_EQ(recipe_of(base + "--num_nodes 2").train.global_batch_size, 512);
  EXPECT_EQ(recipe_of(base + "--mesh fsdp=2,tp=2").train.global_batch_size, 128);
  Recipe later = recipe_of("--batch_size 2 --accumulate_grad_batches 3 --devices auto");
  later.devices = "8";
  resolve_batches(later);
  EXPECT_EQ(later.train.global_batch_size, 48);
}

TEST(LightningNames, AccumulationAndGlobalBatchMustAgree) {
  const std::string base = "--batch_size 16 --accumulate_grad_batches 4 --train.global_batch_size ";
  EXPECT_EQ(faults_of(recipe_of(base + "64")), "");
  const std::string fault = faults_of(recipe_of(base + "32"));
  EXPECT_CONTAINS(fault,
                  "train.accumulate_grad_batches = 4 contradicts train.global_batch_size = 32");
  EXPECT_CONTAINS(fault, "are 64 samples");
  EXPECT_CONTAINS(fault, "leave out one of the two");
}

TEST(LightningNames, OptimizersOfOtherLibraries) {
  const Recipe small = recipe_of("--optim adam_8bit --lr 2e-5");
  EXPECT_EQ(small.optimizer.name, "adamw_8bit");
  EXPECT_EQ(small.optimizer.weight_decay, 0);
  EXPECT_EQ(small.optimizer_offload, "none");
  EXPECT_EQ(recipe_of("--optimizer bitsandbytes.optim.Adam8bit").optimizer.name, "adamw_8bit");
  const Recipe host =
      recipe_of("--optim deepspeed_cpu --strategy deepspeed_stage_2_offload --precision bf16-true");
  EXPECT_EQ(host.optimizer.name, "adamw");
  EXPECT_EQ(host.optimizer.state_dtype, "float32");
  EXPECT_TRUE(host.optimizer.master_weights);
  EXPECT_EQ(host.optimizer_offload, "cpu");
  EXPECT_EQ(host.strategy, "zero2");
  EXPECT_EQ(faults_of(host), "");
  EXPECT_FALSE(recipe_of("--optim deepspeed_cpu --precision 32-true").optimizer.master_weights);
}

// Adam with decay is not AdamW.
TEST(LightningNames, EightBitAdamHasNoDecay) {
  EXPECT_CONTAINS(error_of([] { recipe_of("--optim adam_8bit --optimizer.weight_decay 0.1"); }),
                  "adamw_8bit");
}

TEST(LightningNames, AdaptersBySwitches) {
  const auto lora = [](const std::string& options) {
    return parse("finetune --checkpoint_dir m " + options).recipe;
  };
  EXPECT_TRUE(lora("--use_lora").lora.enabled);
  EXPECT_FALSE(lora("--use_lora false").lora.enabled);
  EXPECT_EQ(lora("--use_lora true --use_qlora false").quantize, "");
  const Recipe qlora = lora("--use_lora False --use_qlora True");
  EXPECT_TRUE(qlora.lora.enabled);
  EXPECT_EQ(qlora.quantize, "bnb.nf4");
  EXPECT_FALSE(lora("--use_lora false --use_qlora false").lora.enabled);
  EXPECT_TRUE(parse("plan --model.config c --use_lora").recipe.lora.enabled);
  EXPECT_FALSE(
      parse("plan --model.config c --use_lora false --use_qlora false").recipe.lora.enabled);
}

TEST(LightningNames, LimitsAreSharesOrCounts) {
  EXPECT_EQ(batch_limit("1.0")->of(32), 32);
  EXPECT_EQ(batch_limit("0.25")->of(32), 8);
  EXPECT_EQ(batch_limit("0.001")->of(32), 1);
  EXPECT_EQ(batch_limit("1")->of(32), 1);
  EXPECT_EQ(batch_limit("40")->of(32), 32);
  for (const char* wrong : {"0", "0.0", "-1", "1.5", "all", ""})
    EXPECT_FALSE(batch_limit(wrong)) << wrong;
  EXPECT_CONTAINS(faults_of(recipe_of("--limit_train_batches 1.5")), "limit_train_batches = 1.5");
}

// What is printed reads back as the same recipe.
TEST(LightningNames, PrintAndReadBack) {
  const Recipe r = recipe_of(
      "--batch_size 16 --accumulate_grad_batches 4 --act_ckpt --save_model "
      "false --enable_checkpointing false");
  const TemporaryFile file(print_recipe_yaml(r));
  const Recipe again = parse("finetune_full --config " + file.string()).recipe;
  EXPECT_TRUE(same_values(again, r));
  EXPECT_FALSE(contains(faults_of(again), "accumulate_grad_batches"));
}

}  // namespace
}  // namespace snug::recipe
