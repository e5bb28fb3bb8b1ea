// Words and files become options: forms, precedence, defaults of classes, and errors that help.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/parse.h"

#include <cstdlib>
#include <utility>

#include "recipe/check.h"
#include "recipe/data_sources.h"
#include "support.h"

namespace snug::recipe {
namespace {

std::string parse_error(const std::string& line) {
  return error_of([&] { parse(line); });
}

TEST(Parse, FormsOfAnOption) {
  const Recipe r =
      parse(
          "finetune_full ckpt --train.max_steps 5 --train.micro-batch-size=2 --verbose "
          "--data.packing false --data.ignore_index -1 --resume")
          .recipe;
  EXPECT_EQ(r.checkpoint_dir, "ckpt");
  EXPECT_EQ(r.train.max_steps, 5);
  EXPECT_EQ(r.train.micro_batch_size, 2);
  EXPECT_TRUE(r.verbose);
  EXPECT_FALSE(r.data.packing);
  EXPECT_EQ(r.data.ignore_index, -1);
  EXPECT_EQ(r.resume, "true");
  EXPECT_TRUE(r.given("train.max_steps"));
  EXPECT_FALSE(r.given("train.epochs"));
}

TEST(Parse, AFlagLeavesTheNextWordAlone) {
  const ParsedCommand parsed = parse("generate --json ckpt --stream false");
  EXPECT_TRUE(parsed.generate.json);
  EXPECT_FALSE(parsed.generate.stream);
  EXPECT_EQ(parsed.generate.checkpoint_dir, "ckpt");
}

TEST(Parse, NullUnsets) {
  const Recipe r = parse(
                       "finetune_full x --train.epochs null --train.save_interval= --out_dir null "
                       "--train.lr_warmup_steps null --data.val_split_fraction null --data Alpaca")
                       .recipe;
  EXPECT_FALSE(r.train.epochs);
  EXPECT_FALSE(r.train.save_interval);
  EXPECT_TRUE(r.given("train.epochs"));
  EXPECT_EQ(r.out_dir, "out/finetune/full");
  EXPECT_EQ(r.train.lr_warmup_steps, 0);
  EXPECT_EQ(r.data.val_split_fraction, 0.03865);
}

// Help and docs show "none" for what is not set, so it can be typed.
TEST(Parse, NoneUnsetsWhatShowsNone) {
  const Recipe r = parse(
                       "finetune_full x --train.save_interval none --train.max_norm none "
                       "--memory_budget none --train.lr_warmup_steps none --data.val_path none "
                       "--activation_checkpointing none")
                       .recipe;
  EXPECT_FALSE(r.train.save_interval);
  EXPECT_FALSE(r.train.max_norm);
  EXPECT_EQ(r.memory_budget, "");
  EXPECT_EQ(r.train.lr_warmup_steps, 0);
  EXPECT_FALSE(r.data.val_path);
  EXPECT_EQ(r.activation_checkpointing, "none");
  EXPECT_FALSE(parse("generate m --top_k none").generate.top_k);
  EXPECT_EQ(parse("generate m --prompt none").generate.prompt, "none");
  EXPECT_EQ(parse("convert a b --dtype none").convert.dtype, "");
  EXPECT_CONTAINS(error_of([] { parse("finetune_full x --seed none"); }), "seed");
}

TEST(Parse, OneSeedGovernsAllUnlessTheDatasIsGiven) {
  const auto seeds = [](const char* command) {
    const recipe::Recipe read = parse(command).recipe;
    return std::pair(read.seed, read.data.seed);
  };
  using Seeds = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(seeds("finetune_full x"), Seeds(1337, 42)) << "as in LitGPT";
  EXPECT_EQ(seeds("finetune_full x --seed 1337"), Seeds(1337, 42));
  EXPECT_EQ(seeds("finetune_full x --seed 7"), Seeds(7, 7));
  EXPECT_EQ(seeds("finetune_full x --seed 7 --data.seed 3"), Seeds(7, 3));
}

TEST(Parse, HomeIsExpandedInPaths) {
  const std::string home = std::getenv("HOME");
  EXPECT_EQ(recipe_from("out_dir: ~/runs/x\n").out_dir, home + "/runs/x");
  EXPECT_EQ(recipe_from("optimizer_offload: disk:~/states\n").optimizer_offload,
            "disk:" + home + "/states");
  EXPECT_EQ(recipe_from("out_dir: out/~x\n").out_dir, "out/~x");
}

TEST(Parse, OptionsOverrideTheFileWhereverTheyStand) {
  const TemporaryFile file("checkpoint_dir: a\ntrain:\n  max_steps: 1\n  epochs: 3\n");
  const Recipe r =
      parse("finetune_full --train.max_steps 2 --config " + file.string() + " b").recipe;
  EXPECT_EQ(r.train.max_steps, 2);
  EXPECT_EQ(r.train.epochs, 3);
  EXPECT_EQ(r.checkpoint_dir, "b");
  EXPECT_EQ(parse("finetune_full x --seed 1 --seed 2").recipe.seed, 2u);
}

TEST(Parse, LitgptsClassForms) {
  const Recipe r = recipe_from(
      "optimizer:\n  init_args:\n    lr: 2e-4\n    betas: [0.9, 0.95]\n  class_path: "
      "torch.optim.AdamW\n"
      "data:\n  class_path: litgpt.data.Alpaca2k\n  init_args:\n    val_split_fraction: .5\n");
  EXPECT_EQ(r.optimizer.name, "adamw");
  EXPECT_EQ(r.optimizer.lr, 2e-4) << "arguments in front of the class path must not be lost";
  EXPECT_EQ(r.optimizer.beta2, 0.95);
  EXPECT_EQ(r.optimizer.weight_decay, 0.01);
  EXPECT_EQ(r.data.class_path, "Alpaca2k");
  EXPECT_EQ(r.data.val_split_fraction, 0.5);
  EXPECT_CONTAINS(parse_error("finetune_full x --optimizer {class_path:SGD,init_args:{lr:0.5}"),
                  "--optimizer:1: ");
}

TEST(Parse, AMappingAsAnOptionsValue) {
  const std::vector<std::string> words = {"finetune_full", "x", "--optimizer",
                                          "{class_path: SGD, init_args: {lr: 0.5, momentum: 0.9}}"};
  const Recipe r = parse_command_line(words).recipe;
  EXPECT_EQ(r.optimizer.name, "sgd");
  EXPECT_EQ(r.optimizer.lr, 0.5);
  EXPECT_EQ(r.optimizer.momentum, 0.9);
}

TEST(Parse, AScalarReplacesTheOptimizersMapping) {
  const std::string yaml =
      "optimizer:\n  class_path: torch.optim.AdamW\n  init_args: {lr: 0.0002, weight_decay: 0.0, "
      "betas: [0.9, "
      "0.95]}\n";
  const Recipe sgd = recipe_from(yaml, {"--optimizer", "SGD"});
  EXPECT_EQ(sgd.optimizer.name, "sgd");
  EXPECT_EQ(sgd.optimizer.lr, 1e-3) << "torch's default of SGD";
  EXPECT_EQ(sgd.optimizer.weight_decay, 0);
  EXPECT_FALSE(sgd.given("optimizer.lr"));
  const Recipe with_lr =
      recipe_from(yaml, {"--optimizer.lr", "0.1", "--optimizer", "torch.optim.SGD"});
  EXPECT_EQ(with_lr.optimizer.lr, 0.1);
  const Recipe adamw = recipe_from(yaml, {"--optimizer", "AdamW"});
  EXPECT_EQ(adamw.optimizer.beta2, 0.999);
  EXPECT_EQ(adamw.optimizer.weight_decay, 0.01);
  EXPECT_EQ(recipe_from("optimizer: SGD\n").optimizer.name, "sgd");
  EXPECT_EQ(recipe_from(yaml, {"--optimizer.init_args.lr", "0.3"}).optimizer.lr, 0.3);
  EXPECT_EQ(recipe_from(yaml, {"--optimizer", "bitsandbytes.optim.AdamW8bit"}).optimizer.name,
            "adamw_8bit");
  EXPECT_EQ(recipe_from(yaml, {"--optimizer.betas", "0.8,0.9"}).optimizer.beta1, 0.8);
}

TEST(Parse, DefaultsOfTheCommand) {
  const Recipe full = parse("finetune_full x").recipe;
  EXPECT_TRUE(full.full);
  EXPECT_FALSE(full.lora.enabled);
  EXPECT_EQ(full.out_dir, "out/finetune/full");
  EXPECT_EQ(full.eval.interval, 600);
  const Recipe lora = parse("finetune x").recipe;
  EXPECT_TRUE(lora.lora.enabled);
  EXPECT_EQ(lora.out_dir, "out/finetune/lora");
  EXPECT_EQ(lora.eval.interval, 100);
  EXPECT_TRUE(same_values(parse("finetune --full x").recipe, full));
}

TEST(Parse, ValuesThatDependOnOthersAreResolved) {
  EXPECT_EQ(parse("finetune_full x --data FLAN").recipe.data.prompt_style, "flan");
  EXPECT_EQ(parse("finetune_full x --data LIMA --data.prompt_style chat").recipe.data.prompt_style,
            "chat");
  EXPECT_EQ(parse("finetune_full x --data.val_path v.json").recipe.data.val_split_fraction, 0);
  EXPECT_EQ(parse("finetune_full x --train.lr_warmup_fraction 0.1").recipe.train.lr_warmup_steps,
            0);
  EXPECT_DOUBLE_EQ(parse("finetune_full x --optimizer.lr 2e-5").recipe.train.min_lr, 2e-6);
  EXPECT_EQ(parse("finetune_full x --optimizer.lr 2e-5 --train.min_lr 3e-5").recipe.train.min_lr,
            2e-5);
  EXPECT_EQ(parse("finetune_full x --precision 32").recipe.precision, "32-true");
  EXPECT_EQ(parse("finetune_full x").recipe.matmul_precision, "high") << "as LitGPT's";
  EXPECT_EQ(parse("finetune x --matmul_precision highest").recipe.matmul_precision, "highest");
  EXPECT_EQ(parse("evaluate x --data LIMA").evaluate.data.val_split_fraction, 0.1);
}

TEST(Parse, UnknownKeysNameTheNearest) {
  EXPECT_EQ(error_of([] { recipe_from("train:\n  micro_batchsize: 3\n"); }).substr(0, 5), "/tmp/");
  const std::string message =
      error_of([] { recipe_from("seed: 1\ntrain:\n  micro_batchsize: 3\n"); });
  EXPECT_CONTAINS(
      message,
      "recipe.yaml:3: train.micro_batchsize: unknown key; did you mean train.micro_batch_size?");
  EXPECT_CONTAINS(parse_error("finetune_full x --max_norm 3"), "did you mean train.max_norm?");
  EXPECT_CONTAINS(parse_error("finetune_full x --max_step 3"), "did you mean train.max_steps?");
  EXPECT_CONTAINS(parse_error("finetune_full x --learning_rate_of_llamas 3"),
                  "--help lists all keys");
  EXPECT_CONTAINS(parse_error("finetune_full x --lora_r 3"), "an option of snug finetune");
  // What is declined needs no adapters.
  EXPECT_CONTAINS(parse_error("finetune_full x --use_qlora true"), "an option of snug finetune");
  EXPECT_TRUE(parse("finetune_full x --use_lora false --use_qlora false").recipe.full);
  EXPECT_CONTAINS(parse_error("finetune_full x --train 3"), "is a group of keys");
  EXPECT_CONTAINS(parse_error("convert a b --log.run 3"), "unknown key");
}

TEST(Parse, ListsOfWordsMayBeWrittenAsInARecipe) {
  for (const char* list : {"q,v", "[q,v]", "[q, v]", "['q', \"v\"]"}) {
    const std::vector<std::string> words = {"finetune", "x", "--lora_target_modules", list};
    EXPECT_EQ(parse_command_line(words).recipe.lora.target_modules, "q,v") << list;
  }
  EXPECT_EQ(parse("finetune x --lora_target_modules [qv]_proj.*[0-3]").recipe.lora.target_modules,
            "[qv]_proj.*[0-3]")
      << "a regular expression";
  EXPECT_EQ(parse("finetune x --model.train_parts [qformer,projection]").recipe.model.train_parts,
            "qformer,projection");
  EXPECT_EQ(parse("finetune x --activation_checkpointing [0,2]").recipe.activation_checkpointing,
            "0,2");
  EXPECT_EQ(recipe_from("activation_checkpointing: [0, 2]\n").activation_checkpointing, "0,2");
}

TEST(Parse, AModelGivenTwiceIsRefused) {
  EXPECT_CONTAINS(
      parse_error("finetune_full one --model_name two"),
      "checkpoint_dir is given twice: one as an argument and two by --model_name; keep one");
  EXPECT_CONTAINS(parse_error("generate one --checkpoint_dir two"), "is given twice");
  EXPECT_EQ(parse("finetune_full one --model_name null").recipe.checkpoint_dir, "one");
  EXPECT_EQ(parse("finetune_full one --checkpoint_dir one").recipe.checkpoint_dir, "one");
}

TEST(Parse, SyntheticDataHasAnEndOfItsOwn) {
  const Recipe r = parse("finetune_full --model.config x.json --data synthetic").recipe;
  EXPECT_EQ(r.data.class_path, "Synthetic");
  EXPECT_EQ(r.data.max_samples, 256);
  EXPECT_EQ(r.data.val_split_fraction, 0);
  EXPECT_EQ(parse("finetune_full x --data Synthetic --data.max_samples 8").recipe.data.max_samples,
            8);
  EXPECT_FALSE(parse("finetune_full x --data Alpaca").recipe.data.max_samples);
}

TEST(Parse, CapitalsOfAChoiceDoNotMatter) {
  const Recipe recipe =
      parse("finetune m --data rows.jsonl --objective DPO --strategy FSDP").recipe;
  EXPECT_EQ(recipe.objective.name, ObjectiveName::Dpo);
  EXPECT_EQ(recipe.strategy, "fsdp");
}

// A document to be read on is no file of rows.
TEST(Parse, ATextFileNamesItsSource) {
  const Recipe recipe = parse("finetune m --data book.txt --data.long_rows drop").recipe;
  EXPECT_EQ(recipe.data.class_path, "TextFiles");
  EXPECT_EQ(recipe.data.path, "book.txt");
  EXPECT_EQ(recipe.data.long_rows, LongRows::Drop);
}

TEST(Parse, WrongValuesSayWhatIsWanted) {
  EXPECT_CONTAINS(parse_error("finetune_full x --train.epochs five"),
                  "--train.epochs: \"five\" is not a whole number from 1");
  EXPECT_CONTAINS(parse_error("finetune_full x --train.epochs 0"),
                  "0 is out of range; give a whole number from 1");
  EXPECT_CONTAINS(parse_error("finetune_full x --optimizer.lr nan"),
                  "\"nan\" is not a finite number from 0");
  EXPECT_CONTAINS(parse_error("finetune_full x --data.val_split_fraction 1.5"), "from 0 to 1");
  EXPECT_CONTAINS(parse_error("finetune_full x --seed -1"), "is not a whole number");
  EXPECT_CONTAINS(parse_error("finetune_full x --seed 18446744073709551616"),
                  "is not a whole number");
  EXPECT_CONTAINS(parse_error("finetune_full x --data.mask_prompt maybe"),
                  "unexpected argument maybe; snug finetune_full takes no positional arguments");
  EXPECT_EQ(parse("finetune_full x --data.mask_prompt none").recipe.data.mask_prompt, std::nullopt);
  EXPECT_EQ(parse("finetune_full x --data.mask_prompt").recipe.data.mask_prompt, true);
  EXPECT_CONTAINS(parse_error("finetune_full x --data.mask_prompt=maybe"),
                  "neither true nor false");
  EXPECT_CONTAINS(parse_error("finetune_full x --precision bf16-tru"), "did you mean bf16-true?");
  EXPECT_CONTAINS(parse_error("finetune_full x --matmul_precision tf32"),
                  "is not one of highest, high, medium");
  EXPECT_CONTAINS(parse_error("finetune_full x --optimizer adam"), "did you mean adamw?");
  EXPECT_CONTAINS(parse_error("finetune_full x --memory_budget lots"), "write it as 2GiB");
  EXPECT_CONTAINS(parse_error("finetune_full x --optimizer.betas 0.9"), "a list of two numbers");
  EXPECT_CONTAINS(parse_error("finetune_full x --train.epochs"),
                  "--train.epochs needs a value: --train.epochs INT");
  EXPECT_CONTAINS(parse_error("finetune_full x --zzqqyy"),
                  "--zzqqyy: unknown key; --help lists all keys");
  EXPECT_CONTAINS(error_of([] { recipe_from("train:\n  epochs: [1, 2]\n"); }),
                  "recipe.yaml:2: train.epochs: must be one value, not a list");
  EXPECT_CONTAINS(error_of([] { recipe_from("train:\n  epochs:\n    x: 1\n"); }),
                  "train.epochs.x: unknown key");
  EXPECT_CONTAINS(
      error_of([] { recipe_from("data:\n  json_path: a\n  init_args:\n    json_path: b\n"); }),
      "already set at");
  EXPECT_CONTAINS(error_of([] { recipe_from("- a\n- b\n"); }), "recipe.yaml:1: there are no keys");
}

TEST(Parse, ANearNameIsNamedAlsoWithoutAValue) {
  EXPECT_CONTAINS(parse_error("lab run s --plna"), "--plna: unknown key; did you mean --plan?");
  EXPECT_CONTAINS(parse_error("lab nonsense"), "\"nonsense\" is not one of run");
  EXPECT_EQ(parse_error("lab nonsense").find("snug lab needs action"), std::string::npos);
}

TEST(Parse, AllFaultsAtOnce) {
  const std::string message =
      parse_error("finetune_full x --train.epochs 0 --sed 3 --precision 8 extra");
  EXPECT_CONTAINS(message, "4 faults:");
  for (const char* part :
       {"train.epochs", "--sed: unknown key; did you mean seed?", "\"8\" is not one of", "extra"})
    EXPECT_CONTAINS(message, part);
}

TEST(Parse, FilesThatCannotBeRead) {
  EXPECT_CONTAINS(parse_error("finetune_full --config /nonexistent/r.yaml"), "/nonexistent/r.yaml");
  EXPECT_CONTAINS(parse_error("finetune_full --config /"), "/");
  EXPECT_CONTAINS(parse_error("finetune_full --config"), "--config needs a value");
  EXPECT_TRUE(same_values(recipe_from(""), recipe_from("# nothing\n")));
  error_of([] { recipe_from("a: " + std::string(2 << 20, 'x')); });
}

TEST(Parse, KeysThatLitgptWritesAreReadOver) {
  const Recipe r = recipe_from(
      "log:\n  project: null\n  run: null\naccess_token: null\n"
      "data:\n  class_path: litgpt.data.LIMA\n  init_args:\n    repo_id: GAIR/lima\n"
      "train:\neval:\n");
  EXPECT_EQ(r.data.class_path, "LIMA");
  EXPECT_EQ(r.train.epochs, 5);
}

TEST(Parse, Bench) {
  const ParsedCommand b = parse("bench collectives --devices 4 --min_bytes 1MiB --factor 2");
  EXPECT_EQ(b.command, Command::Bench);
  EXPECT_EQ(b.bench.devices, "4");
  EXPECT_EQ(b.bench.min_bytes, "1MiB");
  EXPECT_EQ(b.bench.factor, 2);
  EXPECT_CONTAINS(parse_error("bench kernels"), "collectives");
  EXPECT_CONTAINS(parse_error("bench --factor 1"), "factor");
  EXPECT_CONTAINS(parse_error("bench --max_bytes many"), "max_bytes");
}

// LitGPT's names, and short ones of our own.
TEST(Parse, Merge) {
  const ParsedCommand m = parse("merge_lora out/final --pretrained_checkpoint_dir base");
  EXPECT_EQ(m.command, Command::Merge);
  EXPECT_EQ(m.merge.checkpoint_dir, "out/final");
  EXPECT_EQ(m.merge.pretrained_checkpoint_dir, "base");
  EXPECT_EQ(m.merge.out_dir, "");
  EXPECT_EQ(parse("merge a --base b --dtype none").merge.pretrained_checkpoint_dir, "b");
  EXPECT_EQ(parse("merge a --quantize bnb.nf4-dq --precision 32-true").merge.quantize,
            "bnb.nf4-dq");
  EXPECT_CONTAINS(parse_error("merge"), "snug merge needs checkpoint_dir");
  EXPECT_CONTAINS(parse_error("merge a b"), "unexpected argument b");
}

// Each --adapter adds one.
TEST(Parse, SeveralAdapters) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parse("generate m --adapter a --adapter b").generate.adapters, Names({"a", "b"}));
  EXPECT_EQ(parse("generate m --adapter a --adapter none").generate.adapters, Names());
  EXPECT_EQ(parse("chat m").chat.adapters, Names());
  EXPECT_EQ(parse("evaluate m --data.json_path d.json --adapter a").evaluate.adapter, "a");
}

