// SPDX-License-Identifier: Apache-2.0
#include "recipe/check.h"

#include "base/log.h"
#include "recipe/batches.h"
#include "recipe/print.h"
#include "recipe/techniques/checkpointing.h"
#include "support.h"

namespace snug::recipe {
namespace {

// Faults of a full fine-tuning with these options, joined.
std::string faults_of(const std::string& options, const std::string& command = "finetune_full") {
  const ParsedCommand parsed = parse(command + " model.gguf --data.json_path d.json " + options);
  std::string all;
  for (const std::string& fault : recipe_faults(parsed.command, parsed.recipe)) all += fault + "\n";
  return all;
}

TEST(Check, AGoodRecipeHasNoFault) {
  EXPECT_EQ(faults_of(""), "");
  EXPECT_EQ(
      faults_of(
          "--train.max_steps 25 --optimizer SGD --optimizer.momentum 0.9 --optimizer.nesterov"),
      "");
  EXPECT_EQ(
      faults_of("--activation_checkpointing all --logger_name tensorboard --train.on_oom split"),
      "");
}

// The parts of a micro-batch would have its weight each.
TEST(Check, MeansOfMicroBatchesAreNotSplit) {
  const std::string split = "--train.on_oom split --train.loss_normalization ";
  EXPECT_CONTAINS(faults_of(split + "micro"), "use train.loss_normalization global");
  EXPECT_EQ(faults_of(split + "global"), "");
}

TEST(Check, BatchesNameTheNearestThatWork) {
  EXPECT_CONTAINS(
      faults_of("--train.global_batch_size 64 --train.micro_batch_size 24"),
      "train.micro_batch_size = 24 does not divide the 64 samples each device gets per step "
      "(train.global_batch_size 64); use 16 or 32");
  EXPECT_CONTAINS(faults_of("--train.global_batch_size 8 --train.micro_batch_size 16"),
                  "; use 8\n");
  EXPECT_CONTAINS(faults_of("--devices 3"), "does not divide evenly among 3 devices; use 18");
  EXPECT_CONTAINS(faults_of("--devices many"),
                  "devices = many: must be a whole number from 1, or auto");
  EXPECT_CONTAINS(faults_of("--devices 9000000000000000000"), "from 1 to 65536 in all");
  EXPECT_CONTAINS(faults_of("--train.global_batch_size 1048573 --train.micro_batch_size 65536"),
                  "use 1 or 1048573");
}

TEST(Check, SomethingMustEndTheRun) {
  EXPECT_CONTAINS(faults_of("--train.epochs null"), "the length of the run is not set");
  EXPECT_EQ(faults_of("--train.epochs null --train.max_tokens 1000"), "");
}

TEST(Check, SwitchesBesideNamedLayersAreIgnoredNotSilently) {
  std::string said;
  const LogSinkGuard sink([&](const std::string& text) { said += text; });
  recipe_faults(Command::FinetuneLora,
                recipe_from("lora_target_modules: q_proj\nlora_mlp: true\nlora_key: false\n", {},
                            Command::FinetuneLora));
  EXPECT_CONTAINS(said, "lora_target_modules = q_proj chooses the layers; lora_mlp is ignored");
}

TEST(Check, ValuesThatContradict) {
  EXPECT_CONTAINS(faults_of("--train.lr_warmup_fraction 0.1 --train.lr_warmup_steps 5"),
                  "are both set");
  EXPECT_EQ(faults_of("--train.lr_warmup_fraction 0.1"), "");
  EXPECT_CONTAINS(faults_of("--train.tie_embeddings true"), "has no effect in fine-tuning");
  EXPECT_CONTAINS(faults_of("--optimizer SGD --optimizer.betas 0.9,0.9"),
                  "sgd has no such argument");
  EXPECT_CONTAINS(faults_of("--optimizer.momentum 0.9"), "adamw has no such argument");
  EXPECT_CONTAINS(faults_of("--optimizer SGD --optimizer.nesterov"), "needs optimizer.momentum");
  EXPECT_CONTAINS(faults_of("--optimizer.betas 0.9,1"), "must be below 1");
  EXPECT_CONTAINS(faults_of("--eval.evaluate_example last"), "eval.evaluate_example = last");
  EXPECT_CONTAINS(faults_of("--activation_checkpointing every:0"), "must be none, all");
  EXPECT_CONTAINS(faults_of("--full false"), "always trains all weights");
  EXPECT_CONTAINS(faults_of("--use_lora"), "use snug finetune to train adapters");
  EXPECT_CONTAINS(faults_of("--data LIMA"), "applies to --data JSON, not to LIMA");
  EXPECT_CONTAINS(faults_of("--data.path x"), "data.path = x");
  EXPECT_CONTAINS(faults_of("--data TextFiles"), "data.path is not set");
  EXPECT_CONTAINS(faults_of("--data book.txt --data.packing false"),
                  "blocks of text have no padding");
  EXPECT_CONTAINS(faults_of("--data.val_path v --data.val_split_fraction 0.1"), "are both set");
  EXPECT_CONTAINS(faults_of("--data.val_split_fraction 1"), "leaves nothing to train on");
}

TEST(Check, EveryOptimizerIsThere) {
  for (const char* name : {"AdamW", "SGD", "bitsandbytes.optim.AdamW8bit", "torch.optim.Adafactor",
                           "lion", "bitsandbytes.optim.Lion", "bitsandbytes.optim.PagedAdamW"})
    EXPECT_EQ(faults_of(std::string("--optimizer ") + name), "") << name;
}

TEST(Check, RoundingFitsTheWeights) {
  EXPECT_EQ(faults_of("--precision bf16-true --optimizer.master_weights"), "");
  EXPECT_EQ(faults_of("--precision 16-true --optimizer.master_weights true"), "");
  EXPECT_EQ(faults_of("--precision bf16-true --optimizer.stochastic_rounding"), "");
  EXPECT_EQ(faults_of("--precision 32-true --optimizer.state_dtype bfloat16"), "");
  for (const char* precision : {"32-true", "bf16-mixed", "16-mixed"}) {
    const std::string with = std::string("--precision ") + precision;
    EXPECT_CONTAINS(faults_of(with + " --optimizer.master_weights"),
                    "the weights are float32 already; leave it out");
    EXPECT_CONTAINS(faults_of(with + " --optimizer.stochastic_rounding"), "they are float32");
  }
  EXPECT_CONTAINS(faults_of("--precision 16-true --optimizer.stochastic_rounding"),
                  "with precision = 16-true they are float16");
  EXPECT_CONTAINS(faults_of("--precision bf16-true --optimizer.stochastic_rounding "
                            "--optimizer.master_weights"),
                  "are both true");
}

// Recipes of LitGPT name services that metrics go to: they run, and say what is written instead.
TEST(Check, OnlineLoggersAreTakenAndBecomeCsv) {
  for (const char* logger : {"wandb", "mlflow", "litlogger"}) {
    std::string said;
    const LogSinkGuard sink([&](const std::string& text) { said += text; });
    const Recipe recipe = recipe_from(fmt::format("logger_name: {}\n", logger));
    EXPECT_EQ(recipe.logger_name, "csv");
    EXPECT_CONTAINS(said, fmt::format("logger_name = {}: ", logger));
    EXPECT_CONTAINS(said, "it writes metrics.csv instead");
    EXPECT_EQ(faults_of(fmt::format("--logger_name {}", logger)), "");
  }
  const std::string fault = error_of([] { recipe_from("logger_name: wandbox\n"); });
  EXPECT_CONTAINS(fault, "is not one of csv, tensorboard");
  EXPECT_FALSE(contains(fault, "mlflow")) << fault;
}

TEST(Check, DevicesAlongCpMayShareWeights) {
  for (const char* strategy : {"auto", "ddp", "zero1", "fsdp"})
    EXPECT_EQ(faults_of(fmt::format("--devices 4 --mesh cp=4 --strategy {}", strategy)), "");
  EXPECT_CONTAINS(faults_of("--devices 4 --mesh cp=4 --optimizer Adafactor"),
                  "shards matrices at any element");
  EXPECT_EQ(faults_of("--devices 4 --mesh cp=4 --strategy ddp --optimizer Adafactor"), "");
}

TEST(Check, AScheduleBelongsToAPipeline) {
  EXPECT_EQ(faults_of("--devices 4 --mesh pp=4 --pipeline_schedule gpipe --pipeline_interleave 2"),
            "");
  EXPECT_CONTAINS(faults_of("--devices 4 --pipeline_interleave 2"), "give --mesh an axis pp");
  EXPECT_CONTAINS(faults_of("--pipeline_schedule gpipe"), "applies only to a pipeline");
}

// The names that other programs have for the same.
TEST(Check, StrategiesHaveManyNames) {
  const auto strategy_of = [](const std::string& name) {
    const std::vector<std::string> words = {"finetune_full", "model.gguf", "--strategy", name};
    return parse_command_line(words).recipe.strategy;
  };
  for (const char* name :
       {"ddp", "DDP", "NO_SHARD", "DDPStrategy()", "ShardingStrategy.NO_SHARD",
        "lightning.pytorch.strategies.DDPStrategy", "DDPStrategy(gradient_as_bucket_view=True)"})
    EXPECT_EQ(strategy_of(name), "ddp") << name;
  for (const char* name :
       {"fsdp", "zero3", "ZeRO3", "FULL_SHARD", "deepspeed_stage_3", "deepspeed_stage_3_offload",
        "FSDPStrategy", "FSDPStrategy(sharding_strategy='FULL_SHARD')",
        "DeepSpeedStrategy(stage=3, offload_optimizer=True)"})
    EXPECT_EQ(strategy_of(name), "fsdp") << name;
  for (const char* name : {"zero2", "SHARD_GRAD_OP", "deepspeed_stage_2",
                           "FSDPStrategy(sharding_strategy=\"SHARD_GRAD_OP\", cpu_offload=False)"})
    EXPECT_EQ(strategy_of(name), "zero2") << name;
  EXPECT_EQ(strategy_of("deepspeed_stage_1"), "zero1");
  EXPECT_EQ(strategy_of("HYBRID_SHARD"), "hybrid");
  EXPECT_EQ(strategy_of("auto"), "auto");
  for (const char* name : {"megatron", "deepspeed_stage_4", "DeepSpeedStrategy(stage=", "_offload"})
    EXPECT_CONTAINS(faults_of(std::string("--strategy ") + name), "not one of auto, ddp, zero1")
        << name;
  EXPECT_CONTAINS(faults_of("--strategy hybird"), "did you mean hybrid?");
}

TEST(Check, AnEndingOfTheStrategyAsksForOffload) {
  const auto parsed = [](const std::string& options) {
    return parse("finetune_full model.gguf " + options).recipe;
  };
  for (const char* name : {"deepspeed_stage_2_offload", "zero2_offload"}) {
    const Recipe recipe = parsed(std::string("--strategy ") + name);
    EXPECT_EQ(recipe.strategy, "zero2") << name;
    EXPECT_EQ(recipe.optimizer_offload, "cpu") << name;
    EXPECT_TRUE(recipe.given("optimizer_offload")) << name;
  }
  EXPECT_EQ(parsed("--strategy deepspeed_stage_2").optimizer_offload, "none");
  const Recipe kept = parsed("--strategy zero1_offload --optimizer_offload disk:/tmp");
  EXPECT_EQ(kept.optimizer_offload, "disk:/tmp");
}

TEST(Check, MeshesFitTheDevicesAndTheStrategy) {
  EXPECT_CONTAINS(faults_of("--devices 4 --mesh tp=2"),
                  "mesh = tp=2: needs 2 devices, and there are 4 (devices 4, num_nodes 1); use "
                  "fsdp=2,tp=2");
  EXPECT_CONTAINS(faults_of("--devices 2 --num_nodes 2 --mesh dp=3"),
                  "use sizes with that product");
  EXPECT_CONTAINS(faults_of("--devices 4 --mesh dp=2,sp=2"), "mesh = dp=2,sp=2: there is no axis");
  EXPECT_CONTAINS(faults_of("--mesh dp=2,fsdp=2 --strategy ddp"),
                  "strategy = ddp shards nothing, but mesh");
  EXPECT_CONTAINS(faults_of("--mesh dp=4 --strategy zero2"), "shards along the axes fsdp and cp");
  EXPECT_EQ(parse("finetune_full m --mesh fsdp=4").recipe.devices, "4");
  EXPECT_EQ(parse("finetune_full m --mesh fsdp=4 --num_nodes 2").recipe.devices, "2");
  EXPECT_EQ(parse("finetune_full m --mesh fsdp=4 --devices 8").recipe.devices, "8");
  EXPECT_CONTAINS(faults_of("--num_nodes 2"), "devices is not set; give the number per machine");
}

// Devices along tp, pp and cp work on the same samples.
TEST(Check, TheGlobalBatchIsDividedAmongDataRanks) {
  const std::string batch = " --train.global_batch_size 4 --train.micro_batch_size 2";
  EXPECT_CONTAINS(faults_of("--devices 4 --strategy ddp" + batch), "does not divide the 1 samples");
  EXPECT_EQ(faults_of("--mesh fsdp=2,tp=2" + batch).find("does not divide"), std::string::npos);
  EXPECT_CONTAINS(
      faults_of("--mesh fsdp=3,tp=2" + batch),
      "does not divide evenly among 3 devices with samples of their own (dp x fsdp); use 6");
  EXPECT_CONTAINS(
      faults_of("--mesh ep=3,tp=2" + batch),
      "does not divide evenly among 3 devices with samples of their own (dp x fsdp x ep); use 6");
}

TEST(Check, WhatNeedsWholeMatrices) {
  EXPECT_CONTAINS(
      faults_of("--mesh tp=2 --optimizer Adafactor"),
      "sums over whole rows and columns, and mesh = tp=2 splits matrices; leave tp out");
  EXPECT_CONTAINS(faults_of("--mesh tp=2 --lora_init_weights pissa", "finetune_lora"),
                  "lora_init_weights = pissa: adapters start from the singular values of whole");
  for (const std::string format : {"nf4-dq", "fp4-dq", "int8"})
    EXPECT_CONTAINS(
        faults_of("--mesh tp=2 --quantize bnb." + format, "finetune_lora"),
        "its scales are computed over whole rows or weights, and mesh = tp=2 splits them");
  EXPECT_EQ(faults_of("--mesh tp=2 --quantize bnb.nf4", "finetune_lora").find("quantize"),
            std::string::npos);
}

TEST(Check, WhatSeveralDevicesRefuse) {
  EXPECT_CONTAINS(faults_of("--devices 2 --optimizer Adafactor"), "shards matrices at any element");
  EXPECT_EQ(faults_of("--devices 2 --strategy ddp --optimizer Adafactor").find("adafactor"),
            std::string::npos);
  EXPECT_CONTAINS(faults_of("--devices 2 --train.on_oom split"), "would keep the others waiting");
  EXPECT_CONTAINS(faults_of("--devices 2 --delayed_parameter_update --optimizer_offload cpu"),
                  "not supported on several devices yet");
}

TEST(Check, PissaAndDoraExcludeEachOther) {
  EXPECT_EQ(faults_of("--quantize bnb.nf4 --lora_init_weights pissa", "finetune"), "");
  EXPECT_EQ(faults_of("--quantize bnb.int8 --lora_use_dora", "finetune"), "");
  EXPECT_CONTAINS(faults_of("--lora_init_weights pissa --lora_use_dora", "finetune"),
                  "leave out one of the two");
}

TEST(Check, KeysOfAdaptersAreNotPassedOverSilently) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(faults_of("--full --lora_r 4 --lora_alpha 8", "finetune"), "");
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(), "lora_r, lora_alpha are ignored");
  testing::internal::CaptureStderr();
  EXPECT_EQ(faults_of("--lora_r 4 --quantize bnb.nf4", "finetune"), "");
  EXPECT_EQ(faults_of("--full", "finetune"), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Quantized weights are no longer there to be trained, or to be written.
TEST(Check, AllWeightsAreNotQuantized) {
  EXPECT_CONTAINS(faults_of("--full --quantize bnb.nf4", "finetune"),
                  "quantize = bnb.nf4: quantized weights cannot be trained");
  EXPECT_EQ(faults_of("--full --quantize none", "finetune"), "");
  EXPECT_EQ(faults_of("--quantize bnb.nf4", "plan"), "");
  EXPECT_CONTAINS(faults_of("--full --quantize bnb.nf4", "plan"), "leave full out");
}

TEST(Check, PartsThatTrainAreNamed) {
  EXPECT_EQ(faults_of("--model.train_parts qformer,projection"), "");
  EXPECT_EQ(faults_of("--model.train_parts all --model.dropout 0.2"), "");
  EXPECT_CONTAINS(faults_of("--model.train_parts qformr"),
                  "there is no component qformr, did you mean qformer?");
  EXPECT_CONTAINS(faults_of("--model.train_parts=,"), "use all, or some of vision, qformer");
  EXPECT_EQ(faults_of("--model.train_parts all", "finetune_lora"), "");
  EXPECT_EQ(faults_of("--model.train_parts vision", "finetune_lora"), "");
  EXPECT_CONTAINS(faults_of("--model.train_parts qformer,language", "finetune_lora"),
                  "leave language out");
}

TEST(Check, BlocksAreChosenByWordPeriodOrList) {
  for (const char* choice : {"none", "all", "selective", "every:2", "0", "0,2,8-11", "3-3"})
    EXPECT_EQ(faults_of(std::string("--activation_checkpointing ") + choice), "") << choice;
  for (const char* choice : {"every:0", "every:", "some", "1,", "3-1", "-1", "1-x"})
    EXPECT_CONTAINS(faults_of(std::string("--activation_checkpointing=") + choice),
                    "must be none, all, selective");
  EXPECT_EQ(chosen_blocks("every:3", 7), (std::vector<bool>{1, 0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(chosen_blocks("0,2-3", 5), (std::vector<bool>{1, 0, 1, 1, 0}));
  EXPECT_THROW(chosen_blocks("0,5", 5), UserError);
  EXPECT_EQ(chosen_blocks("selective", 2), (std::vector<bool>{0, 0}));
}

TEST(Check, TechniquesThatMeanNothingTogether) {
  EXPECT_CONTAINS(faults_of("--weight_streaming"), "add --optimizer_offload cpu");
  EXPECT_EQ(faults_of("--weight_streaming --optimizer_offload cpu"), "");
  EXPECT_EQ(faults_of("--weight_streaming --optimizer_offload disk:/tmp"), "");
  for (const char* place : {"gpu", "disk"})
    EXPECT_CONTAINS(faults_of(std::string("--optimizer_offload ") + place),
                    "must be none, cpu or disk:FOLDER");
  EXPECT_CONTAINS(faults_of("--optimizer_offload disk:"), "the folder is missing");
  const std::string streamed = "--optimizer_offload cpu --weight_streaming ";
  EXPECT_EQ(faults_of(streamed + "--weight_offload disk:/tmp", "finetune_lora"), "");
  EXPECT_EQ(faults_of("--weight_streaming --optimizer_offload disk:/tmp --weight_offload disk:/tmp",
                      "finetune_lora"),
            "");
  EXPECT_CONTAINS(faults_of("--optimizer_offload cpu --weight_offload disk:/tmp", "finetune_lora"),
                  "add --weight_streaming true");
  EXPECT_CONTAINS(faults_of(streamed + "--weight_offload disk:/tmp"), "only frozen ones can lie");
  EXPECT_CONTAINS(faults_of(streamed + "--weight_offload cpu", "finetune_lora"),
                  "must be none or disk:FOLDER");
  EXPECT_CONTAINS(faults_of(streamed + "--weight_offload disk:", "finetune_lora"),
                  "must be none or disk:FOLDER");
  EXPECT_CONTAINS(
      faults_of("--weight_streaming --optimizer_offload disk:/a --weight_offload disk:/b",
                "finetune_lora"),
      "name the same folder for both");
  EXPECT_CONTAINS(
      faults_of(streamed + "--weight_offload disk:/b --fit --fit_disk /a", "finetune_lora"),
      "name the same folder for both");
  EXPECT_CONTAINS(faults_of(streamed + "--weight_offload disk:/tmp --devices 2 --strategy fsdp",
                            "finetune_lora"),
                  "works on one device only");
  for (const char* prefetch : {"--offload_prefetch", "--offload_prefetch auto"})
    EXPECT_EQ(faults_of(prefetch), "");
  EXPECT_CONTAINS(faults_of("--delayed_parameter_update"), "add --optimizer_offload cpu");
  EXPECT_EQ(faults_of("--delayed_parameter_update --optimizer_offload cpu"), "");
  for (const char* other : {"--weight_streaming", "--optimizer_in_backward"})
    EXPECT_CONTAINS(
        faults_of("--delayed_parameter_update --optimizer_offload cpu " + std::string(other)),
        "leave out one of the two");
  EXPECT_CONTAINS(faults_of("--optimizer_in_backward --precision 16-mixed"), "use bf16-mixed");
  EXPECT_EQ(faults_of("--cast_cache --precision 16-mixed"), "");
  EXPECT_CONTAINS(faults_of("--cast_cache --precision bf16-true"), "only -mixed precision casts");
  EXPECT_CONTAINS(faults_of("--cast_cache --weight_streaming --optimizer_offload cpu"),
                  "leave out one of the two");
  EXPECT_EQ(faults_of("--cuda_graphs --activation_checkpointing all --precision bf16-true"), "");
  for (const char* other : {"--activation_offload", "--optimizer_offload cpu",
                            "--optimizer_in_backward", "--cast_cache --precision bf16-mixed"})
    EXPECT_CONTAINS(faults_of("--cuda_graphs " + std::string(other)), "leave out one of the two");
  EXPECT_CONTAINS(faults_of("--cuda_graphs --devices 2"), "use --devices 1");
  EXPECT_CONTAINS(faults_of("--optimizer_in_backward --train.on_oom split"),
                  "use train.on_oom stop");
}

TEST(Check, AnUpdateInBackwardThatSavesNothingIsWarnedOf) {
  std::string said;
  const LogSinkGuard sink([&](const std::string& text) { said += text; });
  faults_of("--optimizer_in_backward --train.global_batch_size 3 --train.micro_batch_size 3");
  EXPECT_EQ(said, "");
  faults_of("--optimizer_in_backward --train.global_batch_size 6 --train.micro_batch_size 3");
  EXPECT_CONTAINS(said, "nothing is saved");
}

// Gradients can go at once where nothing else needs them; where something does they stay, without
// a word.
TEST(Check, AnUpdateInBackwardIsTakenWhereItIsFree) {
  std::string said;
  const LogSinkGuard sink([&](const std::string& text) { said += text; });
  const std::string once = " --train.global_batch_size 4 --train.micro_batch_size 4";
  const std::string wanted = "finetune_full m --optimizer_in_backward auto" + once;
  const auto is_on = [](const std::string& line) {
    const Recipe recipe = parse(line).recipe;
    EXPECT_TRUE(print_recipe_yaml(recipe).find(recipe.optimizer_in_backward
                                                   ? "optimizer_in_backward: true"
                                                   : "optimizer_in_backward: false") !=
                std::string::npos);
    return recipe.optimizer_in_backward;
  };
  EXPECT_TRUE(is_on(wanted));
  for (const char* also : {" --precision 16-true", " --train.max_norm 0", " --train.max_norm null",
                           " --activation_checkpointing all", " --train.on_oom stop"})
    EXPECT_TRUE(is_on(wanted + also)) << also;
  for (const char* need :
       {" --train.global_batch_size 8", " --train.max_norm 1", " --precision 16-mixed",
        " --train.on_oom split", " --optimizer_offload cpu", " --devices 2", " --devices auto",
        " --mesh pp=2", " --optimizer_in_backward false", " --optimizer_in_backward=null"})
    EXPECT_FALSE(is_on(wanted + need)) << need;
  for (const char* need :
       {" --precision 16-mixed", " --train.on_oom split", " --train.global_batch_size 8",
        " --optimizer_offload cpu --delayed_parameter_update"})
    EXPECT_EQ(faults_of("--optimizer_in_backward auto" + once + need), "") << need;
  EXPECT_FALSE(is_on("finetune_full m" + once)) << "a plain recipe is plain";
  EXPECT_TRUE(is_on("finetune_full m --optimizer_in_backward auto --optimizer_in_backward"));
  EXPECT_EQ(said, "");
  const Recipe accumulated = parse(
                                 "finetune_full --optimizer_in_backward auto m --batch_size 4 "
                                 "--accumulate_grad_batches 2")
                                 .recipe;
  EXPECT_FALSE(accumulated.optimizer_in_backward);
  EXPECT_EQ(accumulated.checkpoint_dir, "m");
  Recipe later = parse(wanted + " --devices auto").recipe;
  later.devices = "1";
  resolve_batches(later);
  EXPECT_TRUE(later.optimizer_in_backward);
}

TEST(Check, AllFaultsInOneError) {
  const Recipe recipe =
      parse("finetune_full --train.micro_batch_size 3 --train.epochs null").recipe;
  const std::string message =
      error_of([&] { check_recipe(Command::FinetuneFull, recipe, "r.yaml"); });
  EXPECT_CONTAINS(message, "r.yaml: 4 faults:");
  for (const char* part : {"no data: give --data FILE", "checkpoint_dir is not set",
                           "micro_batch_size = 3", "the length of the run is not set"})
    EXPECT_CONTAINS(message, part);
}

}  // namespace
}  // namespace snug::recipe
