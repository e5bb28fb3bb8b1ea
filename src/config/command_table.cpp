// SPDX-License-Identifier: Apache-2.0
#include "config/command_table.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/error.h"
#include "config/rows.h"

namespace snug::config {

const std::vector<CommandInfo>& command_table() {
  static const std::vector<CommandInfo> kTable = {
      {Command::Demo,
       {"demo"},
       "fine-tune a small model in a few minutes, from nothing",
       "Fetches SmolLM2-135M-Instruct (93 MB, once), makes questions and answers, trains on them, "
       "and ends with answers to questions that were held out, before and after. The questions are "
       "about the packages that Debian or Ubuntu offers this machine; elsewhere about numbers in "
       "words and Roman numerals. It is a run of snug finetune_full with the recipe "
       "recipes/demo.yaml, or with --lora of snug finetune_lora with recipes/demo-lora.yaml: its "
       "command is shown, and all options of those are taken here too and win over the recipe.",
       {"snug demo", "snug demo --lora", "snug demo --train.max_steps 200",
        "snug demo MODEL --questions numbers --out_dir out/numbers"}},
      {Command::FinetuneFull,
       {"finetune_full"},
       "train all weights of a model on your data",
       "Reads a recipe (LitGPT's YAML keys), then the options, which override it from left to "
       "right. "
       "Any key of the recipe is an option of the same name.",
       {"snug finetune_full MODEL --data JSON --data.json_path data.json --train.max_steps 100",
        "snug finetune_full --config recipes/tiny-llama/full.yaml --train.micro_batch_size 8",
        "snug finetune_full --config recipes/tiny-llama/full.yaml --print_config"}},
      {Command::FinetuneLora,
       {"finetune", "finetune_lora"},
       "train low-rank adapters (LoRA) beside a frozen model on your data",
       "Reads a recipe (LitGPT's YAML keys), then the options, which override it from left to "
       "right. The adapters end up in OUT_DIR/final, as PEFT reads them; snug merge folds them "
       "into the weights. With --full this is finetune_full.",
       {"snug finetune MODEL --data JSON --data.json_path data.json --lora_r 16",
        "snug finetune MODEL --data JSON --data.json_path data.json --lora_target_modules "
        "all-linear",
        "snug finetune --config recipes/tiny-llama/lora.yaml --print_config"}},
      {Command::Plan,
       {"plan"},
       "estimate memory and time before training",
       "Runs the recipe's true step on a device without data: nothing is allocated, no weights are "
       "read. Samples count as long as train.max_seq_length, or as in the data where "
       "data.json_path "
       "is given.",
       {"snug plan MODEL --device a100-80 --precision bf16-true",
        "snug plan --model.config recipes/models/open-llama-7b.json --device rtx-4090 --fit",
        "snug plan --config recipes/tiny-llama/full.yaml --device t4 --html plan.html"}},
      {Command::Generate,
       {"generate"},
       "let a model answer one prompt",
       "Writes the answer to standard output. The prompt is a word of the command (in quotes), the "
       "value of --prompt, or what standard input holds.",
       {"snug generate MODEL --prompt \"What is a llama?\"",
        "cat question.txt | snug generate MODEL",
        "snug generate out/finetune/lora/final --prompt \"What is a llama?\"",
        "snug generate MODEL --adapter first --adapter second --prompt \"What is a llama?\"",
        "snug generate MODEL --prompt_style alpaca --temperature 0 --prompt \"Name three "
        "fruits.\""}},
      {Command::Caption,
       {"caption"},
       "caption pictures",
       "Writes one line a picture: its file and a caption. Takes files, folders (with all that is "
       "in them) and patterns, or with --data the rows of a data set, a batch at a time; reads "
       "JPEG, PNG and what else this build decodes. Pictures that cannot be read are named and "
       "skipped, and the exit code is then 2.",
       {"snug caption MODEL photo.jpg",
        "snug caption MODEL photos --out captions.jsonl --format jsonl",
        "snug caption MODEL photos --beside",
        "snug caption MODEL --data HFDataset --data.path data --limit 100 --score",
        "snug caption out/finetune/lora/final photos --prompt \"a photo of\" --num_beams 3",
        "snug caption MODEL photo.jpg --temperature 0.9 --top_p 0.9"}},
      {Command::Chat,
       {"chat"},
       "talk to a model in the terminal",
       "Asks as the model was fine-tuned. Lines can be edited, and the arrow keys bring back "
       "earlier ones; one that ends in a backslash continues on the next. Ctrl-C stops an answer, "
       "an empty line or Ctrl-D ends the chat. Commands: /help, /more (continue an answer that "
       "was cut off), /clear (forget the conversation), /system TEXT, /save FILE, /exit.",
       {"snug chat MODEL", "snug chat out/finetune/lora/final", "snug chat MODEL --temperature 0"}},
      {Command::Data,
       {"data"},
       "show what training makes of your data",
       "snug data show prints samples as the model reads them: prompt style and special tokens "
       "written out, what is not learnt marked. Then the counts over all rows: tokens, lengths, "
       "what train.max_seq_length cuts, duplicates, rows with nothing to learn. The options are "
       "those of snug finetune. Of the model only the tokenizer is read, no weights.",
       {"snug data show rows.jsonl --model MODEL",
        "snug data show rows.jsonl --model MODEL --data.prompt_style chat --data.mask_prompt true "
        "--max_seq_length 512",
        "snug data show rows.csv --model MODEL --row 17",
        "snug data show --data Alpaca2k --model MODEL --json"}},
      {Command::Evaluate,
       {"evaluate"},
       "loss and perplexity of a model on a file, and how good its captions are",
       "Counts the loss as training does: same prompts, same masking, mean over loss tokens. Of "
       "pictures it also writes captions and compares them with those of the data: BLEU-4, ROUGE-L "
       "and CIDEr-D, over all captions that the data has for a picture.",
       {"snug evaluate MODEL --data.json_path data.json",
        "snug evaluate MODEL --data.json_path data.json --split val --json",
        "snug evaluate MODEL --data ImageFolder --data.path photos --captions_file found.jsonl"}},
      {Command::Convert,
       {"convert"},
       "rewrite a model in another format",
       "Reads and writes Hugging Face and LitGPT directories and GGUF files.",
       {"snug convert model.gguf model-hf --to hf",
        "snug convert model-hf model-litgpt --to litgpt",
        "snug convert model-hf model.gguf --to gguf --dtype float16"}},
      {Command::Merge,
       {"merge", "merge_lora"},
       "fold an adapter into its base model",
       "Writes a Hugging Face directory whose weights are those of the base with the adapter "
       "added: "
       "it runs as fast as the base and needs nothing beside it. Reads PEFT's directories (LoRA, "
       "rsLoRA, DoRA) and LitGPT's. Sums are made in float32 and rounded once; one tensor is in "
       "memory at a time, whatever the size of the model.",
       {"snug merge out/finetune/lora/final --out_dir my-model",
        "snug merge ADAPTER --pretrained_checkpoint_dir base.gguf --dtype float16",
        "snug merge ADAPTER --quantize bnb.nf4 --precision bf16-true"}},
      {Command::Bench,
       {"bench"},
       "measure what the links between devices give",
       "Runs each collective that training uses over a range of sizes, checks what arrives, and "
       "prints its algorithm and bus bandwidth in nccl-tests' convention, beside what neighbours "
       "reach by sending to each other.",
       {"snug bench collectives --devices 4",
        "snug bench collectives --devices 2 --accelerator cpu --min_bytes 1MiB --max_bytes 64MiB",
        "snug bench collectives --devices 8 --dtype bfloat16 --json"}},
      {Command::Lab,
       {"lab"},
       "run a suite of experiments and write its report",
       "A suite is a table of runs that differ by one technique each. Every row is a process of "
       "its "
       "own, so that running out of memory is a result and not the end. --plan foresees all rows "
       "at "
       "full size on the suite's device, anywhere, in seconds; --scaled runs them for real on this "
       "machine with small models and a small budget. A suite goes on where it stopped. The report "
       "(one HTML page, Markdown, CSV, JSON) shows what was foreseen, measured and published.",
       {"snug lab list", "snug lab list blip2-single", "snug lab run litgpt-single --plan",
        "snug lab run blip2-single --scaled", "snug lab run litgpt-single --rows 'ls0[1-4]*'",
        "snug lab report out/lab/litgpt-single", "snug lab compare out/lab/first out/lab/second"}},
      {Command::Monitor,
       {"monitor"},
       "watch a run: memory by category, speed, loss, each rank",
       "Follows a run's folder, whoever started it, and ends with the run or on q. On NVIDIA's "
       "GPUs "
       "it also shows what the driver says of the device.",
       {"snug monitor", "snug monitor out/finetune/full", "snug monitor out/lab/blip2-single",
        "snug monitor out/finetune/full --once"}},
      {Command::Doctor,
       {"doctor"},
       "look at this machine: GPUs, driver, MPI, memory, disk, limits",
       "Says what is there, what is missing, and the command that mends it. Exit code 2 if "
       "something "
       "that snug needs is missing.",
       {"snug doctor", "snug doctor --json"}},
      {Command::Download,
       {"download"},
       "fetch a model from the Hugging Face hub",
       "Goes on with what an earlier try left, and checks sizes and hashes.",
       {"snug download HuggingFaceTB/SmolLM2-135M-Instruct"}},
      {Command::Completion,
       {"completion"},
       "write a completion script for your shell",
       "Load it in the current shell, or save it where the shell looks for completions.",
       {"source <(snug completion bash)", "source <(snug completion zsh)",
        "snug completion fish | source"}},
      {Command::Version, {"version"}, "print version and what was built in", "", {"snug version"}},
      {Command::Help,
       {"help"},
       "explain a command",
       "",
       {"snug help finetune_full", "snug help finetune_full all"}},
  };
  return kTable;
}

const CommandInfo* find_command(std::string_view name) {
  std::string word(name);
  std::replace(word.begin(), word.end(), '-', '_');
  for (const CommandInfo& info : command_table())
    if (std::count(info.names.begin(), info.names.end(), word) > 0) return &info;
  return nullptr;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const CommandInfo& info : command_table())
    names.insert(names.end(), info.names.begin(), info.names.end());
  return names;
}