TEST(Parse, CaptionTakesManyPictures) {
  const ParsedCommand c = parse("caption m a.jpg photos --num_beams 3 b.png");
  EXPECT_EQ(c.caption.checkpoint_dir, "m");
  EXPECT_EQ(c.caption.images, (std::vector<std::string>{"a.jpg", "photos", "b.png"}));
  EXPECT_EQ(c.caption.beams.num_beams, 3);
  EXPECT_FALSE(parse("caption m a.jpg").caption.beams.num_beams);
  EXPECT_EQ(c.caption.data.class_path, "") << "no data set unless one is named";
  const CaptionOptions rows =
      parse("caption m --data imagefolder --data.path p --data.prompt a --limit 3 --score").caption;
  EXPECT_EQ(rows.data.class_path, "ImageFolder");
  EXPECT_EQ(rows.data.path, "p");
  EXPECT_EQ(rows.prompt, "a") << "as finetune calls it";
  EXPECT_EQ(rows.limit, 3);
  EXPECT_TRUE(rows.score);
  EXPECT_CONTAINS(parse_error("caption m --data Alpaca"), "HFDataset");
  EXPECT_CONTAINS(parse_error("chat m x"), "unexpected argument x");
}

TEST(Parse, OtherCommands) {
  const ParsedCommand g = parse_command_line(std::vector<std::string>{
      "generate", "m.gguf", "--prompt", "null", "--top_k", "null", "--temperature", "0"});
  EXPECT_EQ(g.generate.prompt, "null") << "a prompt is taken word by word";
  EXPECT_FALSE(g.generate.top_k);
  EXPECT_EQ(g.generate.temperature, 0);
  const ParsedCommand c = parse("convert a b.pth --to litgpt --dtype float16");
  EXPECT_EQ(c.convert.source, "a");
  EXPECT_EQ(c.convert.destination, "b.pth");
  EXPECT_EQ(c.convert.to, "litgpt");
  EXPECT_EQ(parse("download openlm-research/open_llama_3b").download.repo_id,
            "openlm-research/open_llama_3b");
  EXPECT_EQ(parse("completion bash").completion.shell, "bash");
  EXPECT_EQ(parse("evaluate m --data.json_path d.json --split val").evaluate.split, "val");
  EXPECT_EQ(parse("chat m").command, Command::Chat);
  EXPECT_EQ(parse("--version").command, Command::Version);
  EXPECT_TRUE(parse("").help);
  EXPECT_TRUE(parse("finetune-full --help").help);
  EXPECT_TRUE(parse("finetune x --print_config").print_config);
  EXPECT_CONTAINS(parse_error("chat m --prompt x"), "unknown key");
  EXPECT_CONTAINS(parse_error("convert"), "snug convert needs source");
  EXPECT_CONTAINS(parse_error("evaluate m"), "no data: give --data FILE");
  EXPECT_CONTAINS(parse_error("completion tcsh"), "is not one of bash, zsh, fish");
  EXPECT_CONTAINS(parse_error("generate"), "snug generate needs checkpoint_dir");
  EXPECT_CONTAINS(parse_error("generate m --config r.yaml"), "takes no recipe");
  EXPECT_CONTAINS(parse_error("finetun_full"), "did you mean finetune_full?");
  EXPECT_CONTAINS(parse_error("convert_to_litgpt x"), "snug convert");
  EXPECT_CONTAINS(parse_error("generate_full x"), "use snug generate");
  EXPECT_CONTAINS(parse_error("generate m -x"), "unknown option -x");
  error_of([] { parse_command_line(std::vector<std::string>{"generate", "m\xff"}); });
}

