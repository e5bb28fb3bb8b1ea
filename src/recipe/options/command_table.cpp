// SPDX-License-Identifier: Apache-2.0
#include "recipe/options/command_table.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/error.h"
#include "recipe/options/rows.h"

namespace snug::recipe {

const std::vector<CommandInfo>& command_table() {
  static const std::vector<CommandInfo> kTable = {
      {Command::Demo,
       {"demo"},
       "fine-tune a small model in a few minutes, from scratch",
       "Downloads SmolLM2-135M-Instruct (93 MB, once) or Gemma 3 270M, generates questions and "
       "answers, trains on them, and answers held-out questions before and after. The questions "
       "are about Debian or Ubuntu packages where there is a package index, otherwise about "
       "numbers in words and Roman numerals; with --objective dpo each has a wrong answer too. The "
       "demo runs snug finetune_full with "
       "recipes/demo.yaml, or with --lora snug finetune_lora with recipes/demo-lora.yaml, and "
       "prints that command. It accepts all options of that command, which override the recipe.",
       {"snug demo", "snug demo --lora", "snug demo --model gemma3",
        "snug demo --lora --objective dpo", "snug demo --train.max_steps 200",
        "snug demo MODEL --questions numbers --out_dir out/numbers"}},
      {Command::FinetuneFull,
       {"finetune_full"},
       "train all weights of a model on your data",
       "Reads a recipe (with LitGPT's YAML keys), then the options, which override it from left to "
       "right. Each recipe key is also an option of the same name.",
       {"snug finetune_full MODEL --data JSON --data.json_path data.json --train.max_steps 100",
        "snug finetune_full --config recipes/tiny-llama/full.yaml --train.micro_batch_size 8",
        "snug finetune_full --config recipes/tiny-llama/full.yaml --print_config"}},
      {Command::FinetuneLora,
       {"finetune", "finetune_lora"},
       "train low-rank adapters (LoRA) beside a frozen model on your data",
       "Reads a recipe (with LitGPT's YAML keys), then the options, which override it from left to "
       "right. Writes the adapters to OUT_DIR/final in PEFT's format; snug merge merges them into "
       "the weights. With --full this is finetune_full.",
       {"snug finetune MODEL --data JSON --data.json_path data.json --lora_r 16",
        "snug finetune MODEL --data JSON --data.json_path data.json --lora_target_modules "
        "all-linear",
        "snug finetune --config recipes/tiny-llama/lora.yaml --print_config"}},
      {Command::Plan,
       {"plan"},
       "estimate memory and time before training",
       "Takes a model or a recipe. Runs the real training step of the recipe on libtorch's meta "
       "device: allocates nothing and "
       "reads no weights. A model that snug models lists needs no download; of any other id on "
       "the Hugging Face hub, only the config and the tokenizer are fetched. Assumes samples of "
       "train.max_seq_length tokens, or those of the data if "
       "data.json_path is given.",
       {"snug plan MODEL --device a100-80 --precision bf16-true",
        "snug plan Qwen/Qwen3-8B --device rtx-4090 --lora_r 16",
        "snug plan --model.config recipes/models/open-llama-7b.json --device rtx-4090 --fit",
        "snug plan --config recipes/tiny-llama/full.yaml --device t4 --html plan.html"}},
      {Command::Models,
       {"models"},
       "list the models that can be planned by name, and what each needs",
       "For each model: its size, and the GPU memory for one sample of 2,048 tokens with QLoRA "
       "(adapters beside weights in 4 bits), LoRA, and all weights trained. Names are the ids on "
       "the Hugging Face hub, in lowercase and without the organization; plan takes both, and "
       "the other commands find such a model where snug download put it.",
       {"snug models", "snug models qwen3", "snug models --device rtx-4090"}},
      {Command::Import,
       {"import"},
       "turn a recipe of another program into one of snug",
       "Reads a recipe of axolotl, LLaMA-Factory, TRL, transformers, torchtune or Unsloth, which "
       "finetune and plan also take as it is, and writes the equivalent recipe of snug. A comment "
       "on each line says which key it comes "
       "from; keys that differ or have no effect here are listed with the reason, and keys that "
       "cannot be carried over are refused.",
       {"snug import axolotl.yaml", "snug import llama3_lora_sft.yaml -o mine.yaml"}},
      {Command::Generate,
       {"generate"},
       "answer one prompt with a model",
       "Writes the answer to standard output. Give the prompt as an argument (in quotes), with "
       "--prompt, or on standard input.",
       {"snug generate MODEL --prompt \"What is a llama?\"",
        "cat question.txt | snug generate MODEL",
        "snug generate out/finetune/lora/final --prompt \"What is a llama?\"",
        "snug generate MODEL --adapter first --adapter second --prompt \"What is a llama?\"",
        "snug generate MODEL --prompt_style alpaca --temperature 0 --prompt \"Name three "
        "fruits.\""}},
      {Command::Caption,
       {"caption"},
       "caption pictures",
       "Writes one line per picture: its file and a caption. Takes files, folders (with all their "
       "pictures) and patterns, or with --data the rows of a data set. Reads JPEG, PNG and any "
       "other format that this build decodes. Pictures that cannot be read are reported and "
       "skipped, and the exit code is then 2.",
       {"snug caption MODEL photo.jpg",
        "snug caption MODEL photos --out captions.jsonl --format jsonl",
        "snug caption MODEL photos --beside",
        "snug caption MODEL --data HFDataset --data.path data --limit 100 --score",
        "snug caption out/finetune/lora/final photos --prompt \"a photo of\" --num_beams 3",
        "snug caption MODEL photo.jpg --temperature 0.9 --top_p 0.9"}},
      {Command::Chat,
       {"chat"},
       "chat with a model in the terminal",
       "Formats prompts as in fine-tuning. Lines can be edited, the arrow keys bring back earlier "
       "ones, and a line that ends in a backslash continues on the next. Ctrl-C stops an answer; "
       "/exit or Ctrl-D ends the chat. Commands: /help, /more (continue an answer that was "
       "cut off), /clear (forget the conversation), /system TEXT, /save FILE, /exit.",
       {"snug chat MODEL", "snug chat out/finetune/lora/final", "snug chat MODEL --temperature 0"}},
      {Command::Data,
       {"data"},
       "show your data as training sees it",
       "snug data show prints samples as the model sees them, with the prompt style and special "
       "tokens written out and tokens without loss marked. Then it prints counts over all rows: "
       "tokens, lengths, rows cut by train.max_seq_length, duplicates, rows with nothing to learn. "
       "It takes the data options of snug finetune and reads only the model's tokenizer, not its "
       "weights.",
       {"snug data show rows.jsonl --model MODEL",
        "snug data show rows.jsonl --model MODEL --data.prompt_style chat --data.mask_prompt true "
        "--max_seq_length 512",
        "snug data show rows.csv --model MODEL --row 17",
        "snug data show --data Alpaca2k --model MODEL --json"}},
      {Command::Evaluate,
       {"evaluate"},
       "measure a model on a file: its loss, its captions, or what a classifier gets right",
       "Computes the loss as training does: same prompts, same masking, mean over loss tokens. For "
       "pictures it also writes captions and compares them with all reference captions of each "
       "picture: BLEU-4, ROUGE-L and CIDEr-D. Of a classifier or a reward model it says how many "
       "rows it gets right. With --save_top_k it writes what the model says of each answer token, "
       "for one that learns from it.",
       {"snug evaluate MODEL --data.json_path data.json",
        "snug evaluate MODEL --data.json_path data.json --split val --json",
        "snug evaluate MODEL --data ImageFolder --data.path photos --captions_file found.jsonl",
        "snug evaluate CLASSIFIER --data.json_path texts.jsonl --scores_file scores.jsonl",
        "snug evaluate TEACHER --data.json_path data.json --save_top_k 64"}},
      {Command::Convert,
       {"convert"},
       "convert a model to another format",
       "Reads and writes Hugging Face and LitGPT directories and GGUF files. Of an adapter it "
       "writes a GGUF adapter, which llama.cpp loads beside its base. Of a SmolVLM it writes two "
       "GGUF files, model.gguf and mmproj-model.gguf beside it, which reads the pictures.",
       {"snug convert model.gguf model-hf --to hf",
        "snug convert model-hf model-litgpt --to litgpt",
        "snug convert model-hf model.gguf --to gguf --dtype float16",
        "snug convert model-hf model.gguf --gguf_type Q4_K_M",
        "snug convert model-hf model.gguf --gguf_type Q4_0 --imatrix imatrix.gguf",
        "snug convert model-hf model.gguf --gguf_type Q4_0 --imatrix_data rows.jsonl",
        "snug convert model-hf my-model --to ollama --gguf_type Q4_K_M",
        "snug convert smolvlm-hf smolvlm.gguf --gguf_type Q8_0",
        "snug convert gemma-3-4b-it gemma-3-4b-text --text_only",
        "snug convert out/finetune/lora/final adapter.gguf"}},
      {Command::Merge,
       {"merge", "merge_lora"},
       "merge an adapter into its base model",
       "Writes a Hugging Face directory with the base weights plus the adapter; the result runs as "
       "fast as the base and needs no other files. Reads PEFT adapters (LoRA, rsLoRA, DoRA) and "
       "LitGPT adapters. Sums are computed in float32 and rounded once, with one tensor in memory "
       "at a time.",
       {"snug merge out/finetune/lora/final --out_dir my-model",
        "snug merge ADAPTER --pretrained_checkpoint_dir base.gguf --dtype float16",
        "snug merge ADAPTER --quantize bnb.nf4 --precision bf16-true"}},
      {Command::Bench,
       {"bench"},
       "measure the bandwidth between devices",
       "Runs each collective that training uses over a range of sizes, checks the results, and "
       "prints its algorithm bandwidth and bus bandwidth as nccl-tests defines them, compared with "
       "plain sends between neighbours. \"snug bench step\" is \"snug plan --operations true\": it "
       "counts the kernels of a training step.",
       {"snug bench collectives --devices 4",
        "snug bench collectives --devices 2 --accelerator cpu --min_bytes 1MiB --max_bytes 64MiB",
        "snug bench collectives --devices 8 --dtype bfloat16 --json"}},
      {Command::Lab,
       {"lab"},
       "run a suite of experiments and write its report",
       "A suite is a table of runs that differ by one technique each. Each row runs in its own "
       "process, so running out of memory is a result and does not end the suite. --plan predicts "
       "all rows at full size on the suite's device, on any machine, in seconds; --scaled runs "
       "them on this machine with small models and a small budget. An interrupted suite continues "
       "where it stopped. The report (one HTML page, Markdown, CSV, JSON) shows predicted, "
       "measured and published figures.",
       {"snug lab list", "snug lab list blip2-single", "snug lab run litgpt-single --plan",
        "snug lab run blip2-single --scaled", "snug lab run litgpt-single --rows 'ls0[1-4]*'",
        "snug lab report out/lab/litgpt-single", "snug lab compare out/lab/first out/lab/second"}},
      {Command::Monitor,
       {"monitor"},
       "watch a run: memory by category, speed, loss, each rank",
       "Follows any run by its folder and exits when the run ends or when you press q. On NVIDIA "
       "GPUs it also shows the driver's figures.",
       {"snug monitor", "snug monitor out/finetune/full", "snug monitor out/lab/blip2-single",
        "snug monitor out/finetune/full --once"}},
      {Command::Doctor,
       {"doctor"},
       "check this machine: GPUs, driver, MPI, memory, disk, limits",
       "Reports what is there, what is missing, and the command that fixes it. The exit code is 2 "
       "if something that snug needs is missing.",
       {"snug doctor", "snug doctor --json"}},
      {Command::Verify,
       {"verify"},
       "check that checkpoints and models are as they were written",
       "Reads every file that has checksums (checksums.json, which snug writes beside each "
       "checkpoint, model and adapter) and names what is damaged or missing: the file, the bytes, "
       "and the tensors in them. Loading checks the parts that it reads by itself. Checksums find "
       "damage by disks and copies; they do not protect against forgery.",
       {"snug verify out/finetune/full", "snug verify out/finetune/lora/final --json"}},
      {Command::Download,
       {"download"},
       "download a model or a data set from the Hugging Face hub",
       "Resumes an interrupted download, and checks sizes and hashes.",
       {"snug download HuggingFaceTB/SmolLM2-135M-Instruct"}},
      {Command::Completion,
       {"completion"},
       "write a completion script for your shell",
       "Load the script in the current shell, or save it where the shell looks for completions.",
       {"source <(snug completion bash)", "source <(snug completion zsh)",
        "snug completion fish | source"}},
      {Command::Version, {"version"}, "print the version and build options", "", {"snug version"}},
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
    case Command::Models:
      return models_rows(parsed.models);
    case Command::Import:
      return import_rows(parsed.import_options);
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
    case Command::Verify:
      return verify_rows(parsed.verify);
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

}  // namespace snug::recipe