bool takes_recipe(Command command) {
  return command == Command::FinetuneFull || command == Command::FinetuneLora ||
         command == Command::Plan;
}

std::vector<Row> rows_of(ParsedCommand& parsed) {
  switch (parsed.command) {
    case Command::Demo:
      return demo_rows(parsed.demo);
    case Command::FinetuneFull: {
      std::vector<Row> rows = recipe_rows(parsed.recipe);
      std::erase_if(rows, [](const Row& row) { return row.lora_only; });
      return rows;
    }
    case Command::FinetuneLora:
      return recipe_rows(parsed.recipe);
    case Command::Plan: {
      std::vector<Row> rows = recipe_rows(parsed.recipe);
      std::vector<Row> own = plan_rows(parsed.plan);
      own.insert(own.end(), std::make_move_iterator(rows.begin()),
                 std::make_move_iterator(rows.end()));
      return own;
    }
    case Command::Generate:
      return generate_rows(parsed.generate);
    case Command::Caption:
      return caption_rows(parsed.caption);
    case Command::Chat:
      return chat_rows(parsed.chat);
    case Command::Data:
      return show_data_rows(parsed.show_data);
    case Command::Evaluate:
      return evaluate_rows(parsed.evaluate);
    case Command::Convert:
      return convert_rows(parsed.convert);
    case Command::Merge:
      return merge_rows(parsed.merge);
    case Command::Bench:
      return bench_rows(parsed.bench);
    case Command::Lab:
      return lab_rows(parsed.lab);
    case Command::Monitor:
      return monitor_rows(parsed.monitor);
    case Command::Doctor:
      return doctor_rows(parsed.doctor);
    case Command::Download:
      return download_rows(parsed.download);
    case Command::Completion:
      return completion_rows(parsed.completion);
    case Command::Help:
      return help_rows(parsed.help_options);
    case Command::Version:
      return {};
  }
  throw InternalError("a command without rows");
}

std::vector<Row> accepted_rows(ParsedCommand& parsed) {
  std::vector<Row> rows = rows_of(parsed);
  if (parsed.command != Command::Demo) return rows;
  for (Row& row : recipe_rows(parsed.recipe))
    if (find_row(rows, row.key) == nullptr) rows.push_back(std::move(row));
  return rows;
}

Recipe default_recipe(Command command, bool full) {
  Recipe recipe;
  recipe.full = full || command == Command::FinetuneFull;
  recipe.lora.enabled = !recipe.full;
  if (recipe.lora.enabled) {
    recipe.out_dir = "out/finetune/lora";
    recipe.eval.interval = 100;
  }
  return recipe;
}

Recipe usual_recipe(Command command) {
  return default_recipe(command, /*full=*/command == Command::Plan);
}

}  // namespace snug::config