TEST(DidYouMean, KnowsAKeyByAPartOfItsName) {
  const auto expect = [](const std::string& words, const std::string& key) {
    EXPECT_CONTAINS(parse_error(words), "did you mean " + key + "?");
  };
  expect("generate m --max_token 5", "max_new_tokens");
  expect("generate m --beams 3", "num_beams");
  expect("caption m a.png --output x", "out");
  expect("convert m x.gguf --quantize Q4_0", "gguf_type");
  expect("convert m x.gguf --type Q4_0", "gguf_type");
  expect("convert m x.gguf --dtyp f16", "dtype");
  // Several keys have this part.
  EXPECT_EQ(parse_error("finetune m --size 3").find("did you mean"), std::string::npos);
  // Not precision, as dtype would be.
  EXPECT_EQ(parse_error("finetune m --type x").find("did you mean"), std::string::npos);
}

// Other trainers' names lead to the key that means the same, and to none where there is none.
TEST(DidYouMean, KnowsOtherTrainersNames) {
  const auto meant = [](const std::string& option) {
    const std::string error = parse_error("finetune x " + option + " 3");
    const size_t at = error.find("did you mean ");
    return at == std::string::npos ? "" : error.substr(at + 13, error.find('?', at) - at - 13);
  };
  EXPECT_EQ(meant("--save_steps"), "train.save_interval");
  EXPECT_EQ(meant("--eval_steps"), "eval.interval");
  EXPECT_EQ(meant("--gpu"), "devices");
  EXPECT_EQ(meant("--r"), "lora_r");
  EXPECT_EQ(meant("--optimizer.lrr"), "optimizer.lr");
  EXPECT_EQ(meant("--per_device_train_batch_size"), "train.micro_batch_size");
  EXPECT_EQ(meant("--gradient_checkpointing"), "activation_checkpointing");
  EXPECT_EQ(meant("--seq_length"), "train.max_seq_length");
  EXPECT_EQ(meant("--torch_dtype"), "precision");
  EXPECT_EQ(meant("--data_path"), "data.json_path");
  EXPECT_EQ(meant("--train.max_time"), "");
  EXPECT_EQ(meant("--x"), "");
  EXPECT_EQ(meant("--train_on_inputs"), "") << "its opposite would do harm";
  EXPECT_EQ(parse("finetune --model x").recipe.checkpoint_dir, "x");
  EXPECT_EQ(parse("finetune x --precision fp16").recipe.precision, "16-mixed");
}

TEST(DidYouMean, UsualNamesWorkWithoutTheirGroup) {
  const Recipe r = parse(
                       "finetune x --epochs 2 --max_seq_length 77 --bf16 --global_batch_size 8 "
                       "--micro_batch_size 4 --weight_decay 0.5 --lr_warmup_steps 3")
                       .recipe;
  EXPECT_EQ(r.train.epochs, 2);
  EXPECT_EQ(r.train.max_seq_length, 77);
  EXPECT_EQ(r.precision, "bf16-mixed");
  EXPECT_EQ(r.train.global_batch_size, 8);
  EXPECT_EQ(r.train.micro_batch_size, 4);
  EXPECT_EQ(r.optimizer.weight_decay, 0.5);
  EXPECT_EQ(r.train.lr_warmup_steps, 3);
}

TEST(Parse, TwoNamesOfOneOptionMayNotDisagree) {
  EXPECT_CONTAINS(parse_error("finetune x --precision 32-true --bf16"),
                  "--bf16: already set at --precision; keep one");
  EXPECT_CONTAINS(parse_error("finetune x --bf16 true --fp16 true"), "keep one");
  EXPECT_EQ(parse("finetune x --bf16 auto --fp16 false --precision 32-true").recipe.precision,
            "32-true");
  EXPECT_EQ(parse("finetune x --precision 32-true --precision 16-true").recipe.precision,
            "16-true");
}

TEST(Parse, AFileOfRowsIsData) {
  const Recipe r = parse("finetune x --data rows/mine.jsonl").recipe;
  EXPECT_EQ(r.data.class_path, "JSON");
  EXPECT_EQ(r.data.json_path, "rows/mine.jsonl");
  EXPECT_EQ(r.data.prompt_style, "auto");
  EXPECT_EQ(parse("finetune x --data Alpaca2k --data mine.csv").recipe.data.class_path, "JSON");
  EXPECT_EQ(recipe_from("data: mine.jsonl\nbf16: true\nfp16: false\n").data.json_path,
            "mine.jsonl");
  EXPECT_EQ(parse("evaluate x --data a.csv").evaluate.data.json_path, "a.csv");
}

TEST(Parse, MemoryHasAUnit) {
  EXPECT_CONTAINS(parse_error("finetune x --memory_budget 10"),
                  "\"10\" is 10 bytes; write the unit too, such as 10GiB");
  EXPECT_EQ(parse("finetune x --memory_budget 2000000000").recipe.memory_budget, "2000000000");
  EXPECT_EQ(parse("finetune x --memory_budget 10GiB").recipe.memory_budget, "10GiB");
}

TEST(Parse, FourBitTypesAreNamedWhole) {
  EXPECT_CONTAINS(parse_error("finetune x --quantize nf4"), "did you mean bnb.nf4?");
}

TEST(Parse, APromptIsOneWord) {
  EXPECT_FALSE(parse("generate m").generate.prompt) << "standard input holds it";
  EXPECT_EQ(parse("generate m hello").generate.prompt, "hello");
  EXPECT_EQ(
      parse_command_line(std::vector<std::string>{"generate", "m", "What is it?"}).generate.prompt,
      "What is it?");
  const std::string error = parse_error("generate m What is it?");
  EXPECT_CONTAINS(error, "put it in quotes: snug generate m 'What is it?'");
  EXPECT_FALSE(contains(error, "faults")) << "one fault, not one a word: " << error;
  EXPECT_CONTAINS(parse_error("generate m hello --prompt bye"), "prompt is given twice");
}

TEST(Parse, ChatHasRoomForLongAnswersAndAPromptStyle) {
  EXPECT_EQ(parse("chat m").chat.max_new_tokens, 512);
  EXPECT_EQ(parse("generate m").generate.max_new_tokens, 50);
  EXPECT_EQ(parse("chat m --prompt_style alpaca").chat.prompt_style, "alpaca");
}

TEST(Parse, NamesDataSetsOfTheHub) {
  const auto data = [](const std::string& words) {
    return parse("finetune m --data " + words).recipe.data;
  };
  EXPECT_EQ(data("some-org/words").class_path, "HFDataset");
  EXPECT_EQ(data("some-org/words").path, "some-org/words");
  EXPECT_EQ(data("some-org/words --data.val_split test").val_split, "test");
  EXPECT_EQ(data("some-org/words.jsonl").json_path, "some-org/words.jsonl");
  EXPECT_EQ(data("some-org/words.md").class_path, "TextFiles");
  const auto sources = data_sources(data("some-org/a,some-org/b"), {}).all;
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[1].data.class_path + " " + sources[1].data.path, "HFDataset some-org/b");
  for (const char* other : {"a/b/c", "./a", "a/", "/a", "some-org"})
    EXPECT_FALSE(names_hub_set(other)) << other;
  const auto faults = [](const std::string& words) {
    const Recipe recipe = parse("finetune m --data " + words).recipe;
    std::string all;
    for (const std::string& fault : data_faults(recipe.data, recipe.given_keys)) all += fault;
    return all;
  };
  EXPECT_EQ(faults("some-org/words --data.subset fr --data.val_split test"), "");
  EXPECT_CONTAINS(faults("rows.jsonl --data.subset fr"), "applies to HFDataset");
  EXPECT_CONTAINS(faults("a/b --data.val_split v --data.val_split_fraction 0.1"),
                  "validated on whole");
  // The key of another command.
  EXPECT_EQ(parse("download --data some-org/words").download.data, "some-org/words");
}

TEST(Parse, NoQuantizationIsSomethingElseThanNoneGiven) {
  EXPECT_FALSE(parse("finetune m --data r.jsonl").recipe.given("quantize"));
  EXPECT_TRUE(parse("finetune m --data r.jsonl --quantize none").recipe.given("quantize"));
  EXPECT_EQ(parse("finetune m --data r.jsonl --quantize none").recipe.quantize, "");
}

TEST(Parse, DataShowTakesTheOptionsOfTraining) {
  const ShowDataOptions o = parse(
                                "data show r.jsonl --model m --data.mask_prompt true "
                                "--train.max_seq_length 64 --data.prompt_style plain --row 2")
                                .show_data;
  EXPECT_EQ(o.checkpoint_dir, "m");
  EXPECT_EQ(o.data.json_path, "r.jsonl");
  EXPECT_TRUE(o.data.mask_prompt);
  EXPECT_EQ(o.data.prompt_style, "plain");
  EXPECT_EQ(o.max_seq_length, 64);
  EXPECT_EQ(o.row, 2);
  EXPECT_EQ(parse("data show dir --model m --data HFDataset").show_data.data.path, "dir");
  const ShowDataOptions hub =
      parse("data show some-org/words --model m --data.subset fr").show_data;
  EXPECT_EQ(hub.data.class_path + " " + hub.data.path, "HFDataset some-org/words");
  EXPECT_EQ(hub.data.subset, "fr");
  EXPECT_EQ(parse("data show --model m --data rows.csv").show_data.data.json_path, "rows.csv");
  EXPECT_CONTAINS(parse_error("data show r.jsonl"), "needs --model");
  EXPECT_CONTAINS(parse_error("data show --model m"), "snug data show rows.jsonl");
  EXPECT_CONTAINS(parse_error("data show a.jsonl --model m --data.json_path b.jsonl"), "keep one");
  EXPECT_CONTAINS(parse_error("data shwo a.jsonl --model m"), "did you mean show?");
  // The one action need not be said.
  EXPECT_EQ(parse("data a.jsonl --model m").show_data.data.json_path, "a.jsonl");
  EXPECT_EQ(parse("data --model m --data rows.csv").show_data.data.json_path, "rows.csv");
}

TEST(Parse, TheLearningRateGoesByWhatTrains) {
  const auto rate = [](const std::string& words) { return parse(words).recipe.optimizer.lr; };
  EXPECT_EQ(rate("finetune_full x"), 2e-5);
  EXPECT_EQ(parse("finetune_full x").recipe.train.min_lr, 2e-5 / 10);
  EXPECT_EQ(rate("finetune --full x"), 2e-5);
  EXPECT_EQ(rate("finetune x"), 1e-3);
  EXPECT_EQ(rate("finetune_full x --lr 0.001"), 1e-3);
  EXPECT_EQ(rate("finetune_full --model.config c.json"), 1e-3) << "random weights";
  EXPECT_EQ(rate("finetune_full x --optimizer sgd"), 1e-3);
  EXPECT_EQ(rate("finetune_full x --optimizer lion"), 1e-4);
}

}  // namespace
}  // namespace snug::recipe
